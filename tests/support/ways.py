"""Every way to reach an agent, with an agent that looks up an order.

Each agent calls `lookup_order` once when it is asked for `order 7`, and says what it got. A way is
a row in `WAYS`: a name, and a context manager that yields a backend. Agents of frameworks are rows
in `support.frameworks`, and take part by themselves.
"""

import socket
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import partial
from inspect import getsource
from json import dumps
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, Literal

from fakes import FakeOpenAI, Reply, ScriptedBackend
from holodeck.lib.backends.a2a_backend import A2aBackend
from holodeck.lib.backends.base import AgentBackend, ExecutionResult
from holodeck.lib.backends.http_backend import HttpBackend
from holodeck.lib.backends.mcp_backend import McpBackend
from holodeck.lib.backends.parsing import parse_result
from holodeck.lib.backends.process.backend import ProcessBackend
from holodeck.lib.backends.python.backend import CallableBackend
from holodeck.lib.backends.selector import BackendSelector
from holodeck.lib.backends.tapped_backend import (
    ProcessTaps,
    TappedPythonBackend,
    TappedServiceBackend,
)
from holodeck.lib.processes import threads
from holodeck.lib.support.environment import variables_set
from holodeck.models.agent import Agent
from holodeck.models.backend import (
    A2aBackendConfig,
    HttpBackendConfig,
    McpBackendConfig,
    ProcessBackendConfig,
)
from support.frameworks import AGENT, TOOL, Subject, all_rows, lookup_order, script
from support.tapped_service import serving

Fact = Literal["calls", "args", "results", "errors", "callers", "agents", "passages"]
"""The names of the called tools; their arguments; their results; whether they failed; the agent
that requested each call; the agents that spoke; what the agent retrieved."""
Facts = frozenset[Fact]
INPUT, ARGS, RESULT = "Where is order 7?", {"order_id": "7"}, lookup_order("7")
MCP_CALL = f"{TOOL} {dumps(ARGS)}"
BLIND: Facts = frozenset()
SEEING: Facts = frozenset({"calls", "args", "results", "errors", "callers", "agents", "passages"})
SOME: dict[str, Facts] = {
    "names": frozenset({"calls"}),
    "calls": frozenset({"calls", "args"}),
    "results": frozenset({"calls", "args", "results", "errors"}),
    "agents": frozenset({"agents"}),
    "passages": frozenset({"passages"}),
}


@dataclass(frozen=True)
class Way:
    """A way to reach the agent."""

    name: str
    open: Callable[[], AbstractAsyncContextManager[AgentBackend]]
    reports: Facts | None = None
    """What the backend reports of the agent; None for what its results contain."""
    input: str = INPUT
    """What the agent is asked."""


def facts_in(result: ExecutionResult) -> Facts:
    """What a result says of the agent."""
    facts: set[Fact] = set() if result.agents is None else {"agents"}
    facts |= set() if result.retrieval_context is None else {"passages"}
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
    if "passages" in facts:
        answer["retrieval_context"] = [{"text": RESULT, "source": "orders.md"}, "Returns are free."]
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
        paths |= {"retrieval_context": "passages" in facts}
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
        answer = {"metadata": reported(SEEING), **reported(facts)}
        code = f"async def answer(message, context=None):\n    return {answer!r}\n"
        _write(Path(folder, "bot.py"), code)
        config = ProcessBackendConfig(type="process", target="bot:answer")
        yield ProcessBackend(config, Path(folder))


def _write(file: Path, code: str) -> None:
    file.write_text(code)


@asynccontextmanager
async def of_framework(row: Callable[[FakeOpenAI], Subject]) -> AsyncIterator[AgentBackend]:
    with FakeOpenAI(script) as server:
        subject = row(server)
        yield CallableBackend(subject.agent)
        if subject.close is not None:
            await subject.close()


@asynccontextmanager
async def built_in(backend: str) -> AsyncIterator[AgentBackend]:
    """An agent that is described in YAML."""
    with FakeOpenAI(script) as server, TemporaryDirectory() as folder:
        _write(Path(folder, "tools.py"), getsource(lookup_order))
        model = {"provider": "openai", "name": "m", "endpoint": server.url, "api_key": "k"}
        tool = {"type": "function", "name": TOOL, "file": "tools.py", "function": TOOL}
        fields = {"name": AGENT, "model": model, "instructions": {"inline": "Be brief."}}
        fields |= {"tools": [tool], "backend": backend}
        agent = Agent.model_validate(fields).with_base_dir(Path(folder))
        yield await BackendSelector.select(agent, base_dir=Path(folder))


@asynccontextmanager
async def tapped_service(*, uses_tap: bool) -> AsyncIterator[AgentBackend]:
    """A service that reports nothing itself, whose requests to its model are read."""
    with FakeOpenAI(script) as server:
        own_url = None if uses_tap else server.url
        with serving(own_url, ask_model) as url, variables_set({"OPENAI_BASE_URL": server.url}):
            request = {"question": "{input}", "model_url": "{tap_url}/openai/v1"}
            config = HttpBackendConfig(type="http", url=url, tap=True, request=request)
            yield TappedServiceBackend(HttpBackend(config))


@asynccontextmanager
async def tapped_python(*, uses_tap: bool, facts: Facts = BLIND) -> AsyncIterator[AgentBackend]:
    """A function that reports these facts itself, and whose requests to its model are read."""
    threads._user_calls.clear()  # of functions that another test left hanging
    with FakeOpenAI(script) as server, variables_set({"OPENAI_BASE_URL": server.url}):

        def agent(message: str) -> dict[str, Any]:
            return reported(facts) | {"response": ask_model(message, own_url)}

        own_url = None if uses_tap else server.url
        yield TappedPythonBackend(CallableBackend(agent))


@asynccontextmanager
async def tapped_process(*, uses_tap: bool) -> AsyncIterator[AgentBackend]:
    """A function in a process of its own that reports nothing, whose requests are read."""
    with FakeOpenAI(script) as server, TemporaryDirectory() as folder:
        own_url = None if uses_tap else server.url
        code = f"{getsource(ask_model)}\nbot = lambda message: ask_model(message, {own_url!r})\n"
        _write(Path(folder, "bot.py"), code)
        config = ProcessBackendConfig(type="process", target="bot:bot", tap=True)
        with variables_set({"OPENAI_BASE_URL": server.url}):
            yield ProcessBackend(config, Path(folder), None, ProcessTaps())


def ask_model(question: str, url: str | None) -> str:
    """What the agent answers: it calls the tools that its model asks for, and reports none."""
    import json
    import os
    import urllib.error
    import urllib.request

    messages: list[Any] = [{"role": "user", "content": question}]
    tool = {"type": "function", "function": {"name": "lookup_order", "parameters": {}}}
    while True:
        request = urllib.request.Request(
            f"{url or os.environ['OPENAI_BASE_URL']}/chat/completions",
            json.dumps({"model": "m", "messages": messages, "tools": [tool]}).encode(),
            {"authorization": "Bearer key", "content-type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request) as response:
                message = json.load(response)["choices"][0]["message"]
        except urllib.error.HTTPError as error:
            error.close()  # else its socket stays open as long as the traceback
            raise
        if not message.get("tool_calls"):
            return message["content"]
        messages.append(message)
        messages += [
            {"role": "tool", "tool_call_id": call["id"], "content": "shipped"}
            for call in message["tool_calls"]
        ]


@asynccontextmanager
async def mcp_server() -> AsyncIterator[AgentBackend]:
    """A server whose tool is called by the test case, without an agent."""
    with _serving_mcp() as url:
        yield McpBackend(McpBackendConfig(type="mcp", url=url), Path())


@contextmanager
def _serving_mcp() -> Iterator[str]:
    import uvicorn
    from mcp.server.fastmcp import FastMCP

    server = FastMCP("orders", log_level="CRITICAL", stateless_http=True, json_response=True)
    server.tool(structured_output=False)(lookup_order)
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(
        server.streamable_http_app(), log_config=None, timeout_graceful_shutdown=1
    )
    service = uvicorn.Server(config)
    thread = threading.Thread(target=service.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}/mcp"
    finally:
        service.should_exit = True
        thread.join()
        listener.close()


@asynccontextmanager
async def a2a_agent() -> AsyncIterator[AgentBackend]:
    """An agent behind a URL, of whose work only the messages are seen."""
    from support.a2a_service import serving_a2a

    with serving_a2a(streaming=True) as url:
        backend = A2aBackend(A2aBackendConfig(type="a2a", url=url))
        yield backend
        await backend.teardown()


OWN = (function, coroutine, class_with_null, foreign_object, own_backend, http, process)
TAPPED: Facts = frozenset({"calls", "args", "results"})
"""What requests tell; a result in them does not say whether the tool failed."""


def _own_ways() -> Iterator[Way]:
    for backend in OWN:
        for level, facts in {"blind": BLIND, **SOME, "seeing": SEEING}.items():
            yield Way(f"{backend.__name__}, {level}", partial(backend, facts), facts)


def _tapped_ways() -> Iterator[Way]:
    for tapped in (tapped_service, tapped_python, tapped_process):
        yield Way(tapped.__name__, partial(tapped, uses_tap=True), TAPPED)
        name = f"{tapped.__name__}, past the tap"
        yield Way(name, partial(tapped, uses_tap=False), BLIND)
    for level in ("names", "agents"):
        open_it = partial(tapped_python, uses_tap=True, facts=SOME[level])
        reports = SOME[level] | (TAPPED if level == "agents" else BLIND)
        yield Way(f"tapped_python, reporting {level}", open_it, reports)


EVIDENCE: list[Way] = [
    Way(level, partial(own_backend, facts), facts)
    for level, facts in {"blind": BLIND, **SOME, "seeing": SEEING}.items()
]
"""What any backend may report; what becomes of it depends on the form of the case only."""
WAYS: list[Way] = [
    *_own_ways(),
    *_tapped_ways(),
    Way("mcp", mcp_server, frozenset({"calls", "args", "results", "errors"}), MCP_CALL),
    Way("a2a", a2a_agent, frozenset({"agents"})),
    *(Way(name, partial(built_in, name)) for name in ("chat", "semantic_kernel")),
    *(Way(row.__name__, partial(of_framework, row)) for row in all_rows()),
]


def a_blind_one() -> AbstractAsyncContextManager[AgentBackend]:
    """A backend that reports nothing but the response."""
    return function(BLIND)
