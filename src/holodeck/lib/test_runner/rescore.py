"""Grade the recorded answers of a run again, without calling the agent (`holodeck score`)."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import chain

import holodeck
from holodeck.config.prices import with_list_prices
from holodeck.lib.records.fingerprint import fingerprint_of
from holodeck.lib.records.resume import find_cases
from holodeck.lib.records.run_store import Run, is_of_second_agent
from holodeck.lib.reports.summary import summarize
from holodeck.lib.support.text import plural
from holodeck.lib.test_runner.case_run import with_earlier_tries
from holodeck.lib.test_runner.case_state import CaseState, Grades
from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.lib.test_runner.grading.checks import CaseChecks, EvaluatorSet
from holodeck.lib.test_runner.grading.grade import (
    ObservationBuilder,
    ending_errors,
    grade,
    regraded_result,
)
from holodeck.lib.test_runner.grading.recorded import (
    Redact,
    keyed_cases,
    match_answers,
    recorded_answers,
    report_of,
)
from holodeck.lib.test_runner.run_state import RunState
from holodeck.lib.test_runner.scheduling.repeats import PassBar, combine_repetitions, pass_bar
from holodeck.lib.test_runner.session import TestSession
from holodeck.models.agent import Agent
from holodeck.models.results.origin import Selection
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import Outcome, PartResult, TestReport, TestResult, TurnResult


@dataclass
class RescoringSession(TestSession):
    """Grades the recorded answers of a run with the present expectations and metrics.

    If the run had selected cases, only these are graded. An answer belongs to the case with the
    same suite, name, input, history, script and context. Times are those of the record. A result
    whose agent failed stays as it is. Raises ConfigError for wrong metrics.
    """

    recorded: Run = field(kw_only=True)
    ungraded: list[str] = field(default_factory=list, init=False)
    """Cases without a recorded answer."""
    unused: Sequence[str] = field(default=(), init=False)
    """Recorded answers without a case."""

    def __post_init__(self) -> None:
        [tested] = self.agents
        redact = self.redactor.redact
        agent, self.selection = _with_selection(tested.agent, self.recorded, redact)
        if is_of_second_agent(self.recorded):
            agent = agent.with_names_of_second()
        # Telemetry is about agents, and none is called.
        agent = agent.model_copy(update={"observability": None})
        if agent.prices is not None:
            agent = with_list_prices(agent)
        self.agents = [replace(tested, agent=agent)]
        self._run_state = RunState(
            agent, partial(self._take_result, 0), clean=self.redactor.redact_report
        )
        self._evaluator_set = EvaluatorSet(agent, settings=tested.settings)
        left = recorded_answers(self.recorded)
        self._answers = match_answers(keyed_cases(agent, self.recorded, redact), left)
        self.unused = [answer.result.title for answer in chain(*left.values())]
        super().__post_init__()

    def _build_executors(self) -> list[TestExecutor]:
        return []

    async def execute_tests(self) -> TestReport:
        """Grade every answer and report."""
        observations, run_state = ObservationBuilder(self.agents[0].agent), self._run_state
        run_state.add_skipped()
        for index in run_state.remaining:
            case = run_state.case(index)
            if index not in self._answers:
                self.ungraded.append(case.name or f"#{index + 1}")
                continue
            checks = self._evaluator_set.checks_of(index)
            once = partial(_regrade_run, case=case, checks=checks, observations=observations)
            result = await _regrade(self._answers[index], case, once)
            update = {"test_id": case.id, "tags": case.tags}
            run_state.add(index, result.model_copy(update=update))
        await self.shutdown()
        return self.report()

    async def shutdown(self) -> None:
        """Close the judges."""
        await self._evaluator_set.close()

    def report(self, *, interrupted: bool = False) -> TestReport:
        """Return the report of the grades so far."""
        agent, results = self.agents[0].agent, self._run_state.results
        before, is_second = report_of(self.recorded), is_of_second_agent(self.recorded)
        stopped = f"{plural(len(self.ungraded), 'case has', 'cases have')} no recorded response"
        update = {
            "agent_name": before.agent_name if is_second else agent.name,
            "results": results,
            "summary": summarize(results, before.summary.wall_time_ms),
            "timestamp": datetime.now(UTC).isoformat(timespec="seconds"),
            "holodeck_version": holodeck.__version__,
            "interrupted": interrupted,
            "stopped": stopped if self.ungraded else None,
            "stopped_by": None,
            "planned_tests": len(agent.test_cases or []),
            "selection": self.selection,
            "notes": self._evaluator_set.notes,
        }
        return before.model_copy(update=update)


def _with_selection(agent: Agent, run: Run, redact: Redact) -> tuple[Agent, Selection | None]:
    """Return the agent with the cases that the run selected or answered, and that selection."""
    selection = run.started.selection if run.started else None
    if run.started is None or selection is None:
        return agent, None
    cases = keyed_cases(agent, run, redact)
    planned = set(find_cases(run.started.cases, fingerprint_of(agent).cases))
    answered = recorded_answers(run)
    indexes = [at for at, case in enumerate(cases) if at in planned or case.key in answered]
    return agent.with_cases(indexes), selection.now(len(cases), len(indexes))


async def _regrade(
    result: TestResult, case: TestCaseModel, once: Callable[[TestResult], Awaitable[TestResult]]
) -> TestResult:
    """Grade a result with all its tries and repetitions; the case says how many must pass.

    `once` grades a run. A result that passed after a failure is flaky.
    """
    bar, repeats = pass_bar(case), result.repeats
    runs = []
    for run in [result] if repeats is None else repeats.runs:
        graded = await once(run)
        tries = [await once(attempt) for attempt in run.tries]
        runs.append(with_earlier_tries(graded, tries) if tries else graded)
    if repeats is not None:
        bar = bar or PassBar(repeats.planned, repeats.needed)
    return runs[0] if bar is None else combine_repetitions(case, bar, runs)


async def _regrade_run(
    result: TestResult, case: TestCaseModel, checks: CaseChecks, observations: ObservationBuilder
) -> TestResult:
    """Grade a run of a case; a run whose agent or conversation broke stays as it is."""
    broke_off = case.is_scripted_or_simulated and result.ending is not None and result.ending.broke
    if result.outcome is Outcome.AGENT_ERROR or broke_off:
        return result
    state = recorded_state(result, case, checks)
    await grade(state, checks, observations)
    return regraded_result(result, state, checks)


def recorded_state(result: TestResult, case: TestCaseModel, checks: CaseChecks) -> CaseState:
    """Return what the record knows of a run of the case, without its grades."""
    ending = result.ending if case.is_scripted_or_simulated else None
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
        messages=result.messages,
        simulator_cost=result.simulator_cost,
        grades=Grades(criteria=[row for row in result.criteria if row.is_checkpoint]),
    )


def _errors_of_agent(result: TestResult) -> list[str]:
    """Return the recorded errors without that which the end of the conversation adds."""
    of_ending = ending_errors(result.ending)
    return [error for error in result.errors if error not in of_ending]


def _recorded_turns(result: TestResult, case: TestCaseModel) -> list[TurnResult]:
    """Return the turns without grades; those of scripts and simulated users keep theirs."""
    if case.is_scripted_or_simulated:
        return list(result.turns)
    if case.turns is None:
        observed = {name: value for name, value in result if name in PartResult.model_fields}
        errors = _errors_of_agent(result)
        return [
            TurnResult.model_construct(**{**observed, "input": result.test_input, "errors": errors})
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
