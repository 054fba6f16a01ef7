"""Whose turn it is: the order of roles, and who of each has spoken."""

import time
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol, runtime_checkable

from holodeck.errors import BackendTimeoutError
from holodeck.lib.conversation.messages import AgentRole
from holodeck.lib.conversation.types import AgentInput, Participant, ScenarioUsageError
from holodeck.lib.conversation.usage import UsageMeter, count_usage
from holodeck.lib.llm.limiter import time_limit


class Turns:
    """The turn under way. Turns count from 0.

    Args:
        parties: All who take part; of a role they speak in this order.
    """

    def __init__(self, participants: Sequence[Participant]) -> None:
        self._parties = participants
        self.current = 0
        self._roles: list[AgentRole] = []
        self._silent: set[int] = set()
        self._begin()

    @property
    def is_fresh(self) -> bool:
        """Whether nobody has spoken or been passed over yet."""
        everybody = {id(participant) for participant in self._parties}
        return (
            self.current == 0 and len(self._roles) == len(AgentRole) and self._silent == everybody
        )

    def next_turn(self) -> None:
        """Begin another turn, in which everybody may speak."""
        self.current += 1
        self._begin()

    def next_index(self) -> int | None:
        """Who speaks next, drops roles that nobody is left for; None if the turn is over."""
        while self._roles:
            index = self._of_role(self._roles[0])
            if index is not None:
                return index
            self._roles.pop(0)
        return None

    def index_for(self, role: AgentRole) -> int | None:
        """Who speaks next in a role; the roles before it lose their chance. None if nobody can."""
        while self._roles and self._roles[0] is not role:
            self._roles.pop(0)
        return self._of_role(role) if self._roles else None

    def spoke(self, index: int) -> None:
        """Note that somebody has had their chance in this turn."""
        self._silent.discard(id(self._parties[index]))

    def _begin(self) -> None:
        self._roles = list(AgentRole)
        # By identity: someone listed twice speaks once, and parties need not be hashable.
        self._silent = {id(participant) for participant in self._parties}

    def _of_role(self, role: AgentRole) -> int | None:
        for index, participant in enumerate(self._parties):
            if participant.role is role and id(participant) in self._silent:
                return index
        return None


CLASSES = {
    AgentRole.USER: "a scenario.UserSimulatorAgent()",
    AgentRole.AGENT: "your agent",
    AgentRole.JUDGE: "a scenario.JudgeAgent(criteria=[…])",
}
_LIMITS = ("max_turns", "min_turns", "timeout", "call_timeout")


class Settings(Protocol):
    """How a conversation is held; None leaves a value to the engine."""

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
    """Whether it is a list of texts, at least one and none of them empty; a text alone is not."""
    if not isinstance(value, Sequence) or isinstance(value, str) or not value:
        return False
    return all(isinstance(one, str) and one.strip() for one in value)


def find_setting_error(config: Settings, max_turns: int) -> str | None:
    """What is wrong with the settings; None if all is well."""
    for key in _LIMITS:
        value = getattr(config, key)
        if value is not None and value <= 0:
            return f"{key}={value} is too little; write a number above 0"
    if config.min_turns is not None and config.min_turns > max_turns:
        return f"min_turns={config.min_turns} is more than max_turns={max_turns}"
    return None


def find_participant_error(participants: Sequence[Any]) -> str | None:
    """What is wrong with those who take part; None if all is well."""
    for index, participant in enumerate(participants):
        if isinstance(participant, type):
            return f"agents[{index}] is the class itself; write {participant.__name__}()"
        if not isinstance(getattr(participant, "role", None), AgentRole):
            name = type(participant).__name__
            return f"agents[{index}] ({name}) has no role; derive it from scenario.AgentAdapter"
    return None


def find_agent_missing_error(participants: Sequence[Any], turns: Any) -> str | None:
    """Why turns cannot be played on their own; None if they can. Somebody has to be tested."""
    if turns is not None and (not isinstance(turns, int) or turns <= 0):
        return f"proceed(turns={turns!r}): there is no such turn; write 1 or more"
    if participants and not any(
        participant.role is AgentRole.AGENT for participant in participants
    ):
        return "nobody plays the role `Agent`, so nothing is tested; add your agent to 'agents'"
    return None


class TimeLimitExceeded(BackendTimeoutError):
    """A limit of the conversation itself is over; the message says which, and where."""


class TimeLimits:
    """The time limits under way in one run; may be read from another thread."""

    def __init__(self) -> None:
        self._running: list[tuple[time_limit, str]] = []

    @asynccontextmanager
    async def limit(self, seconds: float | None, what: str) -> AsyncIterator[None]:
        """End the block after so many seconds with OutOfTime; None for no limit.

        A block that held the loop for longer than that is too late, too.
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
            raise TimeLimitExceeded(message) from error

    def seconds_left(self) -> tuple[float, str] | None:
        """Until the next limit, and what is said when it is over; None if no limit is running."""
        left = [(_left(limit, float("inf")), message) for limit, message in [*self._running]]
        known = [one for one in left if one[0] != float("inf")]
        return min(known) if known else None


def _left(limit: time_limit, unlimited: float) -> float:
    ends = limit.when()
    return unlimited if ends is None else ends - time.monotonic()


class ParticipantCaller:
    """Calls the parties of one run.

    Args:
        clock: Where the time limits are noted.
        ledger: Where time and tokens are noted.
        seconds: That one call may take; None for no limit.
    """

    def __init__(self, clock: TimeLimits, usage_meter: UsageMeter, seconds: float | None) -> None:
        self.waits_for: Participant | None = None
        """Who has not answered, or never will, as something else came first."""
        self._clock = clock
        self._ledger = usage_meter
        self._seconds = seconds
        self._last_raised: tuple[Exception, Participant] | None = None

    def author_of(self, error: BaseException) -> Participant | None:
        """The party that raised it; None if it was a step, a callback or ourselves."""
        raised, participant = self._last_raised or (None, None)
        return participant if raised is error else None

    async def answer(
        self, index: int, participant: Participant, given: AgentInput, place: str
    ) -> Any:
        """Return what the participant returns. Raises ScenarioUsageError and what it raises."""
        name = type(participant).__name__
        self.waits_for = participant
        started = time.perf_counter()
        with count_usage() as tally:
            try:
                async with self._clock.limit(self._seconds, f"{place}: {name}.call"):
                    answer = await _awaitable(participant.call(given), name)
            except ScenarioUsageError as error:
                raise ScenarioUsageError(place, str(error)) from error
            except Exception as error:
                self._last_raised = (error, participant)
                raise
            finally:
                seconds = time.perf_counter() - started
                self._ledger.note(index, participant.role, seconds, tally)
        self.waits_for = None
        return answer


def _awaitable(answer: Any, name: str) -> Awaitable[Any]:
    if not isinstance(answer, Awaitable):
        raise ScenarioUsageError(f"{name}.call", "is not async; write `async def call`")
    return answer
