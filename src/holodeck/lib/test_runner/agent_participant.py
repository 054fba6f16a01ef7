"""The agent under test as one who takes part in a played conversation."""

from collections.abc import Awaitable, Callable, Sequence

from holodeck.lib.backends import base as backend
from holodeck.lib.backends.base import AgentSession
from holodeck.lib.conversation.messages import text_of
from holodeck.lib.conversation.roles import AgentRole, Message
from holodeck.lib.conversation.types import AgentInput
from holodeck.lib.conversation.usage_error import ScenarioUsageError
from holodeck.lib.test_runner.history import History
from holodeck.lib.test_runner.transcripts import answer_of
from holodeck.lib.test_runner.turn_run import Ask, TurnRun
from holodeck.models.test_case import TurnModel
from holodeck.models.test_result import TurnResult

BEGINS = "(The conversation begins. Say the first words.)"
"""What the agent is sent where it speaks first: all agents answer, none begins by itself."""
NOTHING_NEW = (
    "the user has said nothing new since it answered; a simulated user who is done at a step 'user'"
    " says nothing more, so write 'proceed', which ends then, or 'criteria' for a judge"
)

TakeTurn = Callable[[TurnModel, Ask], Awaitable[TurnRun]]
"""Says a turn in a session; what goes wrong is noted in the turn."""


class AgentFailedError(Exception):
    """The agent could not be run; its turn says why."""


class AgentParticipant:
    """Plays the agent, in one session.

    Args:
        session: The conversation with the agent.
        take_turn: Says a turn and notes what comes back.
        history: What was said before the session, which knows it.
    """

    role = AgentRole.AGENT

    def __init__(self, session: AgentSession, take_turn: TakeTurn, history: History = ()) -> None:
        self.history = history
        self._session = session
        self._take_turn = take_turn
        self.turns: list[TurnResult] = []
        """What was said to the agent so far, and what it did."""
        self.broken_by: Exception | None = None
        """What kept the agent from being run that none of its turns tells of."""

    async def call(self, input: AgentInput) -> list[Message]:  # noqa: A002 - the engine's name
        """What the agent did and answered. Raises AgentIsBrokenError."""
        try:
            return await self._answer(input.new_messages)
        except (AgentFailedError, ScenarioUsageError):
            raise
        except Exception as error:
            self.broken_by = error
            raise

    async def _answer(self, unheard: Sequence[Message]) -> list[Message]:
        earlier, said = _split(unheard)
        if earlier:
            self._remember(earlier)
        has_begun = any(one["role"] != "system" for one in earlier)
        if not said and (self.turns or self.history or has_begun):
            raise ScenarioUsageError("the agent is asked", NOTHING_NEW)
        run = await self._take_turn(TurnModel(input=said or BEGINS), self._session.send)
        turn = run.result()
        self.turns.append(turn)
        if run.errors:
            raise AgentFailedError(run.errors[0])
        return answer_of(turn, len(self.turns))

    def _remember(self, messages: list[backend.Message]) -> None:
        if not isinstance(self._session, backend.AcceptsHistory):
            raise ScenarioUsageError(
                "the agent's backend",
                "cannot be told of lines that a script says in its place; give its sessions a"
                " method remember(messages), or leave 'agent: …' and 'message' out",
            )
        self._session.remember(messages)


def _split(unheard: Sequence[Message]) -> tuple[list[backend.Message], str]:
    """What the agent is to remember, and what the user says to it now."""
    plain = [one for one in unheard if text_of(one).strip()]
    answered = [at for at, one in enumerate(plain) if one.get("role") == "assistant"]
    now = plain[answered[-1] + 1 :] if answered else plain
    before = plain[: len(plain) - len(now)] + [one for one in now if one.get("role") != "user"]
    said = [text_of(one) for one in now if one.get("role") == "user"]
    earlier = [backend.Message(role=str(one["role"]), content=text_of(one)) for one in before]
    return earlier, "\n\n".join(said)
