"""No check passes or fails on evidence that nobody has, whatever the backend and the form of case.

Each agent of `support.ways` calls the tool `lookup_order`; what is reported of that differs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from fakes import ScriptedBackend
from holodeck.lib.backends.base import ExecutionResult
from holodeck.lib.reports.summary import exit_code
from holodeck.models.test_result import Outcome
from holodeck.models.token_usage import TokenUsage
from support.frameworks import AGENT, TOOL
from support.played import USER, an_agent, recorded, report_of, says
from support.rescore import rescore
from support.ways import (
    ARGS,
    BLIND,
    EVIDENCE,
    INPUT,
    OWN,
    RESULT,
    WAYS,
    Fact,
    Facts,
    a_blind_one,
    facts_in,
)

ANSWER = "It is shipped."
CALL = {"name": TOOL, "arguments": ARGS}
UNKNOWN = "tool calls are unknown"


@dataclass(frozen=True)
class Check:
    """A check, which of the facts about the agent decide it, and whether it holds then."""

    keys: dict[str, Any]
    needs: frozenset[Fact]
    holds: bool

    def outcome(self, facts: Facts) -> Outcome:
        """How a case with this check ends if these facts are known of the agent."""
        if not self.needs <= facts:
            return Outcome.METRIC_ERROR
        return Outcome.PASSED if self.holds else Outcome.FAILED


def _check(holds: bool, *needs: Fact, **keys: Any) -> Check:
    return Check(keys, frozenset(needs), holds)


def _of_call(holds: bool, *needs: Fact, **keys: Any) -> Check:
    return _check(holds, "calls", *needs, expected_tools=[{"name": TOOL, **keys}])


THIS, OTHER = [TOOL], ["delete_order"]


def checks(seen: ExecutionResult) -> dict[str, Check]:
    """The checks of an agent that did this; what it does not report, they expect all the same."""
    agents = seen.agents or [AGENT]
    caller = next((call["agent"] for call in seen.tool_calls or () if "agent" in call), AGENT)
    result = next((one["result"] for one in seen.tool_results), RESULT)
    return {
        "called": _check(True, "calls", expected_tools=THIS),
        "not called": _check(False, "calls", expected_tools=OTHER),
        "with arguments": _of_call(True, "args", args=ARGS),
        "with other arguments": _of_call(False, "args", args={"order_id": "8"}),
        "counted": _of_call(True, count=1),
        "counted twice": _of_call(False, count=2),
        "none may be called": _check(False, "calls", expected_tools=[]),
        "forbidden": _check(False, "calls", forbidden_tools=THIS),
        "forbidden, never called": _check(True, "calls", forbidden_tools=OTHER),
        "in order": _check(True, "calls", expected_tools=THIS, tool_order=True),
        "exactly": _check(True, "calls", expected_tools=THIS, tool_order="exact"),
        "not exactly": _check(False, "calls", expected_tools=THIS * 2, tool_order="exact"),
        "in any order": _check(True, "calls", expected_tools=THIS, tool_order="any_order"),
        "in no order": _check(False, "calls", expected_tools=OTHER, tool_order="any_order"),
        "a superset": _check(True, "calls", expected_tools=THIS, tool_order="superset"),
        "no superset": _check(False, "calls", expected_tools=THIS * 2, tool_order="superset"),
        "a subset": _check(True, "calls", expected_tools=THIS + OTHER, tool_order="subset"),
        "no subset": _check(False, "calls", expected_tools=OTHER, tool_order="subset"),
        "no others": _check(True, "calls", expected_tools=THIS, only_expected_tools=True),
        "few": _check(True, "calls", max_tool_calls=1),
        "too many": _check(False, "calls", max_tool_calls=0),
        "not repeated": _check(True, "calls", no_repeated_calls=True),
        "result": _of_call(True, "results", result={"contains": result[:9]}),
        "other result": _of_call(False, "results", result="It is lost."),
        "without error": _of_call(True, "results", "errors", error=False),
        "failing": _of_call(False, "results", "errors", error=True),
        "of the agent": _of_call(True, "callers", agent=caller),
        "of another agent": _of_call(False, "callers", agent="billing"),
        "its result in order": _check(
            True,
            *("calls", "results"),
            expected_tools=[{"name": TOOL, "result": {"equals": result}}],
            tool_order="exact",
        ),
        "handed on as it was": _check(True, "agents", handoffs=agents),
        "handed on": _check(False, "agents", handoffs=[*agents, "billing"]),
    }


@dataclass(frozen=True)
class Form:
    """A form of test case, made of an input and the checks."""

    name: str
    case: Callable[[str, dict[str, Any]], dict[str, Any]]


MOST_DIFFERENT = [
    Form("input", lambda said, check: {"input": said, **check}),
    Form("step", lambda said, check: {"script": [{"user": said}, "agent", {"check": check}]}),
]
"""One sends a single message, the other opens a conversation: all that a backend notices."""
OTHERS = [
    Form("repeated", lambda said, check: {"input": said, "repeat": 2, **check}),
    Form("tried again", lambda said, check: {"input": said, "retries": 1, **check}),
    Form("turn", lambda said, check: {"turns": [{"input": said, **check}]}),
    Form("all turns", lambda said, check: {"turns": [{"input": said}], **check}),
    Form("script", lambda said, check: {"script": [{"user": said}, "agent"], **check}),
    Form("simulated", lambda _, check: {"simulate": {"situation": "hi"}, "max_turns": 2, **check}),
]
"""What they make of the same evidence is the same for every backend."""
WAYS_AND_FORMS = [
    pytest.param(way, form, id=f"{way.name}, {form.name}")
    for ways, forms in ((WAYS, MOST_DIFFERENT), (EVIDENCE, OTHERS))
    for way in ways
    for form in forms
]
own_backends = pytest.mark.parametrize("backend", OWN, ids=lambda one: one.__name__)


def single(result):
    return result.single_runs[-1]


def checks_of(result):
    run = single(result)
    return [*run.tool_checks, *(check for turn in run.turns for check in turn.tool_checks)]


@pytest.mark.parametrize(("way", "form"), WAYS_AND_FORMS)
async def test_a_check_is_decided_by_what_the_backend_reports_and_by_nothing_else(
    way, form, tmp_path, fake_openai
):
    fake_openai.when("nothing yet", says(INPUT)).when(USER, says("", done=True))

    async with way.open() as backend:
        await backend.initialize()
        seen = await backend.invoke_once(way.input)
        about = checks(seen)
        cases = [
            {"name": name, **form.case(way.input, check.keys)} for name, check in about.items()
        ]
        agent = an_agent(fake_openai, *cases)
        report = await report_of(tmp_path, agent, backend)
        await backend.teardown()

    facts = facts_in(seen)
    assert way.reports in {None, facts}
    expected = {name: check.outcome(facts) for name, check in about.items()}
    assert {one.test_name: one.outcome for one in report.results} == expected
    for result in report.results:
        errors = [check.error for check in checks_of(result) if check.error is not None]
        assert checks_of(result)
        assert bool(errors) is (result.outcome is Outcome.METRIC_ERROR)
        assert all("unknown" in error for error in errors)
        assert all(any(error in reason for reason in result.reasons()) for error in errors)
        known = single(result).evidence
        assert (known.tool_calls is not None) is ("calls" in facts)
        assert (known.agents is not None) is ("agents" in facts)
    assert exit_code(report) == (4 if Outcome.METRIC_ERROR in expected.values() else 1)
    again = await rescore(agent, recorded(*report.results))
    assert {one.test_name: one.outcome for one in again.report.results} == expected


async def test_how_many_turns_a_conversation_took_is_known_of_every_agent(tmp_path, fake_openai):
    fake_openai.when("nothing yet", says(INPUT)).when(USER, says("", done=True))
    case = {"simulate": {"situation": "hi"}, "max_turns_to_done": 1}

    async with a_blind_one() as blind:
        report = await report_of(tmp_path, an_agent(fake_openai, case), blind)

    [result] = report.results
    assert (result.outcome, result.evidence.tool_calls) == (Outcome.PASSED, None)


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


@own_backends
async def test_metrics_that_need_unseen_tool_calls_are_errors(backend, tmp_path, fake_openai):
    (tmp_path / "graders.py").write_text(GRADERS)
    cases = [
        {"name": name, "input": "hi", "expected_tools": ["lookup_order"], "evaluations": [metric]}
        for name, metric in METRICS.items()
    ]
    agent = an_agent(fake_openai, *cases).with_base_dir(tmp_path)

    async with backend(BLIND) as blind:
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

    async with a_blind_one() as blind:
        report = await report_of(tmp_path, agent, blind)

    assert "assistant may call tools unseen" in fake_openai.requests[0].prompt
    assert not report.results[0].passed


async def test_a_step_that_asks_for_unseen_tool_calls_is_an_error(tmp_path, fake_openai):
    (tmp_path / "steps.py").write_text(
        "def look(state):\n    assert not state.has_tool_call('lookup_order')\n"
    )
    script = [{"user": "hi"}, "agent", {"call": "steps:look"}, "succeed"]
    agent = an_agent(fake_openai, {"script": script}).with_base_dir(tmp_path)

    async with a_blind_one() as blind:
        report = await report_of(tmp_path, agent, blind)

    [result] = report.results
    assert not result.passed
    assert any(UNKNOWN in reason for reason in result.reasons())


async def test_tool_calls_of_a_script_are_not_counted_where_one_turn_is_unseen(
    tmp_path, fake_openai
):
    (tmp_path / "steps.py").write_text(
        "def look(state):\n    assert len(state.tool_calls('lookup_order')) == 1\n"
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
        assert not state.has_tool_call("lookup_order")

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
            Scenario(name="wanted", input="hi", expected_tools=["lookup_order"]),
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
