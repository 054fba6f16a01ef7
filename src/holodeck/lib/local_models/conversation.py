"""A conversation with tool calls, as a small model understands it: questions, facts, answers.

Small models that see a tool call in their own words answer with the next one, for ever. So calls
are not shown to them; what the tools returned stands in front of the question instead.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from holodeck.errors import BackendSessionError

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class Fact:
    """What a tool returned for which arguments."""

    tool: str
    arguments: JsonObject
    result: str


@dataclass
class Turn:
    """What the user said, what the tools returned, and what the model answered."""

    question: str = ""
    facts: list[Fact] = field(default_factory=list)
    answers: list[str] = field(default_factory=list)

    def messages(self, small: bool) -> list[JsonObject]:
        asked = {"role": "user", "content": _asked(self, small)}
        return [asked, *({"role": "assistant", "content": text} for text in self.answers)]


@dataclass(frozen=True)
class Conversation:
    """The system's text and at least one turn; the last one waits for its answer."""

    instructions: str
    turns: list[Turn]
    calls: int
    """How many tool calls there were."""

    @classmethod
    def of(cls, messages: Sequence[Mapping[str, Any]]) -> "Conversation":
        """Read OpenAI-shaped messages; words beside a tool call are left out."""
        instructions: list[str] = []
        turns = [Turn()]
        calls: dict[str, tuple[str, JsonObject]] = {}
        for message in messages:
            role, text = message["role"], _text(message.get("content"))
            if role in {"system", "developer"}:
                instructions.append(text)
            elif role == "user":
                turns.append(Turn(text))
            elif role == "tool":
                turns[-1].facts.append(_fact(message, text, calls))
            elif message.get("tool_calls"):
                calls |= _calls(message["tool_calls"])
            else:
                turns[-1].answers.append(text)
        said = [turn for turn in turns if turn != Turn()] or turns
        return cls("\n\n".join(instructions), said, len(calls))


def _fact(
    message: Mapping[str, Any], text: str, calls: Mapping[str, tuple[str, JsonObject]]
) -> Fact:
    name = message.get("name") or "a tool"
    name, arguments = calls.get(message.get("tool_call_id", ""), (name, {}))
    return Fact(name, arguments, text)


def _calls(calls: Iterable[Mapping[str, Any]]) -> dict[str, tuple[str, JsonObject]]:
    return {
        call["id"]: (call["function"]["name"], _arguments(call["function"]["arguments"]))
        for call in calls
    }


def _arguments(text: str | None) -> JsonObject:
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {"": text}
    return found if isinstance(found, dict) else {"": found}


def _text(content: Any) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    kinds = {part.get("type") for part in content} - {"text"}
    if kinds:
        raise BackendSessionError(
            f"a local model reads text, and a message holds {', '.join(map(str, sorted(kinds)))}"
        )
    return "".join(part["text"] for part in content)


def _asked(turn: Turn, small: bool) -> str:
    if not turn.facts:
        return turn.question
    return _asked_small(turn) if small else _asked_large(turn)


def _asked_small(turn: Turn) -> str:
    """The wording of many that makes a 135M model repeat what a tool returned most often."""
    results = "; ".join(fact.result for fact in turn.facts)
    return f"{turn.question}\n\nThe answer is: {results}\n\nSay this answer in one sentence."


def _asked_large(turn: Turn) -> str:
    facts = [f"{one.tool} {json.dumps(one.arguments)}: {one.result}" for one in turn.facts]
    listed = facts[0] if len(facts) == 1 else "".join(f"\n- {fact}" for fact in facts)
    return f"Read this: {listed}\n\nUse what you read to answer: {turn.question}"
