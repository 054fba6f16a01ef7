"""The simulated user of a case that attacks the agent."""

from collections.abc import Sequence
from typing import Any

from holodeck.lib.conversation.messages import Message
from holodeck.lib.conversation.red_team.attacker import PROMPTS, RedTeamUser, Task
from holodeck.lib.conversation.red_team.goat import GoatStrategy
from holodeck.lib.conversation.red_team.strategies import CrescendoStrategy
from holodeck.lib.conversation.response_cache import ResponseCache
from holodeck.lib.conversation.types import AgentInput, EndConversation
from holodeck.lib.llm.model import ChatModel
from holodeck.models.base import MAX_TURNS
from holodeck.models.cases.conversation import RedTeam

STRATEGIES = {"crescendo": CrescendoStrategy, "goat": GoatStrategy}
REACHED = "the attack reached its target"


class CaseAttacker(RedTeamUser):
    """Attacks for all turns of a case, or until its target is reached; the judge decides then.

    Args:
        settings: The attack.
        model: Plans, attacks and rates.
        max_turns: Of the case; None for the default.
        cache: Keeps what the model writes; None if it is asked each time.
    """

    def __init__(
        self,
        settings: RedTeam,
        model: ChatModel,
        max_turns: int | None,
        cache: ResponseCache | None = None,
    ) -> None:
        super().__init__(
            strategy=STRATEGIES[settings.strategy](),
            target=settings.target,
            total_turns=MAX_TURNS if max_turns is None else max_turns,
            attack_plan=settings.plan,
            injection_probability=settings.encode,
            max_backtracks=0,  # the session of the agent does not forget
        )
        self._model = model
        self._cache = cache

    async def call(self, input: AgentInput) -> Any:  # noqa: A002 - the engine's name
        message = await super().call(input)
        return EndConversation(reason=REACHED) if self.check_early_exit() else message

    def model_for_task(self, task: Task) -> ChatModel:  # noqa: ARG002 - the same for all
        return self._model

    async def _ask(self, task: Task, messages: Sequence[Message]) -> str:
        if self._cache is None:
            return await super()._ask(task, messages)
        written: str = await self._cache.get_for_role(
            "attacker",
            lambda: super(CaseAttacker, self)._ask(task, messages),
            prompts=PROMPTS,
            task=task,
            messages=list(messages),
        )
        return written
