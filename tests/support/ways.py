"""Every way to reach an agent, with an agent that looks up an order.

Each agent calls `lookup_order` once when it is asked for `order 7`, and says what it got. A way is
a row in `WAYS`: a name, and a context manager that yields a backend. Agents of frameworks are rows
in `support.frameworks`, and take part by themselves.
"""

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, Literal

from fakes import FakeOpenAI, Reply, ScriptedBackend
from holodeck.config.environment import variables_set
from holodeck.lib.backends.base import AgentBackend, ExecutionResult
from holodeck.lib.backends.callable_backend import CallableBackend
from holodeck.lib.backends.http_backend import HttpBackend
from holodeck.lib.backends.parsing import parse_result
from holodeck.lib.backends.process.backend import ProcessBackend
from holodeck.lib.backends.tapped_backend import TappedServiceBackend
from holodeck.models.backend import HttpBackendConfig, ProcessBackendConfig
from support.frameworks import AGENT, TOOL, Subject, all_rows, lookup_order, script
from support.tapped_service import serving

Fact = Literal["calls", "args", "results", "errors", "callers", "agents"]
"""The names of the called tools; their arguments; their results; whether they failed; the agent
that requested each call; the agents that spoke."""
Facts = frozenset[Fact]
INPUT, ARGS, RESULT = "Where is order 7?", {"order_id": "7"}, lookup_order("7")
BLIND: Facts = frozenset()
SEEING: Facts = frozenset({"calls", "args", "results", "errors", "callers", "agents"})
SOME: dict[str, Facts] = {
    "names": frozenset({"calls"}),
    "calls": frozenset({"calls", "args"}),
    "results": frozenset({"calls", "args", "results", "errors"}),
    "agents": frozenset({"agents"}),
}


@dataclass(frozen=True)
class Way:
    """A way to reach the agent."""

    name: str
    open: Callable[[], AbstractAsyncContextManager[AgentBackend]]
    reports: Facts | None = None
    """What the backend reports of the agent; None for what its results contain."""
    has_every_form: bool = False
    """Whether it is tested with every form of test case, or only with the most different ones."""


def facts_in(result: ExecutionResult) -> Facts:
    """What a result says of the agent."""
    facts: set[Fact] = set() if result.agents is None else {"agents"}
    if result.tool_calls is None:
        return frozenset(facts)
    facts.add("calls")
    if all("arguments" in call for call in result.tool_calls):
        facts.add("args")
    if all("agent" in call for call in result.tool_calls):
        facts.add("callers")
    if len(result.tool_results) == len(result.tool_calls):
        facts.add("results")
        if not any(one.get("is_error_unknown") for one in result.tool_results):
            facts.add("errors")
    return frozenset(facts)


def reported(facts: Facts) -> dict[str, Any]:
    """What an agent returns that reports these facts."""
    answer: dict[str, Any] = {"response": f"OK: {RESULT}"}
    if "calls" in facts:
        call: dict[str, Any] = {"name": TOOL}
        call |= {"arguments": ARGS} if "args" in facts else {}
        call |= {"result": RESULT} if "results" in facts else {}
        call |= {"agent": AGENT} if "callers" in facts else {}
        answer["tool_calls"] = [call]
    return answer | ({"agents": [AGENT]} if "agents" in facts else {})


@asynccontextmanager
async def function(facts: Facts) -> AsyncIterator[AgentBackend]:
    def agent(message, context=None):
        return reported(facts) if facts else RESULT

    yield CallableBackend(agent)


@asynccontextmanager
async def coroutine(facts: Facts) -> AsyncIterator[AgentBackend]:
    async def agent(message, context=None):
        return reported(facts) | {"metadata": reported(SEEING)}

    yield CallableBackend(agent)


@asynccontextmanager
async def class_with_null(facts: Facts) -> AsyncIterator[AgentBackend]:
    class Agent:
        async def run(self, message, context=None):
            return {"tool_calls": None, "agents": None} | reported(facts)

    yield CallableBackend(Agent)


@asynccontextmanager
async def foreign_object(facts: Facts) -> AsyncIterator[AgentBackend]:
    """What libraries return: the text, and the calls somewhere inside of the messages."""

    class Agent:
        async def run(self, message):
            answer = reported(facts)
            calls = [SimpleNamespace(**call) for call in answer.pop("tool_calls", ())]
            found = {"tool_calls": calls} if calls else {}
            return SimpleNamespace(messages=[reported(SEEING)], **answer, **found)

    yield CallableBackend(Agent())


@asynccontextmanager
async def own_backend(facts: Facts) -> AsyncIterator[AgentBackend]:
    yield ScriptedBackend(lambda _: parse_result(reported(facts)))


@asynccontextmanager
async def http(facts: Facts) -> AsyncIterator[AgentBackend]:
    with FakeOpenAI(lambda _: Reply(json={**reported(facts), "seen": reported(SEEING)})) as server:
        paths = {"tool_calls": "calls" in facts, "agents": "agents" in facts}
        config = HttpBackendConfig(
            type="http",
            url=f"{server.root}/agent",
            request={"messages": "{messages}"},
            answer={key: key for key, is_reported in paths.items() if is_reported},
        )
        yield HttpBackend(config)


@asynccontextmanager
async def process(facts: Facts) -> AsyncIterator[AgentBackend]:
    with TemporaryDirectory() as folder:
        _write_bot(Path(folder, "bot.py"), {"metadata": reported(SEEING), **reported(facts)})
        config = ProcessBackendConfig(type="process", target="bot:answer")
        yield ProcessBackend(config, Path(folder))


def _write_bot(file: Path, answer: dict[str, Any]) -> None:
    file.write_text(f"async def answer(message, context=None):\n    return {answer!r}\n")


@asynccontextmanager
async def of_framework(row: Callable[[FakeOpenAI], Subject]) -> AsyncIterator[AgentBackend]:
    with FakeOpenAI(script) as server:
        subject = row(server)
        yield CallableBackend(subject.agent)
        if subject.close is not None:
            await subject.close()


@asynccontextmanager
async def tapped(*, uses_tap: bool) -> AsyncIterator[AgentBackend]:
    """A service that reports nothing itself, whose requests to its model are read."""
    with FakeOpenAI(script) as server:
        own_url = None if uses_tap else server.url
        with serving(own_url) as url, variables_set({"OPENAI_BASE_URL": server.url}):
            request = {"question": "{input}", "model_url": "{tap_url}/openai/v1"}
            config = HttpBackendConfig(type="http", url=url, tap=True, request=request)
            yield TappedServiceBackend(HttpBackend(config))


OWN = (function, coroutine, class_with_null, foreign_object, own_backend, http, process)


def _own_ways() -> Iterator[Way]:
    for backend in OWN:
        for level, facts in {"blind": BLIND, **SOME, "seeing": SEEING}.items():
            name = f"{backend.__name__}, {level}"
            yield Way(name, partial(backend, facts), facts, has_every_form=level not in SOME)


WAYS: list[Way] = [
    *_own_ways(),
    Way("tapped", partial(tapped, uses_tap=True), frozenset({"calls", "args", "results"})),
    Way("tapped, past the tap", partial(tapped, uses_tap=False), BLIND),
    *(Way(row.__name__, partial(of_framework, row)) for row in all_rows()),
]


def a_blind_one() -> AbstractAsyncContextManager[AgentBackend]:
    """A backend that reports nothing but the response."""
    return function(BLIND)


def a_seeing_one() -> AbstractAsyncContextManager[AgentBackend]:
    """A backend that reports everything."""
    return function(SEEING)
