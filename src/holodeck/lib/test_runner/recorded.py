"""Recorded runs: their reports, and which recorded answer belongs to which present case."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, NamedTuple

from holodeck import __version__
from holodeck.lib.records.fingerprint import fingerprint_of
from holodeck.lib.records.run_store import Run
from holodeck.lib.redact import Redactor
from holodeck.lib.test_runner.history import histories_of, history_key
from holodeck.lib.test_runner.summary import summarize
from holodeck.models.agent import Agent
from holodeck.models.base import Json
from holodeck.models.record import CaseFinished, CaseSkipped
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import Outcome, TestReport, TestResult


def report_of(run: Run) -> TestReport:
    """The report of the results that the record holds; of a killed run, those until then."""
    lines: dict[int, CaseFinished | CaseSkipped] = {**run.skipped, **run.finished}
    results = [lines[index].result for index in sorted(lines)]
    started, ended = run.started, run.ended
    return TestReport(
        agent_name=started.agent_name if started else "unknown",
        agent_config_path=started.agent_config_path if started else "unknown",
        results=results,
        summary=summarize(results, _wall_time_ms(run, results)),
        timestamp=ended.timestamp if ended else _latest(run, results),
        holodeck_version=started.versions.get("holodeck", "") if started else __version__,
        environment=ended.environment if ended else {},
        interrupted=ended is None or ended.interrupted,
        stopped=_stopped(run),
        stopped_by=run.ended.stopped_by if run.ended else None,
        planned_tests=run.planned,
        selection=started.selection if started else None,
    )


def _stopped(run: Run) -> str | None:
    """Why results are missing: as the run said, or because the record is damaged."""
    if run.ended is None:
        return None
    lost = run.ended.summary.total_tests - len(run.finished) - len(run.skipped)
    if lost > 0:
        return f"the record is damaged: {lost} of its results cannot be read"
    return run.ended.stopped


def _wall_time_ms(run: Run, results: list[TestResult]) -> int:
    if run.ended is not None:
        return run.ended.summary.wall_time_ms
    if run.started is None or not results:
        return 0
    took = datetime.fromisoformat(_latest(run, results)) - datetime.fromisoformat(
        run.started.started
    )
    return max(0, round(took.total_seconds() * 1000))


def _latest(run: Run, results: list[TestResult]) -> str:
    stamps = [result.timestamp for result in results]
    return max(stamps, default=run.started.started if run.started else "")


Redact = Callable[[str], str]


class AnswerKey(NamedTuple):
    """What makes an answer one to a case."""

    suite: str | None
    name: str | None
    said: str
    before: tuple[str, ...]
    script: str = ""
    context: str = ""
    """What the agent was told besides; empty where it was told nothing."""


@dataclass(frozen=True)
class KeyedCase:
    """A present case as the record would know it."""

    case: TestCaseModel
    question: AnswerKey
    hash: str
    """Of the case."""


@dataclass(frozen=True)
class RecordedAnswer:
    """A recorded result."""

    result: TestResult
    hash: str | None
    """Of the case that it is of; None where the record does not tell."""


def keyed_cases(agent: Agent, run: Run, redact: Redact) -> list[KeyedCase]:
    """The cases of the agent; `redact` is what the record of the run went through."""
    histories = histories_of(agent)
    scripts = dict[int, str]() if _scripts_in(run) is None else _scripts_of(agent, redact)
    fingerprint = fingerprint_of(agent)
    contexts = {} if _contexts_in(run) is None else _contexts_of(fingerprint.config, redact)
    cases = enumerate(zip(agent.test_cases or [], fingerprint.cases, strict=True))
    found = []
    for at, (case, plan) in cases:
        question = AnswerKey(
            None if case.suite is None else redact(case.suite),
            None if case.name is None else redact(case.name),
            redact(case.said),
            tuple(map(redact, history_key(histories.get(at, ())))),
            scripts.get(at, ""),
            contexts.get(at, ""),
        )
        found.append(KeyedCase(case, question, plan.hash))
    return found


def _scripts_of(agent: Agent, redact: Redact) -> dict[int, str]:
    """The script of each case that has one, as a record has it."""
    scripts = {
        at: case.model_dump(mode="json", exclude_none=True, include={"script"})
        for at, case in enumerate(agent.test_cases or [])
        if case.script is not None
    }
    return {at: redact(json.dumps(one["script"])) for at, one in scripts.items()}


def _contexts_of(config: Mapping[str, Any], redact: Redact) -> dict[int, str]:
    """The context of each case that has one, as a record has it."""
    return {
        at: _canonical(one["context"], redact)
        for at, one in enumerate(config.get("test_cases") or [])
        if "context" in one
    }


def _contexts_in(run: Run) -> dict[int, str] | None:
    """The context of each case that has one, as it was recorded; None where that is not known."""
    cases = None if run.started is None else run.started.config.get("test_cases")
    if not isinstance(cases, list):
        return None
    contexts = [one.get("context") if isinstance(one, dict) else None for one in cases]
    return {at: _canonical(one, str) for at, one in enumerate(contexts) if one is not None}


def _canonical(context: Json, redact: Redact) -> str:
    """A context as text, the same for what a record cannot tell from it."""
    return json.dumps(Redactor().redact_report(_clean(context, redact)), sort_keys=True)


def _clean(value: Json, redact: Redact) -> Json:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact(key): _clean(one, redact) for key, one in value.items()}
    return [_clean(one, redact) for one in value] if isinstance(value, list) else value


def _scripts_in(run: Run) -> dict[int, str] | None:
    """The script of each case that has one, as it was recorded; None where that is not known."""
    cases = None if run.started is None else run.started.config.get("test_cases")
    if not isinstance(cases, list):
        return None
    scripts = [one.get("script") if isinstance(one, dict) else None for one in cases]
    return {at: json.dumps(one) for at, one in enumerate(scripts) if one is not None}


def recorded_answers(run: Run) -> dict[AnswerKey, list[RecordedAnswer]]:
    """The recorded answers by what was asked."""
    cases = run.started.cases if run.started else []
    scripts, contexts = _scripts_in(run) or {}, _contexts_in(run) or {}
    found: dict[AnswerKey, list[RecordedAnswer]] = {}
    for place, one in run.finished.items():
        question = AnswerKey(
            one.result.suite,
            one.result.test_name,
            one.result.test_input,
            tuple(history_key(one.result.history)),
            scripts.get(place, ""),
            contexts.get(place, ""),
        )
        planned = cases[place].hash if place < len(cases) else None
        found.setdefault(question, []).append(RecordedAnswer(one.result, planned))
    return found


def match_answers(
    cases: Sequence[KeyedCase], left: dict[AnswerKey, list[RecordedAnswer]]
) -> dict[int, TestResult]:
    """The answer of each case by its place; they are taken out of those that are `left`.

    Of several to the same question, that of the unchanged case comes first, then that of its id:
    of a record whose configuration cannot be read, nobody knows in which context it was given.
    """
    found: dict[int, TestResult] = {}
    for is_meant in (_is_of_the_same, _has_the_id, _may_be_of):
        for place, one in enumerate(cases):
            answers = [] if place in found else left.get(one.question, [])
            at = next((at for at, said in enumerate(answers) if is_meant(said, one)), None)
            if at is not None:
                found[place] = answers.pop(at).result
    return found


def _is_of_the_same(answer: RecordedAnswer, asked: KeyedCase) -> bool:
    return answer.hash == asked.hash and has_every_turn(answer.result, asked.case)


def _has_the_id(answer: RecordedAnswer, asked: KeyedCase) -> bool:
    own = asked.case.id
    return (
        own is not None
        and own == answer.result.test_id
        and has_every_turn(answer.result, asked.case)
    )


def _may_be_of(answer: RecordedAnswer, asked: KeyedCase) -> bool:
    ids = {answer.result.test_id, asked.case.id} - {None}
    return len(ids) < 2 and has_every_turn(answer.result, asked.case)


def has_every_turn(result: TestResult, case: TestCaseModel) -> bool:
    """Whether the record holds every turn of the case, where it holds an answer at all."""
    if result.repeats is not None:
        return all(has_every_turn(one, case) for one in result.repeats.runs)
    is_held = len(result.turns) == len(case.turns or ())
    is_held = bool(result.turns) and result.ending is not None if case.is_played else is_held
    return is_held or result.outcome is Outcome.AGENT_ERROR
