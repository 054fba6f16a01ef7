"""Where the passages that metrics judge come from: the agent, its tools, or its spans."""

import pytest

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.inputs import retrieved_passages
from holodeck.models.results.evidence import RecordedSpan, Trace, Unknown, evidence
from holodeck.models.results.turn import NO_RESULT, ToolInvocation, TurnResult

SEARCH = frozenset({"search"})
SEEN = evidence(tool_calls="adapter", tools="adapter")


def turn(*calls, **fields):
    return TurnResult(**{"input": "hi", "evidence": SEEN, "tool_invocations": list(calls)} | fields)


def call(result=None, name="search", **fields):
    return ToolInvocation(name=name, result=result, **fields)


def span(name="search", **attributes):
    named = {key.replace("__", "."): value for key, value in attributes.items()}
    return RecordedSpan(name=name, span_id="1" * 16, started_ns=0, ended_ns=1, attributes=named)


def retrieval(documents):
    return span(gen_ai__operation__name="retrieval", gen_ai__retrieval__documents=documents)


CUT = retrieval('["o').model_copy(update={"cut": ["gen_ai.retrieval.documents"]})
OPENINFERENCE = RecordedSpan(
    name="find", span_id="1" * 16, started_ns=0, ended_ns=1,
    attributes={
        "openinference.span.kind": "RETRIEVER",
        "retrieval.documents.1.document.content": "two",
        "retrieval.documents.0.document.content": "one",
        "retrieval.documents.0.document.id": "a.md",
    },
)  # fmt: skip


@pytest.mark.parametrize(
    ("seen", "tools", "passages"),
    [
        (turn(call("x"), retrieval_context=["one"]), SEARCH, ["one"]),
        (turn(call("x"), retrieval_context=[]), SEARCH, []),
        (turn(call("one"), call(["two", "three"]), call("x", "pay")), SEARCH,
         ["one", "two", "three"]),
        (turn(call("one", "docs-search")), SEARCH, ["one"]),
        (turn(call("x", passages=["one", "two"])), frozenset(), ["one", "two"]),
        (turn(call("x", "pay")), SEARCH, []),
        (turn(call("no index", error="no index"), call("one")), SEARCH, ["one"]),
        (turn(trace=Trace(spans=[retrieval('[{"id": "a", "content": "one"}, "two"]')])), (),
         ["one", "two"]),
        (turn(trace=Trace(spans=[OPENINFERENCE])), (), ["one", "two"]),
        (turn(call("one"), trace=Trace(spans=[retrieval('["x"]')])), SEARCH, ["one"]),
    ],
    ids=["the agent says it", "the agent says nothing was", "tools", "tool of a plugin",
         "passages of tools", "no search", "a failed search", "OpenTelemetry", "OpenInference",
         "tools before spans"],
)  # fmt: skip
def test_what_the_agent_retrieved_is_known(seen, tools, passages):
    assert retrieved_passages(seen, tools) == passages


@pytest.mark.parametrize(
    ("seen", "tools", "reason"),
    [
        (turn(), (), ("nothing says what the agent retrieved; return {'response': …,"
         " 'retrieval_context': […]} from Python code, or set 'backend.answer.retrieval_context'"
         " for a URL; or name the tools that search in 'retrieval_tools'; or let the agent make"
         " retrieval spans")),
        (turn(evidence=evidence()), SEARCH, "the agent's tool calls are unknown"),
        (turn(call(error=NO_RESULT)), SEARCH, "the result of the tool 'search' was not reported"),
        (turn(tools=["find"]), SEARCH, ("'retrieval_tools' names 'search', which the agent does not"
         " have; it has 'find'")),
        (turn(trace=Trace(spans=[span("other")])), (), "nothing says what the agent retrieved"),
        (turn(trace=Trace(spans=[retrieval('["one"]')], problem="late spans")), (), "late spans"),
        (turn(trace=Trace(spans=[retrieval('[{"id": "a", "score": 1}]')])), (),
         "the span 'search' does not hold the whole texts"),
        (turn(trace=Trace(spans=[span(gen_ai__operation__name="retrieval")])), (),
         "the span 'search' does not hold the whole texts"),
        (turn(trace=Trace(spans=[CUT])), (), "does not hold the whole texts"),
    ],
    ids=["nothing", "no tool calls", "no result", "misspelled", "no retrieval span", "late spans",
         "ids only", "no documents", "cut"],
)  # fmt: skip
def test_what_nothing_shows_is_unknown(seen, tools, reason):
    passages = retrieved_passages(seen, tools)

    assert isinstance(passages, Unknown)
    assert reason in passages.reason
    with pytest.raises(EvaluationError, match="retrieved"):
        list(passages)
