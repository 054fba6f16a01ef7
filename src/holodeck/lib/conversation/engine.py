"""The one conversation engine: USER, then AGENT, then JUDGE, turn by turn or step by step."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from holodeck.lib.conversation.events import (
    BATCH_RUN_ID,
    CriterionJudged,
    EventStream,
    MessageAdded,
)
from holodeck.lib.conversation.messages import (
    AgentRole,
    Message,
    copied,
    fixed_message,
    messages_of,
)
from holodeck.lib.conversation.participants import (
    CLASSES,
    HasCriteria,
    ParticipantCaller,
    Settings,
    TimeLimits,
    Turns,
    find_agent_missing_error,
    find_participant_error,
    find_setting_error,
    is_list_of_criteria,
)
from holodeck.lib.conversation.state import History, ScenarioState
from holodeck.lib.conversation.types import (
    AgentInput,
    Callback,
    EndConversation,
    Participant,
    ScenarioResult,
    ScenarioUsageError,
    rows_of,
    undecided_checkpoint,
)
from holodeck.lib.conversation.usage import UsageMeter
from holodeck.models.conversation import MAX_TURNS


class Conversation:
    """One conversation at a time between parties: who speaks, who hears what, how it ends.

    Args:
        name: What messages and reports call the case.
        description: The situation.
        agents: All who take part; of a role they speak in this order.
        config: Limits on turns and time.
        set_id: The set that the case belongs to.
        batch_run_id: The batch that the run belongs to; that of the process if not given.
    """

    before: Sequence[Message] = ()
    """What was said before the conversation; it is news to nobody."""
    has_checkpoints = False
    """Whether a step may ask the judge by criteria of its own."""
    has_steps_left = False
    """Whether a script has steps after the one under way."""

    def __init__(
        self,
        name: str,
        description: str,
        agents: Sequence[Participant],
        config: Settings,
        *,
        set_id: str | None = None,
        batch_run_id: str | None = None,
    ) -> None:
        self.name = name
        self.description = description
        self._step_name = ""
        if not isinstance(agents, Iterable):
            raise self.usage_error(f"agents is no list but {agents!r}; write agents=[…]")
        self.agents = list(agents)
        self.config = config
        self.scenario_set_id = "default" if set_id is None else set_id
        self.batch_run_id = BATCH_RUN_ID if batch_run_id is None else batch_run_id
        self.clock = TimeLimits()
        self._events = EventStream()
        wrong = find_setting_error(config, self.max_turns)
        if wrong is not None:
            raise self.usage_error(wrong)
        self.reset()

    @property
    def events(self) -> EventStream:
        """Where listeners subscribe to what happens."""
        return self._events

    @property
    def thread_id(self) -> str:
        """The name of this conversation, another one for each run."""
        return self.usage_meter.thread_id

    @property
    def current_turn(self) -> int:
        """The turn under way; the first one is 0."""
        return self.turns.current

    @property
    def max_turns(self) -> int:
        """The most turns that are played without a script."""
        return MAX_TURNS if self.config.max_turns is None else self.config.max_turns

    @property
    def place(self) -> str:
        """The case, and the step under way."""
        return f"case {self.name!r}" + (f", {self._step_name}" if self._step_name else "")

    def reset(self) -> None:
        """Forget everything and start anew, with a new thread."""
        if (wrong := find_participant_error(self.agents)) is not None:
            raise self.usage_error(wrong)
        self.usage_meter = UsageMeter(self.batch_run_id)
        self.turns = Turns(self.agents)
        self.history = History(len(self.agents), self.before)
        self.state = ScenarioState(self)
        self._caller = ParticipantCaller(self.clock, self.usage_meter, self.config.call_timeout)
        self._dispatcher = EventStream().dispatcher()
        self.unseen_tool_calls = False
        """Whether an agent answered with a bare text, so that its tool calls are unknown."""
        self._is_left = False
        self.left_at: str | None = None
        """Where the user ended the conversation; None if that has not happened."""
        self._silent_since: str | None = None
        """Where the user left without a last word; None once the user has spoken again."""
        self._own_turns = 0
        """Turns that no script opened."""

    def add_message(self, message: Mapping[str, Any], from_agent_idx: int | None = None) -> None:
        """Add a message that everybody hears but its author."""
        try:
            [added] = messages_of(message, AgentRole.AGENT)
        except ValueError as error:
            raise self.usage_error(str(error)) from error
        self.history.add(added, from_agent_idx)
        if added.get("role") == "user":
            self._silent_since = None
        if not self._dispatcher.is_idle:
            self._tell_of(added)

    def add_messages(
        self, messages: Sequence[Mapping[str, Any]], from_agent_idx: int | None = None
    ) -> None:
        """Add several messages of one author."""
        for message in messages:
            self.add_message(message, from_agent_idx)

    async def step(self) -> list[Message] | ScenarioResult:
        """Let whoever is next speak: what they said, or the result that ends it.

        Raises:
            ValueError: There was nobody left to speak.
        """
        result = await self._step()
        if result is None:
            raise ValueError(f"{self.place}: the step gave no result")
        return result

    async def proceed(
        self,
        turns: int | None = None,
        on_turn: Callback | None = None,
        on_step: Callback | None = None,
        on_turn_end: Callback | None = None,
    ) -> ScenarioResult | None:
        """Play turns until there is a result; None when `turns` are used up or the user left.

        The turn under way at the first step counts as one of `turns`. `on_turn` is told when
        another turn begins, `on_step` after everybody's word, `on_turn_end` when all have spoken.
        """
        if (wrong := find_agent_missing_error(self.agents, turns)) is not None:
            raise self.usage_error(wrong)
        first: int | None = None
        while True:
            goes_on = turns is None or first is None or self.turns.current + 1 < first + turns
            result = await self._step(goes_on, on_turn, on_turn_end, is_counted=turns is not None)
            first = self.turns.current if first is None else first
            if result is None:
                return None
            turn = self.turns.current
            await self._tell(on_step)
            if isinstance(result, ScenarioResult):
                return result
            if self._is_left:
                self._is_left = False
                return None
            if self.turns.current > turn:  # the callback spoke, and so opened other turns
                self._own_turns += self.turns.current - turn
                if turns is not None and self.turns.current >= first + turns:
                    return None
                if self._has_too_many_turns(is_counted=turns is not None):
                    return await self._out_of_turns()

    async def verdict(self) -> ScenarioResult | None:
        """What the judge decides now, whoever's turn it is; None if nobody decides."""
        return await self._verdict_of(self._indices(AgentRole.JUDGE))

    def concluded(self, result: ScenarioResult) -> ScenarioResult:
        """The result with everything that the engine knows: times, ids, tokens, checkpoints."""
        return self.usage_meter.completed(
            result, self.history.messages, self._indices(AgentRole.AGENT)
        )

    def usage_error(self, message: str) -> ScenarioUsageError:
        """An error that names the case and the step."""
        return ScenarioUsageError(self.place, message)

    async def _step(
        self,
        goes_on: bool = True,
        on_turn: Callback | None = None,
        on_turn_end: Callback | None = None,
        *,
        is_counted: bool = False,
    ) -> list[Message] | ScenarioResult | None:
        if not self.agents:
            raise self.usage_error("nobody takes part; write agents=[your agent, …]")
        self._own_turns = self._own_turns or int(self.turns.is_fresh)
        while True:
            index = self.turns.next_index()
            if index is not None:
                self.turns.spoke(index)
                if self._is_too_early(index) or self._has_nothing_to_answer(index):
                    continue
                said = await self._ask(index)
                verdict = await self._verdict_on_leaving(index) if self._is_left else None
                return said if verdict is None else verdict
            await self._tell(on_turn_end)
            if not goes_on:
                return None
            self.turns.next_turn()
            self._own_turns += 1
            await self._tell(on_turn)
            if self._has_too_many_turns(is_counted=is_counted):
                return await self._out_of_turns()

    def _has_too_many_turns(self, *, is_counted: bool) -> bool:
        """Whether the turn under way is one too many.

        Who asks for so many turns gets them, however many a script has played before.
        """
        return (self._own_turns if is_counted else self.turns.current + 1) > self.max_turns

    def _is_too_early(self, index: int) -> bool:
        """Whether it is a judge's turn before the least number of turns is played."""
        least = self.config.min_turns or 0
        return self.agents[index].role is AgentRole.JUDGE and self.turns.current + 1 < least

    def _has_nothing_to_answer(self, index: int) -> bool:
        """Whether the user left without a word, so that an agent would answer nothing."""
        if self._silent_since is None or self.agents[index].role is not AgentRole.AGENT:
            return False
        return not any(one.get("role") == "user" for one in self.history.unheard(index))

    async def _out_of_turns(self) -> ScenarioResult:
        verdict = await self._last_verdict()
        if verdict is not None:
            return verdict
        reasoning = f"Reached maximum turns ({self.max_turns}) without conclusion"
        return self._ended(False, reasoning, "max_turns")

    async def _last_verdict(self) -> ScenarioResult | None:
        """What a judge with criteria decides now that it must; None if there is none."""
        judges = [(index, self.agents[index]) for index in self._indices(AgentRole.JUDGE)]
        able = [at for at, one in judges if isinstance(one, HasCriteria) and one.criteria]
        return await self._verdict_of(able)

    async def _verdict_of(self, judges: Sequence[int]) -> ScenarioResult | None:
        result = await self._ask(judges[0], judgment=True) if judges else None
        return result if isinstance(result, ScenarioResult) else None

    async def _ask(
        self, index: int, *, judgment: bool = False, criteria: list[str] | None = None
    ) -> list[Message] | ScenarioResult:
        participant, unheard = self.agents[index], self.history.unheard(index)
        given = AgentInput(
            thread_id=self.usage_meter.thread_id,
            messages=self.history.messages,
            new_messages=unheard,
            judgment_request=judgment,
            judgment_criteria=criteria,
            scenario_state=self.state,
        )
        returned = await self._caller.answer(index, participant, given, self.place)
        self.history.heard(index, len(unheard))
        if isinstance(returned, ScenarioResult):
            return self._judged(returned)
        if isinstance(returned, EndConversation):
            return self._leave(returned, index, participant.role)
        try:
            messages = messages_of(returned, participant.role)
            if participant.role is AgentRole.AGENT and isinstance(returned, str):
                self.unseen_tool_calls = True
        except ValueError as error:
            raise self.usage_error(f"{type(participant).__name__}.call: {error}") from error
        self.add_messages(messages, index)
        return messages

    def _leave(self, end: EndConversation, index: int, role: AgentRole) -> list[Message]:
        """Note that somebody ends the conversation; their last word, if there is one."""
        messages = messages_of(end.farewell, role) if end.farewell else []
        self.add_messages(messages, index)
        self._is_left = True
        if role is AgentRole.USER:
            self.left_at = self._step_name or self.place
            self._silent_since = None if messages else self.left_at
        return messages

    async def _verdict_on_leaving(self, index: int) -> ScenarioResult | None:
        """The judge's verdict after somebody left; None if the conversation goes on.

        While steps of a script are left, only a verdict against the agent ends it.
        """
        if self.agents[index].role is AgentRole.JUDGE:
            return None
        verdict = await self._last_verdict()
        if verdict is None or (verdict.success and self.has_steps_left):
            return None
        self._is_left = False
        return verdict

    def _judged(self, result: ScenarioResult) -> ScenarioResult:
        if not self._dispatcher.is_idle:
            for row in rows_of(result):
                self._dispatcher.put(CriterionJudged(verdict=row, **self.ids))
        return self.concluded(result)

    def _ended(self, success: bool, reasoning: str, code: str | None = None) -> ScenarioResult:
        said = self.history.messages
        return self.concluded(
            ScenarioResult(success=success, messages=said, reasoning=reasoning, reason_code=code)
        )

    def _indices(self, role: AgentRole) -> list[int]:
        return [index for index, participant in enumerate(self.agents) if participant.role is role]

    async def _tell(self, callback: Callable[[ScenarioState], Any] | None) -> object:
        told = None if callback is None else callback(self.state)
        return await told if inspect.isawaitable(told) else told

    def _tell_of(self, message: Message) -> None:
        index, turn = len(self.history) - 1, self.turns.current
        self._dispatcher.put(
            MessageAdded(index=index, message=copied(message), turn=turn, **self.ids)
        )

    @property
    def ids(self) -> dict[str, Any]:
        """What every event of the run names."""
        return {
            "batch_run_id": self.batch_run_id,
            "scenario_run_id": self.usage_meter.scenario_run_id,
            "scenario_id": self.name,
            "scenario_set_id": self.scenario_set_id,
        }


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
