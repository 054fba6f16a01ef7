"""A record under any sequence of runs, faults, breaks and damage: nothing finished is lost.

The real runner runs on a scripted agent; cancelling is at a given number of answers, so every
search repeats itself exactly.
"""

import asyncio
import json
import logging
import shutil
import tempfile
from pathlib import Path

from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from fakes import ScriptedBackend
from holodeck.errors import BackendSessionError
from holodeck.lib.records.fingerprint import fingerprint_of
from holodeck.lib.records.recorder import Recorder, json_line
from holodeck.lib.records.resume import describe_changes, reusable_results
from holodeck.lib.records.run_store import RunStore, read_run
from holodeck.lib.reports.formats import FORMATS
from holodeck.lib.reports.summary import exit_code
from holodeck.lib.secrets.redact import Redactor
from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.lib.test_runner.grading.recorded import report_of
from holodeck.lib.test_runner.options import RunOptions
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.records.record import CaseFinished, PlannedCase, RunEnd, RunHead
from holodeck.models.results.origin import RunOrigin
from holodeck.models.test_result import (
    MetricResult,
    Outcome,
    TestReport,
    ToolInvocation,
)
from properties.test_reports import ANY_TEXT
from support.results import a_report, a_result

SIZE = 8
PROMPTS = [f"case-{n}" for n in range(SIZE)]
NUMBERS = st.sets(st.integers(0, SIZE - 1), max_size=3)


def agent_in(folder):
    cases = [
        {"name": one, "input": one, "evaluations": [{"metric": "contains", "value": one}]}
        for one in PROMPTS
    ]
    raw = {"name": "echo", "backend": "bot:answer", "test_cases": cases}
    return Agent.model_validate(raw).with_base_dir(folder)


class Run:
    """One run of the agent, as the command makes it."""

    def __init__(self, folder, *, faulty, stop_after, parallel, resumes=None, retry_errors=False):
        self.agent = agent_in(folder)
        self.faulty, self.stop_after = faulty, stop_after
        self.asked: list[str] = []
        self.announced: set[str] = set()
        present = fingerprint_of(self.agent)
        self.kept = (
            {} if resumes is None else reusable_results(resumes, present, retry_errors=retry_errors)
        )
        self.executor = TestExecutor(
            str(folder / "agent.yaml"),
            agent_config=self.agent,
            resolved_execution_config=ExecutionConfig(
                parallel_test_cases=parallel, max_retries=0, file_timeout=1
            ),
            backend=ScriptedBackend(self.answer),
            options=RunOptions(carried_over=self.kept, on_result=self.finished),
        )
        self.recorder = Recorder(self.agent, present)
        self.recorder.begin(
            "agent.yaml", self.executor.config, Redactor(()), version="1", carried_over=self.kept
        )

    async def answer(self, message):
        self.asked.append(message)
        await asyncio.sleep(0)
        if PROMPTS.index(message) in self.faulty:
            raise BackendSessionError("no answer today")
        return message

    def finished(self, index, result):
        self.recorder.add(index, result)
        self.announced.add(result.test_name)
        if len(self.announced) == self.stop_after:
            self.task.cancel()

    def go(self):
        """The report; of what had finished where the run was stopped."""

        async def main():
            self.task = asyncio.create_task(self.executor.execute_tests())
            await asyncio.wait({self.task})
            await self.executor.shutdown()
            if self.task.cancelled():
                return self.executor.report(interrupted=True)
            return self.task.result()

        return asyncio.run(main())


class Records(RuleBasedStateMachine):
    """Runs, resumes, kills, cancels and damages over one folder of records."""

    def __init__(self):
        super().__init__()
        logger = logging.getLogger("holodeck")
        self.level = logger.level
        logger.setLevel(logging.CRITICAL)
        self.folder = Path(tempfile.mkdtemp(prefix="records-"))
        self.last: TestReport | None = None
        self.known: dict[str, Outcome] = {}
        """What the newest record is to hold: the outcome of each case that was announced."""

    def teardown(self):
        logging.getLogger("holodeck").setLevel(self.level)
        shutil.rmtree(self.folder)

    def newest(self):
        return RunStore(self.folder).read("last")

    def run(self, ending, **how):
        run = Run(self.folder, **how)
        report = run.go()
        if ending == "kill":
            run.recorder._file.close()  # as the system does, without a last line
        else:
            run.recorder.end(report, exit_code(report))
        if run.kept or how.get("resumes"):
            assert not set(run.asked) & {one.test_name for one in run.kept.values()}
        assert len(run.asked) == len(set(run.asked))
        self.known = {one.test_name: one.outcome for one in run.kept.values()} | {
            one.test_name: one.outcome for one in report.results
        }
        assert run.announced <= set(self.known)
        self.last = report if ending == "end" else None

    @rule(
        faulty=NUMBERS,
        stop_after=st.integers(0, SIZE),
        parallel=st.sampled_from([1, 3, SIZE]),
        ending=st.sampled_from(["end", "kill"]),
    )
    def begin(self, faulty, stop_after, parallel, ending):
        self.run(ending, faulty=faulty, stop_after=stop_after, parallel=parallel)

    @precondition(lambda self: self.known)
    @rule(
        faulty=NUMBERS,
        stop_after=st.integers(0, SIZE),
        parallel=st.sampled_from([1, 3, SIZE]),
        retry_errors=st.booleans(),
        ending=st.sampled_from(["end", "kill"]),
    )
    def resume(self, faulty, stop_after, parallel, retry_errors, ending):
        before, earlier = dict(self.known), self.newest()
        assert (
            earlier.started is None
            or describe_changes(earlier, fingerprint_of(agent_in(self.folder)), "1") == []
        )
        self.run(
            ending,
            faulty=faulty,
            stop_after=stop_after,
            parallel=parallel,
            resumes=earlier,
            retry_errors=retry_errors,
        )
        assert {one for one in before if before[one] is Outcome.PASSED} <= set(self.known)
        assert retry_errors or {one: self.known[one] for one in before} == before

    @precondition(lambda self: self.known)
    @rule(cut=st.integers(1, 400))
    def tear(self, cut):
        """What a power cut takes is at the end; only whole lines count from then on."""
        path = self.newest().path
        data = path.read_bytes()
        first = data.index(b"\n") + 1
        path.write_bytes(data[: max(first, len(data) - cut)])
        self._forget_what_is_gone()

    @precondition(lambda self: self.known)
    @rule(line=st.integers(1, SIZE), junk=st.binary(max_size=20))
    def damage(self, line, junk):
        path = self.newest().path
        lines = path.read_bytes().splitlines(keepends=True)
        if line < len(lines):
            lines[line] = junk.replace(b"\n", b"") + b"\n"
            path.write_bytes(b"".join(lines))
            self._forget_what_is_gone()

    def _forget_what_is_gone(self):
        left = set()
        for line in self.newest().path.read_bytes().splitlines():
            try:
                left.add(json.loads(line)["result"]["test_name"])
            except (ValueError, KeyError, TypeError):
                continue
        self.known = {name: how for name, how in self.known.items() if name in left}
        self.last = None

    @invariant()
    def the_newest_record_holds_what_was_announced_and_its_report_is_that_of_the_run(self):
        if not (self.known or self.last):
            return
        record = self.newest()
        found = {one.result.test_name: one.result.outcome for one in record.finished.values()}
        assert found == self.known
        if self.last is not None:
            assert (report_of(record).results, report_of(record).summary) == (
                self.last.results,
                self.last.summary,
            )
        if record.ended is None or record.ended.interrupted:
            assert exit_code(report_of(record)) != 0


Records.TestCase.settings = settings(
    max_examples=settings.default.max_examples // 4, stateful_step_count=10
)
test_any_sequence_of_runs_and_breaks_loses_nothing = Records.TestCase


SCORE = st.none() | st.floats(0, 1)
RESULTS = st.lists(
    st.builds(
        a_result,
        st.sampled_from(Outcome),
        test_name=ANY_TEXT,
        test_input=ANY_TEXT,
        agent_response=st.none() | ANY_TEXT,
        errors=st.lists(ANY_TEXT, max_size=2),
        metric_results=st.lists(
            st.builds(MetricResult, metric_name=ANY_TEXT, score=SCORE, reasoning=ANY_TEXT),
            max_size=2,
        ),
        tool_invocations=st.lists(
            st.builds(
                ToolInvocation,
                name=ANY_TEXT,
                args=st.dictionaries(
                    ANY_TEXT, st.integers() | ANY_TEXT | st.lists(ANY_TEXT), max_size=2
                ),
                result=ANY_TEXT,
            ),
            max_size=2,
        ),
    ),
    min_size=1,
    max_size=SIZE,
)


@given(RESULTS, st.sampled_from([None, "it gave up"]), st.booleans())
@example(
    [a_result(tool_invocations=[ToolInvocation(name="x", args={"\ud800": "\ufffd"})])], None, False
)
def test_what_is_recorded_is_what_is_read_and_reported(results, stopped, interrupted):
    report = a_report(*results, stopped=stopped, interrupted=interrupted, planned_tests=SIZE)
    origin = RunOrigin(run="x", exit_code=exit_code(report))
    report = report.model_copy(update={"origin": origin})
    cases = [PlannedCase(hash=str(n)) for n in range(SIZE)]
    events = [
        RunHead(
            id="x",
            started=report.timestamp,
            agent_name=report.agent_name,
            agent_config_path=report.agent_config_path,
            versions={"holodeck": report.holodeck_version},
            cases=cases,
        ),
        *(CaseFinished(index=n, hash=str(n), result=one) for n, one in enumerate(results)),
        RunEnd(
            timestamp=report.timestamp,
            exit_code=exit_code(report),
            interrupted=interrupted,
            stopped=stopped,
            planned_tests=SIZE,
            summary=report.summary,
        ),
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        path.write_bytes(b"".join(map(json_line, events)))
        read = read_run(path)

    assert read.warnings == ()
    assert report_of(read) == report
    for name in FORMATS.names():
        render = FORMATS.load(name, location="--format")
        assert render(report_of(read)) == render(report)
