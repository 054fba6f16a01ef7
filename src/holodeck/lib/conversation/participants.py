"""The participants of a conversation: their order, the calls to them, and what they use."""

import time
from collections import defaultdict
from collections.abc import AsyncIterator, Awaitable, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol, runtime_checkable

from holodeck.errors import BackendTimeoutError
from holodeck.lib.conversation.events import new_id
from holodeck.lib.conversation.messages import AgentRole
from holodeck.lib.conversation.types import (
    AgentInput,
    CriterionResult,
    Participant,
    ScenarioResult,
    ScenarioUsageError,
    rows_of,
)
from holodeck.lib.llm.limiter import time_limit
from holodeck.lib.llm.model import count_usage
from holodeck.models.cases.messages import Message
from holodeck.models.token_usage import UsageMeter

EXAMPLES = {
    AgentRole.USER: "a scenario.UserSimulatorAgent()",
    AgentRole.AGENT: "your agent",
    AgentRole.JUDGE: "a scenario.JudgeAgent(criteria=[…])",
}
"""What messages suggest to add for each role."""
_LIMITS = ("max_turns", "min_turns", "timeout", "call_timeout")


class ConversationSettings(Protocol):
    """The limits of a conversation; None leaves a value to the engine."""

    @property
    def max_turns(self) -> int | None: ...
    @property
    def min_turns(self) -> int | None: ...
    @property
    def timeout(self) -> float | None: ...
    @property
    def call_timeout(self) -> float | None: ...


@runtime_checkable
class HasCriteria(Protocol):
    """A judge that can be asked for a verdict when the turns are used up."""

    criteria: Sequence[str] | None


def is_list_of_criteria(value: Any) -> bool:
    """Whether it is a list of one text or more, none of them empty; a single text is not."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return False
    return all(isinstance(text, str) and text.strip() for text in value)


def find_setting_error(config: ConversationSettings, max_turns: int) -> str | None:
    """Return what is wrong with the settings; None if nothing is."""
    for key in _LIMITS:
        value = getattr(config, key)
        if value == 0 and key == "min_turns":
            continue  # as many as it takes, which is the default
        if value is not None and value <= 0:
            return f"{key}={value} is too small; write a number above 0"
    if config.min_turns is not None and config.min_turns > max_turns:
        return f"min_turns={config.min_turns} is more than max_turns={max_turns}"
    return None


def find_participant_error(participants: Sequence[Any]) -> str | None:
    """Return what is wrong with the participants; None if nothing is."""
    for index, participant in enumerate(participants):
        if isinstance(participant, type):
            return f"agents[{index}] is a class; write {participant.__name__}()"
        if not isinstance(getattr(participant, "role", None), AgentRole):
            name = type(participant).__name__
            return f"agents[{index}] ({name}) has no role; derive it from scenario.AgentAdapter"
    return None


def find_proceed_error(participants: Sequence[Participant], turns: Any) -> str | None:
    """Return why the conversation cannot go on without a script; None if it can."""
    if turns is not None and (not isinstance(turns, int) or turns <= 0):
        return f"proceed(turns={turns!r}) is not a number of turns; write 1 or more"
    if participants and not any(
        participant.role is AgentRole.AGENT for participant in participants
    ):
        return "nobody has the role `Agent`, so nothing is tested; add your agent to 'agents'"
    return None


class SilentUser:
    """Stands in for a user whose messages are all written in a script, or by a person."""

    role = AgentRole.USER

    async def call(self, input: AgentInput) -> Any:  # noqa: A002, ARG002 - the name is public API
        return []


class TurnOrder:
    """Who speaks when: the roles that are left in the current turn, and who has not spoken in it.

    Turns count from 0. The participants of a role speak in the order of the list.
    """

    def __init__(self, participants: Sequence[Participant]) -> None:
        self._participants = participants
        self.current = 0
        self._begin()

    def _begin(self) -> None:
        self._roles = list(AgentRole)
        # By identity: a participant listed twice speaks once, and need not be hashable.
        self._silent = {id(participant) for participant in self._participants}

    @property
    def is_fresh(self) -> bool:
        """Whether no participant of the first turn has spoken or was passed over yet."""
        all_ids = {id(participant) for participant in self._participants}
        return self.current == 0 and len(self._roles) == len(AgentRole) and self._silent == all_ids

    def next_turn(self) -> None:
        """Begin another turn, in which every participant may speak."""
        self.current += 1
        self._begin()

    def next_index(self) -> int | None:
        """Return who speaks next, dropping roles without speakers; None if the turn is over."""
        while self._roles:
            index = self._first_silent(self._roles[0])
            if index is not None:
                return index
            self._roles.pop(0)
        return None

    def index_for(self, role: AgentRole) -> int | None:
        """Return who speaks next in a role, skipping the roles before it; None without any."""
        while self._roles and self._roles[0] is not role:
            self._roles.pop(0)
        return self._first_silent(role) if self._roles else None

    def mark_spoken(self, index: int) -> None:
        """Record that a participant has had its chance in this turn."""
        self._silent.discard(id(self._participants[index]))

    def _first_silent(self, role: AgentRole) -> int | None:
        for index, participant in enumerate(self._participants):
            if participant.role is role and id(participant) in self._silent:
                return index
        return None


class ConversationTimeLimitExceeded(BackendTimeoutError):
    """A time limit of the conversation has passed; the message says which, and where."""


class TimeLimits:
    """The running time limits of a conversation; may be read from another thread."""

    def __init__(self) -> None:
        self._running: list[tuple[time_limit, str]] = []

    @asynccontextmanager
    async def limit(self, seconds: float | None, what: str) -> AsyncIterator[None]:
        """End the block after so many seconds with TimeLimitExceeded; None for no limit.

        A block that blocked the event loop for longer than that is too late as well.
        """
        message = f"{what} took more than {seconds:g} s" if seconds is not None else ""
        limit: time_limit | None = None
        try:
            async with time_limit(seconds) as limit:
                entry = (limit, message)
                self._running.append(entry)
                try:
                    yield
                finally:
                    self._running.remove(entry)
        except TimeoutError as error:
            if limit is None or not limit.expired():
                raise
            raise ConversationTimeLimitExceeded(message) from error

    def seconds_left(self) -> tuple[float, str] | None:
        """Return the seconds to the next limit and its message; None if no limit is running."""
        ends = [(limit.when(), message) for limit, message in [*self._running]]
        left = [(end - time.monotonic(), message) for end, message in ends if end is not None]
        return min(left) if left else None


class RunUsage:
    """Time and usage of a run by participant, its ids, and the checkpoints that passed."""

    def __init__(self, batch_run_id: str) -> None:
        self.thread_id = new_id("thread")
        self.scenario_run_id = new_id("scenariorun")
        self.checkpoints: list[CriterionResult] = []
        self._batch_run_id = batch_run_id
        self._started = time.perf_counter()
        self._seconds: defaultdict[int, float] = defaultdict(float)
        self._meters: defaultdict[str, UsageMeter] = defaultdict(UsageMeter)

    def add(self, index: int, role: AgentRole, seconds: float, used: UsageMeter) -> None:
        """Count a call of a participant."""
        self._seconds[index] += seconds
        self._meters[role.value].merge(used)

    def was_called(self, index: int) -> bool:
        """Whether a participant was called, even without success."""
        return index in self._seconds

    def add_passed_checkpoint(self, result: ScenarioResult) -> None:
        """Remember the criteria of a checkpoint that passed."""
        self.checkpoints = rows_of(result)  # including those of earlier checkpoints

    def complete(
        self, result: ScenarioResult, messages: list[Message], agents: Iterable[int]
    ) -> ScenarioResult:
        """Return the result with times, ids, usage and checkpoints; a complete result as it is."""
        if result.scenario_run_id == self.scenario_run_id:
            return result
        total_time, agent_time = result.total_time, result.agent_time
        if total_time is None:
            total_time = time.perf_counter() - self._started
        if agent_time is None:
            agent_time = sum(self._seconds.get(index, 0.0) for index in agents)
        passed = [checkpoint.criterion for checkpoint in self.checkpoints]
        meters = self._meters.items()
        known: dict[str, object] = {
            "criteria": [*self.checkpoints, *rows_of(result)],
            "passed_criteria": [*passed, *result.passed_criteria],
            "messages": result.messages or messages,
            "total_time": total_time,
            "agent_time": agent_time,
            "model_calls": {role: meter.requests for role, meter in meters if meter.requests},
            "failed_calls": {role: meter.failed for role, meter in meters if meter.failed},
            "kept_answers": {role: meter.cache_hits for role, meter in meters if meter.cache_hits},
            "token_usage": {role: meter.usage for role, meter in meters} | result.token_usage,
            "thread_id": self.thread_id,
            "scenario_run_id": self.scenario_run_id,
            "batch_run_id": self._batch_run_id,
        }
        return result.model_copy(update=known)


class ParticipantCaller:
    """Calls the participants of a run within the time limit, and counts what they use.

    Args:
        limits: The time limits of the run.
        usage: Counts time and tokens.
        timeout: Seconds that a call may take; None for no limit.
    """

    def __init__(self, limits: TimeLimits, usage: RunUsage, timeout: float | None) -> None:
        self.pending: Participant | None = None
        """The participant whose answer is awaited, or was when the run was interrupted."""
        self._limits = limits
        self._usage = usage
        self._timeout = timeout
        self._last_raised: tuple[Exception, Participant] | None = None

    def author_of(self, error: BaseException) -> Participant | None:
        """Return the participant that raised it; None for a step, a callback or the engine."""
        raised, participant = self._last_raised or (None, None)
        return participant if raised is error else None

    async def call(
        self, index: int, participant: Participant, arguments: AgentInput, location: str
    ) -> Any:
        """Return what the participant returns. Raises ScenarioUsageError and what it raises."""
        name = type(participant).__name__
        self.pending = participant
        started = time.perf_counter()
        with count_usage() as used:
            try:
                async with self._limits.limit(self._timeout, f"{location}: {name}.call"):
                    returned = await _require_awaitable(participant.call(arguments), name)
            except ScenarioUsageError as error:
                raise ScenarioUsageError(location, str(error)) from error
            except Exception as error:
                self._last_raised = (error, participant)
                raise
            finally:
                seconds = time.perf_counter() - started
                self._usage.add(index, participant.role, seconds, used)
        self.pending = None
        return returned


def _require_awaitable(returned: Any, name: str) -> Awaitable[Any]:
    if not isinstance(returned, Awaitable):
        raise ScenarioUsageError(f"{name}.call", "is not async; write `async def call`")
    return returned
