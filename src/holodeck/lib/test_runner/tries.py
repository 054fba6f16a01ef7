"""Runs a case again from the start, where that is wanted and may help."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from holodeck.errors import Refusal
from holodeck.lib.llm.retry import RetryConfig, backoff_delay
from holodeck.models.test_case import RetryKind, TestCaseModel
from holodeck.models.test_result import Outcome, TestResult

logger = logging.getLogger(__name__)

_AFTER: Sequence[RetryKind] = ("error", "timeout")


@dataclass(frozen=True)
class FinishedRun:
    """What came of one run of a case."""

    result: TestResult
    failure: RetryKind | None = None
    """What went wrong, where another try may help."""
    is_permanent: bool = False
    """Whether every other case will fail like this one."""
    refusal: Refusal | None = None
    """What the provider objected to before it answered anything; None if it did not."""


async def run_with_retries(
    case: TestCaseModel,
    run: Callable[[], Awaitable[FinishedRun]],
    waits: RetryConfig,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> FinishedRun:
    """What came of the case in the end; earlier tries stand in the result.

    Infrastructure is tried again as often as the case says, a verdict only if its `retry_on` has
    `failed`; a case that failed and passed later is flaky.
    """
    after, earlier = case.retry_on or _AFTER, list[TestResult]()
    ran = await run()
    while ran.failure in after and len(earlier) < (case.retries or 0):
        earlier.append(ran.result)
        delay = backoff_delay(len(earlier), waits)
        logger.info("case %s: %s, run again in %.1f s", case.name, ran.result.outcome, delay)
        await sleep(delay)
        ran = await run()
    if not earlier:
        return ran
    took = sum(one.execution_time_ms for one in (*earlier, ran.result))
    result = with_earlier_tries(ran.result, earlier).model_copy(update={"execution_time_ms": took})
    return FinishedRun(result, ran.failure, ran.is_permanent, ran.refusal)


def with_earlier_tries(result: TestResult, earlier: list[TestResult]) -> TestResult:
    """The last result with those before it; flaky if it passed after one that failed."""
    failed_before = any(one.outcome is Outcome.FAILED for one in earlier)
    outcome = Outcome.FLAKY if result.passed and failed_before else result.outcome
    return result.model_copy(update={"tries": earlier, "outcome": outcome})
