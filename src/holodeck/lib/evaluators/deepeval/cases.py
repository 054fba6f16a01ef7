"""Conversations and traces in DeepEval's format, made from what was observed."""

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.base import Turn
from holodeck.lib.evaluators.deepeval import adapter
from holodeck.lib.evaluators.inputs import Exchange
from holodeck.models.results.evidence import UNSEEN_CALLS
from holodeck.models.test_result import ToolInvocation


def to_texts(texts: str | Sequence[str] | None) -> list[str] | None:
    """Return one or several texts as the list that DeepEval takes."""
    if texts is None:
        return None
    return [adapter.clean_text(text) for text in ([texts] if isinstance(texts, str) else texts)]


def to_tool_calls(calls: Sequence[ToolInvocation] | None) -> list[Any] | None:
    """Return the tool calls in DeepEval's format."""
    if calls is None:
        return None
    make = adapter.library().cases.ToolCall
    return [make(name=call.name, input_parameters=call.args, output=call.result) for call in calls]


def unseen_calls() -> list[Any]:
    """Return what a judge is shown in place of unknown calls, which it would take for none."""
    return [adapter.library().cases.ToolCall(name=UNSEEN_CALLS)]


def to_turn(turn: Turn, passages: Sequence[str] | None = None, *, mark_unseen: bool = False) -> Any:
    """Return a message in DeepEval's format.

    Args:
        turn: The message.
        passages: What was retrieved for it.
        mark_unseen: Whether unknown tool calls are shown as unknown instead of left out.
    """
    calls = to_tool_calls(turn.tool_calls) or None
    if mark_unseen and turn.role == "assistant" and turn.tool_calls is None:
        calls = unseen_calls()
    return adapter.library().cases.Turn(
        role=turn.role,
        content=adapter.clean_text(turn.content),
        tools_called=calls,
        retrieval_context=to_texts(passages),
    )


def turns_of(exchanges: Iterable[Exchange]) -> list[Turn]:
    """Return the messages of exchanges, without what came before the first."""
    return [
        turn
        for exchange in exchanges
        for turn in (Turn("user", exchange.input), exchange.response)
        if turn.role == "assistant" or turn.content
    ]


def passages_of(exchanges: Sequence[Exchange], passages: Sequence[str]) -> list[Sequence[str]]:
    """Return the passages of each exchange: those of its tool calls, where all come from there.

    Passages that the case gives, and those of tools that only return text, go to the first.
    """
    retrieved: list[Sequence[str]] = [
        [text for call in exchange.response.tool_calls or () for text in call.passages or ()]
        for exchange in exchanges
    ]
    if list(chain.from_iterable(retrieved)) == list(passages):
        return retrieved
    return [passages, *([] for _ in exchanges[1:])]


def turns_with_passages(exchanges: Sequence[Exchange], passages: Sequence[str]) -> list[Any]:
    """Return the messages in DeepEval's format, from the first response with passages on.

    DeepEval would give a turn without any the best score.
    """
    retrieved = passages_of(exchanges, passages)
    start = next(index for index, texts in enumerate(retrieved) if texts)
    return [
        to_turn(turn, texts if turn.role == "assistant" else None, mark_unseen=True)
        for exchange, texts in zip(exchanges[start:], retrieved[start:], strict=True)
        for turn in turns_of([exchange])
    ]


def trace_of(exchanges: Sequence[Exchange], agent: str = "agent") -> dict[str, Any]:
    """Return the trace that DeepEval's metrics about an agent's steps read.

    It has the form of DeepEval's own tracing: a span for each response, and in it a span for each
    tool call. Raises EvaluationError if the tool calls of a response are unknown.
    """
    if any(exchange.response.tool_calls is None for exchange in exchanges):
        raise EvaluationError("the tool calls of a turn are unknown, so its steps are")
    spans = [_agent_span(exchange, agent) for exchange in exchanges]
    if len(spans) == 1:
        return spans[0]
    return {"name": "conversation", "type": "base", "children": spans}


def _agent_span(exchange: Exchange, agent: str) -> dict[str, Any]:
    return {
        "name": agent,
        "type": "agent",
        "input": adapter.clean_text(exchange.input),
        "output": adapter.clean_text(exchange.response.content),
        "children": [
            {"name": call.name, "type": "tool", "input": call.args, "output": call.result}
            for call in exchange.response.tool_calls or ()
        ],
    }
