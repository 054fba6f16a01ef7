"""What the scorers say of an answer, and what follows from it."""

import inspect
import logging
import traceback
from collections.abc import Sequence
from functools import partial

from holodeck.errors import EvaluationError
from holodeck.lib.exceptions import describe, raised_by, with_place
from holodeck.lib.threads import call_user_function
from holodeck.models.test_result import Outcome
from holodeck.suite.plan import Planned
from holodeck.suite.results import AgentResult, ScoreResult
from holodeck.suite.scenario import Scenario
from holodeck.suite.scorers import Scorer

logger = logging.getLogger(__name__)

_QUICK = {f"holodeck.suite.scorers.{name}" for name in ("passfail", "exact", "pattern")}
"""Scorers that need no thread."""

UNCHECKED = "Unchecked: the scenario has no scorers, so nothing was decided; name at least one"


async def score(planned: Planned, answer: AgentResult, *, is_strict: bool) -> list[ScoreResult]:
    """A row for each scorer; one that raises gets a row with its error, unless `is_strict`."""
    rows: list[ScoreResult] = []
    for scorer in planned.scorers:
        try:
            rows.append(await _asked(scorer, planned.scenario, answer))
        except Exception as error:
            if is_strict:
                raise
            logger.debug("scorer %s: %s", scorer.name, traceback.format_exc())
            rows.append(_broken(scorer.name, planned.scenario, error))
    return rows


def verdict(rows: Sequence[ScoreResult]) -> tuple[Outcome, str | None]:
    """How a scenario with these rows ended, and what kept it from being decided."""
    if not rows:
        return Outcome.UNCHECKED, UNCHECKED
    broken = [f"scorer {row.scorer_name!r}: {row.error}" for row in rows if row.error]
    if broken:
        return Outcome.METRIC_ERROR, "; ".join(broken)
    return (Outcome.PASSED if all(row.passed for row in rows) else Outcome.FAILED), None


async def _asked(scorer: Scorer, scenario: Scenario, answer: AgentResult) -> ScoreResult:
    call = partial(scorer.score, scenario, answer)
    if type(scorer).__module__ in _QUICK:
        said = call()
    else:
        said = await call_user_function(call, scorer.score)
    if inspect.isawaitable(said):
        said = await said
    if not isinstance(said, ScoreResult):
        raise EvaluationError(f"returned {said!r}; wanted a ScoreResult")
    return said


def _broken(name: str, scenario: Scenario, error: Exception) -> ScoreResult:
    return ScoreResult(
        scenario_id=scenario.id,
        scorer_name=name,
        score=0.0,
        passed=False,
        explanation=f"could not be scored: {with_place(error)}",
        error=describe(error),
        raised=raised_by(error),
    )
