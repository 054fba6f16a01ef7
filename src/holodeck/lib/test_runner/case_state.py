"""What is known of a run of a test case so far."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cached_property, reduce
from itertools import groupby
from operator import and_
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from holodeck.errors import BackendTimeoutError, ConfigError, Refusal
from holodeck.lib.backends.base import ExecutionResult
from holodeck.lib.llm.request_handler import AGENT, HandlerChain
from holodeck.lib.support.text import describe
from holodeck.lib.user_code.raised import raised_error
from holodeck.models.cases.messages import EarlierMessage, Image, Message
from holodeck.models.results.evidence import Evidence, evidence
from holodeck.models.results.outcome import ConversationEnd, CriterionRow, ModelCost, RaisedError
from holodeck.models.results.turn import Approval
from holodeck.models.test_case import RetryKind, TestCaseModel, TurnModel
from holodeck.models.test_result import (
    MetricResult,
    TestResult,
    ToolCheck,
    ToolInvocation,
    TurnResult,
)

if TYPE_CHECKING:
    from holodeck.lib.llm.request_handler import RequestHandler
    from holodeck.lib.recordings.recording import Recording
    from holodeck.lib.stubs.case_stubs import CaseStubs
    from holodeck.lib.tap.case_requests import CaseRequests

Send = Callable[[str], Awaitable[ExecutionResult]]
"""Sends a message to the agent."""
TakeTurn = Callable[[TurnModel, Send], Awaitable[TurnResult]]
"""Takes a turn with the agent; whatever goes wrong is noted in the result."""


@dataclass
class Grades:
    """What is decided of a run of a test case; what was observed stays as it is."""

    turns: dict[int, TurnResult] = field(default_factory=dict)
    """The turns that have been graded, with their checks and outcomes, by their index."""
    tool_checks: list[ToolCheck] = field(default_factory=list)
    rows: list[MetricResult] = field(default_factory=list)
    """One row for each metric of the case; a metric that is still computed has an error row."""
    criteria: list[CriterionRow] = field(default_factory=list)
    judge_cost: ModelCost | None = None
    ending: ConversationEnd | None = None
    """Why grading could not be finished; None if it was."""


@dataclass
class CaseState:
    """Everything known of a run of a test case: what `observe` noted, and what `grade` decided.

    A run that is cancelled or exceeds its time limit is reported from what is here by then.
    """

    case: TestCaseModel
    history: Sequence[EarlierMessage] = ()
    """The messages before the case."""

    turns: list[TurnResult] = field(default_factory=list)
    """The turns with the agent, a single turn for a case of one input."""
    images: list[Sequence[Image]] = field(default_factory=list)
    """The images that each turn sent to the agent, for judges; none of a recorded turn."""
    answers: list[ExecutionResult] = field(default_factory=list)
    """What the backend returned, including what it reported with an error."""
    agent_seconds: float | None = None
    """How long the agent took, without waiting for a rate limit; None if it was never called."""
    waited_seconds: float = 0.0
    """How long requests waited for a rate limit."""
    errors: list[str] = field(default_factory=list)
    """Why the agent was not run to the end."""
    faults: list[str] = field(default_factory=list)
    """What the agent itself did wrong, whatever the checks say."""
    raised: list[RaisedError] = field(default_factory=list)
    """Where the user's code raised what is in `errors`."""
    failure: RetryKind | None = None
    """What went wrong, if running the case again may help."""
    is_permanent: bool = False
    """Whether every other case will fail like this: a wrong key, an exhausted quota."""
    refusal: Refusal | None = None
    """What the provider objected to before it answered anything; None if it did not."""

    stubs: "CaseStubs | None" = None
    """What takes the calls of tools; None if they all run."""
    requests: "CaseRequests | None" = None
    """What answers the requests to the model; None if only the model does."""
    recording: "Recording | None" = None
    """What is recorded and replayed of the case; None without recordings."""

    ending: ConversationEnd | None = None
    """How a conversation ended."""
    are_criteria_judged: bool = False
    """Whether a judge took part in the conversation, so that grading does not ask it again."""
    messages: list[Message] = field(default_factory=list)
    """The whole conversation; empty if the turns contain all of it."""
    simulator_cost: ModelCost | None = None

    grades: Grades = field(default_factory=Grades)
    """What is decided by now; scripts check turns and ask the judge during the conversation."""
    late_ending: ConversationEnd | None = None
    """How the case ends if its time runs out now; None while holodeck waits for the agent."""

    @property
    def handler(self) -> "RequestHandler | None":
        """What answers the requests of the agent; None if only its model does."""
        if self.recording is None:
            return self.requests
        recorded = self.recording.handlers(AGENT)[AGENT]
        return recorded if self.requests is None else HandlerChain(self.requests, recorded)

    @property
    def replayed_count(self) -> int:
        """How many requests and tool calls of the agent have been replayed."""
        return 0 if self.recording is None else self.recording.replayed_of(AGENT, "tool")

    @property
    def misses(self) -> Sequence[str]:
        """Why requests got no answer, because they are not recorded."""
        return () if self.recording is None else self.recording.misses

    @cached_property
    def conversation_id(self) -> str:
        """An id of the conversation, for spans."""
        return uuid4().hex

    @property
    def graded_turns(self) -> list[TurnResult]:
        """The turns, those that have been graded with their checks and outcomes."""
        return [self.grades.turns.get(index, turn) for index, turn in enumerate(self.turns)]

    @property
    def final_ending(self) -> ConversationEnd | None:
        """How the case ended: why grading could not be finished, else how its conversation did."""
        return self.grades.ending or self.ending

    def add_agent_time(self, seconds: float, waited_seconds: float) -> None:
        """Add the time of a turn, without waiting for a rate limit, and of that waiting."""
        self.agent_seconds = (self.agent_seconds or 0.0) + seconds
        self.waited_seconds += waited_seconds

    def add_error(self, error: Exception) -> None:
        """Note what ended the case outside of a turn."""
        self.failure = failure_of(error) or self.failure
        self.errors.append(describe(error))
        self.raised += filter(None, [raised_error(error)])

    def end_late(self, reason: str, code: str = "timeout") -> bool:
        """End the case because of `reason`; False if that is an error of the agent."""
        if self.late_ending is None:
            return False
        update = {"code": code, "reasoning": f"{reason}: {self.late_ending.reasoning}"}
        self.grades.ending = self.late_ending.model_copy(update=update)
        return True


def result_of_case(case: TestCaseModel, **fields: Any) -> TestResult:
    """Return a result of the case with these fields, and those that the case itself decides."""
    of_case = {
        "test_name": case.name,
        "test_id": case.id,
        "suite": case.suite,
        "tags": case.tags,
        "test_input": case.user_input,
        "expected_tools": case.expected_tools,
        "ground_truth": case.ground_truth,
        "timestamp": datetime.now(UTC).isoformat(timespec="milliseconds"),
    }
    # A result keeps the name of each field that it is made with, and None is the default of all.
    given = {name: value for name, value in (of_case | fields).items() if value is not None}
    return TestResult(**given)


def calls_in(turns: Sequence[TurnResult]) -> list[ToolInvocation]:
    """Return the tool calls of these turns."""
    return [call for turn in turns for call in turn.tool_invocations]


def agents_in(turns: Sequence[TurnResult]) -> list[str]:
    """Return the agents that are known to have spoken, in order, consecutive repeats collapsed."""
    return [name for name, _ in groupby(name for turn in turns for name in turn.agents or ())]


def tools_in(turns: Sequence[TurnResult]) -> list[str]:
    """Return the tools that the backend says the agent can call, as far as it does."""
    return list(dict.fromkeys(name for turn in turns for name in turn.tools or ()))


def passages_reported_in(turns: Sequence[TurnResult]) -> list[str] | None:
    """Return what the agent says that it retrieved; None if it does not say in every turn."""
    reported = [turn.retrieval_context for turn in turns]
    if not reported or None in reported:
        return None
    return [text for passages in reported for text in passages or ()]


def approvals_in(turns: Sequence[TurnResult]) -> list[Approval] | None:
    """Return what the agent asked a person to approve; None if one turn does not say."""
    asked = [turn.approvals for turn in turns]
    if None in asked:
        return None
    return [approval for approvals in asked for approval in approvals or ()]


def evidence_of(turns: Sequence[TurnResult]) -> Evidence:
    """Return where each fact is known from; a fact is known if it is known of every turn."""
    return reduce(and_, [turn.evidence for turn in turns]) if turns else evidence()


def failure_of(error: Exception) -> RetryKind | None:
    """Return what `retry_on` calls the error; None for a wrong configuration."""
    if isinstance(error, ConfigError):
        return None
    return "timeout" if isinstance(error, BackendTimeoutError | TimeoutError) else "error"


def add_costs(first: ModelCost | None, second: ModelCost | None) -> ModelCost | None:
    """Return the sum of what two uses of a model cost; None if there was none."""
    if first is None or second is None:
        return first or second
    return ModelCost(
        model=second.model,
        calls=first.calls + second.calls,
        failed=first.failed + second.failed,
        tokens=first.tokens + second.tokens,
        kept=first.kept + second.kept,
    )
