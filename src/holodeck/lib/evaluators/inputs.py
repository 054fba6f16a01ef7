"""The observation of a test case, and the inputs that an evaluator takes from it."""

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Protocol

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.param_spec import EvalParam, ParamSpec
from holodeck.lib.support.text import is_blank
from holodeck.lib.support.tool_names import tools_named
from holodeck.models.cases.messages import Image
from holodeck.models.results.evidence import (
    Evidence,
    Trace,
    Unknown,
    documents_in,
    evidence,
    holds_documents,
    text_of_document,
    unknown_reason,
)
from holodeck.models.results.turn import ToolInvocation, TurnResult
from holodeck.models.test_case import ExpectedTool


@dataclass(frozen=True, slots=True)
class Turn:
    """One message of a conversation, with the tool calls that led to it."""

    role: Literal["user", "assistant"]
    content: str
    tool_calls: tuple[ToolInvocation, ...] | None = ()
    """None if they are unknown."""
    earlier: bool = False
    """Whether the message comes from the case's `history` and not from this run."""
    passages: tuple[str, ...] = ()
    """What the agent says that it retrieved for the message."""


@dataclass(frozen=True, slots=True)
class Exchange:
    """A response of the agent, with what it answers."""

    history: tuple[Turn, ...]
    """The conversation before the input."""
    input: str
    """What the user said since the response before; empty if the agent spoke first."""
    response: Turn


def exchanges_in(turns: Sequence[Turn], start: int = 0) -> list[Exchange]:
    """Return an exchange for each response from an index of the conversation on."""
    exchanges = []
    for index, turn in enumerate(turns):
        if turn.role != "assistant" or index < start:
            continue
        first = index
        while first and turns[first - 1].role == "user":
            first -= 1
        text = "\n\n".join(turn.content for turn in turns[first:index])
        exchanges.append(Exchange(tuple(turns[:first]), text, turn))
    return exchanges


def history_of(turns: Sequence[Turn] | None) -> tuple[Turn, ...]:
    """Return the conversation before the input that the last response answers."""
    exchanges = exchanges_in(turns or ())
    return exchanges[-1].history if exchanges else ()


@dataclass(frozen=True, slots=True)
class OfferedTool:
    """A tool that the agent can call."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON Schema of its arguments."""
    server: str | None = None
    """Name of the MCP server whose tool it is; None for other tools."""


_FULL_EVIDENCE = evidence(tool_calls="backend", history="runner", tools="backend")


@dataclass(frozen=True, slots=True)
class Observation:
    """Everything observed while a test case ran; custom metrics are called with it."""

    response: str
    input: str | None = None
    ground_truth: str | None = None
    retrieval_context: tuple[str, ...] | Unknown = ()
    """What the agent retrieved; using it raises EvaluationError if nothing says what that is."""
    tool_calls: tuple[ToolInvocation, ...] | Unknown = ()
    """The agent's tool calls; using unknown ones raises EvaluationError."""
    case_name: str | None = None
    latency_ms: float | None = None
    """How long the agent took; None if that was not measured."""
    file_content: str | None = None
    """The text of the case's files."""
    expected_tools: Sequence[str | ExpectedTool] | None = None
    """The tools that the case expects; None if it does not check tools."""
    turns: tuple[Turn, ...] = ()
    """The conversation so far, including the case's `history`; empty for a case with one input and
    no history."""
    instructions: str | None = None
    """The agent's instructions; None if only its backend knows them."""
    tools: tuple[OfferedTool, ...] | Unknown = ()
    """The tools that the agent can call; using unknown ones raises EvaluationError."""
    evidence: Evidence = _FULL_EVIDENCE
    """Where each fact comes from; None if nothing reports it."""
    images: tuple[Image, ...] = ()
    """The images of `files` that the agent got; none if the run is graded from its record."""
    image_count: int = 0
    """How many images the agent got; they are not kept in a record."""
    graded_from: int = 0
    """The index in `turns` of the first message that is graded; those before only lead there."""

    @property
    def known_passages(self) -> tuple[str, ...]:
        """The retrieved passages; empty if they are unknown."""
        return () if isinstance(self.retrieval_context, Unknown) else self.retrieval_context

    @property
    def exchanges(self) -> list[Exchange]:
        """What is graded, response by response."""
        exchanges = exchanges_in(self.turns, self.graded_from)
        if exchanges:
            return exchanges
        calls = None if isinstance(self.tool_calls, Unknown) else self.tool_calls
        return [Exchange(self.turns, self.input or "", Turn("assistant", self.response, calls))]


class TakesInputs(Protocol):
    """An evaluator, as far as its inputs are concerned."""

    uses_observation: ClassVar[bool]

    @classmethod
    def get_param_spec(cls) -> ParamSpec:
        """Return the inputs that the evaluator takes."""
        ...

    def required_params(self) -> frozenset[EvalParam]:
        """Return the inputs that it requires, given its settings."""
        ...


_RESPONSE = (EvalParam.RESPONSE, EvalParam.ACTUAL_OUTPUT)
_QUERY = (EvalParam.QUERY, EvalParam.INPUT)
_GROUND_TRUTH = (EvalParam.GROUND_TRUTH, EvalParam.EXPECTED_OUTPUT)


class EvalKwargsBuilder:
    """Builds the inputs of evaluators from a test case.

    Args:
        agent_response: The agent's response, which may be empty.
        input_query: The user's input.
        ground_truth: The expected response.
        file_content: The text of the case's files.
        retrieval_context: Retrieved passages.
        observation: The whole case, for evaluators that use it.
    """

    def __init__(
        self,
        agent_response: str,
        input_query: str | None = None,
        ground_truth: str | None = None,
        file_content: str | None = None,
        retrieval_context: list[str] | None = None,
        *,
        observation: Observation | None = None,
    ) -> None:
        self._agent_response = agent_response
        self._input_query = input_query
        self._ground_truth = ground_truth
        self._file_content = file_content
        self._retrieval_context = retrieval_context
        self._observation = observation

    def build_for(self, evaluator: TakesInputs) -> dict[str, Any]:
        """Return keyword arguments for `evaluator.evaluate()`.

        Inputs that the evaluator does not take, or that the case does not have (None), are omitted.
        Evaluators with DeepEval's names get `context` as a list, others as a text.
        """
        spec = evaluator.get_param_spec()
        deepeval, taken = spec.uses_deepeval_params(), spec.required | spec.optional
        if spec.uses_context:
            taken |= {EvalParam.CONTEXT}
        if spec.uses_retrieval_context:
            taken |= {EvalParam.RETRIEVAL_CONTEXT}
        texts = self._retrieval_context if self._file_content is None else [self._file_content]
        values: dict[EvalParam, Any] = {
            EvalParam.CONTEXT: (texts if deepeval else "\n\n".join(texts)) if texts else None,
            EvalParam.RETRIEVAL_CONTEXT: self._retrieval_context,
            **self._observed(evaluator.required_params()),
        }
        for names, text in ((_QUERY, self._input_query), (_GROUND_TRUTH, self._ground_truth)):
            if not taken.isdisjoint(names):
                taken |= {names[deepeval]}
                values[names[deepeval]] = text
        kwargs: dict[str, Any] = {_RESPONSE[deepeval].value: self._agent_response}
        kwargs |= {
            param.value: value
            for param, value in values.items()
            if param in taken and value is not None
        }
        if evaluator.uses_observation and self._observation is not None:
            kwargs["observation"] = self._observation
        return kwargs

    def _observed(self, required: frozenset[EvalParam]) -> dict[EvalParam, Any]:
        """Return the inputs that only the observation has. Raises EvaluationError."""
        observation = self._observation
        if observation is None:
            return {}
        is_unknown = isinstance(observation.tool_calls, Unknown)
        if is_unknown and EvalParam.TOOLS_CALLED in required:
            raise EvaluationError(unknown_reason("tool_calls", observation.evidence))
        needs_passages = EvalParam.RETRIEVAL_CONTEXT in required or (
            EvalParam.CONTEXT in required and self._file_content is None
        )
        if needs_passages:
            _require_passages(self._retrieval_context or observation.retrieval_context)
        if EvalParam.TOOLS in required and isinstance(observation.tools, Unknown):
            raise EvaluationError(unknown_reason("tools", observation.evidence))
        return {
            EvalParam.TOOLS: observation.tools,
            EvalParam.TOOLS_CALLED: None if is_unknown else observation.tool_calls,
            EvalParam.EXPECTED_TOOLS: observation.expected_tools,
            EvalParam.TURNS: observation.turns or None,
            EvalParam.EXCHANGES: observation.exchanges,
            EvalParam.IMAGES: observation.images or None,
        }


def _require_passages(passages: Sequence[str] | Unknown) -> None:
    """Raise EvaluationError if it is unknown what the agent retrieved, or if it is nothing."""
    if isinstance(passages, Unknown):
        raise EvaluationError(passages.reason)
    if all(map(is_blank, passages)):  # a judge would find no contradiction
        raise EvaluationError(
            "the agent retrieved nothing: retrieval_context is empty, so that there is nothing to"
            " judge"
        )


def retrieved_passages(turn: TurnResult, tools: Collection[str]) -> list[str] | Unknown:
    """Return what the agent retrieved in a turn.

    That is what the agent says itself; else what the tools returned, if some of these names search;
    else what its retrieval spans hold.
    """
    if turn.retrieval_context is not None:
        return turn.retrieval_context
    calls = [
        call
        for call in turn.tool_invocations
        if call.passages is not None or any(tools_named(tool, [call.name]) for tool in tools)
    ]
    if calls or tools:
        return _passages_of_calls(calls, tools, turn)
    return Unknown("retrieval_context") if turn.trace is None else _passages_of_spans(turn.trace)


def _passages_of_calls(
    calls: Sequence[ToolInvocation], tools: Collection[str], turn: TurnResult
) -> list[str] | Unknown:
    """Return what the calls returned that did not fail."""
    if turn.evidence.tool_calls is None:
        return _unknown(unknown_reason("tool_calls", turn.evidence))
    known = turn.tools if turn.evidence.tools == "adapter" else None  # all that the agent has
    misspelled = [tool for tool in tools if known is not None and not tools_named(tool, known)]
    if misspelled and not calls:
        return _unknown(
            f"'retrieval_tools' names {misspelled[0]!r}, which the agent does not have; it has"
            f" {', '.join(map(repr, known or ())) or 'no tools'}"
        )
    passages: list[str] = []
    for call in calls:
        if not call.is_result_known:
            return _unknown(f"the result of the tool {call.name!r} was not reported")
        if call.error is None and call.passages is None:
            passages += _passages(call.result)
        elif call.error is None:
            passages += call.passages or ()
    return passages


def _passages_of_spans(trace: Trace) -> list[str] | Unknown:
    """Return the texts of the documents that the spans hold, if these are all spans."""
    spans = [
        span
        for span in trace.spans
        if span.operation == "retrieval" or holds_documents(span.attributes)
    ]
    if not spans:
        return Unknown("retrieval_context")
    if trace.problem:
        return _unknown(trace.problem)
    passages: list[str] = []
    for span in spans:
        documents = documents_in(span.attributes)
        texts = [text_of_document(document) for document in documents]
        if not documents or None in texts or holds_documents(span.cut):
            return _unknown(
                f"the span {span.name!r} does not hold the whole texts of its documents"
            )
        passages += [text for text in texts if text]
    return passages


def _unknown(reason: str) -> Unknown:
    return Unknown("retrieval_context", reason=f"what the agent retrieved is unknown: {reason}")


def build_retrieval_context_from_tools(
    tool_results: list[dict[str, Any]],
    retrieval_tool_names: set[str],
) -> list[str] | None:
    """Return the passages that retrieval tools returned, in order; None if there are none.

    Args:
        tool_results: Mappings with `name` and `result`. Each item of a list is a passage; values
            that are not text become JSON; None and empty text are ignored.
        retrieval_tool_names: The tools whose results are passages.
    """
    passages = [
        passage
        for result in tool_results
        if result.get("name") in retrieval_tool_names
        for passage in _passages(result.get("result"))
    ]
    return passages or None


def _passages(result: Any) -> list[str]:
    items = result if isinstance(result, list) else [result]
    texts = (item if isinstance(item, str) else _as_json(item) for item in items)
    return [text for text in texts if text]


def _as_json(value: Any) -> str:
    if value is None:
        return ""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError):  # keys that are not text, or a value that contains itself
        return str(value)
