"""Checks of a case: one row for each configured metric, scored or an error with its reason."""

import asyncio
import logging
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from holodeck.config.places import location
from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators.base import BaseEvaluator, Observation
from holodeck.lib.evaluators.inputs import Inputs, metrics_of, metrics_of_turn
from holodeck.lib.evaluators.metric_table import asks_a_judge, build_evaluator
from holodeck.lib.exceptions import describe, raised_by
from holodeck.lib.judging.judge import JudgeUsage, count_judge_usage
from holodeck.lib.judging.judges import Judges
from holodeck.lib.observability import Span, names, span
from holodeck.lib.test_runner.case_caches import CaseCaches
from holodeck.lib.test_runner.eval_kwargs_builder import EvalKwargsBuilder
from holodeck.lib.test_runner.judge_provider import JudgeProvider
from holodeck.lib.threads import is_cancelled
from holodeck.models.agent import Agent
from holodeck.models.evaluation import MetricSettings
from holodeck.models.metric import MetricKind
from holodeck.models.test_case import TestCaseModel, TurnModel
from holodeck.models.test_result import MetricResult

if TYPE_CHECKING:
    from holodeck.lib.test_runner.criteria import CaseCriteria

logger = logging.getLogger(__name__)

NOT_DONE = "it was not done when the case had to end"


@dataclass(frozen=True)
class Check:
    """A metric ready to be computed."""

    name: str
    evaluator: BaseEvaluator
    threshold: float | None = None
    fail_on_error: bool = False
    kind: MetricKind = "standard"
    required: bool = True


@dataclass(frozen=True)
class CaseChecks:
    """The checks of one case."""

    at_end: list[Check]
    """About the answer, or the last answer and the whole conversation."""
    of_turns: list[list[Check]] = field(default_factory=list)
    """About each turn of a conversation."""
    of_steps: dict[str | int, list[Check]] = field(default_factory=dict)
    """About the last answer, at the step of the script of that number."""
    criteria: "CaseCriteria | None" = None
    """About the whole of it, and at checkpoints of the script."""


class EvaluatorSet:
    """The checks of every case of an agent, built once and before any agent is called.

    `injected` evaluators stand in for the configured metrics of the same name; the others are
    computed for every case, besides its metrics.
    """

    def __init__(
        self,
        agent: Agent,
        injected: Mapping[str, BaseEvaluator] | None = None,
        judges: Judges | None = None,
        case_caches: CaseCaches | None = None,
    ) -> None:
        self._injected = dict(injected or {})
        self._base_dir = agent.base_dir
        self._inputs = Inputs(agent)
        self.case_caches = case_caches or CaseCaches(agent)
        self.judge_provider = JudgeProvider(agent, judges or Judges(base_dir=agent.base_dir))
        metrics = agent.evaluations.metrics if agent.evaluations else []
        cases = agent.test_cases or []
        self._agent = agent
        self._global = self._checks(metrics, "evaluations", "metrics")
        self._own = {
            index: self._checks(case.evaluations, "test_cases", index, "evaluations")
            for index, case in enumerate(cases)
            if case.evaluations is not None
        }
        self._scorers = {
            index: self._scorers_of(case.scorers, index)
            for index, case in enumerate(cases)
            if case.scorers
        }
        self._parts = {
            index: {
                at: self._checks_of_turn(part, "test_cases", index, *at) for at, part in case.parts
            }
            for index, case in enumerate(cases)
            if case.is_played or case.turns is not None
        }
        self._criteria = {
            index: self._criteria_of(agent, index, case)
            for index, case in enumerate(cases)
            if case.asks_judge
        }
        configured = {check.name for check in self._written()}
        self._extra = [
            Check(name, evaluator)
            for name, evaluator in self._injected.items()
            if name not in configured
        ]
        self._refuse_missing_inputs(agent)

    @property
    def evaluators(self) -> dict[str, BaseEvaluator]:
        """The evaluators that serve every case without metrics of its own, by name."""
        return {check.name: check.evaluator for check in [*self._global, *self._extra]}

    def checks_of(self, index: int) -> CaseChecks:
        """The checks of the case at that place in the file; its own replace the global ones."""
        metrics = self._own.get(index, self._global)
        at_end = [*metrics, *self._scorers.get(index, []), *self._extra]
        parts = self._parts.get(index, {})
        return CaseChecks(
            at_end=at_end,
            of_turns=[checks for at, checks in parts.items() if at[0] == "turns"],
            of_steps={at[1]: checks for at, checks in parts.items() if at[0] == "script"},
            criteria=self._criteria.get(index),
        )

    async def warm_up(self) -> None:
        """Load what the evaluators need that is slow to load, one library after the other."""
        every = chain(self._written(), self._extra)
        for evaluator in {type(check.evaluator): check.evaluator for check in every}.values():
            try:
                await evaluator.prepare()
            except Exception as error:  # noqa: BLE001 - said again where the metric is computed
                logger.debug("%s is not ready: %s", evaluator.name, error)

    def _criteria_of(self, agent: Agent, index: int, case: TestCaseModel) -> "CaseCriteria":
        # Imported here because most cases have none.
        from holodeck.lib.test_runner.criteria import CaseCriteria  # noqa: PLC0415

        key = "script" if case.criteria is None else "criteria"
        where = agent.place("test_cases", index, key)
        judge, llm = self.judge_provider.judge_of_criteria(where), agent.judging_model
        response_cache = None if llm is None else self.case_caches.of(case, llm, where)
        return CaseCriteria(judge, case.judged, case.about, response_cache)

    def _written(self) -> Iterator[Check]:
        """Every check that the agent.yaml names."""
        of_parts = chain.from_iterable(parts.values() for parts in self._parts.values())
        return chain(self._global, *self._own.values(), *self._scorers.values(), *of_parts)

    def _scorers_of(self, scorers: Sequence[MetricSettings], index: int) -> list[Check]:
        """Named unlike the metrics beside them."""
        taken = {check.name for check in self._own.get(index, self._global)}
        return self._checks(scorers, "test_cases", index, "scorers", taken=taken)

    def _checks_of_turn(self, turn: TurnModel, *path: str | int) -> list[Check]:
        metrics = self._checks(turn.evaluations or [], *path, "evaluations")
        taken = {check.name for check in metrics}
        return [*metrics, *self._checks(turn.scorers or [], *path, "scorers", taken=taken)]

    def _checks(
        self,
        metrics: Sequence[MetricSettings],
        *path: str | int,
        taken: set[str] | None = None,
    ) -> list[Check]:
        taken = set() if taken is None else taken
        return [
            self._check(
                metric, _free_name(metric.label, taken), location(self._agent, *path, index)
            )
            for index, metric in enumerate(metrics)
            if metric.enabled
        ]

    def _check(self, metric: MetricSettings, name: str, where: str) -> Check:
        evaluator = self._injected.get(name)
        if evaluator is None:
            judge = self.judge_provider.judge_of(metric, where) if asks_a_judge(metric) else None
            embeddings = self.judge_provider.judges.embeddings
            evaluator = build_evaluator(
                metric, self._base_dir, where=where, judge=judge, embeddings=embeddings
            )
            self._inputs.learn(metric, evaluator)
        return Check(
            name,
            evaluator,
            metric.threshold,
            metric.fail_on_error,
            metric.kind,
            metric.required,
        )

    def _refuse_missing_inputs(self, agent: Agent) -> None:
        """A metric for a case that cannot give it what it needs is a mistake."""
        for index, case in enumerate(agent.test_cases or []):
            self._refuse_missing(metrics_of(agent, case), case, index)
            for at, part in case.parts:
                self._refuse_missing(metrics_of_turn(part), part, index, *at)

    def _refuse_missing(
        self, metrics: Sequence[MetricSettings], asked: TurnModel, *path: str | int
    ) -> None:
        for metric in metrics:
            missing = self._inputs.missing(metric, asked) if metric.enabled else None
            if missing is not None:
                raise ConfigError(location(self._agent, "test_cases", *path), missing)


def _free_name(label: str, taken: set[str]) -> str:
    """The label, numbered from its second use on, so that no row hides another."""
    name, number = label, 1
    while name in taken:
        number += 1
        name = f"{label} #{number}"
    taken.add(name)
    return name


Rows = Callable[[list[MetricResult]], None]


async def grade(
    checks: Sequence[Check], observation: Observation, keep: Rows = lambda _: None
) -> list[MetricResult]:
    """One row for each check, in their order; they are computed at the same time.

    `keep` is told the rows there are should they not be waited for any more: those of checks that
    were not done are errors.
    """
    rows: dict[int, MetricResult] = {}

    async def fill(at: int, check: Check) -> None:
        await _grade_one(check, observation, partial(rows.__setitem__, at))

    try:
        if len(checks) == 1:
            await fill(0, checks[0])
        else:
            async with asyncio.TaskGroup() as group:
                for at, check in enumerate(checks):
                    group.create_task(fill(at, check))
    except asyncio.CancelledError:
        keep([rows.get(at) or _cut_off(check, NOT_DONE) for at, check in enumerate(checks)])
        raise
    return [rows[at] for at in range(len(checks))]


async def _grade_one(
    check: Check, observation: Observation, tell: Callable[[MetricResult], None]
) -> None:
    """Tell the row of a check, also where it is cancelled."""
    started = time.perf_counter()
    with span(names.check(check.name)) as current, count_judge_usage(JudgeUsage()) as spent:
        try:
            await check.evaluator.prepare()
            started = time.perf_counter()  # loading a library is not the metric's time
            found = await check.evaluator.evaluate(**_inputs(check.evaluator, observation))
            row = _row(check, found, started)
        except asyncio.CancelledError:
            why = NOT_DONE if is_cancelled() else "the metric cancelled itself"
            tell(_with_costs(_cut_off(check, why, started), spent))
            if is_cancelled():
                raise
            return
        except Exception as error:  # noqa: BLE001 - the border: a metric that breaks is a row
            logger.debug("metric %s: %s", check.name, traceback.format_exc())
            row = _error_row(check, error, started)
        row = _with_costs(row, spent)
        _tell(current, row)
        tell(row)


def _with_costs(row: MetricResult, spent: JudgeUsage) -> MetricResult:
    """The row with what asking its judge has cost; as it is where none was asked."""
    if not spent.calls:
        return row
    costs = {
        "model_used": spent.judge,
        "judge_calls": spent.calls,
        "judge_failed": spent.failed,
        "judge_tokens": spent.usage,
        "judge_ms": round(spent.seconds * 1000),
    }
    return row.model_copy(update=costs)


def _inputs(evaluator: BaseEvaluator, seen: Observation) -> dict[str, Any]:
    builder = EvalKwargsBuilder(
        agent_response=seen.response,
        input_query=seen.input,
        ground_truth=seen.ground_truth,
        file_content=seen.file_content,
        retrieval_context=list(seen.retrieval_context) or None,
        observation=seen,
    )
    return builder.build_for(evaluator)


def _row(check: Check, found: Mapping[str, Any], started: float) -> MetricResult:
    score = _score(check, found)
    verdict = found.get("passed")
    is_inconclusive = bool(found.get("inconclusive"))
    if is_inconclusive:
        verdict = None
    elif check.threshold is not None:  # a metric that says no is believed whatever its score
        verdict = score >= check.threshold and verdict is not False
    reasoning = found.get("reasoning")
    return MetricResult(
        metric_name=check.name,
        kind=check.kind,
        score=score,
        raw_score=found.get("raw_score"),
        raw_scale=found.get("raw_scale"),
        scale=found.get("scale", "0-1"),
        threshold=check.threshold,
        passed=verdict,
        required=check.required,
        inconclusive=is_inconclusive,
        retry_count=found.get("retry_count", 0),
        evaluation_time_ms=_ms_since(started),
        reasoning=str(reasoning) if reasoning else None,
    )


def _score(check: Check, found: Mapping[str, Any]) -> float:
    """The metric's score: under `score`, else under the metric's own name; never out of 0–1."""
    score = found.get("score", found.get(check.name))
    if isinstance(score, bool) or not isinstance(score, int | float):
        raise EvaluationError(f"gave no score; its result has {', '.join(found) or 'nothing'}")
    if not 0 <= score <= 1:
        raise EvaluationError(f"gave the score {score}, which is not between 0 and 1")
    return float(score)


def _error_row(check: Check, error: Exception, started: float) -> MetricResult:
    return MetricResult(
        metric_name=check.name,
        kind=check.kind,
        threshold=check.threshold,
        passed=False,
        required=check.required,
        error=describe(error),
        raised=raised_by(error),
        evaluation_time_ms=_ms_since(started),
    )


def _cut_off(check: Check, why: str, started: float | None = None) -> MetricResult:
    """The row of a check that was not finished."""
    begun = time.perf_counter() if started is None else started
    return _error_row(check, EvaluationError(why), begun)


def _tell(current: Span, row: MetricResult) -> None:
    current.event(
        names.EVALUATION_RESULT,
        {
            names.EVALUATION_NAME: row.metric_name,
            names.EVALUATION_SCORE: row.score,
            names.EVALUATION_LABEL: {True: "pass", False: "fail", None: None}[row.passed],
            names.ERROR_TYPE: None if row.error is None else "evaluation_error",
        },
    )


def _ms_since(started: float) -> int:
    return round((time.perf_counter() - started) * 1000)


__all__ = ["CaseChecks", "Check", "EvaluatorSet", "grade"]
