"""The executor over scripted agents: order, isolation, verdicts, callbacks, cancellation."""

import asyncio
import time

import pytest

from fakes import ScriptedBackend
from holodeck.errors import BackendInitError, BackendSessionError, ConfigError, ExitCode
from holodeck.lib.backends.base import ExecutionResult
from holodeck.lib.evaluators.base import BaseEvaluator
from holodeck.lib.reports.summary import exit_code
from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.models.config import ExecutionConfig
from holodeck.models.results.outcome import Attempt
from holodeck.models.test_result import Outcome
from support.agents import an_agent, contains, executor_of


async def run_one(tmp_path, answer, case, **fields):
    """The result of one case whose agent gives that answer."""
    agent = an_agent({"input": "go"} | case, **fields)
    executor = executor_of(tmp_path, agent, ScriptedBackend(lambda _: answer))
    report = await executor.execute_tests()
    await executor.shutdown()
    return report.results[0]


async def test_results_stand_in_the_order_of_the_file_whatever_finishes_first(tmp_path):
    delays = {"a": 0.05, "b": 0.0, "c": 0.02}

    async def answer(message):
        await asyncio.sleep(delays[message])
        return f"said {message}"

    finished, started = [], []
    cases = [{"name": name, "input": name, "evaluations": [contains(name)]} for name in "abc"]
    executor = executor_of(
        tmp_path,
        an_agent(*cases),
        ScriptedBackend(answer),
        parallel=3,
        progress_callback=lambda result: finished.append(result.test_name),
        on_test_start=lambda case: started.append(case.name),
    )

    report = await executor.execute_tests()

    assert [result.test_name for result in report.results] == ["a", "b", "c"]
    assert finished == ["b", "c", "a"]
    assert started == ["a", "b", "c"]
    assert report.summary.passed == 3


@pytest.mark.parametrize("parallel", [1, 4])
async def test_no_more_cases_run_at_once_than_asked(tmp_path, parallel):
    backend = ScriptedBackend(delay_s=0.01)
    cases = [{"input": f"{n}", "evaluations": [contains("OK")]} for n in range(12)]

    await executor_of(tmp_path, an_agent(*cases), backend, parallel=parallel).execute_tests()

    assert backend.peak_in_flight == parallel


async def test_an_agent_that_raises_makes_an_error_row_and_the_others_run(tmp_path):
    tries = [Attempt(number=1, error="boom")]
    failing = BackendSessionError("it broke", attempts=tries)
    backend = ScriptedBackend({"bad": failing, "good": "fine"})
    cases = [{"input": name, "evaluations": [contains("fine")]} for name in ("bad", "good")]

    report = await executor_of(tmp_path, an_agent(*cases), backend).execute_tests()

    bad, good = report.results
    assert bad.outcome is Outcome.AGENT_ERROR
    assert bad.errors == ["it broke"]
    assert bad.attempts == tries
    assert bad.metric_results == []
    assert good.passed
    assert exit_code(report) is ExitCode.EXECUTION


async def test_an_error_of_the_agents_own_kind_is_named_with_its_type(tmp_path):
    result = await run_one(tmp_path, ZeroDivisionError("by zero"), {"expected_tools": []})

    assert result.errors == ["ZeroDivisionError: by zero"]


@pytest.mark.parametrize("answer", ["", "  \n"], ids=["empty", "blank"])
async def test_an_answer_that_says_nothing_is_graded_and_fails(tmp_path, answer):
    metrics = [{"metric": "not_contains", "value": "sorry"}]

    result = await run_one(tmp_path, answer, {"evaluations": metrics})

    assert result.outcome is Outcome.FAILED
    assert result.metric_results[0].passed
    assert result.errors == ["the agent returned an empty response"]


CALL = {"name": "lookup_order", "arguments": {"id": 7}, "call_id": "a"}
NOT_CONTAINS = {"metric": "not_contains", "value": "sorry"}


@pytest.mark.parametrize(
    ("case", "outcome"),
    [
        ({"expected_tools": ["lookup_order"]}, Outcome.PASSED),
        ({"expected_tools": ["refund"]}, Outcome.FAILED),
        ({"evaluations": [NOT_CONTAINS]}, Outcome.FAILED),
        ({"expected_tools": ["lookup_order"], "evaluations": [NOT_CONTAINS]}, Outcome.FAILED),
        (
            {"max_tool_calls": 1, "evaluations": [{"metric": "latency", "max_ms": 90_000}]},
            Outcome.PASSED,
        ),
    ],
    ids=["calls", "other calls", "answer", "both", "latency"],
)
async def test_an_agent_that_ends_with_its_calls_passes_where_only_calls_are_checked(
    tmp_path, case, outcome
):
    answer = ExecutionResult(response="", tool_calls=[CALL], ends_with_calls=True)

    result = await run_one(tmp_path, answer, case)

    assert result.outcome is outcome, result.reasons()


@pytest.mark.parametrize(
    "results",
    [[], [{**CALL, "result": ""}], [{**CALL, "result": "shipped"}]],
    ids=["unknown", "empty", "text"],
)
async def test_an_empty_response_after_calls_fails_unless_the_agent_ended_with_them(
    tmp_path, results
):
    answer = ExecutionResult(response="", tool_calls=[CALL], tool_results=results)

    result = await run_one(tmp_path, answer, {"expected_tools": ["lookup_order"]})

    assert result.outcome is Outcome.FAILED
    assert result.errors == ["the agent returned an empty response"]


async def test_a_metric_about_an_answer_says_that_there_are_only_calls(tmp_path):
    answer = ExecutionResult(response="", tool_calls=[CALL], ends_with_calls=True)
    case = {"expected_tools": ["lookup_order"], "evaluations": [NOT_CONTAINS]}

    [row] = (await run_one(tmp_path, answer, case)).metric_results

    assert row.passed is False
    assert row.reasoning == "the agent gave no answer, only calls of lookup_order"


async def test_a_failed_answer_of_the_backend_is_an_error_with_its_reason(tmp_path):
    answer = ExecutionResult(response="half", is_error=True, error_reason="out of turns")

    result = await run_one(tmp_path, answer, {"evaluations": [contains("half")]})

    assert result.outcome is Outcome.AGENT_ERROR
    assert result.errors == ["Agent error: out of turns"]


async def test_a_refused_tool_call_fails_the_case(tmp_path):
    answer = ExecutionResult(
        response="done",
        tool_calls=[{"name": "rm", "call_id": "1"}],
        tool_results=[{"name": "rm", "call_id": "1", "result": "no such tool", "refused": True}],
    )

    result = await run_one(tmp_path, answer, {"evaluations": [contains("done")]})

    assert result.outcome is Outcome.FAILED
    assert "rm: no such tool" in result.errors[0]


async def test_a_case_without_checks_does_not_pass(tmp_path):
    result = await run_one(tmp_path, "hello", {})

    assert result.outcome is Outcome.UNCHECKED
    assert not result.passed


async def test_metrics_that_cannot_fail_do_not_make_a_case_pass(tmp_path):
    case = {"ground_truth": "hello", "evaluations": [{"metric": "f1_score"}]}

    result = await run_one(tmp_path, "bye", case)

    assert result.outcome is Outcome.UNCHECKED
    assert result.metric_results[0].score == 0


async def test_a_threshold_of_zero_counts(tmp_path):
    case = {"ground_truth": "hello", "evaluations": [{"metric": "f1_score", "threshold": 0}]}

    result = await run_one(tmp_path, "bye", case)

    assert result.metric_results[0].threshold == 0
    assert result.passed


async def test_global_metrics_apply_and_those_of_a_case_replace_them(tmp_path):
    agent = an_agent(
        {"name": "shared", "input": "a"},
        {"name": "own", "input": "b", "evaluations": [{"metric": "regex", "pattern": "OK"}]},
        {"name": "none", "input": "c", "evaluations": []},
        evaluations={"metrics": [contains("OK"), contains("OK: a")]},
    )

    report = await executor_of(tmp_path, agent, ScriptedBackend()).execute_tests()

    names = [[row.metric_name for row in result.metric_results] for result in report.results]
    assert names == [["contains", "contains #2"], ["regex"], []]
    assert report.results[2].outcome is Outcome.UNCHECKED


async def test_a_disabled_metric_is_not_computed(tmp_path):
    case = {"evaluations": [contains("no", enabled=False), contains("yes")]}

    result = await run_one(tmp_path, "yes", case)

    assert [row.metric_name for row in result.metric_results] == ["contains"]
    assert result.passed


BROKEN = {"metric": "regex", "pattern": "(a|aa)+$", "time_limit_ms": 50}


async def test_a_metric_that_breaks_leaves_the_case_undecided(tmp_path):
    result = await run_one(tmp_path, "a" * 60 + "!", {"evaluations": [BROKEN, contains("a")]})

    broken, fine = result.metric_results
    assert broken.score is None
    assert broken.passed is False
    assert broken.error
    assert fine.passed
    assert result.outcome is Outcome.METRIC_ERROR


async def test_a_metric_that_is_to_fail_on_error_fails_the_case_and_hides_no_other(tmp_path):
    metrics = [BROKEN | {"fail_on_error": True}, contains("a")]

    result = await run_one(tmp_path, "a" * 60 + "!", {"evaluations": metrics})

    assert [row.passed for row in result.metric_results] == [False, True]
    assert result.outcome is Outcome.FAILED


async def test_what_is_not_required_is_reported_and_decides_nothing(tmp_path):
    metrics = [BROKEN | {"required": False}, contains("z") | {"required": False}, contains("a")]

    result = await run_one(tmp_path, "a" * 60 + "!", {"evaluations": metrics})

    assert [row.passed for row in result.metric_results] == [False, False, True]
    assert [row.required for row in result.metric_results] == [False, False, True]
    assert result.outcome is Outcome.PASSED


async def test_a_case_with_nothing_that_is_required_is_unchecked(tmp_path):
    metrics = [contains("a") | {"required": False}]

    result = await run_one(tmp_path, "aa", {"evaluations": metrics})

    assert result.outcome is Outcome.UNCHECKED


async def test_a_failure_outranks_a_broken_metric(tmp_path):
    result = await run_one(tmp_path, "a" * 60 + "!", {"evaluations": [BROKEN, contains("z")]})

    assert result.outcome is Outcome.FAILED


async def test_a_metric_without_anything_to_compare_with_is_a_configuration_error(tmp_path):
    with pytest.raises(ConfigError, match="nothing to compare with"):
        await run_one(tmp_path, "x", {"evaluations": [{"metric": "f1_score"}]})


class Shouting(BaseEvaluator):
    async def _evaluate_impl(self, **kwargs):
        loud = kwargs["response"].isupper()
        return {"score": float(loud), "passed": loud}


async def test_an_injected_evaluator_is_computed_for_every_case(tmp_path):
    agent = an_agent({"input": "go"})
    backend = ScriptedBackend({"go": "HELLO"})
    executor = executor_of(tmp_path, agent, backend, evaluators={"shouting": Shouting()})

    report = await executor.execute_tests()

    assert [row.metric_name for row in report.results[0].metric_results] == ["shouting"]
    assert report.summary.passed == 1


async def test_an_injected_evaluator_stands_in_for_the_metric_of_its_name(tmp_path):
    agent = an_agent({"input": "go", "evaluations": [contains("never there", threshold=0.5)]})
    backend = ScriptedBackend({"go": "HELLO"})
    executor = executor_of(tmp_path, agent, backend, evaluators={"contains": Shouting()})

    report = await executor.execute_tests()

    [row] = report.results[0].metric_results
    assert (row.score, row.threshold, row.passed) == (1.0, 0.5, True)


class OffScale(BaseEvaluator):
    async def _evaluate_impl(self, **kwargs):
        return {"score": 9.0, "passed": True}


async def test_a_score_off_the_scale_is_an_error_not_a_pass(tmp_path):
    agent = an_agent({"input": "go"})
    executor = executor_of(tmp_path, agent, ScriptedBackend(), evaluators={"off": OffScale()})

    report = await executor.execute_tests()

    assert report.results[0].outcome is Outcome.METRIC_ERROR
    assert "9.0" in report.results[0].metric_results[0].error


async def test_the_text_of_files_comes_before_the_input(tmp_path):
    (tmp_path / "notes.txt").write_text("Refunds take 30 days.")
    backend = ScriptedBackend(lambda _: "30 days")
    case = {
        "input": "How long?",
        "files": [{"path": "notes.txt", "type": "text"}],
        "evaluations": [contains("30")],
    }

    report = await executor_of(tmp_path, an_agent(case), backend).execute_tests()

    assert report.results[0].passed
    assert backend.messages == ["File: notes.txt\nRefunds take 30 days.\n\nHow long?"]


async def test_a_file_that_cannot_be_read_spares_the_agent_call(tmp_path):
    backend = ScriptedBackend()
    case = {"input": "go", "files": [{"path": "gone.txt", "type": "text"}], "expected_tools": []}

    report = await executor_of(tmp_path, an_agent(case), backend).execute_tests()

    assert report.results[0].outcome is Outcome.AGENT_ERROR
    assert "gone.txt" in report.results[0].errors[0]
    assert backend.messages == []


async def test_results_of_retrieval_tools_reach_metrics_as_context(tmp_path):
    seen = []

    class Watching(BaseEvaluator):
        uses_observation = True

        async def _evaluate_impl(self, **kwargs):
            seen.append(kwargs["observation"].retrieval_context)
            return {"score": 1.0, "passed": True}

    answer = ExecutionResult(
        response="x",
        tool_calls=[{"name": "kb"}, {"name": "user"}],
        tool_results=[{"name": "kb", "result": "passage"}, {"name": "user", "result": "Ada"}],
    )
    tools = [
        {"type": "function", "name": name, "file": "t.py", "function": name, "is_retrieval": keep}
        for name, keep in (("kb", True), ("user", False))
    ]
    agent = an_agent({"input": "go"}, tools=tools)
    backend = ScriptedBackend({"go": answer})

    await executor_of(tmp_path, agent, backend, evaluators={"w": Watching()}).execute_tests()

    assert seen == [("passage",)]


async def test_a_backend_that_cannot_start_ends_the_run(tmp_path):
    backend = ScriptedBackend(init_error=RuntimeError("no such agent"))
    executor = executor_of(tmp_path, an_agent({"input": "go"}), backend)

    with pytest.raises(BackendInitError, match="RuntimeError: no such agent"):
        await executor.execute_tests()


async def test_what_had_finished_when_a_run_was_cancelled_is_kept(tmp_path):
    async def answer(message):
        if message == "slow":
            await asyncio.sleep(30)
        return "OK"

    backend = ScriptedBackend(answer)
    cases = [{"input": name, "evaluations": [contains("OK")]} for name in ("fast", "slow", "later")]
    done = asyncio.Event()
    executor = executor_of(
        tmp_path, an_agent(*cases), backend, progress_callback=lambda _: done.set()
    )
    run = asyncio.create_task(executor.execute_tests())
    await done.wait()

    run.cancel()

    with pytest.raises(asyncio.CancelledError):
        await run
    report = executor.report(interrupted=True)
    assert [result.test_input for result in report.results] == ["fast"]
    assert report.planned_tests == 3
    assert exit_code(report) is ExitCode.INTERRUPTED


async def test_an_error_in_a_callback_of_the_user_comes_out(tmp_path):
    def callback(result):
        raise RuntimeError("my own bug")

    executor = executor_of(
        tmp_path, an_agent({"input": "go"}), ScriptedBackend(), progress_callback=callback
    )

    with pytest.raises(RuntimeError, match="my own bug"):
        await executor.execute_tests()


async def test_no_case_at_all_is_not_success(tmp_path):
    backend = ScriptedBackend()

    report = await executor_of(tmp_path, an_agent(), backend).execute_tests()

    assert exit_code(report) is ExitCode.NOTHING_SELECTED
    assert backend.initialized == 0


async def test_shutting_down_twice_is_harmless(tmp_path):
    backend = ScriptedBackend()
    executor = executor_of(tmp_path, an_agent({"input": "go"}), backend)
    await executor.execute_tests()

    await executor.shutdown()
    await executor.shutdown()

    assert backend.torn_down == 1


async def test_the_wait_for_a_slot_is_not_the_agents_time(tmp_path):
    async def answer(message):
        await asyncio.sleep(0.2)
        return ExecutionResult(response="OK", waited_ms=200)

    executor = executor_of(tmp_path, an_agent({"input": "go"}), ScriptedBackend(answer))
    started = time.perf_counter()

    report = await executor.execute_tests()

    most_ms = (time.perf_counter() - started) * 1000 - 200
    [result] = report.results
    assert result.agent_time_ms <= most_ms
    assert result.execution_time_ms <= most_ms


async def test_calls_that_are_refused_for_good_end_the_run_with_one_message(tmp_path):
    refused = BackendSessionError("HTTP 401: wrong key", permanent=True)
    backend = ScriptedBackend(lambda _: refused)
    cases = [{"input": f"{n}", "expected_tools": []} for n in range(50)]

    report = await executor_of(tmp_path, an_agent(*cases), backend).execute_tests()

    assert len(backend.messages) == 3
    assert "wrong key" in report.stopped
    assert "the other 47 cases are not run" in report.stopped
    assert exit_code(report) is ExitCode.EXECUTION


async def test_a_success_between_refusals_lets_the_run_go_on(tmp_path):
    refused = BackendSessionError("HTTP 401", permanent=True)
    backend = ScriptedBackend(lambda message: "OK" if message == "2" else refused)
    cases = [{"input": f"{n}", "evaluations": [contains("OK")]} for n in range(5)]

    report = await executor_of(tmp_path, an_agent(*cases), backend).execute_tests()

    assert report.stopped is None
    assert len(report.results) == 5


def limited(tmp_path, agent, backend, **limits):
    return TestExecutor(
        str(tmp_path / "agent.yaml"),
        agent_config=agent,
        resolved_execution_config=ExecutionConfig(file_timeout=120, **limits),
        backend=backend,
    )


async def test_a_case_that_takes_too_long_is_an_error_and_the_others_run(tmp_path):
    async def answer(message):
        await asyncio.sleep(30 if message == "slow" else 0)
        return "OK"

    cases = [{"input": name, "evaluations": [contains("OK")]} for name in ("slow", "fast")]
    executor = limited(tmp_path, an_agent(*cases), ScriptedBackend(answer), case_timeout=0.5)

    report = await executor.execute_tests()

    slow, fast = report.results
    assert slow.errors == ["the case took longer than 0.5 s"]
    assert fast.passed


async def test_a_run_that_takes_too_long_keeps_what_it_has(tmp_path):
    async def answer(message):
        await asyncio.sleep(30 if message == "slow" else 0)
        return "OK"

    cases = [{"input": name, "evaluations": [contains("OK")]} for name in ("fast", "slow", "next")]
    executor = limited(tmp_path, an_agent(*cases), ScriptedBackend(answer), run_timeout=0.7)

    report = await executor.execute_tests()

    told = "the run exceeded its time limit of 0.7 s"
    assert [result.outcome for result in report.results] == ["passed", "skipped", "skipped"]
    assert [result.skip_reason for result in report.results] == [None, told, told]
    assert report.stopped == f"{told}, so the other 2 cases are not run"
    assert report.stopped_by == "run_timeout"


async def test_what_no_longer_fits_the_budget_is_skipped_and_what_runs_finishes(tmp_path):
    backend = ScriptedBackend(delay_s=0.001)
    cases = [{"input": f"{n}", "evaluations": [contains("OK")]} for n in range(12)]
    executor = limited(tmp_path, an_agent(*cases), backend, max_calls=5, parallel_test_cases=10)

    report = await executor.execute_tests()

    assert len(backend.messages) == 5
    assert backend.peak_in_flight == 4
    assert report.summary.outcomes == {"passed": 5, "skipped": 7}
    assert report.stopped_by == "budget"
    spent = "the budget of 5 calls is used up (5 calls spent)"
    assert report.stopped == f"{spent}, so the other 7 cases are not run"
    assert exit_code(report) is ExitCode.BUDGET


async def test_a_budget_that_is_used_up_by_the_last_case_stops_nothing(tmp_path):
    cases = [{"input": f"{n}", "evaluations": [contains("OK")]} for n in range(3)]
    executor = limited(tmp_path, an_agent(*cases), ScriptedBackend(), max_calls=3)

    report = await executor.execute_tests()

    assert report.stopped is None
    assert exit_code(report) is ExitCode.PASSED


async def test_tokens_that_nobody_tells_end_a_run_whose_tokens_are_limited(tmp_path):
    cases = [{"input": f"{n}", "evaluations": [contains("OK")]} for n in range(3)]
    executor = limited(tmp_path, an_agent(*cases), ScriptedBackend(), max_tokens=1_000_000)

    report = await executor.execute_tests()

    assert report.summary.outcomes == {"passed": 1, "skipped": 2}
    assert "cannot be enforced, because not every response reports its usage" in report.stopped


def test_a_limit_of_costs_without_prices_fails_before_any_call(tmp_path):
    agent = an_agent({"input": "go"})

    with pytest.raises(ConfigError, match=r"max_cost cannot be enforced.* a price for "):
        limited(tmp_path, agent, ScriptedBackend(), max_cost=1)


async def test_the_time_of_a_metric_is_in_milliseconds(tmp_path):
    class Slow(BaseEvaluator):
        async def _evaluate_impl(self, **_):
            await asyncio.sleep(0.05)
            return {"score": 1.0}

    agent = an_agent({"input": "go", "expected_tools": []})
    executor = executor_of(tmp_path, agent, ScriptedBackend(), evaluators={"slow": Slow()})

    [result] = (await executor.execute_tests()).results

    assert 50 <= result.metric_results[0].evaluation_time_ms < 60_000


async def test_what_a_metric_loads_is_loaded_while_the_agent_answers(tmp_path):
    ready = asyncio.Event()

    class Loads(BaseEvaluator):
        async def prepare(self):
            ready.set()

        async def _evaluate_impl(self, **_):
            return {"score": 1.0, "passed": True}

    async def answer(_):
        await asyncio.wait_for(ready.wait(), 30)
        return "OK"

    agent = an_agent({"input": "go"})
    executor = executor_of(tmp_path, agent, ScriptedBackend(answer), evaluators={"slow": Loads()})

    [result] = (await executor.execute_tests()).results

    assert result.passed


@pytest.mark.parametrize(
    ("score", "error"),
    [
        (-0.001, "which is not between 0 and 1"),
        (1.001, "which is not between 0 and 1"),
        (2, "which is not between 0 and 1"),
        (True, "which is not a number"),
        (None, "returned no score"),
        (0, None),
        (1, None),
    ],
)
async def test_a_score_that_is_no_score_decides_nothing(tmp_path, score, error):
    class Scores(BaseEvaluator):
        async def _evaluate_impl(self, **_):
            return {"score": score, "passed": True}

    agent = an_agent({"input": "go"})
    executor = executor_of(tmp_path, agent, ScriptedBackend(), evaluators={"own": Scores()})

    [result] = (await executor.execute_tests()).results

    [row] = result.metric_results
    assert result.outcome is (Outcome.PASSED if error is None else Outcome.METRIC_ERROR)
    assert (error is None) if row.error is None else error in row.error
