"""The agent under test as one who takes part in a played conversation."""

from collections.abc import Awaitable, Callable, Sequence

from holodeck.lib.backends.base import AgentSession
from holodeck.lib.conversation.messages import text_of
from holodeck.lib.conversation.roles import AgentRole, Message
from holodeck.lib.conversation.types import AgentInput
from holodeck.lib.test_runner.transcripts import answer_of
from holodeck.lib.test_runner.turn_run import Ask, TurnRun
from holodeck.models.test_case import TurnModel
from holodeck.models.test_result import TurnResult

BEGINS = "(The conversation begins. Say the first words.)"
"""What the agent is sent where it speaks first: all agents answer, none begins by itself."""

TakeTurn = Callable[[TurnModel, Ask], Awaitable[TurnRun]]
"""Says a turn in a session; what goes wrong is noted in the turn."""


class AgentIsBrokenError(Exception):
    """The agent could not be run; its turn says why."""


class AgentParty:
    """Plays the agent, in one session.

    Args:
        session: The conversation with the agent.
        take_turn: Says a turn and notes what comes back.
    """

    role = AgentRole.AGENT

    def __init__(self, session: AgentSession, take_turn: TakeTurn) -> None:
        self._session = session
        self._take_turn = take_turn
        self.turns: list[TurnResult] = []
        """What was said to the agent so far, and what it did."""
        self.is_broken = False
        """Whether the agent could not be run."""

    async def call(self, input: AgentInput) -> list[Message]:  # noqa: A002 - the engine's name
        """What the agent did and answered. Raises AgentIsBrokenError."""
        run = await self._take_turn(TurnModel(input=_said(input.new_messages)), self._session.send)
        turn = run.result()
        self.turns.append(turn)
        if run.errors:
            self.is_broken = True
            raise AgentIsBrokenError(run.errors[0])
        return answer_of(turn, len(self.turns))


def _said(unheard: Sequence[Message]) -> str:
    """What the user said since the agent last spoke."""
    texts = [text_of(one) for one in unheard if one.get("role") == "user"]
    return "\n\n".join(text for text in texts if text.strip()) or BEGINS
