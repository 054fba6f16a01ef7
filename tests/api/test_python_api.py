"""`import holodeck`: running cases from Python, whatever the agent is."""

import asyncio
import inspect
import json
import subprocess
import sys
from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin, get_type_hints

import pytest

import holodeck
from fakes import ScriptedBackend, clean_environment
from holodeck.api import RunSettings
from holodeck.errors import ExitCode
from holodeck.lib.evaluators.base import BaseEvaluator
from holodeck.lib.reports.formats import generate_json_report
from holodeck.lib.reports.summary import exit_code
from holodeck.lib.test_runner.reporter import generate_markdown_report
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.metrics.judge_trust import TrustRule
from support.agents import contains

ONLY_OF_THE_COMMAND = {"quiet", "verbose", "record", "report_detail"}


class Shouter:
    def run(self, text):
        return text.upper()


class Loud(BaseEvaluator):
    async def _evaluate_impl(self, **kwargs):
        return {"score": 1.0, "passed": kwargs["response"].isupper()}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The working folder, with an agent.yaml whose agent shouts."""
    (tmp_path / "agent.yaml").write_text(
        "name: shouter\nbackend: bot:shout\n"
        "evaluations: {metrics: [{metric: contains, value: HELLO}]}\n"
        "test_cases: [{name: greets, input: hello}]\n"
    )
    (tmp_path / "bot.py").write_text("def shout(text):\n    return text.upper()\n")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("named", ["agent.yaml", "."])
def test_the_path_of_an_agent_runs_its_cases(folder, named):
    report = holodeck.run(named)

    assert report.passed
    assert [result.test_name for result in report.results] == ["greets"]
    assert (report.agent_name, report.agent_config_path) == ("shouter", named)


@pytest.mark.parametrize(
    "agent",
    [
        str.upper,
        Shouter().run,
        Shouter(),
        Shouter,
        lambda text: text.upper(),
        ScriptedBackend({"hello": "HELLO"}),
        "bot:shout",
        Agent.model_validate({"name": "x", "backend": "bot:shout"}),
    ],
    ids=["builtin", "method", "object", "class", "lambda", "backend", "module", "Agent"],
)
def test_an_agent_of_any_kind_runs_the_given_cases(folder, agent):
    report = holodeck.run(agent, ["hello"], metrics=[contains("HELLO")])

    assert report.passed, report.results


async def test_a_coroutine_function_is_an_agent():
    async def agent(text):
        await asyncio.sleep(0)
        return text

    assert (await holodeck.arun(agent, ["hi"], metrics=[contains("hi")])).passed


async def test_run_works_where_an_event_loop_runs():
    assert holodeck.run(str.upper, ["hi"], metrics=[contains("HI")]).passed


def test_cases_are_mappings_models_texts_or_a_file(folder):
    (folder / "cases.csv").write_text("input,ground_truth\na,A\nb,x\n")
    cases = [
        "hello",
        {"name": "own", "input": "b", "evaluations": [contains("B")]},
        holodeck.TestCase(input="hello"),
    ]

    mixed = holodeck.run(Shouter, cases, metrics=[contains("HELLO")])
    read = holodeck.run("bot:shout", "cases.csv", metrics=["exact_match"])

    assert [result.passed for result in mixed.results] == [True, True, True]
    assert [result.passed for result in read.results] == [True, False]


def test_cases_and_metrics_replace_those_of_the_file(folder):
    report = holodeck.run("agent.yaml", [{"name": "other", "input": "x"}], metrics=[contains("Y")])

    [result] = report.results
    assert (result.test_name, result.passed) == ("other", False)


def test_evaluators_and_functions_are_metrics():
    def is_short(observation):
        return len(observation.response) < 3

    [result] = holodeck.run(str.upper, ["hello"], metrics=[Loud(), is_short]).results

    assert {row.metric_name: row.passed for row in result.metric_results} == {
        "Loud": True,
        "is_short": False,
    }


def test_the_judge_can_be_given(folder):
    model = {"provider": "openai", "name": "judge-1", "endpoint": "http://127.0.0.1:9/v1"}
    cases = [{"input": "hello", "criteria": ["The answer is polite."]}]

    [result] = holodeck.run("agent.yaml", cases, model=model, llm_timeout=2).results

    assert result.outcome is holodeck.Outcome.METRIC_ERROR


def test_options_are_the_settings_of_a_run(folder):
    report = holodeck.run("agent.yaml", repeat=3, min_pass=2)

    assert str(report.results[0].repeats) == "2 of 2 repetitions passed, 2 needed, 1 not run"


def test_each_result_is_reported_when_it_is_there(folder):
    seen = []

    holodeck.run("agent.yaml", on_result=seen.append)

    assert [result.test_name for result in seen] == ["greets"]


@pytest.mark.parametrize(
    ("option", "message"),
    [
        ("retrys", "run() has no option 'retrys'; did you mean 'retries'?"),
        ("timeout", "did you mean 'llm_timeout'?"),
        ("quiet", "run() has no option 'quiet': only `holodeck test` prints"),
    ],
)
def test_an_unknown_option_is_a_type_error_with_the_nearest_one(option, message):
    with pytest.raises(TypeError) as raised:
        holodeck.run(str.upper, ["a"], **{option: 1})

    assert message in str(raised.value)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"llm_timeout": -1}, "llm_timeout: found -1; expected more than 0"),
        ({"fail_fast": True, "maxfail": 2}, "'fail_fast' and 'maxfail' are both set"),
        ({"cases": [{"inptu": "a"}]}, "test_cases[0].inptu: unknown key; did you mean 'input'?"),
        ({"metrics": ["bleuu"]}, "unknown metric 'bleuu'; did you mean 'bleu'?"),
        ({"metrics": [{"metric": "regex", "pattern": ".*"}]}, "matches every text"),
        ({"cases": "none.csv"}, "none.csv"),
        ({"path_or_agent": 3}, "an int is not an agent"),
        ({"path_or_agent": "none.yaml"}, "none.yaml: file not found"),
        ({"path_or_agent": "none:agent"}, "none"),
        ({"metrics": [Loud(), Loud()]}, "two evaluators have the name 'Loud'"),
    ],
    ids=lambda value: value if isinstance(value, str) else ", ".join(value),
)
def test_what_is_wrong_is_said_before_the_agent_is_called(folder, given, message):
    def agent(text):
        pytest.fail("the agent was called")

    arguments = {"path_or_agent": agent, "cases": ["hello"], "metrics": [contains("a")]} | given

    with pytest.raises(holodeck.ConfigError) as raised:
        holodeck.run(**arguments)
    assert message in str(raised.value)


def test_an_agent_that_is_code_needs_cases():
    with pytest.raises(TypeError, match="needs 'cases'"):
        holodeck.run(str.upper)


def test_secrets_do_not_reach_the_report(folder):
    (folder / ".env").write_text("SERVICE_API_KEY=correct-horse-battery\n")

    report = holodeck.run(lambda _: "correct-horse-battery", ["a"], metrics=[contains("horse")])

    assert report.passed
    assert "correct-horse" not in report.to_json()


def test_an_object_stays_open_and_a_class_is_closed():
    closed = []

    class Closing(Shouter):
        def close(self):
            closed.append(type(self).__name__)

    agent = Closing()
    for _ in range(2):
        assert holodeck.run(agent, ["hi"], metrics=[contains("HI")]).passed
    assert closed == []

    assert holodeck.run(Closing, ["hi"], metrics=[contains("HI")]).passed
    assert set(closed) == {"Closing"}


def test_load_agent_reads_a_file_with_its_cases(folder):
    (folder / "more.yaml").write_text("scenarios: [{name: more, input: b}]")

    agent = holodeck.load_agent("agent.yaml", suites=["more.yaml"])

    assert [case.name for case in agent.test_cases] == ["greets", "more"]


# TestExecutor.


@pytest.mark.parametrize(
    "backend",
    [str.upper, Shouter, Shouter(), "bot:shout", ScriptedBackend({"hello": "HELLO"})],
    ids=["function", "class", "object", "module", "backend"],
)
async def test_an_executor_takes_an_agent_of_any_kind(folder, backend):
    (folder / "agent.yaml").write_text(
        (folder / "agent.yaml").read_text().replace("bot:shout", "other:agent")
    )
    executor = holodeck.TestExecutor("agent.yaml", backend=backend)

    for _ in range(2):
        assert (await executor.execute_tests()).passed
    await executor.shutdown()


async def test_an_executor_takes_the_mapping_of_an_http_backend(folder):
    executor = holodeck.TestExecutor(
        "agent.yaml", backend={"type": "http", "url": "http://127.0.0.1:9/"}
    )

    report = await executor.execute_tests()

    assert report.results[0].outcome is holodeck.Outcome.AGENT_ERROR
    with pytest.raises(
        holodeck.ConfigError, match=r"backend\.ulr: unknown key; did you mean 'url'"
    ):
        holodeck.TestExecutor("agent.yaml", backend={"type": "http", "ulr": "x"})


async def test_an_executor_refuses_a_check_that_cannot_fail(folder):
    (folder / "agent.yaml").write_text(
        (folder / "agent.yaml").read_text().replace("contains, value: HELLO", "regex, pattern: .*")
    )
    backend = ScriptedBackend({})

    with pytest.raises(holodeck.ConfigError, match="matches every text"):
        await holodeck.TestExecutor("agent.yaml", backend=backend).execute_tests()
    assert backend.calls == []


async def test_an_executor_logs_what_is_doubtful(folder, caplog):
    (folder / "agent.yaml").write_text(
        (folder / "agent.yaml").read_text().replace("}]}", "}, {metric: f1_score, value: a}]}")
    )

    await holodeck.TestExecutor("agent.yaml").execute_tests()

    assert "gives no verdict without a threshold" in caplog.text


# The report.


@pytest.mark.parametrize(
    ("cases", "code"),
    [
        (["hello"], ExitCode.PASSED),
        (["hello", {"input": "a", "skip": "later"}], ExitCode.PASSED),
        ([{"input": "a", "skip": "later"}], ExitCode.NOTHING_SELECTED),
        (["a"], ExitCode.TEST_FAILED),
        (["raise"], ExitCode.EXECUTION),
        ([], ExitCode.NOTHING_SELECTED),
    ],
    ids=["passed", "skipped", "only-skipped", "failed", "error", "nothing"],
)
def test_a_report_has_passed_where_the_command_exits_with_0(cases, code):
    def agent(text):
        return {"a": "A", "hello": "HELLO"}[text]

    report = holodeck.run(agent, cases, metrics=[contains("HELLO")])

    assert exit_code(report) is code
    assert report.passed is (code is ExitCode.PASSED)


def test_a_report_renders_itself():
    report = holodeck.run(str.upper, ["hello"], metrics=[contains("HELLO")])

    assert report.to_markdown() == generate_markdown_report(report)
    assert report.to_json() == generate_json_report(report)
    assert json.loads(report.to_json())["summary"]["passed"] == 1
    assert repr(report) == "TestReport(agent_name='upper', passed=True, outcomes='1 passed')"
    assert repr(report.results) == """[TestResult(test_name="'hello'", outcome='passed')]"""
    assert report.results[0].test_name == "'hello'"


# Names, types and laziness.


def test_the_options_of_run_are_the_settings_with_their_types():
    declared = {
        name: plain(annotation)
        for name, annotation in get_type_hints(ExecutionConfig, include_extras=True).items()
        if name in ExecutionConfig.model_fields and name not in ONLY_OF_THE_COMMAND
    }

    declared["judge_trust"] |= {str(Mapping[str, Any])}  # a mapping, as in YAML
    declared["judge_trust"] -= {str(TrustRule)}
    assert {name: plain(kind) for name, kind in get_type_hints(RunSettings).items()} == declared


@pytest.mark.parametrize(
    ("options", "names"),
    [
        ({"select": "refund and not late"}, ["refunds"]),
        ({"tags": ["smoke"]}, ["greets", "refunds"]),
        ({"tags": ["smoke"], "names": ["r-1", "late refunds"]}, ["refunds"]),
    ],
)
def test_some_of_the_cases_can_be_selected(options, names):
    cases = [
        {"name": "greets", "tags": ["smoke"], "input": "hi"},
        {"name": "refunds", "id": "r-1", "tags": ["smoke"], "input": "hi"},
        {"name": "late refunds", "input": "hi"},
    ]

    report = holodeck.run(str.upper, cases, metrics=[contains("HI")], **options)

    assert [result.test_name for result in report.results] == names
    assert report.selection.deselected == 3 - len(names)


@pytest.mark.parametrize(
    ("options", "error", "said"),
    [
        ({"select": "nothing"}, holodeck.HoloDeckError, "-k: no name, id or suite contains"),
        ({"names": ["hello"]}, holodeck.HoloDeckError, "no case has the name 'hello'"),
        ({"tags": "smoke"}, TypeError, r"write tags=\['smoke'\]"),
    ],
)
def test_a_selection_of_nothing_is_an_error(options, error, said):
    with pytest.raises(error, match=said):
        holodeck.run(str.upper, ["hi"], metrics=[contains("HI")], **options)


def test_help_and_completion_show_every_option():
    parameters = inspect.signature(holodeck.run).parameters

    assert set(RunSettings.__annotations__) <= set(parameters)
    assert list(parameters)[:2] == ["path_or_agent", "cases"]
    assert inspect.signature(holodeck.arun).parameters == parameters


def test_every_public_name_is_listed_and_documented():
    assert set(holodeck.__all__) <= set(dir(holodeck))
    assert all(getattr(holodeck, name).__doc__ for name in holodeck.__all__)


def test_importing_the_package_imports_nothing_but_the_table_that_it_fills(tmp_path):
    program = "import sys, holodeck; print(*[m for m in sys.modules if m.startswith('holodeck.')])"
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=clean_environment(tmp_path), capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert done.stdout.split() == ["holodeck.models"]


def plain(annotation):
    """The members of an annotation without ranges, settings and None, as text."""
    if get_origin(annotation) is Annotated:
        return plain(get_args(annotation)[0])
    if get_origin(annotation) in {Union, UnionType}:
        return {one for part in get_args(annotation) for one in plain(part)}
    if get_origin(annotation) is list:
        return {f"list[{one}]" for part in get_args(annotation) for one in plain(part)}
    return set() if annotation is NoneType else {str(annotation)}
