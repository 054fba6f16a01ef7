"""An agent that is a Python function: where the model does not matter, a run starts quicker."""

import functools

import pytest

from support.chromium import running_chromium

BOT = """
import time

def answer(message):
    word, _, rest = message.partition(" ")
    if word == "raise":
        raise RuntimeError(rest)
    if word == "sleep":
        time.sleep(float(rest))
    return "" if word == "nothing" else message

async def answer_later(message):
    return message

class Agent:
    def run(self, message, context):
        return f"{message} {len(context)}"

def no_score(observation):
    raise ValueError("the metric is broken")
"""


@pytest.fixture
def bot_dir(agent_dir):
    """The folder with `bot.py` in it."""
    agent_dir.write("bot.py", BOT)
    return agent_dir


@pytest.fixture
def write_bot(bot_dir):
    """Writes an agent.yaml whose agent repeats what it hears."""
    return functools.partial(
        bot_dir.write_agent, model=None, instructions=None, backend="bot:answer"
    )


@pytest.fixture(scope="session")
def chromium():
    """A browser; a test that uses it has the mark `needs_chromium`."""
    with running_chromium() as browser:
        yield browser
