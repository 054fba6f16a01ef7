"""Compute the metrics of a case or turn: a row each, with a score or the reason for an error."""

import asyncio
import logging
import time
import traceback
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.base import BaseEvaluator, Observation, Score
from holodeck.lib.evaluators.observation_metrics import CustomEvaluator
from holodeck.lib.evaluators.param_spec import EvalParam
from holodeck.lib.judging.judge import keep_judge_prompts
from holodeck.lib.llm.model import count_usage
from holodeck.lib.observability import Span, evaluation_content, names, span
from holodeck.lib.observability.tracing import Attributes
from holodeck.lib.processes.threads import is_cancelled
from holodeck.lib.support.text import describe, is_blank, plural
from holodeck.lib.test_runner.grading.checks import Check
from holodeck.lib.user_code.raised import raised_error
from holodeck.models.results.evidence import Unknown
from holodeck.models.test_result import MetricResult, PartResult, TestResult
from holodeck.models.token_usage import UsageMeter

logger = logging.getLogger(__name__)

NOT_DONE = "the case ended before the metric was computed"
NO_ANSWER = "the agent gave no answer, only calls of {}"
_ANSWERS = frozenset(
    {EvalParam.RESPONSE, EvalParam.ACTUAL_OUTPUT, EvalParam.TURNS, EvalParam.EXCHANGES}
)
"""The inputs that contain the answer."""
_LABELS = {True: "pass", False: "fail", None: None}
"""Labels of results; an undecided result has none."""


DISTRUSTED = "the judge may not decide: it is {}, and 'judge_trust' is 'require'"


async def compute_metrics(
    checks: Sequence[Check], observation: Observation, rows: list[MetricResult]
) -> None:
    """Fill `rows` with a row for each check, in their order; all are computed concurrently.

    If it is cancelled, the rows of checks that are not done are errors.
    """
    done: dict[int, MetricResult] = {}
    try:
        if len(checks) == 1:
            await _compute_metric(checks[0], observation, partial(done.__setitem__, 0))
            return
        async with asyncio.TaskGroup() as group:
            for at, check in enumerate(checks):
                set_row = partial(done.__setitem__, at)
                group.create_task(_compute_metric(check, observation, set_row))
    finally:
        rows[:] = [
            done.get(at) or _error_row(check, EvaluationError(NOT_DONE), time.perf_counter())
            for at, check in enumerate(checks)
        ]


async def _compute_metric(
    check: Check, observation: Observation, set_row: Callable[[MetricResult], None]
) -> None:
    """Set the row of a check, also if it is cancelled."""
    started = time.perf_counter()
    attributes = {
        names.EVALUATION_NAME: check.name,
        names.CHECK_KIND: check.kind,
        names.CHECK_THRESHOLD: check.threshold,
    }
    with (
        span(names.check(check.name), attributes) as current,
        count_usage() as usage,
        keep_judge_prompts() as prompts,
    ):
        _add_content(current, observation)
        cancelled: asyncio.CancelledError | None = None
        try:
            await check.evaluator.prepare()
            started = time.perf_counter()  # the time to load a library is not the metric's
            score = _score_without_answer(check.evaluator, observation)
            if score is None:
                score = await check.evaluator.evaluate_observation(observation, check.name)
            row = _row(check, score, observation, started)
        except asyncio.CancelledError as error:
            cancelled = error if is_cancelled() else None
            why = "the metric cancelled itself" if cancelled is None else NOT_DONE
            row = _error_row(check, EvaluationError(why), started)
        except Exception as error:  # noqa: BLE001 - the border: a metric that breaks is a row
            logger.debug("metric %s: %s", check.name, traceback.format_exc())
            row = _error_row(check, error, started)
        row = _with_usage(row, usage, prompts)
        _add_event(current, row)
        set_row(row)
        if cancelled is not None:
            raise cancelled


def _score_without_answer(evaluator: BaseEvaluator, observation: Observation) -> Score | None:
    """Return the score of a metric about an answer where the agent only called tools, or None."""
    calls = observation.tool_calls
    reads_answer = not evaluator.uses_observation and evaluator.required_params() & _ANSWERS
    if not reads_answer or not is_blank(observation.response):
        return None
    if isinstance(calls, Unknown) or not calls:
        return None
    names_of_tools = ", ".join(dict.fromkeys(call.name for call in calls))
    return Score(0.0, passed=False, reason=NO_ANSWER.format(names_of_tools))


def _with_usage(row: MetricResult, usage: UsageMeter, prompts: list[str]) -> MetricResult:
    """Return the row with what its judge was asked, and what that cost."""
    if not usage.requests:
        return row
    costs = {
        "judge_prompts": prompts,
        "model_used": next(iter(usage.by_model)),
        "judge_calls": usage.requests,
        "judge_failed": usage.failed,
        "judge_tokens": usage.usage,
        "judge_ms": round(usage.seconds * 1000),
    }
    return row.model_copy(update=costs)


def _row(check: Check, score: Score, observation: Observation, started: float) -> MetricResult:
    verdict, reason, trust = score.passed, score.reason, check.trust
    if trust is not None and trust.is_missing:
        reason = f"{DISTRUSTED.format(trust.state)}{'; ' if reason else ''}{reason}"
    if score.inconclusive or check.is_distrusted:
        verdict = None
    elif check.threshold is not None:  # a metric that says no is believed whatever its score
        verdict = score.score >= check.threshold and verdict is not False
    return MetricResult(
        metric_name=check.name,
        kind=check.kind,
        score=score.score,
        raw_score=score.raw_score,
        raw_scale=score.raw_scale,
        scale=score.scale,
        threshold=check.threshold,
        passed=verdict,
        required=check.required,
        inconclusive=score.inconclusive or check.is_distrusted,
        retry_count=score.retry_count,
        evaluation_time_ms=_ms_since(started),
        judge_trust=None if trust is None else trust.state,
        judge_limits=None if trust is None else trust.limits,
        reasoning=reason or None,
        votes=list(score.votes),
        note="; ".join(filter(None, [score.note, _unseen_images(check.evaluator, observation)]))
        or None,
    )


def _unseen_images(evaluator: BaseEvaluator, observation: Observation) -> str | None:
    """Return a note about images that the agent got and the judge did not; None if it has all."""
    if not evaluator.asks_judge or isinstance(evaluator, CustomEvaluator):
        return None  # what a grader shows the judge is up to the grader
    takes_images = EvalParam.IMAGES in evaluator.get_param_spec().optional
    count = observation.image_count - (len(observation.images) if takes_images else 0)
    if not count:
        return None
    why = "which are not in the record" if takes_images else "which its prompt has no place for"
    return f"judged without {plural(count, 'image')} of the test case, {why}"


def _error_row(check: Check, error: Exception, started: float) -> MetricResult:
    return MetricResult(
        metric_name=check.name,
        kind=check.kind,
        threshold=check.threshold,
        passed=False,
        required=check.required,
        error=describe(error),
        raised=raised_error(error),
        evaluation_time_ms=_ms_since(started),
    )


def _add_content(current: Span, observation: Observation) -> None:
    """Add what is judged, if content of metrics is captured."""
    content = evaluation_content()
    if content is None or not current.has_content:
        return
    parts = {
        names.INPUT_MESSAGES: observation.input and names.message("user", observation.input),
        names.OUTPUT_MESSAGES: names.message("assistant", observation.response),
        names.CHECK_GROUND_TRUTH: observation.ground_truth,
        names.CHECK_CONTEXT: list(observation.known_passages),
    }
    current.set({key: content.to_text(part) for key, part in parts.items() if part})


def _add_event(current: Span, row: MetricResult) -> None:
    result = {
        names.EVALUATION_NAME: row.metric_name,
        names.EVALUATION_SCORE: row.score,
        names.EVALUATION_LABEL: _LABELS[row.passed],
        names.ERROR_TYPE: None if row.error is None else "evaluation_error",
    }
    current.set({key: value for key, value in result.items() if key != names.EVALUATION_NAME})
    _add_result(current, result, row.reasoning if row.error is None else row.error)


def add_events_of_checks(current: Span, result: TestResult) -> None:
    """Add an event for each tool check and each criterion, as metrics have them.

    Arguments and results that a check expects are content.
    """
    has_content = evaluation_content() is not None
    parts: Sequence[PartResult] = [*result.turns, result]
    for check in chain.from_iterable(part.tool_checks for part in parts):
        is_error = check.error is not None
        said = {
            names.EVALUATION_NAME: check.expectation
            if has_content
            else check.expectation.partition("(")[0],
            names.EVALUATION_LABEL: _LABELS[None if is_error else check.passed],
            names.ERROR_TYPE: "evaluation_error" if is_error else None,
        }
        _add_result(current, said, check.error or check.reason)
    for row in result.criteria:
        passed = {"passed": True, "failed": False}.get(row.status)
        said = {names.EVALUATION_NAME: row.criterion, names.EVALUATION_LABEL: _LABELS[passed]}
        _add_result(current, said, row.reasoning)


def _add_result(current: Span, result: Attributes, reason: str | None) -> None:
    """Add the event of a result, with the reason if content is captured."""
    content = evaluation_content()
    explanation = content.to_text(reason) if content is not None and reason else None
    current.event(names.EVALUATION_RESULT, {**result, names.EVALUATION_EXPLANATION: explanation})


def _ms_since(started: float) -> int:
    return round((time.perf_counter() - started) * 1000)
