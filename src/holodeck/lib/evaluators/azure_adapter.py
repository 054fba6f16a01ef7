"""The adapter for azure-ai-evaluation, and the only module that imports it."""

import logging
import math
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from holodeck.errors import EvaluationError, MissingExtra
from holodeck.lib.evaluators.base import OfferedTool, Score, Turn
from holodeck.lib.judging.judge import JsonObject
from holodeck.lib.ui.activity import loading
from holodeck.models.cases.messages import Message
from holodeck.models.test_result import ToolInvocation

_KINDS = ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (list, "array"))


def system_message(instructions: str | None) -> list[JsonObject]:
    """Return the instructions as a system message; no message if they are unknown."""
    return [] if instructions is None else [{"role": "system", "content": instructions}]


def user_message(text: str) -> list[JsonObject]:
    return [{"role": "user", "content": _text(text)}]


def agent_messages(
    text: str, calls: Sequence[ToolInvocation] = (), first: int = 1
) -> list[JsonObject]:
    """Return the tool calls, numbered from `first`, with their results; then the response."""
    steps = [step for call in tool_call_list(calls, first) for step in _call_and_result(call)]
    return [*steps, {"role": "assistant", "content": _text(text)}]


AGENT_SPEAKS_FIRST = "(The conversation begins with the agent.)"
"""Stands for the input that a first message of the agent answers; the library requires an input."""


def dialogue(history: Sequence[Turn], query: str) -> list[JsonObject]:
    """Return a conversation up to the user's input, tool calls and their results included."""
    begins = history[:1] and history[0].role == "assistant"
    messages = user_message(AGENT_SPEAKS_FIRST) if begins else []
    count = 0
    for turn in history:
        calls = turn.tool_calls or ()
        if turn.role == "user":
            messages += user_message(turn.content)
        else:
            messages += agent_messages(turn.content, calls, count + 1)
        count += len(calls)
    return messages + user_message(query or AGENT_SPEAKS_FIRST)


def calls_as_text(history: Sequence[Turn]) -> list[Turn]:
    """Return a conversation with the tool calls and results as a part of each response.

    For evaluators of the library that would show the responses of a conversation only; may block.
    """
    from azure.ai.evaluation._common.utils import reformat_agent_response

    def with_calls(turn: Turn) -> Turn:
        if not turn.tool_calls:
            return turn
        messages = agent_messages(turn.content, turn.tool_calls)
        text = reformat_agent_response(messages, include_tool_messages=True)
        return replace(turn, content=str(text), tool_calls=())

    return [with_calls(turn) for turn in history]


def tool_call_list(calls: Sequence[ToolInvocation], first: int = 1) -> list[JsonObject]:
    """Return the tool calls, numbered from `first`, each with its result."""
    return [
        {
            "type": "tool_call",
            "tool_call_id": f"call_{number}",
            "name": call.name,
            "arguments": dict(call.args),
            "tool_result": call.result if call.error is None else {"error": call.error},
        }
        for number, call in enumerate(calls, start=first)
    ]


def tool_definitions(
    offered: Sequence[OfferedTool], calls: Sequence[ToolInvocation]
) -> list[JsonObject]:
    """Return the offered tools, and a definition inferred from the calls of any other tool."""
    known: dict[str, JsonObject] = {
        tool.name: {
            "name": tool.name,
            "description": tool.description,
            "parameters": dict(tool.parameters),
        }
        for tool in offered
    }
    inferred: dict[str, JsonObject] = {}
    for call in calls:
        if call.name not in known:
            properties = inferred.setdefault(call.name, {})
            properties |= {name: {"type": _kind(value)} for name, value in call.args.items()}
    return [
        *known.values(),
        *(
            {"name": name, "parameters": {"type": "object", "properties": properties}}
            for name, properties in inferred.items()
        ),
    ]


def _call_and_result(call: Mapping[str, Any]) -> list[JsonObject]:
    request = {key: value for key, value in call.items() if key != "tool_result"}
    result = {"type": "tool_result", "tool_result": call["tool_result"]}
    return [
        {"role": "assistant", "content": [request]},
        {"role": "tool", "tool_call_id": call["tool_call_id"], "content": [result]},
    ]


def _text(text: str) -> list[JsonObject]:
    return [{"type": "text", "text": text}]


def _kind(value: Any) -> str:
    return next((name for kind, name in _KINDS if isinstance(value, kind)), "object")


Ask = Callable[[Sequence[Message]], Awaitable[JsonObject]]
"""Sends messages to the judge and returns its verdict."""

_MARKER = re.compile(r"<<holodeck:(\w+)>>")


class JudgedPrompt:
    """Replaces the library's own client and retries.

    The library fills its template first and then looks for roles and pictures in the text, so a
    response with a line `system:` would become an instruction to the judge. This class splits the
    template while it holds markers, and then inserts the texts of the case as plain text.
    """

    def __init__(self, template: Any, ask: Ask) -> None:
        self._template = template
        self._ask = ask
        self._parts: dict[frozenset[str], Sequence[Message]] = {}

    async def __call__(self, *, timeout: float | None = None, **inputs: Any) -> JsonObject:  # noqa: ARG002, ASYNC109 - the library's signature; the limit is ours
        """Return the judge's verdict in the library's format. Raises EvaluationError."""
        return {"llm_output": await self._ask(self.messages(inputs))}

    def messages(self, inputs: Mapping[str, Any]) -> list[Message]:
        """Return the prompt for these inputs."""
        names, texts = frozenset(inputs), {name: str(value) for name, value in inputs.items()}
        if names not in self._parts:
            markers = {name: f"<<holodeck:{name}>>" for name in names}
            self._parts[names] = self._template.render(**markers)
        return [
            Message(
                role=part["role"],
                content=_MARKER.sub(lambda match: texts[match[1]], part["content"]),
            )
            for part in self._parts[names]
        ]


LibraryEvaluator = Callable[..., Awaitable[Mapping[str, Any]]]
"""An evaluator of the library: takes inputs, returns the keys of its result."""

UNUSED_ENDPOINT = {
    "type": "openai",
    "base_url": "http://judge.invalid/v1",
    "api_key": "-",
    "model": "-",
}
"""The library requires an endpoint. It is never used, and the name cannot be resolved."""


class NoCredential:
    """Keeps the library from looking for Azure credentials."""

    def get_token(self, *_: Any, **__: Any) -> Any:
        raise EvaluationError("the judge has a key of its own")


def load_evaluator(name: str, ask: Ask, *, with_query: bool = False) -> LibraryEvaluator:
    """Return an evaluator of the library whose prompts `ask` answers.

    Blocks; raises MissingExtra. `with_query` is for groundedness, which has a second prompt.
    """
    evaluator = evaluator_class(name)(UNUSED_ENDPOINT, credential=NoCredential())
    if with_query:
        evaluator._ensure_query_prompty_loaded()  # noqa: SLF001 - only its sync call does it
    evaluator._flow = JudgedPrompt(evaluator._flow, ask)  # noqa: SLF001 - see docs/decisions
    called: LibraryEvaluator = evaluator._to_async()  # noqa: SLF001 - the way its batches call it
    return called


_LABELS = ("true", "false")


def load_labelling_evaluator(
    name: str, credential: Any, project: str | Mapping[str, str]
) -> Callable[..., Any]:
    """Return an evaluator that asks a project in Azure for a label.

    For a reply without a label the library reports a label that says "nothing found"; here the
    evaluator raises EvaluationError. Blocks; raises MissingExtra.
    """
    evaluator = evaluator_class(name)(credential, project)
    parse = evaluator._parse_eval_result  # noqa: SLF001 - only there the reply is seen

    def parse_labelled(reply: Any) -> Any:
        parsed = parse(reply)
        is_graded = any(key.endswith("_score") for key in parsed)
        for result in reply["results"]:
            properties = (result.get("properties") or {}).get("scoreProperties") or {}
            label = result.get("score") if is_graded else properties.get("label")
            if label is None or (isinstance(label, str) and label.lower() not in _LABELS):
                raise EvaluationError(f"the project in Azure returned no label: {label!r}")
        return parsed

    evaluator._parse_eval_result = parse_labelled  # noqa: SLF001 - as above
    return cast("Callable[..., Any]", evaluator)


def credential() -> Any:
    """Return the credential of the account that is signed in to Azure; sends nothing."""
    try:
        from azure.identity import DefaultAzureCredential
    except ImportError as error:
        raise MissingExtra("azure", "azure_ai_project") from error
    return DefaultAzureCredential()


def library_classes() -> tuple[Mapping[str, type[Any]], type[Any]]:
    """Return the library's evaluator classes by name, and the base of those with a prompt.

    Blocks; raises MissingExtra.
    """
    exported = vars(_library("'class'"))
    from azure.ai.evaluation._evaluators._common import EvaluatorBase
    from azure.ai.evaluation._evaluators._common._base_model_eval import ModelEvaluatorBase

    classes = {name: value for name, value in exported.items() if isinstance(value, type)}
    known = {name: value for name, value in classes.items() if issubclass(value, EvaluatorBase)}
    return known, ModelEvaluatorBase


def _library(needed_by: str) -> Any:
    try:
        with loading("Azure AI Evaluation", "azure.ai.evaluation"):
            import azure.ai.evaluation as library
    except ImportError as error:
        raise MissingExtra("azure", needed_by) from error
    # it logs a warning that its classes are experimental
    logging.getLogger("azure.ai.evaluation._common._experimental").setLevel(logging.ERROR)
    return library


def evaluator_class(name: str) -> Any:
    """Return an evaluator class of the library. Blocks; raises MissingExtra."""
    return getattr(_library(name), name)


@dataclass(frozen=True, slots=True)
class Scale:
    """The scores that a class of the library gives."""

    worst: float
    best: float

    def __str__(self) -> str:
        return f"{min(self.worst, self.best):g}-{max(self.worst, self.best):g}"

    def score(self, raw: Any) -> float:
        """Convert a number of the scale to 0 (worst) to 1 (best). Raises EvaluationError."""
        number = isinstance(raw, int | float) and not isinstance(raw, bool)
        if not number or not math.isfinite(raw) or not 0 <= self.part(raw) <= 1:
            raise EvaluationError(f"the score {raw!r} is not a number of the scale {self}")
        return self.part(raw)

    def to_score(self, raw: Any, reason: str) -> Score:
        """Return the score of a number of the scale. Raises EvaluationError."""
        return Score(self.score(raw), reason=reason, raw_score=float(raw), raw_scale=str(self))

    def schema(self, more: Mapping[str, Any]) -> JsonObject:
        """Return the schema of a verdict in whole numbers, with the reason first so that it leads
        to the score.
        """
        scores = range(int(min(self.worst, self.best)), int(max(self.worst, self.best)) + 1)
        keys = {
            **more,
            "reason": {"type": "string"},
            "score": {"type": ["integer", "null"], "enum": [*scores, None]},
            "status": {"type": "string", "enum": ["completed", "skipped"]},
        }
        return {"type": "object", "properties": keys, "required": ["reason", "score"]}

    def part(self, raw: float) -> float:
        """Return where a number lies between worst (0) and best (1)."""
        return round((raw - self.worst) / (self.best - self.worst), 12)


def parse_verdict(verdict: JsonObject) -> JsonObject:
    """Check a verdict beyond its schema. Raises ValueError with a message for the judge."""
    if not verdict["reason"].strip():
        raise ValueError("reason: is empty")
    if verdict["score"] is None and verdict.get("status") != "skipped":
        raise ValueError("score: is null, and nothing was skipped")
    return verdict
