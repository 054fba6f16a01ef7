"""Grade recorded answers again, with the metrics of the present agent.yaml and no agent."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import chain

import holodeck
from holodeck.lib.evaluators.base import Turn
from holodeck.lib.records.fingerprint import fingerprint_of
from holodeck.lib.records.run_store import Run, find_cases
from holodeck.lib.test_runner import verdict as verdicts
from holodeck.lib.test_runner.conversation_grading import (
    grade_turns,
    turn_messages,
    whole_conversation,
)
from holodeck.lib.test_runner.conversation_outcome import ConversationOutcome
from holodeck.lib.test_runner.costs import with_cost
from holodeck.lib.test_runner.grading import CaseChecks, EvaluatorSet, grade
from holodeck.lib.test_runner.history import to_judge_messages, to_turns
from holodeck.lib.test_runner.observer import AgentOutput, Observer
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
from holodeck.lib.test_runner.tool_checks import check_tools
from holodeck.lib.test_runner.transcripts import messages_of
from holodeck.lib.test_runner.tries import with_earlier_tries
from holodeck.lib.text import plural
from holodeck.models.agent import Agent
from holodeck.models.selection import Selection
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import (
    Outcome,
    TestReport,
    TestResult,
    TurnResult,
    tools_matched,
)


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
    observer = Observer(agent)
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
        again = await _graded_again(answers[index], case, checks, observer)
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
    result: TestResult, case: TestCaseModel, checks: CaseChecks, observer: Observer
) -> TestResult:
    """The result with all its tries and repetitions; the case says how many of these must pass."""
    bar, repeats = pass_bar(case), result.repeats
    if repeats is None:
        whole = await _with_tries(result, case, checks, observer)
        return whole if bar is None else combine_repetitions(case, bar, [whole])
    runs = [await _with_tries(one, case, checks, observer) for one in repeats.runs]
    return combine_repetitions(case, bar or PassBar(repeats.planned, repeats.needed), runs)


async def _with_tries(
    result: TestResult, case: TestCaseModel, checks: CaseChecks, observer: Observer
) -> TestResult:
    """A case that failed once and passed later stays flaky."""
    last = await _regraded(result, case, checks, observer)
    if not result.tries:
        return last
    tries = [await _regraded(one, case, checks, observer) for one in result.tries]
    return with_earlier_tries(last, tries)


async def _regraded(
    result: TestResult, case: TestCaseModel, checks: CaseChecks, observer: Observer
) -> TestResult:
    if result.outcome is Outcome.AGENT_ERROR or _broke_off(result, case):
        return result
    before = to_turns(result.history)
    turns = await _graded_turns(result, case, checks, observer)
    tool_checks = check_tools(case, result.tool_invocations, result.evidence)
    seen = whole_conversation(turns, before) if turns else _answered(result, before)
    rows = await grade(checks.at_end, observer.observation(case, seen, case.name))
    faults = [] if turns else _of_agent(result)
    at_end = verdicts.decide_outcome(faults, tool_checks, rows, checks.at_end)
    conversation_outcome = await _concluded(result, case, turns, checks)
    of_turns = [turn.outcome for turn in turns if turn.outcome is not None]
    outcome = verdicts.combine_outcomes([at_end, *of_turns, *conversation_outcome.outcomes])
    conversation_outcome = conversation_outcome.decided_as(outcome)
    outcome = verdicts.combine_outcomes([outcome, *conversation_outcome.outcomes])
    update = {
        **conversation_outcome.fields,
        "errors": [*_of_agent(result), *conversation_outcome.errors],
        "expected_tools": case.expected_tools,
        "tools_matched": tools_matched(tool_checks),
        "tool_checks": tool_checks,
        "metric_results": rows,
        "turns": turns,
        "ground_truth": case.ground_truth,
        "cost": None,
        "passed": outcome is Outcome.PASSED,
        "outcome": outcome,
    }
    return result.model_copy(update=update)


def _of_agent(result: TestResult) -> list[str]:
    """The recorded errors without those of the ending."""
    return [one for one in result.errors if one not in ConversationOutcome(result.ending).errors]


def _broke_off(result: TestResult, case: TestCaseModel) -> bool:
    """Whether the conversation was not held to its end, which judging it again does not mend."""
    return case.is_played and result.ending is not None and result.ending.broke


async def _graded_turns(
    result: TestResult, case: TestCaseModel, checks: CaseChecks, observer: Observer
) -> list[TurnResult]:
    """The turns; those of a simulated conversation have no checks and stay as they were."""
    if case.is_played:
        return result.turns
    return await grade_turns(
        case, result.turns, checks.of_turns, observer, to_turns(result.history)
    )


async def _concluded(
    result: TestResult, case: TestCaseModel, turns: list[TurnResult], checks: CaseChecks
) -> ConversationOutcome:
    """How the conversation ended, its criteria judged again."""
    ending = result.ending if case.is_played else None
    if ending is not None and ending.code == "no_conclusion":  # checks may decide it now
        ending = ending.model_copy(update={"passed": None})
    before = ConversationOutcome(
        ending, messages=result.messages, simulator_cost=result.simulator_cost
    )
    checkpoints = [row for row in result.criteria if row.is_checkpoint]
    before = replace(before, criteria=checkpoints)
    if checks.criteria is None or not checks.criteria.are_about_the_whole:
        return before
    if ending is not None and ending.code == "max_turns":  # it is for the judge now
        before = replace(before, ending=ending.model_copy(update={"passed": None}))
    said = result.messages or messages_of(turns or [_as_turn(result)])
    judged = await checks.criteria.decided([*to_judge_messages(result.history), *said])
    return replace(
        before,
        ending=judged.ending or before.ending,
        criteria=[*checkpoints, *judged.criteria],
        judge_cost=judged.judge_cost,
    )


def _as_turn(result: TestResult) -> TurnResult:
    """What was said in a case of one input."""
    return TurnResult(
        input=result.test_input,
        processed_files=result.processed_files,
        agent_response=result.agent_response,
        tool_invocations=result.tool_invocations,
        evidence=result.evidence,
    )


def _answered(result: TestResult, before: tuple[Turn, ...]) -> AgentOutput:
    return AgentOutput(
        result.agent_response or "",
        result.tool_invocations,
        result.processed_files,
        result.agent_time_ms,
        result.evidence,
        (*before, *turn_messages(_as_turn(result))) if before else (),
    )
