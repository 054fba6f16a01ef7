"""Grade recorded answers again, with the metrics of the present agent.yaml and no agent."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain

import holodeck
from holodeck.lib.records.fingerprint import fingerprint_of
from holodeck.lib.records.run_store import Run, find_cases
from holodeck.lib.test_runner.case_run import with_earlier_tries
from holodeck.lib.test_runner.case_state import CaseState
from holodeck.lib.test_runner.checks import CaseChecks, EvaluatorSet
from holodeck.lib.test_runner.costs import with_cost
from holodeck.lib.test_runner.grade import (
    ObservationBuilder,
    ending_errors,
    grade,
    regraded_result,
)
from holodeck.lib.test_runner.recorded import (
    Redact,
    keyed_cases,
    match_answers,
    recorded_answers,
    report_of,
)
from holodeck.lib.test_runner.repeats import PassBar, combine_repetitions, pass_bar
from holodeck.lib.test_runner.stop_policy import skip_by_case
from holodeck.lib.test_runner.summary import summarize
from holodeck.lib.text import plural
from holodeck.models.agent import Agent
from holodeck.models.selection import Selection
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import Outcome, TestReport, TestResult, TurnResult


@dataclass(frozen=True)
class RescoredReport:
    """The new report, and what of the record or of the agent.yaml is not in it."""

    report: TestReport
    ungraded: tuple[str, ...]
    """Cases without a recorded answer."""
    unused: tuple[str, ...]
    """Recorded answers without a case."""


async def rescore(agent: Agent, run: Run, redact: Redact = str) -> RescoredReport:
    """The recorded answers under the present expectations and metrics.

    An answer belongs to the case with the same suite, name, input, history, script and context.
    Times are those of the record. A result whose agent could not be run stays as it is. `redact` is
    what the record went through. Of a run that had chosen among the cases, the others are not asked
    for. Raises ConfigError for metrics that are wrong.
    """
    agent, selection = _as_chosen(agent, run, redact)
    evaluator_set = EvaluatorSet(agent)
    observations = ObservationBuilder(agent)
    left = recorded_answers(run)
    answers = match_answers(keyed_cases(agent, run, redact), left)
    results, ungraded = [], []
    for index, case in enumerate(agent.test_cases or []):
        skipped = skip_by_case(case)
        if skipped is not None:
            results.append(skipped)
            continue
        if index not in answers:
            ungraded.append(case.name or f"#{index + 1}")
            continue
        checks = evaluator_set.checks_of(index)
        again = await _graded_again(answers[index], case, checks, observations)
        results.append(with_cost(_labelled(again, case), agent))
    await evaluator_set.judge_provider.judges.close()
    before = report_of(run)
    stopped = f"{plural(len(ungraded), 'case has', 'cases have')} no recorded answer"
    update = {
        "agent_name": agent.name,
        "results": results,
        "summary": summarize(results, before.summary.wall_time_ms),
        "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
        "holodeck_version": holodeck.__version__,
        "interrupted": False,
        "stopped": stopped if ungraded else None,
        "stopped_by": None,
        "planned_tests": len(agent.test_cases or []),
        "selection": selection,
        "notes": evaluator_set.judge_provider.notes,
    }
    report = before.model_copy(update=update)
    unused = [one.result for one in chain(*left.values())]
    return RescoredReport(report, tuple(ungraded), tuple(_names(unused)))


def _labelled(result: TestResult, case: TestCaseModel) -> TestResult:
    return result.model_copy(update={"test_id": case.id, "tags": case.tags})


def _names(results: Iterable[TestResult]) -> list[str]:
    return [one.test_name or one.test_input for one in results]


def _as_chosen(agent: Agent, run: Run, redact: Redact) -> tuple[Agent, Selection | None]:
    """The agent with the cases that the run had chosen, or has answers of; what that leaves."""
    chosen = run.started.selection if run.started else None
    if run.started is None or chosen is None:
        return agent, None
    cases = keyed_cases(agent, run, redact)
    planned = set(find_cases(run.started.cases, fingerprint_of(agent).cases))
    answered = recorded_answers(run)
    places = [at for at, one in enumerate(cases) if at in planned or one.question in answered]
    return agent.case_caches(places), chosen.now(len(cases), len(places))


async def _graded_again(
    result: TestResult, case: TestCaseModel, checks: CaseChecks, observations: ObservationBuilder
) -> TestResult:
    """The result with all its tries and repetitions; the case says how many of these must pass."""
    bar, repeats = pass_bar(case), result.repeats
    if repeats is None:
        whole = await _with_tries(result, case, checks, observations)
        return whole if bar is None else combine_repetitions(case, bar, [whole])
    runs = [await _with_tries(one, case, checks, observations) for one in repeats.runs]
    return combine_repetitions(case, bar or PassBar(repeats.planned, repeats.needed), runs)


async def _with_tries(
    result: TestResult, case: TestCaseModel, checks: CaseChecks, observations: ObservationBuilder
) -> TestResult:
    """A case that failed once and passed later stays flaky."""
    last = await _regraded(result, case, checks, observations)
    if not result.tries:
        return last
    tries = [await _regraded(one, case, checks, observations) for one in result.tries]
    return with_earlier_tries(last, tries)


async def _regraded(
    result: TestResult, case: TestCaseModel, checks: CaseChecks, observations: ObservationBuilder
) -> TestResult:
    """Return the result graded again; as it is if its agent or its conversation broke."""
    broke_off = case.is_played and result.ending is not None and result.ending.broke
    if result.outcome is Outcome.AGENT_ERROR or broke_off:
        return result
    state = _recorded_state(result, case, checks)
    await grade(state, checks, observations)
    return regraded_result(result, state, checks)


def _recorded_state(result: TestResult, case: TestCaseModel, checks: CaseChecks) -> CaseState:
    """Return what the record knows of a run of the case, without its grades."""
    ending = result.ending if case.is_played else None
    is_judged = checks.criteria is not None and checks.criteria.are_about_the_whole
    # Where checks or the judge may decide now, the recorded end of the conversation does not.
    if ending is not None and (
        ending.code == "no_conclusion" or (is_judged and ending.code == "max_turns")
    ):
        ending = ending.model_copy(update={"passed": None})
    return CaseState(
        case,
        result.history,
        turns=_recorded_turns(result, case),
        faults=_errors_of_agent(result),
        ending=ending,
        criteria=[row for row in result.criteria if row.is_checkpoint],
        messages=result.messages,
        simulator_cost=result.simulator_cost,
    )


def _errors_of_agent(result: TestResult) -> list[str]:
    """Return the recorded errors without the one that the end of the conversation adds."""
    of_ending = ending_errors(result.ending)
    return [error for error in result.errors if error not in of_ending]


def _recorded_turns(result: TestResult, case: TestCaseModel) -> list[TurnResult]:
    """Return the turns without grades; those of scripts and simulated users keep theirs."""
    if case.is_played:
        return list(result.turns)
    if case.turns is None:
        return [
            TurnResult(
                input=result.test_input,
                processed_files=result.processed_files,
                agent_response=result.agent_response,
                tool_invocations=result.tool_invocations,
                agent_time_ms=result.agent_time_ms,
                errors=_errors_of_agent(result),
                evidence=result.evidence,
            )
        ]
    return [
        turn.model_copy(
            update={
                "outcome": None,
                "expected_tools": expectations.expected_tools,
                "tool_checks": [],
                "metric_results": [],
                "ground_truth": expectations.ground_truth,
            }
        )
        for turn, expectations in zip(result.turns, case.turns, strict=True)
    ]
