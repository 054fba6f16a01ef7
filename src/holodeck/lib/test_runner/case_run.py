"""One run of a test case, from its files to its result, and its retries."""

import asyncio
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from holodeck.errors import Refusal
from holodeck.lib.backends.base import AgentBackend
from holodeck.lib.file_processor import FileReader
from holodeck.lib.llm.limiter import time_limit
from holodeck.lib.llm.limits import override_call_limit
from holodeck.lib.llm.retry import RetryConfig, backoff_delay
from holodeck.lib.observability import names, span
from holodeck.lib.test_runner.case_state import CaseState
from holodeck.lib.test_runner.checks import CaseChecks
from holodeck.lib.test_runner.grade import UNGRADED, ObservationBuilder, build_result, grade
from holodeck.lib.test_runner.messages import History
from holodeck.lib.test_runner.observe import observe
from holodeck.lib.test_runner.scoring import add_events_of_checks
from holodeck.lib.ui.activity import activity
from holodeck.models.outcome import INTERRUPTED, Outcome
from holodeck.models.test_case import RetryKind, TestCaseModel
from holodeck.models.test_result import TestResult

if TYPE_CHECKING:
    from holodeck.lib.conversation.script_run import ScriptRun
    from holodeck.lib.test_runner.conversation import ConversationRunner
    from holodeck.lib.test_runner.events import CaseEvents, OnConversation, StaticConversation
    from holodeck.lib.traces.agent_traces import AgentTraces

logger = logging.getLogger(__name__)

_RETRIED: Sequence[RetryKind] = ("error", "timeout")
"""What a case is run again after, unless it says otherwise with `retry_on`."""


@dataclass(frozen=True)
class FinishedRun:
    """The result of a run of a case, and what it means for further runs."""

    result: TestResult
    failure: RetryKind | None = None
    """What went wrong, if running the case again may help."""
    is_permanent: bool = False
    """Whether every other case will fail like this one."""
    refusal: Refusal | None = None
    """What the provider objected to before it answered anything; None if it did not."""


@dataclass
class CaseRun:
    """One run of a test case: its agent is observed, then graded, within a time limit."""

    case: TestCaseModel
    backend: AgentBackend
    files: FileReader
    checks: CaseChecks
    observations: ObservationBuilder
    history: History = ()
    """The messages before the case."""
    agent_name: str = "agent"
    time_limit_s: float | None = None
    """Seconds for the whole case, files and metrics included; None for no limit."""
    conversation: "ConversationRunner | None" = None
    """Runs a script or a simulated user; None if what the user says is written."""
    on_conversation: "OnConversation | None" = None
    """Called with the conversation before it begins."""
    events: "CaseEvents | None" = None
    """Publishes what happens; None if nobody listens."""
    traces: "AgentTraces | None" = None
    """Collects the spans of the agent; None if the case checks none."""

    state: CaseState = field(init=False)
    _started: float = field(default=0.0, init=False)

    def __post_init__(self) -> None:
        self.state = CaseState(self.case, self.history)

    async def run(self) -> FinishedRun:
        """Run the case. Only cancellation and configuration errors are raised."""
        result = await (self._run() if self.events is None else self.events.publish_run(self._run))
        state = self.state
        failure: RetryKind | None = "failed" if result.outcome is Outcome.FAILED else state.failure
        return FinishedRun(result, failure, state.is_permanent, state.refusal)

    def interrupted_result(self) -> TestResult | None:
        """Return the result of a cancelled run; None if nothing was graded by then."""
        if not self.state.end_late("interrupted", INTERRUPTED):
            return None
        result = self._result(self._elapsed_seconds())
        return result if result.rows else None

    async def _run(self) -> TestResult:
        state, self._started = self.state, time.perf_counter()
        with span(names.CASE, {names.CASE_NAME: self.case.name}) as current:
            is_done = False
            try:
                async with time_limit(self.time_limit_s) as limit:
                    with override_call_limit(self.case.timeout):
                        await self._observe_and_grade()
                    is_done = True
            except TimeoutError as error:
                if limit.expired():
                    self._exceed_time_limit(is_done=is_done)
                else:
                    state.add_error(error)
            except Exception as error:  # noqa: BLE001 - the border: a case that breaks is a row
                logger.debug("case %s: %s", self.case.name, traceback.format_exc())
                state.add_error(error)
            result = self._result(self._elapsed_seconds() - state.waited_seconds)
            current.set(
                {
                    names.CASE_STATUS: "pass" if result.passed else "fail",
                    names.CASE_OUTCOME: result.outcome.value,
                }
            )
            if current.is_recorded:
                add_events_of_checks(current, result)
        return result

    async def _observe_and_grade(self) -> None:
        is_followed = self.events is not None or self.on_conversation is not None
        await observe(
            self.state,
            self.backend,
            self.files,
            self.agent_name,
            self.conversation,
            self._follow if is_followed else None,
            self.traces,
        )
        await grade(self.state, self.checks, self.observations)

    def _follow(self, conversation: "ScriptRun | StaticConversation") -> None:
        if self.events is not None:
            self.events.follow(conversation.events)
        if self.on_conversation is not None:
            self.on_conversation(conversation)

    def _exceed_time_limit(self, *, is_done: bool) -> None:
        """End the case; whether that is the agent's error depends on what it waited for.

        `is_done` says that the case was finished, but too late as the event loop was blocked.
        """
        state, limit = self.state, self.time_limit_s or 0.0
        state.failure = "timeout"
        if is_done and (state.agent_seconds or 0.0) < limit:
            state.late_ending = UNGRADED
        reason = f"the case took longer than {limit:g} s"
        if not state.end_late(reason):
            state.errors.append(reason)

    def _result(self, seconds: float) -> TestResult:
        return build_result(self.state, self.checks, self.observations, round(seconds * 1000))

    def _elapsed_seconds(self) -> float:
        return time.perf_counter() - self._started


async def run_with_retries(
    case: TestCaseModel,
    run: Callable[[], Awaitable[FinishedRun]],
    backoff: RetryConfig,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> FinishedRun:
    """Run a case again after what its `retry_on` names, as often as its `retries` allows.

    The result contains the earlier tries; a case that failed and passed later is flaky.
    """
    retried, earlier = case.retry_on or _RETRIED, list[TestResult]()
    last = await run()
    while last.failure in retried and len(earlier) < (case.retries or 0):
        earlier.append(last.result)
        delay = backoff_delay(len(earlier), backoff)
        logger.info("case %s: %s, run again in %.1f s", case.name, last.result.outcome, delay)
        number = f"attempt {len(earlier) + 1}"
        with activity(number, timed=f"{number} in {{time}}", seconds=delay):
            await sleep(delay)
        last = await run()
    if not earlier:
        return last
    elapsed_ms = sum(one.execution_time_ms for one in (*earlier, last.result))
    result = with_earlier_tries(last.result, earlier)
    result = result.model_copy(update={"execution_time_ms": elapsed_ms})
    return replace(last, result=result)


def with_earlier_tries(result: TestResult, earlier: list[TestResult]) -> TestResult:
    """Return the last result with the earlier ones; flaky if it passed after one that failed."""
    failed_before = any(one.outcome is Outcome.FAILED for one in earlier)
    outcome = Outcome.FLAKY if result.passed and failed_before else result.outcome
    return result.model_copy(update={"tries": earlier, "outcome": outcome})
