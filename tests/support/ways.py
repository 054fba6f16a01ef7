"""Every way to reach an agent, with an agent that calls one tool, and what is reported of it.

To add a way, write a context manager that yields a backend, and a row in `WAYS`. Its agent has the
name `desk`, calls `get_weather` once with the city Oslo, gets "It is sunny.", and answers "Sunny.".
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, Literal

from fakes import FakeOpenAI, Reply, ScriptedBackend
from holodeck.lib.backends.base import AgentBackend
from holodeck.lib.backends.callable_backend import CallableBackend
from holodeck.lib.backends.http_backend import HttpBackend
from holodeck.lib.backends.parsing import parse_result
from holodeck.lib.backends.process.backend import ProcessBackend
from holodeck.models.agent import HttpBackendConfig, ProcessBackendConfig

Fact = Literal["calls", "args", "results", "callers", "agents"]
"""The names of the called tools; their arguments; their results and errors; the agent that
requested each call; the agents that spoke."""
Facts = frozenset[Fact]
ARGS, RESULT, RESPONSE, AGENT = {"city": "Oslo"}, "It is sunny.", "Sunny.", "desk"
BLIND: Facts = frozenset()
SEEING: Facts = frozenset({"calls", "args", "results", "callers", "agents"})
SOME: dict[str, Facts] = {
    "names": frozenset({"calls"}),
    "calls": frozenset({"calls", "args"}),
    "results": frozenset({"calls", "args", "results"}),
    "agents": frozenset({"agents"}),
}


@dataclass(frozen=True)
class Way:
    """A way to reach the agent."""

    name: str
    open: Callable[[], AbstractContextManager[AgentBackend]]
    reports: Facts
    """What the backend reports of the agent; anything else is unknown."""
    has_every_form: bool = True
    """Whether it is tested with every form of test case, or with the most different ones."""


def reported(facts: Facts) -> dict[str, Any]:
    """What an agent returns that reports these facts."""
    answer: dict[str, Any] = {"response": RESPONSE}
    if "calls" in facts:
        call: dict[str, Any] = {"name": "get_weather"}
        call |= {"arguments": ARGS} if "args" in facts else {}
        call |= {"result": RESULT} if "results" in facts else {}
        call |= {"agent": AGENT} if "callers" in facts else {}
        answer["tool_calls"] = [call]
    return answer | ({"agents": [AGENT]} if "agents" in facts else {})


@contextmanager
def function(facts: Facts) -> Iterator[AgentBackend]:
    def agent(message, context=None):
        return reported(facts) if facts else RESPONSE

    yield CallableBackend(agent)


@contextmanager
def coroutine(facts: Facts) -> Iterator[AgentBackend]:
    async def agent(message, context=None):
        return reported(facts) | {"metadata": reported(SEEING)}

    yield CallableBackend(agent)


@contextmanager
def class_with_null(facts: Facts) -> Iterator[AgentBackend]:
    class Agent:
        async def run(self, message, context=None):
            return {"tool_calls": None, "agents": None} | reported(facts)

    yield CallableBackend(Agent)


@contextmanager
def foreign_object(facts: Facts) -> Iterator[AgentBackend]:
    """What frameworks return: the text, and the calls somewhere inside of the messages."""

    class Agent:
        async def run(self, message):
            answer = reported(facts)
            calls = [SimpleNamespace(**call) for call in answer.pop("tool_calls", ())]
            found = {"tool_calls": calls} if calls else {}
            return SimpleNamespace(messages=[reported(SEEING)], **answer, **found)

    yield CallableBackend(Agent())


@contextmanager
def own_backend(facts: Facts) -> Iterator[AgentBackend]:
    yield ScriptedBackend(lambda _: parse_result(reported(facts)))


@contextmanager
def http(facts: Facts) -> Iterator[AgentBackend]:
    with FakeOpenAI(lambda _: Reply(json={**reported(facts), "seen": reported(SEEING)})) as server:
        paths = {"tool_calls": "calls" in facts, "agents": "agents" in facts}
        config = HttpBackendConfig(
            type="http",
            url=f"{server.root}/agent",
            request={"messages": "{messages}"},
            answer={key: key for key, is_reported in paths.items() if is_reported},
        )
        yield HttpBackend(config)


@contextmanager
def process(facts: Facts) -> Iterator[AgentBackend]:
    answer = {"metadata": reported(SEEING), **reported(facts)}
    with TemporaryDirectory() as folder:
        Path(folder, "bot.py").write_text(
            f"async def answer(message, context=None):\n    return {answer!r}\n"
        )
        config = ProcessBackendConfig(type="process", target="bot:answer")
        yield ProcessBackend(config, Path(folder))


OWN = (function, coroutine, class_with_null, foreign_object, own_backend, http, process)


def _own_ways() -> Iterator[Way]:
    for backend in OWN:
        for level, facts in {"blind": BLIND, **SOME, "seeing": SEEING}.items():
            name = f"{backend.__name__}, {level}"
            yield Way(name, partial(backend, facts), facts, has_every_form=level not in SOME)


WAYS: list[Way] = [*_own_ways()]


def a_blind_one() -> AbstractContextManager[AgentBackend]:
    """A backend that reports nothing but the response."""
    return function(BLIND)


def a_seeing_one() -> AbstractContextManager[AgentBackend]:
    """A backend that reports everything."""
    return function(SEEING)
