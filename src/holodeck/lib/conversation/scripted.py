"""What the steps of a script let the parties do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from holodeck.lib.conversation.engine import Conversation
from holodeck.lib.conversation.messages import fixed_message
from holodeck.lib.conversation.roles import AgentRole, Message
from holodeck.lib.conversation.setup import CLASSES, is_list_of_criteria
from holodeck.lib.conversation.types import ScenarioResult, undecided_checkpoint


class ScriptedConversation(Conversation):
    """A conversation in which a script decides who speaks next."""

    async def message(self, message: Mapping[str, Any]) -> None:
        """Add a message: as the user's or the agent's word, or for everybody if of another role."""
        if not isinstance(message, Mapping):
            raise self.usage_error(f"message({message!r}): write {{'role': …, 'content': …}}")
        if (role := message.get("role")) == "user":
            await self._scripted(AgentRole.USER, message)
        elif role == "assistant":
            await self._scripted(AgentRole.AGENT, message)
        else:
            self.add_message(message)

    async def user(self, content: str | Mapping[str, Any] | None = None) -> ScenarioResult | None:
        """Say `content` as the user, or let the user speak; a result if that ends it."""
        return await self._scripted(AgentRole.USER, content)

    async def agent(self, content: str | Mapping[str, Any] | None = None) -> ScenarioResult | None:
        """Say `content` as the agent, or let the agent speak; a result if that ends it."""
        return await self._scripted(AgentRole.AGENT, content)

    async def judge(
        self,
        criteria: str | Sequence[str] | None = None,
        *,
        content: str | Mapping[str, Any] | None = None,
    ) -> ScenarioResult | None:
        """Ask the judge for its verdict; None if it gave none.

        Criteria, one or a list, make it a checkpoint: if all pass, the script goes on. `content`
        asks nobody; it is added as a message of the assistant.
        """
        if content is not None and criteria is not None:
            raise self.usage_error("judge(…) has both criteria and content; write one of them")
        if criteria is None:
            return await self._scripted(AgentRole.JUDGE, content, judgment=True)
        return await self._checkpoint([criteria] if isinstance(criteria, str) else criteria)

    async def succeed(self, reasoning: str | None = None) -> ScenarioResult:
        """The result of a case that passed."""
        return self._ended(True, reasoning or "Scenario marked as successful")

    async def fail(self, reasoning: str | None = None) -> ScenarioResult:
        """The result of a case that failed."""
        return self._ended(False, reasoning or "Scenario marked as failed")

    async def _checkpoint(self, criteria: Sequence[str]) -> ScenarioResult | None:
        if isinstance(criteria, Mapping):
            raise self.usage_error(
                f"judge({criteria!r}): the first argument is the criteria; to add a message, write"
                " message({'role': …, 'content': …})"
            )
        if not is_list_of_criteria(criteria):
            raise self.usage_error(
                f"judge({criteria!r}): write one criterion or more in a list, none of them empty"
            )
        result = await self._scripted(AgentRole.JUDGE, judgment=True, criteria=list(criteria))
        result = self.concluded(undecided_checkpoint(criteria)) if result is None else result
        if not result.success:
            return result
        self.usage_meter.passed(result)
        return None

    async def _scripted(
        self,
        role: AgentRole,
        content: str | Mapping[str, Any] | None = None,
        *,
        judgment: bool = False,
        criteria: list[str] | None = None,
    ) -> ScenarioResult | None:
        message = None if content is None else self._fixed(role, content)
        index = self.turns.index_for(role)
        if index is None:
            self.turns.next_turn()
            index = self.turns.index_for(role)
        if index is None:
            wish = "" if content is None else f" with content {content!r}"
            raise self.usage_error(
                f"nobody plays the role `{role.value}`, so there is no message{wish};"
                f" add {CLASSES[role]} to 'agents'"
            )
        self.turns.spoke(index)
        if message is not None:
            self.add_message(message)
            return None
        if self._has_nothing_to_answer(index):
            return self._ended(False, self._why_unanswered(), "user_left")
        result = await self._ask(index, judgment=judgment, criteria=criteria)
        self._is_left = False
        return result if isinstance(result, ScenarioResult) else None

    def _why_unanswered(self) -> str:
        """Why an agent is not asked: the user left without a word."""
        return (
            f"{self.place}: the user ended the conversation without a word in"
            f" {self._silent_since}, so the agent has nothing to answer; a simulated user who is"
            " done says nothing more, so write 'proceed', which ends then"
        )

    def _fixed(self, role: AgentRole, content: str | Mapping[str, Any]) -> Message:
        try:
            return fixed_message(content, role)
        except ValueError as error:
            raise self.usage_error(str(error)) from error
