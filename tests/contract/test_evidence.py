"""No check passes or fails on evidence that nobody has, whatever the backend and the form of case.

Each agent here calls the tool `get_weather`, and answers "Sunny.". A blind one does not report the
call; a seeing one does.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import pytest

from fakes import FakeOpenAI, Reply, ScriptedBackend
from holodeck.lib.backends.base import AgentBackend, ExecutionResult
from holodeck.lib.backends.callable_backend import CallableBackend
from holodeck.lib.backends.http_backend import HttpBackend
from holodeck.lib.reports.summary import exit_code
from holodeck.lib.test_runner.rescore import rescore
from holodeck.models.agent import HttpBackendConfig
from holodeck.models.test_result import Outcome
from holodeck.models.token_usage import TokenUsage
from support.played import USER, an_agent, recorded, report_of, says

CALL = {"name": "get_weather", "arguments": {"city": "Oslo"}}
ANSWER = "Sunny."
UNKNOWN = "tool calls are unknown"
Reports = bool
"""Whether the agent reports its tool calls."""


@contextmanager
def function(reports: Reports) -> Iterator[AgentBackend]:
    def agent(message, context=None):
        return {"response": ANSWER, "tool_calls": [CALL]} if reports else ANSWER

    yield CallableBackend(agent)


@contextmanager
def coroutine(reports: Reports) -> Iterator[AgentBackend]:
    async def agent(message, context=None):
        return {"output": ANSWER} | ({"tool_calls": [CALL]} if reports else {"metadata": [CALL]})

    yield CallableBackend(agent)


@contextmanager
def class_with_null(reports: Reports) -> Iterator[AgentBackend]:
    class Agent:
        async def run(self, message, context=None):
            return {"text": ANSWER, "tool_calls": [CALL] if reports else None}

    yield CallableBackend(Agent)


@contextmanager
def foreign_object(reports: Reports) -> Iterator[AgentBackend]:
    """What frameworks return: the text, and the calls somewhere inside of the messages."""

    class Agent:
        async def run(self, message):
            answer = SimpleNamespace(text=ANSWER, messages=[CALL])
            if reports:
                answer.tool_calls = [SimpleNamespace(name="get_weather", args={"city": "Oslo"})]
            return answer

    yield CallableBackend(Agent())


@contextmanager
def own_backend(reports: Reports) -> Iterator[AgentBackend]:
    def answer(_):
        return ExecutionResult(ANSWER, tool_calls=[CALL] if reports else None)

    yield ScriptedBackend(answer)


@contextmanager
def http(reports: Reports) -> Iterator[AgentBackend]:
    with FakeOpenAI(lambda _: Reply(json={"response": ANSWER, "calls": [CALL]})) as server:
        config = HttpBackendConfig(
            type="http",
            url=f"{server.root}/agent",
            request={"messages": "{messages}"},
            answer={"tool_calls": "calls"} if reports else {},
        )
        yield HttpBackend(config)


BACKENDS = [function, coroutine, class_with_null, foreign_object, own_backend, http]

CHECKS: dict[str, dict[str, Any]] = {
    "called": {"expected_tools": ["get_weather"]},
    "not called": {"expected_tools": ["delete_order"]},
    "with arguments": {"expected_tools": [{"name": "get_weather", "args": {"city": "Oslo"}}]},
    "counted": {"expected_tools": [{"name": "get_weather", "count": 1}]},
    "none may be called": {"expected_tools": []},
    "forbidden": {"forbidden_tools": ["get_weather"]},
    "forbidden, never called": {"forbidden_tools": ["delete_order"]},
    "in order": {"expected_tools": ["get_weather"], "tool_order": True},
    "no others": {"expected_tools": ["get_weather"], "only_expected_tools": True},
}
PASSING = {
    "called",
    "with arguments",
    "counted",
    "forbidden, never called",
    "in order",
    "no others",
}
"""The checks that hold for an agent that calls `get_weather` once."""


@dataclass(frozen=True)
class Form:
    """A form of test case, with the checks put into it."""

    name: str
    case: Callable[[dict[str, Any]], dict[str, Any]]


FORMS = [
    Form("input", lambda check: {"input": "hi", **check}),
    Form("repeated", lambda check: {"input": "hi", "repeat": 2, **check}),
    Form("tried again", lambda check: {"input": "hi", "retries": 1, **check}),
    Form("turn", lambda check: {"turns": [{"input": "hi", **check}]}),
    Form("all turns", lambda check: {"turns": [{"input": "hi"}], **check}),
    Form("step", lambda check: {"script": [{"user": "hi"}, "agent", {"check": check}]}),
    Form("script", lambda check: {"script": [{"user": "hi"}, "agent"], **check}),
    Form("simulated", lambda check: {"simulate": {"situation": "hi"}, "max_turns": 2, **check}),
]
every_backend = pytest.mark.parametrize("backend", BACKENDS, ids=lambda one: one.__name__)
every_form = pytest.mark.parametrize("form", FORMS, ids=lambda one: one.name)


async def run(tmp_path, server, backend, form):
    """The result of each check, and the agent that it was run with."""
    server.when("nothing yet", says("How is the weather?")).when(USER, says("", done=True))
    cases = [{"name": name, **form.case(check)} for name, check in CHECKS.items()]
    agent = an_agent(server, *cases)
    report = await report_of(tmp_path, agent, backend)
    await backend.teardown()
    return report, agent


def single(result):
    return result.single_runs[-1]


def checks_of(result):
    run = single(result)
    return [*run.tool_checks, *(check for turn in run.turns for check in turn.tool_checks)]


@every_form
@every_backend
async def test_unseen_tool_calls_neither_pass_nor_fail_a_check(
    backend, form, tmp_path, fake_openai
):
    with backend(False) as blind:
        report, agent = await run(tmp_path, fake_openai, blind, form)

    assert {one.test_name: one.outcome for one in report.results} == dict.fromkeys(
        CHECKS, Outcome.METRIC_ERROR
    )
    for result in report.results:
        assert checks_of(result)
        assert all(UNKNOWN in check.error and not check.passed for check in checks_of(result))
        assert single(result).evidence.tool_calls is None
        assert any(UNKNOWN in reason for reason in result.reasons())
    assert exit_code(report) == 4
    again = await rescore(agent, recorded(*report.results))
    assert {one.outcome for one in again.report.results} == {Outcome.METRIC_ERROR}


@every_form
@every_backend
async def test_tool_calls_that_are_reported_decide_the_checks(backend, form, tmp_path, fake_openai):
    with backend(True) as seeing:
        report, _ = await run(tmp_path, fake_openai, seeing, form)

    assert {one.test_name for one in report.results if one.passed} == PASSING
    assert {one.outcome for one in report.results} == {Outcome.PASSED, Outcome.FAILED}
    sources = {single(one).evidence.tool_calls for one in report.results}
    assert sources == {"backend" if backend is own_backend else "adapter"}


METRICS = {
    "argument_correctness": {"type": "deepeval", "metric": "argument_correctness"},
    "tool_correctness": {"type": "deepeval", "metric": "tool_correctness"},
    "tool_call_accuracy": {"type": "azure", "metric": "tool_call_accuracy"},
    "counts": {"type": "code", "grader": "graders:none_called", "name": "counts"},
    "looks": {"type": "code", "grader": "graders:not_called", "name": "looks"},
    "passfail": {"metric": "passfail"},
}
GRADERS = """
def none_called(seen):
    return not seen.tool_calls


def not_called(seen):
    return all(call.name != "delete_order" for call in seen.tool_calls)
"""


@every_backend
async def test_metrics_that_need_unseen_tool_calls_are_errors(backend, tmp_path, fake_openai):
    (tmp_path / "graders.py").write_text(GRADERS)
    cases = [
        {"name": name, "input": "hi", "expected_tools": ["get_weather"], "evaluations": [metric]}
        for name, metric in METRICS.items()
    ]
    agent = an_agent(fake_openai, *cases).with_base_dir(tmp_path)

    with backend(False) as blind:
        report = await report_of(tmp_path, agent, blind)
        await blind.teardown()

    rows = {one.test_name: one.metric_results[0] for one in report.results}
    assert {name: UNKNOWN in (row.error or "") for name, row in rows.items()} == dict.fromkeys(
        METRICS, True
    )
    assert not any(row.passed for row in rows.values())
    assert {one.outcome for one in report.results} == {Outcome.METRIC_ERROR}


@pytest.mark.parametrize("words", ["never calls a tool", "looks the weather up"])
async def test_a_judge_is_told_that_tool_calls_were_not_seen(words, tmp_path, fake_openai):
    fake_openai.otherwise('{"c1": {"reasoning": "who knows", "status": "inconclusive"}}')
    agent = an_agent(fake_openai, {"input": "hi", "criteria": [words]})

    with function(False) as blind:
        report = await report_of(tmp_path, agent, blind)

    assert "assistant may call tools unseen" in fake_openai.requests[0].prompt
    assert not report.results[0].passed


async def test_a_step_that_asks_for_unseen_tool_calls_is_an_error(tmp_path, fake_openai):
    (tmp_path / "steps.py").write_text(
        "def look(state):\n    assert not state.has_tool_call('get_weather')\n"
    )
    script = [{"user": "hi"}, "agent", {"call": "steps:look"}, "succeed"]
    agent = an_agent(fake_openai, {"script": script}).with_base_dir(tmp_path)

    with function(False) as blind:
        report = await report_of(tmp_path, agent, blind)

    [result] = report.results
    assert not result.passed
    assert any(UNKNOWN in reason for reason in result.reasons())


async def test_tool_calls_of_a_script_are_not_counted_where_one_turn_is_unseen(
    tmp_path, fake_openai
):
    (tmp_path / "steps.py").write_text(
        "def look(state):\n    assert len(state.tool_calls('get_weather')) == 1\n"
    )
    script = [{"user": "a"}, "agent", {"user": "b"}, "agent", {"call": "steps:look"}, "succeed"]
    agent = an_agent(fake_openai, {"script": script}).with_base_dir(tmp_path)
    answers = {"a": ExecutionResult(ANSWER, tool_calls=[CALL]), "b": ExecutionResult(ANSWER)}

    report = await report_of(tmp_path, agent, ScriptedBackend(answers))

    [result] = report.results
    assert not result.passed
    assert any(UNKNOWN in reason for reason in result.reasons())


async def test_a_scenario_warns_where_a_text_says_nothing_about_tools():
    from holodeck import scenario

    class Agent(scenario.AgentAdapter):
        async def call(self, input):  # noqa: A002 - the name is public API
            return ANSWER

    def look(state):
        assert not state.has_tool_call("get_weather")

    with pytest.warns(UserWarning, match="whether the agent called tools is unknown"):
        result = await scenario.arun(
            name="weather",
            description="",
            agents=[Agent(), scenario.UserSimulatorAgent(model="openai/none")],
            script=[
                scenario.message({"role": "user", "content": "hi"}),
                scenario.agent(),
                look,
                scenario.succeed(),
            ],
        )
    assert result.success


def test_a_scorer_of_a_suite_does_not_decide_by_unseen_tool_calls():
    from holodeck.suite import AgentResult, Runner, Scenario, Suite

    suite = Suite(
        name="s",
        scenarios=[
            Scenario(name="wanted", input="hi", expected_tools=["get_weather"]),
            Scenario(name="none", input="hi", expected_tools=[]),
        ],
    )
    for adapter in (lambda _: ANSWER, lambda _: AgentResult(output=ANSWER)):
        results = Runner(adapter).run_suite(suite).scenario_results
        assert [one.outcome for one in results] == [Outcome.METRIC_ERROR] * 2
        assert all("tool calls are unknown" in one.error for one in results)


async def test_token_usage_that_nobody_reports_is_unknown_and_not_zero(tmp_path, fake_openai):
    agent = an_agent(fake_openai, *({"input": text, "expected_tools": []} for text in "ab"))
    counted = ExecutionResult("ok", tool_calls=[], token_usage=TokenUsage.of(3, 4))
    blind = ExecutionResult("ok", tool_calls=[])

    report = await report_of(tmp_path, agent, ScriptedBackend({"a": counted, "b": blind}))

    assert [one.token_usage for one in report.results] == [TokenUsage.of(3, 4), None]
    assert [one.evidence.token_usage for one in report.results] == ["backend", None]
    assert report.summary.unknown_token_usage == 1
