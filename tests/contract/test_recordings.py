"""A run is recorded and replayed on every way to an agent whose requests pass holodeck.

The agents are those of `support.ways`, and those of every framework with a tap before their model:
asked for two orders, each calls `lookup_order` twice at once. In the replay the model is gone, and
the tools end in the other order.
"""

from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial

import pytest

from fakes import FakeOpenAI
from holodeck.lib.backends.python.backend import CallableBackend
from holodeck.lib.backends.tapped_backend import TappedBackend, start_tap
from holodeck.lib.support.environment import process_variables
from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.models.agent import IN_PYTHON, Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.results.outcome import Outcome
from support.frameworks import TOOL, all_rows, script
from support.ways import built_in, tapped_process, tapped_python, tapped_service

QUESTION = "Where are order 7 and order 8?"
CASES = [
    {"name": "orders", "input": QUESTION, "expected_tools": [{"name": TOOL, "count": 2}]},
    {"name": "talk", "turns": [{"input": "hello"}, {"input": "Where is order 9?"}]},
]


IGNORED = {"ignore": [{"path": "$.metadata.user_id"}]}
"""What the Claude Agent SDK makes up anew for each machine."""


class ChannelBackend(TappedBackend):
    """An agent in this process whose client has the URL of a channel."""

    def __init__(self, backend, tap, channel):
        super().__init__(backend)
        self._tap, self._channel = tap, channel

    @contextmanager
    def conversation(self):
        yield self._backend, self._channel.turn


@dataclass
class BehindTap:
    """What a row of a framework needs of its model's server: where it is."""

    server: FakeOpenAI
    channel: str

    @property
    def url(self):
        return f"{self.channel}/openai/v1"

    @property
    def root(self):
        return f"{self.channel}/anthropic"

    def __getattr__(self, name):
        return getattr(self.server, name)


@asynccontextmanager
async def tapped(row, server):
    """The agent of a row whose requests go through a tap to the server."""
    environment = {**process_variables(), "OPENAI_BASE_URL": server.url}
    environment |= {"ANTHROPIC_BASE_URL": server.root}
    tap = await start_tap(environment, is_scripted=False)
    channel = tap.open_channel("no request came through the tap")
    subject = row(BehindTap(server, channel.url))
    backend = ChannelBackend(CallableBackend(subject.agent), tap, channel)
    try:
        yield backend
    finally:
        await backend.teardown()
        if subject.close is not None:
            await subject.close()


async def run(backend, folder, mode, cases=CASES):
    """The results of the cases, with what is recorded in the folder."""
    agent = Agent(name="agent", backend=IN_PYTHON, test_cases=cases, recordings=IGNORED)
    config = ExecutionConfig(
        recording=mode, recordings=str(folder), max_retries=0, llm_timeout=600, give_up=False
    )
    path = str(folder / "agent.yaml")
    executor = TestExecutor(path, config, agent_config=agent, backend=backend)
    return (await executor.execute_tests()).results


def seen(result):
    """What a report says of a case, but for what a replay cannot know."""
    calls = [(call.name, call.args, call.result, call.error) for call in result.tool_invocations]
    requests = [
        (request.model, request.status, request.token_usage) for request in result.model_requests
    ]
    texts = [turn.agent_response for turn in result.turns] or [result.agent_response]
    return result.outcome, texts, sorted(calls, key=repr), requests, result.token_usage


@pytest.fixture
def delays(monkeypatch):
    """Sets how long the tool takes for each order."""
    return lambda **seconds: [
        monkeypatch.setenv(order.replace("order", "DELAY_"), str(value))
        for order, value in seconds.items()
    ]


@pytest.mark.parametrize("row", all_rows(), ids=lambda row: row.__name__)
async def test_an_agent_of_a_framework_is_the_same_without_its_model(row, tmp_path, delays):
    delays(order7=0.03, order8=0.0)
    with FakeOpenAI(script) as server:
        async with tapped(row, server) as backend:
            recorded = await run(backend, tmp_path, "all")
        sent = len(server.requests)

    delays(order7=0.0, order8=0.03)
    async with tapped(row, server) as backend:  # which has gone
        replayed = await run(backend, tmp_path, "replay")

    assert {result.outcome for result in recorded} <= {Outcome.PASSED, Outcome.UNCHECKED}
    assert [result.errors for result in replayed] == [[], []]
    assert list(map(seen, replayed)) == list(map(seen, recorded))
    assert [result.recording.live for result in replayed] == [0, 0]
    assert sum(result.recording.replayed for result in replayed) == sent


WAYS = {backend: partial(built_in, backend) for backend in ("chat", "semantic_kernel")} | {
    way.__name__: partial(way, uses_tap=True)
    for way in (tapped_service, tapped_python, tapped_process)
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
async def test_every_other_way_replays_what_it_recorded(way, tmp_path):
    async with way() as backend:
        recorded = await run(backend, tmp_path, "all")
        await backend.teardown()
    async with way() as backend:
        replayed = await run(backend, tmp_path, "replay")
        await backend.teardown()

    assert recorded[0].outcome is Outcome.PASSED, recorded[0].errors
    assert list(map(seen, replayed)) == list(map(seen, recorded))
    assert [result.recording.live for result in replayed] == [0, 0]
    assert all(result.recording.replayed for result in replayed)
