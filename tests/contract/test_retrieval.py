"""What an agent retrieved reaches the metrics about it, whatever the backend; else they fail."""

from contextlib import asynccontextmanager

import pytest
from opentelemetry.trace import get_tracer

from holodeck.lib.backends.parsing import passages_in
from holodeck.lib.backends.python.backend import CallableBackend
from holodeck.models.test_result import Outcome
from support.frameworks import TOOL, all_rows
from support.played import an_agent, recorded, report_of
from support.rescore import rescore
from support.ways import (
    BLIND,
    MCP_CALL,
    OWN,
    SOME,
    a2a_agent,
    built_in,
    mcp_server,
    of_framework,
)

GRADERS = """
def cites_orders(seen):
    return list(seen.retrieval_context) == ["[orders.md] order 7 is shipped", "Returns are free."]


def has_the_order(seen):
    return any("shipped" in passage for passage in seen.retrieval_context)


def has_none(seen):
    return not seen.retrieval_context
"""
NEED_PASSAGES = {
    "grader": {"type": "code", "grader": "graders:has_none"},
    **{
        name: {"type": "rag", "metric": name}
        for name in ("faithfulness", "contextual_relevancy", "contextual_recall")
    },
    "hallucination": {"type": "deepeval", "metric": "hallucination"},
    "turn_faithfulness": {"type": "deepeval", "metric": "turn_faithfulness"},
    "groundedness": {"type": "azure", "metric": "groundedness"},
    "retrieval": {"type": "azure", "metric": "retrieval"},
}
WAYS_OUT = (
    "return {'response': …, 'retrieval_context': […]}",
    "'backend.answer.retrieval_context' for a URL",
    "'retrieval_tools'",
    "'trace: {require: {retrieval: 1}}'",
)


@pytest.fixture
def graders(tmp_path):
    (tmp_path / "graders.py").write_text(GRADERS)
    return tmp_path


def graded_by(grader, **fields):
    return {"input": "Where is order 7?", "evaluations": [grader_of(grader)]} | fields


def grader_of(name):
    return {"type": "code", "grader": f"graders:{name}"}


async def report(folder, server, opened, *cases, **fields):
    agent = an_agent(server, *cases, **fields).with_base_dir(folder)
    async with opened as backend:
        await backend.initialize()
        made = await report_of(folder, agent, backend)
        await backend.teardown()
    return agent, made


@pytest.mark.parametrize("backend", OWN, ids=lambda backend: backend.__name__)
async def test_what_an_agent_reports_is_graded_now_and_when_it_is_scored_again(
    backend, graders, fake_openai
):
    cases = [
        graded_by("cites_orders"),
        {
            "turns": [
                {"input": "hi"},
                {"input": "Where?", "evaluations": [grader_of("cites_orders")]},
            ]
        },
    ]

    agent, made = await report(graders, fake_openai, backend(SOME["passages"]), *cases)

    assert [result.outcome for result in made.results] == [Outcome.PASSED] * 2, made
    again = await rescore(agent, recorded(*made.results))
    assert [result.outcome for result in again.report.results] == [Outcome.PASSED] * 2


@pytest.mark.parametrize(
    "opened", [*OWN, a2a_agent, mcp_server], ids=lambda backend: backend.__name__
)
async def test_a_metric_of_passages_that_nothing_shows_is_an_error_with_every_way_out(
    opened, graders, fake_openai
):
    text = MCP_CALL if opened is mcp_server else "hi"
    cases = [
        {"name": name, "input": text, "ground_truth": "x", "evaluations": [metric]}
        for name, metric in NEED_PASSAGES.items()
        if name != "turn_faithfulness"
    ]
    turn = {"input": text, "evaluations": [NEED_PASSAGES["turn_faithfulness"]]}
    cases.append({"name": "turn_faithfulness", "turns": [turn]})
    backend = opened(BLIND) if opened in OWN else opened()

    _, made = await report(graders, fake_openai, backend, *cases)

    assert {result.outcome for result in made.results} == {Outcome.METRIC_ERROR}
    for result in made.results:
        [row] = result.rows
        assert all(way in row.error for way in WAYS_OUT), row
        assert row.passed is not True
    assert fake_openai.requests == []


@pytest.mark.parametrize("name", ["faithfulness", "groundedness", "retrieval"])
async def test_what_an_agent_reports_reaches_the_judge(name, graders, fake_openai):
    case = {"input": "hi", "ground_truth": "x", "evaluations": [NEED_PASSAGES[name]]}

    await report(graders, fake_openai, OWN[0](SOME["passages"]), case)

    prompts = [request.prompt for request in fake_openai.requests]
    assert any("[orders.md] order 7 is shipped" in prompt for prompt in prompts)


@pytest.mark.parametrize(
    "opened",
    [
        *(pytest.param(lambda row=row: of_framework(row), id=row.__name__) for row in all_rows()),
        *(pytest.param(lambda name=name: built_in(name), id=name) for name in ("chat",)),
        pytest.param(mcp_server, id="mcp"),
    ],
)
async def test_the_results_of_a_retrieval_tool_are_passages(opened, graders, fake_openai):
    text = MCP_CALL if opened is mcp_server else "Where is order 7?"
    case = graded_by("has_the_order", input=text)

    _, made = await report(graders, fake_openai, opened(), case, retrieval_tools=[TOOL])

    [result] = made.results
    known = all(call.is_result_known for call in result.tool_invocations)
    assert result.outcome is (Outcome.PASSED if known else Outcome.METRIC_ERROR), result


@pytest.mark.parametrize(
    "data", [{"retrieval_context": ["one"]}, [{"n": 1}, {"retrieval_context": ["one"]}]]
)
def test_the_structured_data_of_a2a_and_mcp_may_hold_passages(data):
    assert passages_in(data) == ["one"]
    assert passages_in({"n": 1}) is passages_in(None) is None


async def test_a_retrieval_tool_that_was_not_called_has_retrieved_nothing(graders, fake_openai):
    judged = {"input": "hi", "evaluations": [NEED_PASSAGES["faithfulness"]]}
    cases = [graded_by("has_none"), judged, {**judged, "retrieval_context": [" "]}]

    backend = OWN[0](SOME["names"])
    _, made = await report(graders, fake_openai, backend, *cases, retrieval_tools=["search"])

    graded, *errors = made.results
    assert graded.outcome is Outcome.PASSED
    assert {result.outcome for result in errors} == {Outcome.METRIC_ERROR}
    assert all("the agent retrieved nothing" in result.rows[0].error for result in errors)


async def test_the_turn_that_does_not_say_what_was_retrieved_is_named(graders, fake_openai):
    def answer(message):
        return "hi" if message == "hi" else {"response": "Late.", "retrieval_context": ["late"]}

    case = {
        "turns": [{"input": "Where is it?"}, {"input": "hi"}],
        "evaluations": [NEED_PASSAGES["faithfulness"]],
    }

    _, made = await report(graders, fake_openai, own_function(answer), case)

    [row] = made.results[0].rows
    assert row.error.startswith("turn 2: nothing says what the agent retrieved"), row


DOCUMENTS = {
    "opentelemetry": {
        "gen_ai.operation.name": "retrieval",
        "gen_ai.retrieval.documents": '[{"id": "orders.md", "content": "order 7 is shipped"}]',
    },
    "openinference": {
        "openinference.span.kind": "RETRIEVER",
        "retrieval.documents.0.document.content": "order 7 is shipped",
    },
}


@pytest.mark.parametrize("convention", DOCUMENTS)
async def test_the_documents_of_retrieval_spans_are_passages(convention, graders, fake_openai):
    def answer(message):
        with get_tracer("shop").start_as_current_span("search", attributes=DOCUMENTS[convention]):
            return "It is shipped."

    traced = {"trace": {"require": {"retrieval": 1}}}
    cases = [graded_by("has_the_order", **traced), graded_by("has_the_order")]

    _, made = await report(graders, fake_openai, own_function(answer), *cases)

    assert [result.outcome for result in made.results] == [Outcome.PASSED, Outcome.METRIC_ERROR]


@asynccontextmanager
async def own_function(answer):
    yield CallableBackend(answer)
