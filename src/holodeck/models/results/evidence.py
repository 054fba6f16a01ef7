"""Which facts of a test case are known, and where from: evidence, unknown facts, spans."""

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any, Literal, NoReturn

from holodeck.errors import EvaluationError
from holodeck.lib.support.text import value_in_text
from holodeck.models.base import Json, Model
from holodeck.models.cases.matchers import SpanStatus

Source = Literal["runner", "backend", "adapter", "tap", "trace", "replay"]
"""Where a fact comes from: holodeck's runner, the backend that ran the agent, an adapter that read
what the agent returned, a proxy between agent and model, the agent's own spans, or a recording."""
Fact = Literal[
    "tool_calls", "token_usage", "history", "tools", "latency", "agents", "retrieval_context"
]

_UNKNOWN: dict[Fact, str] = {
    "tool_calls": (
        "the agent's tool calls are unknown; return {'response': …, 'tool_calls': […]} from Python"
        " code, set 'backend.answer.tool_calls' for a URL, or write 'tap: true' in 'backend', which"
        " reads them in the agent's requests to its model"
    ),
    "token_usage": (
        "the agent's token usage is unknown; return {'response': …, 'usage': {…}} from Python code,"
        " or set 'prompt_tokens' and 'completion_tokens' in 'backend.answer' for a URL"
    ),
    "history": "the conversation is unknown, because it was not recorded",
    "tools": ("the tools that the agent can call are unknown, as they are not in the agent.yaml"),
    "latency": "the latency is unknown, because it was not measured",
    "agents": (
        "the agents that spoke are unknown; return {'response': …, 'agents': […]} from Python code,"
        " or test the object of a framework that reports them"
    ),
    "retrieval_context": (
        "nothing says what the agent retrieved; return {'response': …, 'retrieval_context': […]}"
        " from Python code, or set 'backend.answer.retrieval_context' for a URL; or name the tools"
        " that search in 'retrieval_tools'; or let the agent make retrieval spans, and write"
        " 'trace: {require: {retrieval: 1}}' in the case"
    ),
}


class Evidence(Model):
    """Where each fact of an observation comes from; None if the fact is unknown.

    Unknown is not empty: a check that needs an unknown fact is an error, never a pass or a failure.
    """

    tool_calls: Source | None = None
    """The tool calls of the agent, each with its arguments."""
    token_usage: Source | None = None
    """The tokens of the agent's model."""
    history: Source | None = None
    """The messages between user and agent."""
    tools: Source | None = None
    """The names of the tools that the agent can call."""
    latency: Source | None = None
    """How long the agent took."""
    agents: Source | None = None
    """The names of the agents that spoke."""
    tool_calls_problem: str | None = None
    """Why not all tool calls were seen, if more is known about it than that."""

    def __and__(self, other: "Evidence") -> "Evidence":
        """Return the evidence of two turns together: a fact is known if it is known in both."""
        pairs = zip(vars(self).items(), vars(other).values(), strict=True)
        both = {name: ours and theirs for (name, ours), theirs in pairs}
        problem = self.tool_calls_problem or other.tool_calls_problem
        return evidence(**{**both, "tool_calls_problem": problem})


evidence = cache(Evidence)
"""Return the evidence with these sources; thousands of results share one object."""


UNSEEN_CALLS = "(The agent's tool calls were not observed: that none is shown proves nothing.)"
"""What a judge reads instead of unknown tool calls."""


def unknown_reason(fact: Fact, observed: Evidence | None = None) -> str:
    """Return why the fact is unknown and what to do about it; `observed` may know it better."""
    if fact == "latency" and observed is not None and observed.history == "replay":
        return "the latency is unknown, because responses were replayed from a recording"
    if fact == "tool_calls" and observed is not None and observed.tool_calls_problem:
        return f"the agent's tool calls are unknown: {observed.tool_calls_problem}"
    return _UNKNOWN[fact]


class Unknown:
    """Represents an unknown fact; every use raises EvaluationError.

    Otherwise a metric that iterates, counts or compares it would take it for an empty list and
    might pass. `Observation.evidence` says what is known.
    """

    __slots__ = ("fact", "reason")

    def __init__(
        self, fact: Fact, observed: Evidence | None = None, reason: str | None = None
    ) -> None:
        self.fact = fact
        self.reason = reason or unknown_reason(fact, observed)

    def __repr__(self) -> str:
        return f"<unknown {self.fact.replace('_', ' ')}>"

    def _refuse(self, *_: Any) -> NoReturn:
        raise EvaluationError(self.reason)

    __iter__ = __len__ = __bool__ = __contains__ = __getitem__ = __eq__ = __ne__ = _refuse
    __lt__ = __le__ = __gt__ = __ge__ = __add__ = __radd__ = __reversed__ = _refuse
    __hash__ = object.__hash__


OPERATION = "gen_ai.operation.name"
_KINDS = ("openinference.span.kind", "traceloop.span.kind", "langwatch.span.type")
"""Attributes in which other conventions say what a span is."""
_OPERATIONS = {
    "agent": "invoke_agent",
    "embedding": "embeddings",
    "llm": "chat",
    "retriever": "retrieval",
    "tool": "execute_tool",
}


class RecordedSpan(Model):
    """One span that has ended."""

    name: str
    span_id: str
    """16 hexadecimal digits."""
    parent_id: str = ""
    """Of the span around it; empty if there is none."""
    service: str = ""
    """The attribute `service.name` of its resource."""
    started_ns: int
    """Nanoseconds since 1970, by the clock of the agent."""
    ended_ns: int
    status: SpanStatus = "unset"
    status_message: str = ""
    attributes: dict[str, Json] = {}
    """Up to limits; what is longer is cut."""
    cut: list[str] = []
    """Names of the attributes whose values are cut."""

    @property
    def operation(self) -> str | None:
        """What it is, in the words of the conventions for generative AI; None if unknown."""
        named = self.attributes.get(OPERATION)
        if isinstance(named, str):
            return named
        kinds = (str(self.attributes.get(key)).lower() for key in _KINDS)
        return next((_OPERATIONS[kind] for kind in kinds if kind in _OPERATIONS), None)

    @property
    def duration_ms(self) -> float:
        """How long it took."""
        return (self.ended_ns - self.started_ns) / 1_000_000


class Trace(Model):
    """The spans of one or several calls of the agent."""

    spans: list[RecordedSpan] = []
    """In the order of their beginnings."""
    problem: str = ""
    """Why there may be further spans; empty if these are all."""


_LISTS = (
    "langwatch.rag_contexts",
    "langwatch.rag.contexts",
    "retrieval.documents",
    "gen_ai.retrieval.documents",
)
"""Attributes with a list of documents, which may be JSON."""
_PART = re.compile(r"retrieval\.documents\.(\d+)\.document\.(\w+)")
"""An attribute with a part of one document, as OpenInference writes it."""
_TEXT_KEYS = ("content", "text", "page_content", "document.content")


def documents_in(attributes: Mapping[str, Any]) -> list[Any]:
    """Return the documents in the attributes of a span, each a text or a mapping."""
    raw = next((attributes[key] for key in _LISTS if attributes.get(key) is not None), None)
    if raw is None:
        parts: dict[int, dict[str, Any]] = {}
        for key, value in attributes.items():
            match = _PART.fullmatch(key)
            if match is not None:
                parts.setdefault(int(match[1]), {})[match[2]] = value
        return [parts[number] for number in sorted(parts)]
    value = value_in_text(raw)
    return list(value) if isinstance(value, list | tuple) else [value]


def holds_documents(names: Iterable[str]) -> bool:
    """Whether attributes of these names are about documents."""
    return any(name in _LISTS or _PART.fullmatch(name) for name in names)


def text_of_document(document: Any) -> str | None:
    """Return the text of a document; None for one that has only an id, say."""
    if isinstance(document, Mapping):
        document = next((document[key] for key in _TEXT_KEYS if key in document), None)
    return document if isinstance(document, str) else None
