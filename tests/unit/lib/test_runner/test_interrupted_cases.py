"""Cases that are interrupted while they are graded keep what was computed, and are run again."""

import asyncio

import pytest

from fakes import ScriptedBackend
from holodeck.lib.evaluators.base import BaseEvaluator
from holodeck.lib.records.fingerprint import fingerprint_of
from holodeck.lib.records.recorder import Recorder
from holodeck.lib.records.resume import reusable_results
from holodeck.lib.records.run_store import read_run
from holodeck.lib.secrets.redact import Redactor
from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.lib.test_runner.grading.recorded import report_of
from holodeck.lib.test_runner.grading.scoring import NOT_DONE
from holodeck.lib.test_runner.options import RunOptions
from holodeck.models.config import ExecutionConfig
from holodeck.models.test_result import Outcome
from support.played import JUDGE, LIMITS, an_agent

GOOD = {"metric": "contains", "value": "OK"}


class Hangs(BaseEvaluator):
    """Tells when it is asked, and never answers."""

    def __init__(self):
        super().__init__()
        self.asked = asyncio.Event()

    async def _evaluate_impl(self, **_):
        self.asked.set()
        await asyncio.Event().wait()


@pytest.fixture
def interrupted(tmp_path, fake_openai):
    """The results of a run that is interrupted while its last case is graded, and its record."""

    async def run(*cases, evaluators=None, reached=None):
        late = Hangs()
        agent = an_agent(fake_openai, *cases).with_base_dir(tmp_path)
        recorder = Recorder(agent, fingerprint_of(agent))
        config = ExecutionConfig(**LIMITS)
        recorder.begin("agent.yaml", config, Redactor([]), version="1")
        executor = TestExecutor(
            str(tmp_path / "agent.yaml"),
            agent_config=agent,
            resolved_execution_config=config,
            backend=ScriptedBackend(),
            evaluators={"late": late} if evaluators is None else evaluators,
            options=RunOptions(on_result=recorder.add),
        )
        running = asyncio.create_task(executor.execute_tests())
        await (late.asked.wait() if reached is None else reached())
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        report = executor.report(interrupted=True)
        recorder.end(report, 130)
        return report, read_run(recorder.path), agent

    return run


async def test_the_rows_that_were_computed_are_in_the_report_and_in_the_record(interrupted):
    report, run, _ = await interrupted({"name": "a", "input": "hi", "evaluations": [GOOD]})

    [result] = report.results
    assert [(row.metric_name, row.passed, row.error) for row in result.metric_results] == [
        ("contains", True, None),
        ("late", False, NOT_DONE),
    ]
    assert result.outcome is Outcome.METRIC_ERROR
    assert result.reasons()[0] == "interrupted: still computing metrics"
    assert report_of(run).results == [result]


async def test_an_interrupted_case_is_run_again_by_whoever_resumes(interrupted):
    _, run, agent = await interrupted({"name": "a", "input": "hi", "evaluations": [GOOD]})

    assert reusable_results(run, fingerprint_of(agent)) == {}


async def test_a_judge_that_hangs_does_not_hide_the_metrics(interrupted, fake_openai):
    fake_openai.when(JUDGE, "", latency_s=60)
    case = {"input": "hi", "evaluations": [GOOD], "criteria": ["Greets"]}

    report, _, _ = await interrupted(case, evaluators={}, reached=lambda: fake_openai.saw(1))

    [result] = report.results
    assert [row.passed for row in result.metric_results] == [True]
    assert result.reasons() == ["interrupted: still waiting for the judge"]


async def test_a_case_without_anything_computed_is_left_out_as_before(interrupted, fake_openai):
    fake_openai.when(JUDGE, "", latency_s=60)
    case = {"input": "hi", "criteria": ["Greets"]}

    report, run, _ = await interrupted(case, evaluators={}, reached=lambda: fake_openai.saw(1))

    assert (report.results, dict(run.finished), dict(run.skipped)) == ([], {}, {})


async def test_a_repeated_case_counts_whole_repetitions_only(interrupted):
    case = {"name": "a", "input": "hi", "evaluations": [GOOD], "repeat": 2}

    report, _, _ = await interrupted(case)

    assert report.results == []
