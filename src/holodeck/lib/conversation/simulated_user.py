"""A simulated user: a model that plays a person with a goal."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from holodeck.lib.conversation.messages import AgentRole, indent, shorten_lines
from holodeck.lib.conversation.types import AgentInput, EndConversation
from holodeck.lib.llm.json_answer import parse_json_answer, without_reasoning
from holodeck.lib.llm.model import ChatModel, ChatRequest, ask_model
from holodeck.lib.support.text import replace_surrogates
from holodeck.lib.ui.activity import activity
from holodeck.models.cases.messages import Message, text_of

ATTEMPTS = 2
TRANSCRIPT_LIMIT = 12_000
"""Characters of the conversation that the model is shown."""
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
"""All prompts; the instructions may be replaced."""
SCHEMA = {
    "type": "object",
    "properties": {"message": {"type": "string"}, "done": {"type": "boolean"}},
    "required": ["message", "done"],
}
NAMES = {"user": "USER", "assistant": "ASSISTANT", "system": "NOTE", "developer": "NOTE"}
"""The names of the roles that the user sees; a script's notes are for the user as well."""
_FENCE = re.compile(r"\A```\w*\n(.*?)\n?```\Z", re.DOTALL)
_OWN_NAME = re.compile(r"\A\s*user\s*:\s*", re.IGNORECASE)
_OTHERS_NAME = re.compile(r"\A\s*(assistant|agent|ai|system)\s*:", re.IGNORECASE)


@dataclass(frozen=True)
class Persona:
    """Who the user is, and what they know."""

    situation: str | None = None
    """What the user wants; None for the description of the case."""
    persona: str | None = None
    """How the user is and writes."""
    facts: Sequence[str] = ()
    """All that the user may state about themselves; empty for no limit."""
    opening: str | None = None
    """The first message, verbatim."""
    agent_first: bool = False
    """Whether the agent speaks first."""
    language: str | None = None
    """The language the user writes."""


class SimulatedUser:
    """A participant that plays the user.

    The model gets the conversation as a transcript and is asked for one line of it, so it never
    speaks for another role. An answer without a message is asked for once more; after that the
    conversation ends.
    """

    role = AgentRole.USER

    def __init__(
        self,
        model: ChatModel,
        persona: Persona,
        *,
        instructions: str | None = None,
    ) -> None:
        self._model = model
        self.persona = persona
        self._instructions = INSTRUCTIONS if instructions is None else instructions

    async def call(self, input: AgentInput) -> str | list[Message] | EndConversation:  # noqa: A002 - the name is public API
        """Return the user's next message, or the end of the conversation."""
        new = [message for message in input.messages if not message.get("earlier")]
        turns = [message for message in new if message.get("role") in ("user", "assistant")]
        answers = [text_of(turn) for turn in turns if turn["role"] == "assistant"]
        if self.persona.agent_first and not turns:
            return []
        if self.persona.opening is not None and len(answers) == len(turns):
            return self.persona.opening
        prompt = self._prompt(input.messages, input.scenario_state.description)
        for _ in range(ATTEMPTS):
            with activity("simulating the user"):
                response = await ask_model(self._model, ChatRequest(prompt, schema=SCHEMA))
            reply = _parse_reply(response.text)
            message, is_done = reply or ("", False)
            if not message or message not in answers[-1:]:  # else it echoes the agent
                if is_done and answers:
                    return EndConversation(message or None, "the user is done")
                if message:
                    return message
            prompt = [*prompt, {"role": "user", "content": AGAIN}]
        return EndConversation(reason="the user had nothing to say")

    def _prompt(self, messages: Sequence[Message], description: str) -> list[Message]:
        who = self.persona
        lines = [
            indent(f"{NAMES[message['role']]}: {text_of(message)}")
            for message in messages
            if message.get("role") in NAMES and text_of(message)
        ]
        parts = [
            f"# Your situation\n{who.situation or description}",
            f"# Who you are\n{who.persona}" if who.persona else "",
            "# All that you know and may state\n" + "\n".join(f"- {fact}" for fact in who.facts)
            if who.facts
            else "",
            f"# Language\nWrite in {who.language}." if who.language else "",
            "# The conversation so far\n"
            + (
                shorten_lines(lines, [], TRANSCRIPT_LIMIT)
                or "(nothing yet: you write the first message)"
            ),
            ASKED,
        ]
        return [
            {"role": "system", "content": self._instructions},
            {"role": "user", "content": "\n\n".join(part for part in parts if part)},
        ]


def _parse_reply(text: str) -> tuple[str, bool] | None:
    """Return the message and whether the user is done, of JSON or plain text; None for neither."""
    bare = without_reasoning(text)
    fenced = _FENCE.match(bare)
    bare = fenced[1].strip() if fenced else bare
    try:
        answer = parse_json_answer(text)
    except ValueError:
        answer = None
    is_done, message = False, bare
    if isinstance(answer, dict) and {"message", "done"} & answer.keys():
        written = answer.get("message")
        if not isinstance(written, str | None):
            return None
        is_done, message = answer.get("done") is True, without_reasoning(written or "")
    elif bare.startswith("{"):
        return None
    if _OTHERS_NAME.match(message):
        return None
    return replace_surrogates(_OWN_NAME.sub("", message)).strip(), is_done
