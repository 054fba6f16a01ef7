"""What the parties of a conversation are given, what they may answer, and how it ended."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any, Protocol, TypeAlias, Union

from pydantic import BaseModel, ConfigDict, SkipValidation

from holodeck.errors import ConfigError
from holodeck.lib.conversation.messages import AgentRole, Message
from holodeck.models.token_usage import TokenUsage

if TYPE_CHECKING:
    from holodeck.lib.conversation.state import ScenarioState
else:
    ScenarioState = Any


class ScenarioUsageError(ConfigError, ValueError):
    """A case, a script or an adapter is written wrong."""


class CriterionStatus(StrEnum):
    """What a judge says about a criterion."""

    PASSED = "passed"
    FAILED = "failed"
    INCONCLUSIVE = "inconclusive"


class CriterionResult(BaseModel):
    """A judge's word on one criterion."""

    model_config = ConfigDict(defer_build=True)

    criterion: str
    status: CriterionStatus
    reasoning: str = ""
    is_checkpoint: bool = False
    """Whether it was decided in the middle of a script, and not about the whole."""


class AgentInput(BaseModel):
    """What somebody is given when it is their turn to speak. All of it is theirs: copies."""

    model_config = ConfigDict(defer_build=True)

    thread_id: str
    messages: Annotated[list[Any], SkipValidation]
    """The whole conversation, the oldest message first."""
    new_messages: Annotated[list[Any], SkipValidation]
    """What the others said since the last call."""
    judgment_request: bool = False
    """Whether a judge must decide now."""
    judgment_criteria: list[str] | None = None
    """The criteria of a checkpoint; None for the judge's own."""
    scenario_state: Annotated[ScenarioState, SkipValidation]

    def last_new_user_message(self) -> Message:
        """The latest new message of the user. Raises ValueError if there is none."""
        said: list[Message] = [one for one in self.new_messages if one["role"] == "user"]
        if not said:
            raise ValueError(
                "the user has said nothing new: is the agent called twice in a row? Read"
                " 'messages', the whole conversation, instead"
            )
        return said[-1]

    def last_new_user_message_str(self) -> str:
        """The text of the latest new message of the user.

        Raises ValueError if there is none, or if it is more than a text.
        """
        content = self.last_new_user_message()["content"]
        if not isinstance(content, str):
            raise ValueError(  # noqa: TRY004 - as documented
                f"the user's last message is not a text but {content!r}; read 'messages' instead"
            )
        return content


class ScenarioResult(BaseModel):
    """How a conversation ended, and why."""

    model_config = ConfigDict(defer_build=True)

    success: bool
    messages: Annotated[list[Any], SkipValidation]
    """The whole conversation."""
    reasoning: str | None = None
    passed_criteria: list[str] = []
    failed_criteria: list[str] = []
    """What was not fulfilled, and in a final verdict also what could not be decided."""
    total_time: float | None = None
    """Seconds of the whole run."""
    agent_time: float | None = None
    """Seconds that the agents under test took."""
    inconclusive_criteria: list[str] = []
    criteria: list[CriterionResult] = []
    """A row for each criterion, those of checkpoints first."""
    reason_code: str | None = None
    """Why it ended: `max_turns`, `no_conclusion`, `timeout`, `agent_error`, `step_failed`,
    `skipped`, …"""
    error: str | None = None
    """`Type: message` of what broke the run; None if nothing did."""
    token_usage: dict[str, TokenUsage] = {}
    """Tokens by role (`User`, `Agent`, `Judge`), of those who tell."""
    model_calls: dict[str, int] = {}
    """Requests to models by role, of those who tell."""
    failed_calls: dict[str, int] = {}
    """Those of them that were not answered."""
    kept_answers: dict[str, int] = {}
    """Answers by role that were kept from an earlier run and not asked for."""
    thread_id: str | None = None
    scenario_run_id: str | None = None
    batch_run_id: str | None = None

    @property
    def status(self) -> str:
        """`passed`, `failed`, or `error` if something broke."""
        if self.error is not None:
            return "error"
        return "passed" if self.success else "failed"

    def __repr__(self) -> str:
        return (
            f"ScenarioResult(success={self.success}, status={self.status.upper()},"
            f" reasoning={self.reasoning!r})"
        )


@dataclass(frozen=True)
class EndConversation:
    """What a user answers who wants to end the conversation, perhaps with a last word."""

    farewell: str | None = None
    reason: str | None = None


AgentReturnTypes: TypeAlias = Union[str, Message, list[Message], ScenarioResult]  # noqa: UP007 - as documented
"""What whoever is called may answer; a ScenarioResult ends the conversation."""

Answer: TypeAlias = str | Mapping[str, Any] | Sequence[Any] | ScenarioResult | EndConversation
"""All that the engine understands; libraries' own message objects, too."""


class Participant(Protocol):
    """Somebody who takes part."""

    role: AgentRole

    def call(self, input: AgentInput) -> Any:  # noqa: A002 - the name is public API
        """What they say, as an awaitable of AgentReturnTypes."""
        ...


Callback: TypeAlias = Callable[[ScenarioState], Awaitable[None] | None]
"""What is told about a turn or a step; whatever it returns is ignored."""

ScriptStep: TypeAlias = Callable[
    [ScenarioState], Awaitable[ScenarioResult | None] | ScenarioResult | None
]
"""A step of a script: a function of the state. A result that it returns ends the conversation."""


def rows_of(result: ScenarioResult) -> list[CriterionResult]:
    """The criteria of a result; made from its lists where a judge gave only those."""
    if result.criteria:
        return result.criteria
    undecided = set(result.inconclusive_criteria)
    failed = [one for one in result.failed_criteria if one not in undecided]
    return [
        *_rows(result.passed_criteria, CriterionStatus.PASSED),
        *_rows(failed, CriterionStatus.FAILED),
        *_rows(result.inconclusive_criteria, CriterionStatus.INCONCLUSIVE),
    ]


def _rows(criteria: Iterable[str], status: CriterionStatus) -> list[CriterionResult]:
    return [CriterionResult(criterion=one, status=status) for one in criteria]


def after_checkpoints(
    checkpoints: list[CriterionResult], result: ScenarioResult
) -> dict[str, object]:
    """The fields of a result that tell of the passed checkpoints, too."""
    passed = [one.criterion for one in checkpoints]
    return {
        "criteria": [*checkpoints, *rows_of(result)],
        "passed_criteria": [*passed, *result.passed_criteria],
    }


def undecided_checkpoint(criteria: Iterable[str]) -> ScenarioResult:
    """The result at a checkpoint whose judge gave no verdict: it did not pass."""
    reasoning = "the judge gave no verdict"
    status = CriterionStatus.INCONCLUSIVE
    rows = [
        CriterionResult(criterion=one, status=status, reasoning=reasoning, is_checkpoint=True)
        for one in criteria
    ]
    texts = [row.criterion for row in rows]
    return ScenarioResult(
        success=False,
        messages=[],
        reasoning="\n".join(f"{one}: {reasoning}" for one in texts),
        failed_criteria=texts,
        inconclusive_criteria=texts,
        criteria=rows,
        reason_code="inconclusive",
    )


def combine_verdicts(first: ScenarioResult, second: ScenarioResult, known: int) -> ScenarioResult:
    """The verdict of a second judge with what another one found before.

    Both tell of the `known` rows of checkpoints.
    """
    told = [one.reasoning for one in (first, second) if one.reasoning]
    found: dict[str, object] = {
        "criteria": [*rows_of(first), *rows_of(second)[known:]],
        "passed_criteria": [*first.passed_criteria, *second.passed_criteria[known:]],
        "reasoning": "\n".join(told) if second.success else second.reasoning,
    }
    return second.model_copy(update=found)
