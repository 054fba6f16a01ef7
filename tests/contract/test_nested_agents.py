"""An agent inside of a tool: its calls and tokens are seen or unknown, never missing.

Beside each stands an agent with an ordinary tool, whose evidence stays decided.
"""

import asyncio
import threading
from contextlib import AsyncExitStack
from functools import partial
from importlib.util import find_spec
from itertools import pairwise
from pathlib import Path

import pytest
from opentelemetry import trace

from fakes import FakeOpenAI
from holodeck import arun
from holodeck.lib.backends.process.backend import ProcessBackend
from holodeck.lib.backends.python.backend import CallableBackend
from holodeck.lib.backends.selector import BackendSelector
from holodeck.lib.backends.tapped_backend import TappedPythonBackend
from holodeck.lib.support.environment import variables_set
from holodeck.models.agent import Agent
from holodeck.models.backend import ProcessBackendConfig
from holodeck.models.test_result import Outcome
from support.nested_agents import (
    INNER,
    OUTER,
    ask_agent_framework,
    ask_agent_of_agent,
    ask_client,
    ask_embedder,
    ask_nobody,
    ask_openai_agents,
    ask_pydantic_ai,
    langgraph,
    model,
    pydantic_ai,
)
from support.server import PATIENT_S

CASES = [
    {"name": "deletes nothing", "input": "7", "forbidden_tools": ["delete_order"]},
    {"name": "calls one tool", "input": "7", "max_tool_calls": 1},
    {"name": "calls nothing else", "input": "7", "expected_tools": ["ask_desk"],
     "only_expected_tools": True},
]  # fmt: skip
SAME = [*zip(OUTER, INNER, strict=True)]
OTHER = [(outer, inner) for (outer, _), (_, inner) in pairwise([*SAME, SAME[0]])]
nested = pytest.mark.parametrize(
    ("outer", "inner"), [*SAME, *OTHER], ids=lambda value: value.__name__
)
outers = pytest.mark.parametrize("outer", OUTER, ids=lambda value: value.__name__)


def new_client(url=None):
    from openai import AsyncOpenAI

    return AsyncOpenAI(base_url=url, api_key="not-a-real-key", max_retries=0, timeout=PATIENT_S)


async def results_of(outer, inner, cases=CASES, configure=None):
    """Return the results of an agent whose tool runs another one, and what the model was asked."""
    with FakeOpenAI(model) as server:
        async with new_client(server.url) as client:
            agent = outer(client, inner(client))
            agent = agent if configure is None else configure(agent)
            report = await arun(agent, cases, parallel_test_cases=1)
        return report.results, len(server.requests) // len(cases)


async def tapped_results_of(outer, inner):
    """Return the same, with a tap between the agent and its model."""
    async with AsyncExitStack() as clients:

        async def make():
            client = await clients.enter_async_context(new_client())
            return outer(client, inner(client))

        with FakeOpenAI(model) as server, variables_set({"OPENAI_BASE_URL": server.url}):
            backend = TappedPythonBackend(CallableBackend(make))
            report = await arun(backend, CASES, parallel_test_cases=1)
        return report.results, len(server.requests) // len(CASES)


def usage_of(requests):
    return (10 * requests, 5 * requests)


def tokens(result):
    usage = result.token_usage
    return None if usage is None else (usage.prompt_tokens, usage.completion_tokens)


@nested
async def test_no_check_passes_that_an_agent_inside_of_a_tool_breaks(outer, inner):
    results, requests = await results_of(outer, inner)

    assert requests == 4
    for result in results:
        assert result.outcome in {Outcome.FAILED, Outcome.METRIC_ERROR}, result.test_name
        assert tokens(result) in {None, usage_of(requests)}
    deletes, *_ = results
    assert deletes.outcome is Outcome.FAILED
    [call] = [call for call in deletes.tool_invocations if call.name.endswith("delete_order")]
    assert call.agent in {"desk", None}


@nested
async def test_with_a_tap_everything_that_an_agent_inside_of_a_tool_does_is_known(outer, inner):
    results, requests = await tapped_results_of(outer, inner)

    assert requests == 4
    for result in results:
        assert result.outcome is Outcome.FAILED, result.test_name
        assert tokens(result) == usage_of(requests)
        assert result.evidence.tool_calls in {"adapter", "tap"}


@outers
@pytest.mark.parametrize("run", [results_of, tapped_results_of])
async def test_an_ordinary_tool_leaves_the_evidence_decided(outer, run):
    results, requests = await run(outer, ask_nobody)

    assert requests == 2
    for result in results:
        assert result.passed, result.reasons()
        assert result.evidence.tool_calls == "adapter"
        assert tokens(result) == usage_of(requests)


@outers
async def test_with_a_tap_a_plain_request_inside_of_a_tool_counts(outer):
    results, requests = await tapped_results_of(outer, ask_client)

    assert requests == 3
    assert {tokens(result) for result in results} == {usage_of(requests)}


def without_instrumentation(agent):
    agent.instrument = False
    return agent


def without_tracing(agent):
    from agents import RunConfig, Runner

    return partial(Runner.run, agent, run_config=RunConfig(tracing_disabled=True))


WITHOUT_SWITCH = {"langgraph", "google_adk"}
"""Frameworks whose tracing cannot be switched off."""


@pytest.fixture(params=[outer for outer in OUTER if outer.__name__ not in WITHOUT_SWITCH])
def silent(request, monkeypatch):
    """An agent whose framework has its tracing off, and what switches it off."""
    outer = request.param
    match outer.__name__:
        case "pydantic_ai":
            return outer, without_instrumentation
        case "openai_agents":
            return outer, without_tracing
        case "agent_framework":
            from agent_framework.observability import OBSERVABILITY_SETTINGS

            monkeypatch.setattr(OBSERVABILITY_SETTINGS, "_enable_instrumentation", False)
        case "semantic_kernel":
            monkeypatch.setattr(trace, "_TRACER_PROVIDER", trace.NoOpTracerProvider())
    return outer, None


@pytest.mark.parametrize(
    "inner", [ask_pydantic_ai, INNER[-1], ask_nobody], ids=lambda value: value.__name__
)
async def test_without_tracing_nothing_about_tools_is_proved(silent, inner):
    outer, configure = silent

    results, _ = await results_of(outer, inner, configure=configure)

    for result in results:
        assert not result.passed
        assert tokens(result) is None
    reasons = "; ".join(results[0].reasons())
    if inner is ask_nobody:
        assert {result.outcome for result in results} == {Outcome.METRIC_ERROR}
        assert "'tap: true'" in reasons
        assert "'tools_run_no_agents: true'" in reasons


@pytest.mark.parametrize(
    ("package", "untraced"),
    [
        pytest.param(
            "agents", partial(ask_openai_agents, tracing_disabled=True), id="openai_agents"
        ),
        pytest.param("pydantic_ai", partial(ask_pydantic_ai, instrument=False), id="pydantic_ai"),
    ],
)
@outers
async def test_an_agent_whose_own_tracing_is_off_makes_calls_unknown(outer, package, untraced):
    pytest.importorskip(package)

    results, requests = await results_of(outer, untraced)

    assert requests == 4
    for result in results:
        assert result.outcome is Outcome.METRIC_ERROR
        assert "ran with its tracing off" in "; ".join(result.reasons())
        assert tokens(result) is None


@outers
async def test_an_embedding_of_pydantic_ai_is_no_agent(outer):
    pytest.importorskip("pydantic_ai")

    results, requests = await results_of(outer, ask_embedder)

    assert requests == 3
    assert all(result.passed for result in results)
    assert {tokens(result) for result in results} == {usage_of(2)}


def switch_spans_off(way, monkeypatch):
    """Let the frameworks of this process make no spans, or not all."""
    from opentelemetry.sdk.trace import TracerProvider, sampling

    if way == "framework":
        from agent_framework.observability import OBSERVABILITY_SETTINGS

        monkeypatch.setattr(OBSERVABILITY_SETTINGS, "_enable_instrumentation", False)
        return
    samplers = {
        "off": sampling.ALWAYS_OFF,
        "some": sampling.ParentBasedTraceIdRatio(0.001),
        "no spans": None,
    }
    sampler = samplers[way]
    provider = TracerProvider(sampler=sampler, shutdown_on_exit=False)
    provider = trace.NoOpTracerProvider() if sampler is None else provider
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)


@pytest.mark.parametrize("way", ["off", "some", "no spans", "framework"])
@pytest.mark.parametrize("inner", [ask_agent_framework, ask_nobody], ids=lambda ask: ask.__name__)
async def test_a_framework_whose_spans_are_off_makes_calls_unknown(way, inner, monkeypatch):
    pytest.importorskip("agent_framework")
    pytest.importorskip("langgraph")
    switch_spans_off(way, monkeypatch)

    results, _ = await results_of(langgraph, inner)

    for result in results:
        assert result.outcome is Outcome.METRIC_ERROR
        assert tokens(result) is None
        reasons = "; ".join(result.reasons())
        assert "is off, or records only some runs" in reasons
        assert "'tools_run_no_agents: true'" in reasons


@nested
async def test_the_calls_of_an_agent_follow_that_of_its_tool(outer, inner):
    with FakeOpenAI(partial(model, rounds=2)) as server:
        async with new_client(server.url) as client:
            report = await arun(outer(client, inner(client)), CASES[:1], parallel_test_cases=1)

    names = [call.name.rpartition("-")[2] for call in report.results[0].tool_invocations]
    assert names == ["ask_desk", "delete_order"] * 2


async def test_the_calls_of_an_agent_in_an_agent_in_an_agent_stand_in_order():
    pytest.importorskip("langgraph")

    results, _ = await results_of(langgraph, ask_agent_of_agent, CASES[:1])

    names = [call.name for call in results[0].tool_invocations]
    assert names == ["ask_desk", "desk-ask_desk", "delete_order"]


async def test_the_user_may_say_that_no_tool_runs_an_agent(silent):
    outer, configure = silent
    with FakeOpenAI(model) as server:
        async with new_client(server.url) as client:
            agent = outer(client, ask_nobody(client))
            agent = agent if configure is None else configure(agent)
            backend = CallableBackend(agent, tools_run_no_agents=True)
            report = await arun(backend, CASES, parallel_test_cases=1)

    assert all(result.passed for result in report.results)
    assert {tokens(result) for result in report.results} == {usage_of(2)}


@nested
async def test_an_agent_in_a_thread_without_context_makes_calls_unknown(outer, inner):
    async def ask_in_thread(url, question):
        async with new_client(url) as client:
            return await inner(client)(question)

    def threaded(client):
        inner(client)  # the module of a tool imports its framework before the tool runs

        async def ask(question):
            answers = []
            work = partial(ask_in_thread, str(client.base_url), question)
            thread = threading.Thread(target=lambda: answers.append(asyncio.run(work())))
            thread.start()
            await asyncio.to_thread(thread.join)
            return answers[0]

        return ask

    results, _ = await results_of(outer, threaded, CASES[:1])

    [result] = results
    assert result.outcome is Outcome.METRIC_ERROR
    assert "began in a thread" in "; ".join(result.reasons())
    assert result.token_usage is None


LATE = """
from support.nested_agents import {outer}, {inner}
from openai import AsyncOpenAI

async def ask(question):
    async with AsyncOpenAI(base_url={url!r}, api_key="not-a-real-key", max_retries=0) as client:
        return await {inner}(client)(question)  # imports the framework

agent = {outer}(AsyncOpenAI(base_url={url!r}, api_key="not-a-real-key", max_retries=0), ask)
"""


@pytest.mark.parametrize(("outer", "inner"), OTHER, ids=lambda value: value.__name__)
async def test_a_framework_that_a_tool_imports_makes_calls_unknown(outer, inner, tmp_path):
    tests = str(Path(__file__).parents[1])
    with FakeOpenAI(model) as server:
        code = LATE.format(outer=outer.__name__, inner=inner.__name__, url=server.url)
        (tmp_path / "bot.py").write_text(f"import sys\nsys.path.append({tests!r})\n{code}")
        config = ProcessBackendConfig(type="process", target="bot:agent")
        report = await arun(ProcessBackend(config, tmp_path), CASES[:2], parallel_test_cases=1)

    first, second = report.results
    assert not first.passed
    assert first.token_usage is None or tokens(first) == usage_of(4)
    assert second.outcome in {Outcome.FAILED, Outcome.METRIC_ERROR}  # by now it is listened to


TOOLS = """
from openai import AsyncOpenAI
from support.nested_agents import {ask}

async def ask_desk(question: str) -> str:
    "Ask the desk."
    async with AsyncOpenAI(base_url={url!r}, api_key="not-a-real-key", max_retries=0) as client:
        return await {ask}(client)(question)
"""


@pytest.mark.parametrize(
    "backend", ["chat", *(["semantic_kernel"] if find_spec("semantic_kernel") else [])]
)
@pytest.mark.parametrize("ask", [*INNER, ask_nobody], ids=lambda value: value.__name__)
async def test_an_agent_from_yaml_knows_what_agents_inside_of_its_tools_do(backend, ask, tmp_path):
    with FakeOpenAI(model) as server:
        async with new_client(server.url) as client:
            ask(client)  # the module of a tool imports its framework before the tool runs
        (tmp_path / "tools.py").write_text(TOOLS.format(ask=ask.__name__, url=server.url))
        tool = {"type": "function", "name": "ask_desk", "file": "tools.py", "function": "ask_desk"}
        llm = {"provider": "openai", "name": "m", "endpoint": server.url, "api_key": "k"}
        fields = {"name": "front", "model": llm, "instructions": {"inline": "Be brief."}}
        agent = Agent.model_validate({**fields, "tools": [tool], "backend": backend})
        agent = agent.with_base_dir(tmp_path)
        way = await BackendSelector.select(agent, base_dir=tmp_path)
        report = await arun(way, CASES, parallel_test_cases=1)
        requests = len(server.requests) // len(CASES)
        await way.teardown()

    for result in report.results:
        if ask is ask_nobody:
            assert result.passed
            assert (requests, tokens(result)) == (2, usage_of(2))
        else:
            assert result.outcome in {Outcome.FAILED, Outcome.METRIC_ERROR}
            assert requests == 4
            assert tokens(result) in {None, usage_of(requests)}


@pytest.fixture
def exporter():
    """What a tracer provider of the user exports."""
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    return InMemorySpanExporter()


@pytest.fixture
def provider(exporter):
    from opentelemetry.sdk.trace import TracerProvider
    from opentelemetry.sdk.trace.export import SimpleSpanProcessor

    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    return provider


def requests_in(exporter):
    return [span.name for span in exporter.get_finished_spans()].count("chat fake")


async def test_the_users_own_instrumentation_still_gets_its_spans(exporter, provider):
    from pydantic_ai import Agent as PydanticAgent
    from pydantic_ai.models.instrumented import InstrumentationSettings

    PydanticAgent.instrument_all(InstrumentationSettings(tracer_provider=provider))
    try:
        results, requests = await results_of(pydantic_ai, ask_pydantic_ai, CASES[:1])
    finally:
        PydanticAgent.instrument_all(False)

    assert requests_in(exporter) == requests == 4
    assert results[0].outcome is Outcome.FAILED


async def test_an_agent_with_instrumentation_of_its_own_keeps_its_evidence(exporter, provider):
    from pydantic_ai.models.instrumented import InstrumentationSettings

    def instrumented(agent):
        agent.instrument = InstrumentationSettings(tracer_provider=provider)
        return agent

    results, requests = await results_of(pydantic_ai, ask_nobody, configure=instrumented)

    assert all(result.passed for result in results)
    assert requests_in(exporter) == requests * len(CASES)


@outers
async def test_a_tracer_provider_of_the_process_keeps_its_spans(
    outer, exporter, provider, monkeypatch
):
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)

    passing, _ = await results_of(outer, ask_nobody)
    nested, _ = await results_of(outer, INNER[OUTER.index(outer)])

    assert all(result.passed for result in passing)
    assert not any(result.passed for result in nested)
