"""The conversation engine: user, then agent, then judge, turn by turn or step by step."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any

from holodeck.lib.conversation.events import (
    BATCH_RUN_ID,
    CriterionJudged,
    EventStream,
    MessageAdded,
)
from holodeck.lib.conversation.messages import AgentRole, deep_copy, scripted_message, to_messages
from holodeck.lib.conversation.participants import (
    EXAMPLES,
    ConversationSettings,
    HasCriteria,
    ParticipantCaller,
    RunUsage,
    TimeLimits,
    TurnOrder,
    find_participant_error,
    find_proceed_error,
    find_setting_error,
    is_list_of_criteria,
)
from holodeck.lib.conversation.state import History, ScenarioState
from holodeck.lib.conversation.types import (
    AgentInput,
    Callback,
    CriterionResult,
    CriterionStatus,
    EndConversation,
    JudgmentRequest,
    Participant,
    ScenarioResult,
    ScenarioUsageError,
    rows_of,
    verdict_of,
)
from holodeck.lib.observability import propagation_headers
from holodeck.lib.spans.store import SpanStore
from holodeck.lib.support.text import one_line
from holodeck.models.base import MAX_TURNS
from holodeck.models.cases.messages import Message


class Conversation:
    """A conversation between participants: who speaks, who gets which messages, how it ends.

    Args:
        name: The name of the case in messages and reports.
        description: The situation.
        agents: All participants; those of a role speak in this order.
        config: Limits on turns and time.
        set_id: The set that the case belongs to.
        batch_run_id: The batch that the run belongs to; that of the process if not given.
    """

    before: Sequence[Message] = ()
    """Messages from before the conversation, which no participant gets as new."""
    fields: Mapping[str, Any] = MappingProxyType({})
    """Values that the case carries next to its description."""
    has_checkpoints = False
    """Whether a step may give the judge criteria of its own."""
    has_steps_left = False
    """Whether a script has further steps."""
    span_store: SpanStore | None = None
    """The spans that were made during the run; None if they are not collected."""

    def __init__(
        self,
        name: str,
        description: str,
        agents: Sequence[Participant],
        config: ConversationSettings,
        *,
        set_id: str | None = None,
        batch_run_id: str | None = None,
    ) -> None:
        self.name = name
        self.description = description
        self.step_name = ""
        """The current step, such as `step 2 (agent)`; empty before the first."""
        if not isinstance(agents, Iterable):
            raise self.usage_error(f"agents is not a list but {agents!r}; write agents=[…]")
        self.agents = list(agents)
        self.config = config
        self.scenario_set_id = "default" if set_id is None else set_id
        self.batch_run_id = BATCH_RUN_ID if batch_run_id is None else batch_run_id
        self.limits = TimeLimits()
        self.events = EventStream()
        problem = find_setting_error(config, self.max_turns)
        if problem is not None:
            raise self.usage_error(problem)
        self.reset()

    @property
    def thread_id(self) -> str:
        """The id of this conversation, new for each run."""
        return self.usage.thread_id

    @property
    def current_turn(self) -> int:
        """The number of the current turn, counted from 0."""
        return self.turns.current

    @property
    def max_turns(self) -> int:
        """The most turns that are played without a script."""
        return MAX_TURNS if self.config.max_turns is None else self.config.max_turns

    @property
    def location(self) -> str:
        """The case and the current step, for messages."""
        return f"case {self.name!r}" + (f", {self.step_name}" if self.step_name else "")

    @property
    def ids(self) -> dict[str, Any]:
        """The fields that all events of the run share."""
        return {
            "batch_run_id": self.batch_run_id,
            "scenario_run_id": self.usage.scenario_run_id,
            "scenario_id": self.name,
            "scenario_set_id": self.scenario_set_id,
        }

    def reset(self) -> None:
        """Start anew, with no messages and another thread id."""
        if (problem := find_participant_error(self.agents)) is not None:
            raise self.usage_error(problem)
        self.usage = RunUsage(self.batch_run_id)
        self.turns = TurnOrder(self.agents)
        self.history = History(len(self.agents), self.before)
        self.state = ScenarioState(self)
        self._caller = ParticipantCaller(self.limits, self.usage, self.config.call_timeout)
        self._dispatcher = EventStream().dispatcher()
        self.unseen_tool_calls = False
        """Whether an agent answered with a bare text, so that its tool calls are unknown."""
        self._is_ended = False
        """Whether a participant has just ended the conversation."""
        self.ended_at: str | None = None
        """Where the user ended the conversation; None if that has not happened."""
        self._silent_since: str | None = None
        """Where the user left without a last message; None once the user has spoken again."""
        self._own_turns = 0
        """Turns that no script opened."""
        self._is_undecided = False
        """Whether the judge was asked for its final verdict and gave none."""
        self.failure: ScenarioResult | None = None
        """The last result against the agent."""

    def usage_error(self, message: str) -> ScenarioUsageError:
        """Return an error that names the case and the step."""
        return ScenarioUsageError(self.location, message)

    def add_message(self, message: Mapping[str, Any], from_agent_idx: int | None = None) -> None:
        """Add a message for every participant but its author."""
        try:
            [added] = to_messages(message, AgentRole.AGENT)
        except ValueError as error:
            raise self.usage_error(str(error)) from error
        self._add(added, from_agent_idx)

    def _add(self, message: Message, author: int | None = None) -> None:
        self.history.add(message, author, self.turns.current)
        if message["role"] == "user":
            self._silent_since = None
        if not self._dispatcher.is_idle:
            self._dispatcher.put(
                MessageAdded(
                    index=len(self.history) - 1,
                    message=deep_copy(message),
                    turn=self.turns.current,
                    **self.ids,
                )
            )

    def add_messages(
        self, messages: Sequence[Mapping[str, Any]], from_agent_idx: int | None = None
    ) -> None:
        """Add several messages of an author."""
        for message in messages:
            self.add_message(message, from_agent_idx)

    def rollback_messages_to(self, index: int) -> list[Message]:
        """Remove the messages from a place on, for every participant; return them.

        Raises ValueError if the index is negative.
        """
        if index < 0:
            raise ValueError(
                f"rollback_messages_to({index}): the index is negative; write 0 or more"
            )
        return self.history.rollback(index)

    async def step(self) -> list[Message] | ScenarioResult:
        """Let the next participant speak; return its messages, or the result that ends it all.

        Raises:
            ValueError: No participant was left to speak.
        """
        result = await self._step()
        if result is None:
            raise ValueError(f"{self.location}: the step gave no result")
        return result

    async def proceed(
        self,
        turns: int | None = None,
        on_turn: Callback | None = None,
        on_step: Callback | None = None,
        on_turn_end: Callback | None = None,
    ) -> ScenarioResult | None:
        """Play turns until there is a result; None when `turns` are used up or the user left.

        The turn of the first step counts as one of `turns`. `on_turn` is called at the start of
        each further turn, `on_step` after every participant, `on_turn_end` when all have spoken.
        """
        if (problem := find_proceed_error(self.agents, turns)) is not None:
            raise self.usage_error(problem)
        is_counted = turns is not None
        first: int | None = None
        while True:
            may_open = turns is None or first is None or self.turns.current + 1 < first + turns
            may_conclude = may_open and (on_turn, on_step, on_turn_end) == (None, None, None)
            result = await self._step(
                may_open, on_turn, on_turn_end, is_counted=is_counted, may_conclude=may_conclude
            )
            first = self.turns.current if first is None else first
            if result is None:
                return None
            turn = self.turns.current
            await self._notify(on_step)
            if isinstance(result, ScenarioResult):
                return result
            if self._is_ended:
                self._is_ended = False
                return None
            if self.turns.current > turn:  # the callback spoke, and so opened other turns
                self._own_turns += self.turns.current - turn
                if turns is not None and self.turns.current >= first + turns:
                    return None
                if self._has_too_many_turns(is_counted=is_counted):
                    return await self._max_turns_result()

    async def _step(
        self,
        may_open_turn: bool = True,
        on_turn: Callback | None = None,
        on_turn_end: Callback | None = None,
        *,
        is_counted: bool = False,
        may_conclude: bool = False,
    ) -> list[Message] | ScenarioResult | None:
        if not self.agents:
            raise self.usage_error("there are no participants; write agents=[your agent, …]")
        self._own_turns = self._own_turns or int(self.turns.is_fresh)
        while True:
            index = self.turns.next_index()
            if index is not None:
                self.turns.mark_spoken(index)
                is_too_early = self.turns.current + 1 < (self.config.min_turns or 0)
                if is_too_early and self.agents[index].role is AgentRole.JUDGE:
                    continue
                if self._has_nothing_to_answer(index):
                    continue
                is_last = may_conclude and self._has_last_word(index, is_counted=is_counted)
                messages = await self._call(index, JudgmentRequest() if is_last else None)
                verdict = await self._verdict_on_leaving(index) if self._is_ended else None
                return messages if verdict is None else verdict
            await self._notify(on_turn_end)
            if not may_open_turn:
                return None
            self.turns.next_turn()
            self._own_turns += 1
            await self._notify(on_turn)
            if self._has_too_many_turns(is_counted=is_counted):
                return await self._max_turns_result()

    async def _notify(self, callback: Callable[[ScenarioState], Any] | None) -> object:
        returned = None if callback is None else callback(self.state)
        return await returned if inspect.isawaitable(returned) else returned

    def _has_too_many_turns(self, *, is_counted: bool, further: int = 0) -> bool:
        """Whether the current turn, or the turn after `further` more, is too many.

        `proceed(turns)` gets its turns, however many a script has played before.
        """
        turns = self._own_turns if is_counted else self.turns.current + 1
        return turns + further > self.max_turns

    def _has_last_word(self, index: int, *, is_counted: bool) -> bool:
        """Whether it is the turn of the judge that is asked next anyway, for its final verdict.

        Asked once, it need not read the same transcript twice.
        """
        if self._able_judges() != [index] or self.turns.next_index() is not None:
            return False
        return self._has_too_many_turns(is_counted=is_counted, further=1)

    def _has_nothing_to_answer(self, index: int) -> bool:
        """Whether it is an agent's turn after the user left without a message."""
        if self._silent_since is None or self.agents[index].role is not AgentRole.AGENT:
            return False
        return not any(
            message.get("role") == "user" for message in self.history.unread_messages(index)
        )

    async def _max_turns_result(self) -> ScenarioResult:
        verdict = await self._final_verdict()
        if verdict is not None:
            return verdict
        reasoning = f"Reached maximum turns ({self.max_turns}) without conclusion"
        return self._result(False, reasoning, "max_turns")

    async def message(self, message: Mapping[str, Any]) -> None:
        """Add a message; one of the user or of the agent takes their turn."""
        if not isinstance(message, Mapping):
            raise self.usage_error(f"message({message!r}): write {{'role': …, 'content': …}}")
        if (role := message.get("role")) == "user":
            await self._run_role_step(AgentRole.USER, message)
        elif role == "assistant":
            await self._run_role_step(AgentRole.AGENT, message)
        else:
            self.add_message(message)

    async def user(self, content: str | Mapping[str, Any] | None = None) -> ScenarioResult | None:
        """Add `content` as the user's message, or call the user; a result if that ends it."""
        return await self._run_role_step(AgentRole.USER, content)

    async def agent(self, content: str | Mapping[str, Any] | None = None) -> ScenarioResult | None:
        """Add `content` as the agent's message, or call the agent; a result if that ends it."""
        return await self._run_role_step(AgentRole.AGENT, content)

    async def judge(
        self,
        criteria: str | Sequence[str] | None = None,
        additional_context: str | None = None,
        *,
        content: str | Mapping[str, Any] | None = None,
    ) -> ScenarioResult | None:
        """Ask the judge for its verdict; None if it gave none.

        Criteria, one or a list, make it a checkpoint: if all pass, the script goes on.
        `additional_context` is what the judge should know besides the conversation. `content` is
        added as a message of the assistant, and the judge is not called.
        """
        if content is not None and (criteria is not None or additional_context):
            other = "additional_context" if criteria is None else "criteria"
            raise self.usage_error(f"judge(…) has both {other} and content; write one of them")
        request = JudgmentRequest(additional_context=additional_context or None)
        if criteria is None:
            result = await self._run_role_step(AgentRole.JUDGE, content, request)
            if content is None:
                self._is_undecided = result is None
            return result
        if isinstance(criteria, Mapping):
            raise self.usage_error(
                f"judge({criteria!r}): the first argument is the criteria; to add a message, write"
                " message({'role': …, 'content': …})"
            )
        criteria = [criteria] if isinstance(criteria, str) else criteria
        if not is_list_of_criteria(criteria):
            raise self.usage_error(
                f"judge({criteria!r}): write one criterion or more in a list, none of them empty"
            )
        request = request.model_copy(update={"criteria": list(criteria)})
        result = await self._run_role_step(AgentRole.JUDGE, request=request)
        if result is None:
            status, reasoning = CriterionStatus.INCONCLUSIVE, "the judge gave no verdict"
            rows = [
                CriterionResult(
                    criterion=criterion, status=status, reasoning=reasoning, is_checkpoint=True
                )
                for criterion in criteria
            ]
            result = self.complete(verdict_of(rows, []))
        if not result.success:
            return result
        self.usage.add_passed_checkpoint(result)
        return None

    async def succeed(self, reasoning: str | None = None) -> ScenarioResult:
        """Return the result of a case that passed."""
        return self._result(True, reasoning or "Scenario marked as successful")

    async def fail(self, reasoning: str | None = None) -> ScenarioResult:
        """Return the result of a case that failed."""
        return self._result(False, reasoning or "Scenario marked as failed")

    async def _run_role_step(
        self,
        role: AgentRole,
        content: str | Mapping[str, Any] | None = None,
        request: JudgmentRequest | None = None,
    ) -> ScenarioResult | None:
        try:
            message = None if content is None else scripted_message(content, role)
        except ValueError as error:
            raise self.usage_error(str(error)) from error
        index = self.turns.index_for(role)
        if index is None:
            self.turns.next_turn()
            index = self.turns.index_for(role)
        if index is None:
            detail = "" if content is None else f" with content {one_line(repr(content), 80)}"
            raise self.usage_error(
                f"nobody has the role `{role.value}`, so there is no message{detail};"
                f" add {EXAMPLES[role]} to 'agents'"
            )
        self.turns.mark_spoken(index)
        if message is not None:
            self._add(message)
            return None
        if self._has_nothing_to_answer(index):
            reasoning = (
                f"{self.location}: the user ended the conversation without a message in"
                f" {self._silent_since}, so the agent has nothing to answer; a simulated user who"
                " is done says nothing more, so write 'proceed', which ends then"
            )
            return self._result(False, reasoning, "user_left")
        result = await self._call(index, request)
        self._is_ended = False
        return result if isinstance(result, ScenarioResult) else None

    async def _call(
        self, index: int, request: JudgmentRequest | None = None
    ) -> list[Message] | ScenarioResult:
        participant = self.agents[index]
        with self._span_around(participant), self.history.follow() as messages:
            arguments = AgentInput(
                thread_id=self.usage.thread_id,
                messages=messages,
                new_messages=self.history.unread_messages(index),
                judgment_request=request,
                scenario_state=self.state,
                propagation_headers=propagation_headers(),
            )
            returned = await self._caller.call(index, participant, arguments, self.location)
        self.history.mark_read(index)
        if isinstance(returned, ScenarioResult):
            return self._accept_verdict(returned)
        if isinstance(returned, EndConversation):
            messages = to_messages(returned.farewell, participant.role) if returned.farewell else []
            for message in messages:
                self._add(message, index)
            self._is_ended = True
            if participant.role is AgentRole.USER:
                self.ended_at = self.step_name or self.location
                self._silent_since = None if messages else self.ended_at
            return messages
        try:
            messages = to_messages(returned, participant.role)
        except ValueError as error:
            raise self.usage_error(f"{type(participant).__name__}.call: {error}") from error
        if participant.role is AgentRole.AGENT and isinstance(returned, str):
            self.unseen_tool_calls = True
        for message in messages:
            self._add(message, index)
        return messages

    def _span_around(self, participant: Participant) -> AbstractContextManager[object]:  # noqa: ARG002
        """Return a context for a call of a participant; for subclasses that trace calls."""
        return nullcontext()

    def _accept_verdict(self, result: ScenarioResult) -> ScenarioResult:
        if not self._dispatcher.is_idle:
            for row in rows_of(result):
                self._dispatcher.put(CriterionJudged(verdict=row, **self.ids))
        return self.complete(result)

    async def verdict(self) -> ScenarioResult | None:
        """Return what the judge decides now, whoever's turn it is; None without a verdict."""
        return await self._verdict_of(self._indexes_of_role(AgentRole.JUDGE))

    async def _final_verdict(self) -> ScenarioResult | None:
        """Return what a judge with criteria decides now; None if there is no such judge."""
        return await self._verdict_of(self._able_judges())

    def _able_judges(self) -> list[int]:
        """Return the judges that have criteria."""
        judges = [(index, self.agents[index]) for index in self._indexes_of_role(AgentRole.JUDGE)]
        return [
            index for index, judge in judges if isinstance(judge, HasCriteria) and judge.criteria
        ]

    async def _verdict_of(self, judges: Sequence[int]) -> ScenarioResult | None:
        result = await self._call(judges[0], JudgmentRequest()) if judges else None
        return result if isinstance(result, ScenarioResult) else None

    async def _verdict_on_leaving(self, index: int) -> ScenarioResult | None:
        """Return the judge's verdict after a participant left; None if the conversation goes on.

        While steps of a script are left, only a verdict against the agent ends it.
        """
        if self.agents[index].role is AgentRole.JUDGE:
            return None
        verdict = await self._final_verdict()
        if verdict is None or (verdict.success and self.has_steps_left):
            return None
        self._is_ended = False
        return verdict

    def _indexes_of_role(self, role: AgentRole) -> list[int]:
        return [index for index, participant in enumerate(self.agents) if participant.role is role]

    def complete(self, result: ScenarioResult) -> ScenarioResult:
        """Return the result with times, ids, usage and passed checkpoints."""
        result = self.usage.complete(
            result, self.history.messages, self._indexes_of_role(AgentRole.AGENT)
        )
        self.failure = self.failure if result.success else result
        return result

    def _result(self, success: bool, reasoning: str, code: str | None = None) -> ScenarioResult:
        messages = self.history.messages
        return self.complete(
            ScenarioResult(
                success=success, messages=messages, reasoning=reasoning, reason_code=code
            )
        )
