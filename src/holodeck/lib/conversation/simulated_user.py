"""A user who pursues a goal, played by a model."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from holodeck.lib.conversation.messages import (
    EARLIER,
    AgentRole,
    Message,
    indent,
    shorten_lines,
    text_of,
)
from holodeck.lib.conversation.types import AgentInput, EndConversation
from holodeck.lib.conversation.usage import record_usage
from holodeck.lib.llm.json_answer import parse_json_answer, without_reasoning
from holodeck.lib.llm.model import ChatModel, ChatRequest, ChatResponse, ask_model
from holodeck.lib.text import replace_surrogates
from holodeck.models.token_usage import TokenUsage

TRIES = 2
BUDGET = 12_000
INSTRUCTIONS = """\
You play a person who writes to an assistant. You are the user, never the assistant: you ask and
react, you do not help. Write the user's next message and nothing else. Keep it short, the way
people type. Stay in your situation. You are done once your goal is reached, or cannot be reached
any more; then say so with "done", and "message" may hold a last word."""
ASKED = 'Answer with JSON: {"message": "what the user writes next", "done": false}'
AGAIN = (
    "That was no message of the user. Write what the user, not the assistant, says next;"
    " if the user has nothing more to say, set done to true."
)
PROMPTS = (INSTRUCTIONS, ASKED, AGAIN)
"""All that the model is told besides the case; the instructions may be others."""
SCHEMA = {
    "type": "object",
    "properties": {"message": {"type": "string"}, "done": {"type": "boolean"}},
    "required": ["message", "done"],
}
NAMES = {"user": "USER", "assistant": "ASSISTANT", "system": "NOTE", "developer": "NOTE"}
"""What the roles are called that the user is shown; a script's notes are for them, too."""
_FENCE = re.compile(r"\A```\w*\n(.*?)\n?```\Z", re.DOTALL)
_OWN_NAME = re.compile(r"\A\s*user\s*:\s*", re.IGNORECASE)
_OTHERS_NAME = re.compile(r"\A\s*(assistant|agent|ai|system)\s*:", re.IGNORECASE)


@dataclass(frozen=True)
class Persona:
    """Who the user is, and what they may say."""

    situation: str | None = None
    """What they want; None for the description of the case."""
    persona: str | None = None
    """How they are and write."""
    facts: Sequence[str] = ()
    """All that they may state about themselves; empty for no such limit."""
    opening: str | None = None
    """Their first message, word by word."""
    agent_first: bool = False
    """Whether the agent speaks first."""
    language: str | None = None
    """The language they write."""


@dataclass(frozen=True)
class SimulatedReply:
    """What a model's answer comes to."""

    message: str
    is_done: bool


class SimulatedUser:
    """Plays the user.

    The model is shown the conversation as a transcript and asked for one line of it, so it never
    speaks in anybody's stead. An answer without a message is asked for once more; after that the
    conversation ends.
    """

    role = AgentRole.USER

    def __init__(
        self, model: ChatModel, persona: Persona, *, instructions: str | None = None
    ) -> None:
        self._model = model
        self._persona = persona
        self._instructions = INSTRUCTIONS if instructions is None else instructions

    @property
    def persona(self) -> Persona:
        """Whom it plays."""
        return self._persona

    async def call(self, input: AgentInput) -> str | list[Message] | EndConversation:  # noqa: A002 - the name is public API
        """The user's next message, or the end of the conversation."""
        new = [one for one in input.messages if not one.get(EARLIER)]
        said = [one for one in new if one.get("role") in ("user", "assistant")]
        answers = [text_of(one) for one in said if one["role"] == "assistant"]
        if self._persona.agent_first and not said:
            return []
        if self._persona.opening is not None and len(answers) == len(said):
            return self._persona.opening
        question = self._question(input.messages, input.scenario_state.description)
        for _ in range(TRIES):
            heard = await self._heard(question, answers)
            if heard is not None and heard.is_done and answers:
                return EndConversation(heard.message or None, "the user is done")
            if heard is not None and heard.message:
                return heard.message
            question = [*question, {"role": "user", "content": AGAIN}]
        return EndConversation(reason="the user had nothing to say")

    async def _heard(
        self, question: list[Message], answers: Sequence[str]
    ) -> SimulatedReply | None:
        said = await ask_model(self._model, ChatRequest(question, schema=SCHEMA), _note)
        heard = _read(said.text)
        is_echo = heard is not None and heard.message and heard.message in answers[-1:]
        return None if is_echo else heard

    def _question(self, said: Sequence[Message], description: str) -> list[Message]:
        who = self._persona
        lines = [
            indent(f"{NAMES[one['role']]}: {text_of(one)}")
            for one in said
            if one.get("role") in NAMES and text_of(one)
        ]
        parts = [
            f"# Your situation\n{who.situation or description}",
            f"# Who you are\n{who.persona}" if who.persona else "",
            "# All that you know and may state\n" + "\n".join(f"- {one}" for one in who.facts)
            if who.facts
            else "",
            f"# Language\nWrite in {who.language}." if who.language else "",
            "# The conversation so far\n"
            + (shorten_lines(lines, [], BUDGET) or "(nothing yet: you write the first message)"),
            ASKED,
        ]
        return [
            {"role": "system", "content": self._instructions},
            {"role": "user", "content": "\n\n".join(part for part in parts if part)},
        ]


def _note(calls: int, said: ChatResponse | None) -> None:
    usage = TokenUsage.zero() if said is None else said.usage
    record_usage(usage, calls=calls, failed=calls - (said is not None))


def _read(text: str) -> SimulatedReply | None:
    """What an answer says, as JSON or as plain text; None if it is neither."""
    bare = without_reasoning(text)
    fenced = _FENCE.match(bare)
    bare = fenced[1].strip() if fenced else bare
    try:
        answer = parse_json_answer(text)
    except ValueError:
        answer = None
    if not isinstance(answer, dict) or not {"message", "done"} & answer.keys():
        return None if bare.startswith("{") else _plain(bare, is_done=False)
    message = "" if answer.get("message") is None else answer["message"]
    if not isinstance(message, str):
        return None
    return _plain(without_reasoning(message), is_done=answer.get("done") is True)


def _plain(text: str, *, is_done: bool) -> SimulatedReply | None:
    if _OTHERS_NAME.match(text):
        return None
    return SimulatedReply(replace_surrogates(_OWN_NAME.sub("", text)).strip(), is_done)
