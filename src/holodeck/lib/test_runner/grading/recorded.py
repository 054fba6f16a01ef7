"""Recorded runs: their reports, and which recorded answer belongs to which present case."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import ValidationError

from holodeck import __version__
from holodeck.errors import ConfigError
from holodeck.lib.records.fingerprint import dump_cases, fingerprint_of
from holodeck.lib.records.run_store import Run
from holodeck.lib.reports.summary import summarize
from holodeck.lib.secrets.redact import Redactor
from holodeck.lib.support.safe_paths import note_input
from holodeck.lib.test_runner.messages import histories_of, history_key
from holodeck.models.agent import Agent
from holodeck.models.base import Json
from holodeck.models.records.record import Baseline
from holodeck.models.results.origin import RunOrigin
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import Outcome, TestReport, TestResult


def parse_report(text: str, name: str) -> TestReport | Baseline:
    """Return the JSON report, or the baseline, in a text. Raises ConfigError."""
    try:
        data = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError(name, "is not JSON") from error
    try:
        if isinstance(data, dict) and data.get("kind") == "holodeck-baseline":
            return Baseline.model_validate(data)
        return TestReport.model_validate(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        location = ".".join(map(str, first["loc"]))
        raise ConfigError(
            name, f"is neither a baseline nor a JSON report of holodeck: {location}: {first['msg']}"
        ) from error


def read_report(path: Path) -> TestReport | Baseline:
    """Return the JSON report, or the baseline, in a file. Raises ConfigError."""
    note_input(path)
    try:
        text = path.read_text("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(str(path), f"cannot be read: {error}") from error
    return parse_report(text, str(path))


def is_report(name: str) -> bool:
    """Whether what names a run is the path of a JSON report or a baseline."""
    path = Path(name)
    return path.suffix == ".json" and path.is_file()


def report_of(run: Run) -> TestReport:
    """Return the report of the recorded results; of a killed run, those until then."""
    results = run.results
    started, ended = run.started, run.ended
    origin = RunOrigin(run=run.id) if started is None else started.origin
    return TestReport(
        agent_name=started.agent_name if started else "unknown",
        agent_config_path=started.agent_config_path if started else "unknown",
        results=results,
        summary=summarize(results, _wall_time_ms(run, results)),
        timestamp=ended.timestamp if ended else _latest(run, results),
        holodeck_version=started.versions.get("holodeck", "") if started else __version__,
        environment=ended.environment if ended else {},
        interrupted=ended is None or ended.interrupted,
        stopped=_stop_reason(run),
        stopped_by=run.ended.stopped_by if run.ended else None,
        planned_tests=run.planned,
        selection=started.selection if started else None,
        prompts=started.prompts if started else [],
        notes=ended.notes if ended else [],
        origin=origin.model_copy(update={"exit_code": ended.exit_code if ended else None}),
    )


def _stop_reason(run: Run) -> str | None:
    """Return why results are missing: what the run said, or that the record is damaged."""
    if run.ended is None:
        return None
    lost = run.ended.summary.total_tests - len(run.finished) - len(run.skipped)
    if lost > 0:
        return f"the record is damaged: {lost} of its results cannot be read"
    return run.ended.stopped


def _wall_time_ms(run: Run, results: Sequence[TestResult]) -> int:
    if run.ended is not None:
        return run.ended.summary.wall_time_ms
    if run.started is None or not results:
        return 0
    took = datetime.fromisoformat(_latest(run, results)) - datetime.fromisoformat(
        run.started.started
    )
    return max(0, round(took.total_seconds() * 1000))


def _latest(run: Run, results: Sequence[TestResult]) -> str:
    stamps = (result.timestamp for result in results)
    return max(stamps, default=run.started.started if run.started else "")


Redact = Callable[[str], str]


class AnswerKey(NamedTuple):
    """What a recorded answer must share with a case to belong to it."""

    suite: str | None
    name: str | None
    input: str
    history: tuple[str, ...]
    script: str = ""
    context: str = ""
    """What the agent was given besides, as JSON; empty if nothing."""


@dataclass(frozen=True)
class KeyedCase:
    """A present case as a record would contain it."""

    case: TestCaseModel
    key: AnswerKey
    hash: str
    """The hash of the case."""


@dataclass(frozen=True)
class RecordedAnswer:
    """A recorded result."""

    result: TestResult
    hash: str | None
    """The hash of its case; None if the record does not contain it."""


def keyed_cases(agent: Agent, run: Run, redact: Redact) -> list[KeyedCase]:
    """Return the cases of the agent; `redact` removes the secrets that the record lacks."""
    histories = histories_of(agent)
    is_known = run.started is not None and _case_values(run.started.config, "script") is not None
    fingerprint = fingerprint_of(agent)
    contexts: dict[int, Json] = {}
    if is_known and any(case.context is not None for case in agent.test_cases or []):
        contexts = _case_values({"test_cases": [*dump_cases(agent)]}, "context") or {}
    cases = enumerate(zip(agent.test_cases or [], fingerprint.cases, strict=True))
    keyed = []
    for at, (case, plan) in cases:
        script = ""
        if is_known and case.script is not None:
            dump = case.model_dump(mode="json", exclude_none=True, include={"script"})
            script = redact(json.dumps(dump["script"]))
        key = AnswerKey(
            None if case.suite is None else redact(case.suite),
            None if case.name is None else redact(case.name),
            redact(case.user_input),
            tuple(map(redact, history_key(histories.get(at, ())))),
            script,
            _canonical_json(contexts[at], redact) if at in contexts else "",
        )
        keyed.append(KeyedCase(case, key, plan.hash))
    return keyed


def _case_values(config: Mapping[str, Any], key: str) -> dict[int, Json] | None:
    """Return the value of a key in each case that has it; None if the cases are unknown."""
    cases = config.get("test_cases")
    if not isinstance(cases, list):
        return None
    values = [case.get(key) if isinstance(case, dict) else None for case in cases]
    return {at: value for at, value in enumerate(values) if value is not None}


def _canonical_json(context: Json, redact: Redact) -> str:
    """Return a context as text, equal for contexts that a record cannot distinguish."""
    return json.dumps(Redactor().redact_report(_redact_strings(context, redact)), sort_keys=True)


def _redact_strings(value: Json, redact: Redact) -> Json:
    if isinstance(value, str):
        return redact(value)
    if isinstance(value, dict):
        return {redact(key): _redact_strings(item, redact) for key, item in value.items()}
    return [_redact_strings(item, redact) for item in value] if isinstance(value, list) else value


def recorded_answers(run: Run) -> dict[AnswerKey, list[RecordedAnswer]]:
    """Return the recorded answers by their key."""
    cases = run.started.cases if run.started else []
    config = run.started.config if run.started else {}
    scripts, contexts = _case_values(config, "script") or {}, _case_values(config, "context") or {}
    answers: dict[AnswerKey, list[RecordedAnswer]] = {}
    for index, line in run.finished.items():
        key = AnswerKey(
            line.result.suite,
            line.result.written_name,
            line.result.test_input,
            tuple(history_key(line.result.history)),
            json.dumps(scripts[index]) if index in scripts else "",
            _canonical_json(contexts[index], str) if index in contexts else "",
        )
        planned = cases[index].hash if index < len(cases) else None
        answers.setdefault(key, []).append(RecordedAnswer(line.result, planned))
    return answers


def match_answers(
    cases: Sequence[KeyedCase], left: dict[AnswerKey, list[RecordedAnswer]]
) -> dict[int, TestResult]:
    """Return the answer of each case by its index; the answers are removed from `left`.

    Of several answers with the same key, a case gets that of the unchanged case first, then that
    of the same id, then any: in a record without readable configuration the context is unknown.
    """
    matched: dict[int, TestResult] = {}
    for belongs in (_is_of_unchanged_case, _has_same_id, _may_belong):
        for index, keyed in enumerate(cases):
            answers = [] if index in matched else left.get(keyed.key, [])
            for at, answer in enumerate(answers):
                if belongs(answer, keyed) and has_every_turn(answer.result, keyed.case):
                    matched[index] = answers.pop(at).result
                    break
    return matched


def _is_of_unchanged_case(answer: RecordedAnswer, keyed: KeyedCase) -> bool:
    return answer.hash == keyed.hash


def _has_same_id(answer: RecordedAnswer, keyed: KeyedCase) -> bool:
    return keyed.case.id is not None and keyed.case.id == answer.result.test_id


def _may_belong(answer: RecordedAnswer, keyed: KeyedCase) -> bool:
    return len({answer.result.test_id, keyed.case.id} - {None}) < 2


def has_every_turn(result: TestResult, case: TestCaseModel) -> bool:
    """Whether the result has every turn of the case, unless its agent failed."""
    if result.repeats is not None:
        return all(has_every_turn(run, case) for run in result.repeats.runs)
    if case.is_scripted_or_simulated:
        is_complete = bool(result.turns) and result.ending is not None
    else:
        is_complete = len(result.turns) == len(case.turns or ())
    return is_complete or result.outcome is Outcome.AGENT_ERROR
