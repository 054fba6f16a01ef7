"""What participants are given, what they may return, and the result of a conversation."""

from __future__ import annotations

import warnings
from collections.abc import Awaitable, Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Literal, Protocol, TypeAlias, Union

from pydantic import BaseModel, BeforeValidator, ConfigDict, SkipValidation, model_validator

from holodeck.errors import ConfigError
from holodeck.lib.conversation.messages import AgentRole
from holodeck.lib.support.text import one_line
from holodeck.models.cases.messages import Message
from holodeck.models.token_usage import TokenUsage

if TYPE_CHECKING:
    from holodeck.lib.conversation.state import ScenarioState
else:
    ScenarioState = Any


BY_HAND = "by_hand"
"""The reason code of a case that a person ended."""


class ScenarioUsageError(ConfigError, ValueError):
    """A mistake in a case, a script or an adapter."""


class CriterionStatus(StrEnum):
    """A judge's verdict on a criterion."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"


class CriterionResult(BaseModel):
    """A judge's verdict on a criterion, with its reasoning."""

    model_config = ConfigDict(defer_build=True)

    criterion: str
    status: CriterionStatus
    reasoning: str = ""
    is_checkpoint: bool = False
    """Whether it belongs to a checkpoint in the script rather than to the whole conversation."""


class JudgmentRequest(BaseModel):
    """Asks a judge for its verdict; it is always true."""

    model_config = ConfigDict(defer_build=True)

    criteria: list[str] | None = None
    """The criteria of a checkpoint; None for the judge's own."""
    additional_context: str | None = None
    """What the judge should know besides the conversation."""
    context: str | None = None
    """The earlier name of `additional_context`."""

    @model_validator(mode="after")
    def _use_earlier_name(self) -> JudgmentRequest:
        if self.context is not None and self.additional_context is None:
            warnings.warn("write additional_context, not context", DeprecationWarning, stacklevel=2)
            self.additional_context = self.context
        return self

    def __bool__(self) -> bool:
        return True


def _as_judgment_request(value: Any) -> Any:
    return (JudgmentRequest() if value else None) if isinstance(value, bool) else value


class AgentInput(BaseModel):
    """What a participant is given when it is called; all of it are copies."""

    model_config = ConfigDict(defer_build=True)

    thread_id: str
    messages: Annotated[list[Any], SkipValidation]
    """The whole conversation, the oldest message first. During the call it follows the
    conversation: what is added to it or removed from it appears."""
    new_messages: Annotated[list[Any], SkipValidation]
    """The messages of the others since the last call."""
    judgment_request: Annotated[JudgmentRequest | None, BeforeValidator(_as_judgment_request)] = (
        None
    )
    """What a judge must decide now; None while the conversation may go on."""
    scenario_state: Annotated[ScenarioState, SkipValidation]
    propagation_headers: dict[str, str] = {}
    """HTTP headers, such as `traceparent`, that make an agent behind a URL continue the trace of
    this turn; empty without OpenTelemetry."""

    @property
    def judgment_criteria(self) -> list[str] | None:
        """The criteria of a checkpoint; None for the judge's own."""
        return None if self.judgment_request is None else self.judgment_request.criteria

    def last_new_user_message(self) -> Message:
        """The latest new message of the user. Raises ValueError if there is none."""
        messages: list[Message] = [
            message for message in self.new_messages if message["role"] == "user"
        ]
        if not messages:
            raise ValueError(
                "there is no new message of the user: is the agent called twice in a row? Read"
                " 'messages', the whole conversation, instead"
            )
        return messages[-1]

    def last_new_user_message_str(self) -> str:
        """The text of the latest new message of the user.

        Raises ValueError if there is no such message, or if it holds more than a text.
        """
        content = self.last_new_user_message()["content"]
        if not isinstance(content, str):
            raise ValueError(  # noqa: TRY004 - as documented
                f"the user's last message is not a text but {one_line(repr(content), 80)};"
                " read 'messages' instead"
            )
        return content


class EvaluationResult(BaseModel):
    """What an evaluator of a run came to."""

    model_config = ConfigDict(defer_build=True)

    evaluator_id: str
    name: str
    status: Literal["passed", "failed", "scored", "skipped", "error"]
    required: bool
    """Whether the scenario fails if it does not pass."""
    passed: bool | None = None
    """None if it gives only a score, or none."""
    score: float | None = None
    label: str | None = None
    details: str | None = None
    """The reason."""
    inputs: dict[str, str] | None = None
    """What the evaluator was given, cut after 2000 characters."""


class ScenarioResult(BaseModel):
    """How a conversation ended, and why."""

    model_config = ConfigDict(defer_build=True)

    success: bool
    messages: Annotated[list[Any], SkipValidation]
    """The whole conversation."""
    reasoning: str | None = None
    passed_criteria: list[str] = []
    failed_criteria: list[str] = []
    """Criteria that failed, and in a final verdict also those that are inconclusive."""
    total_time: float | None = None
    """Seconds of the whole run."""
    agent_time: float | None = None
    """Seconds that the agents under test took."""
    inconclusive_criteria: list[str] = []
    criteria: list[CriterionResult] = []
    """A row for each criterion, those of checkpoints first."""
    evaluations: list[EvaluationResult] = []
    """A row for each evaluator of the run."""
    reason_code: str | None = None
    """Why it ended: `max_turns`, `no_conclusion`, `timeout`, `agent_error`, `empty_response`,
    `step_failed`, `skipped`, …"""
    error: str | None = None
    """`Type: message` of the error that ended the run; None if there was none."""
    token_usage: dict[str, TokenUsage] = {}
    """Tokens by role (`User`, `Agent`, `Judge`), as far as they are reported."""
    model_calls: dict[str, int] = {}
    """Requests to models by role, as far as they are reported."""
    failed_calls: dict[str, int] = {}
    """Those of the requests that got no answer."""
    kept_answers: dict[str, int] = {}
    """Cached responses by role, for which no request was sent."""
    thread_id: str | None = None
    scenario_run_id: str | None = None
    batch_run_id: str | None = None

    @property
    def status(self) -> str:
        """`passed`, `failed`, or `error` if an error ended the run."""
        if self.error is not None:
            return "error"
        return "passed" if self.success else "failed"

    def __bool__(self) -> bool:
        """Whether it passed: `assert result` fails for a scenario that did not."""
        return self.success

    def __repr__(self) -> str:
        return (
            f"ScenarioResult(success={self.success}, status={self.status.upper()},"
            f" reasoning={self.reasoning!r})"
        )


@dataclass(frozen=True)
class EndConversation:
    """What a user returns to end the conversation, perhaps with a last message."""

    farewell: str | None = None
    reason: str | None = None


AgentReturnTypes: TypeAlias = Union[str, Message, list[Message], ScenarioResult]  # noqa: UP007 - as documented
"""What a participant may return; a ScenarioResult ends the conversation."""


class Participant(Protocol):
    """A user, an agent or a judge in a conversation."""

    role: AgentRole

    def call(self, input: AgentInput) -> Any:  # noqa: A002 - the name is public API
        """Return an awaitable of AgentReturnTypes or EndConversation."""
        ...


Callback: TypeAlias = Callable[[ScenarioState], Awaitable[None] | None]
"""A function that is called after a turn or a step; what it returns is ignored."""

ScriptStep: TypeAlias = Callable[
    [ScenarioState], Awaitable[ScenarioResult | None] | ScenarioResult | None
]
"""A step of a script: a function of the state. A result that it returns ends the conversation."""


def rows_of(result: ScenarioResult) -> list[CriterionResult]:
    """Return the criteria of a result; built from its lists where a judge gave only those."""
    if result.criteria:
        return result.criteria
    inconclusive = set(result.inconclusive_criteria)
    failed = [criterion for criterion in result.failed_criteria if criterion not in inconclusive]
    return [
        *_rows(result.passed_criteria, CriterionStatus.PASSED),
        *_rows(failed, CriterionStatus.FAILED),
        *_rows(result.inconclusive_criteria, CriterionStatus.INCONCLUSIVE),
    ]


def _rows(criteria: Iterable[str], status: CriterionStatus) -> list[CriterionResult]:
    return [CriterionResult(criterion=criterion, status=status) for criterion in criteria]


def criteria_by_status(rows: Sequence[CriterionResult]) -> dict[str, list[str]]:
    """Return the fields of a result that list its criteria; what is undecided has failed, too."""
    passed, inconclusive = CriterionStatus.PASSED, CriterionStatus.INCONCLUSIVE
    return {
        "passed_criteria": [row.criterion for row in rows if row.status is passed],
        "failed_criteria": [row.criterion for row in rows if row.status is not passed],
        "inconclusive_criteria": [row.criterion for row in rows if row.status is inconclusive],
    }


def verdict_of(
    rows: Sequence[CriterionResult], messages: list[Message], optional: Collection[str] = ()
) -> ScenarioResult:
    """Return the result for these rows: all criteria that are not optional must have passed."""
    not_passed = [row for row in rows if row.status is not CriterionStatus.PASSED]
    missed = [row for row in not_passed if row.criterion not in optional]
    code = None
    if missed:
        is_open = all(row.status is CriterionStatus.INCONCLUSIVE for row in missed)
        code = "inconclusive" if is_open else "criteria_failed"
    return ScenarioResult(
        success=not missed,
        messages=messages,
        reasoning="\n".join(
            f"{row.criterion}: {row.status}: {row.reasoning}" for row in not_passed or rows
        ),
        criteria=list(rows),
        reason_code=code,
        **criteria_by_status(rows),
    )


def combine_verdicts(first: ScenarioResult, second: ScenarioResult, known: int) -> ScenarioResult:
    """Return the verdict of a second judge together with that of the first.

    Both contain the `known` rows of checkpoints.
    """
    reasons = [verdict.reasoning for verdict in (first, second) if verdict.reasoning]
    combined: dict[str, object] = {
        "criteria": [*rows_of(first), *rows_of(second)[known:]],
        "passed_criteria": [*first.passed_criteria, *second.passed_criteria[known:]],
        "reasoning": "\n".join(reasons) if second.success else second.reasoning,
    }
    return second.model_copy(update=combined)
