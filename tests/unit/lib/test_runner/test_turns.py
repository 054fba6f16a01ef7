"""Cases of several turns: one session, verdicts per turn and over the whole."""

import asyncio

import pytest
from pydantic import ValidationError

from fakes import ScriptedBackend
from holodeck.config.checks.agent import check
from holodeck.errors import BackendSessionError, ConfigError, ExitCode
from holodeck.lib.backends.base import ExecutionResult
from holodeck.lib.evaluators.base import BaseEvaluator
from holodeck.lib.evaluators.param_spec import EvalParam, ParamSpec
from holodeck.lib.reports.summary import exit_code
from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.lib.test_runner.reporter import generate_markdown_report
from holodeck.models.agent import Agent
from holodeck.models.test_result import Outcome
from holodeck.models.token_usage import TokenUsage
from support.played import recorded, report_of
from support.rescore import rescore


def contains(text, **options):
    return {"metric": "contains", "value": text} | options


def turn(said, *metrics, **fields):
    return {"input": said} | ({"evaluations": list(metrics)} if metrics else {}) | fields


def an_agent(*cases, **fields):
    raw = {"name": "scripted", "backend": "chat", "test_cases": list(cases)}
    raw["instructions"] = {"inline": "x"}
    raw |= {"model": {"provider": "openai", "name": "none", "api_key": "k"}}
    return Agent.model_validate(raw | fields)


async def run_one(tmp_path, backend, case, **limits):
    report = await report_of(tmp_path, an_agent(case), backend, **limits)
    return report.results[0]


async def test_every_turn_of_a_case_is_said_in_one_session_and_each_case_has_its_own(tmp_path):
    backend = ScriptedBackend()
    cases = [{"turns": [turn(f"{n}1", contains("OK")), turn(f"{n}2")]} for n in "ab"]

    report = await report_of(tmp_path, an_agent(*cases), backend)

    heard = [(one.session, [m["content"] for m in one.context], one.message)
             for one in backend.calls]  # fmt: skip
    assert heard == [
        (0, [], "a1"), (0, ["a1", "OK: a1"], "a2"), (1, [], "b1"), (1, ["b1", "OK: b1"], "b2"),
    ]  # fmt: skip
    assert all(session.closed for session in backend.sessions)
    assert report.summary.passed == 2


async def test_each_turn_has_its_verdict_and_the_case_fails_with_one_of_them(tmp_path):
    case = {"turns": [turn("one", contains("nope")), turn("two", contains("two")), turn("three")]}

    result = await run_one(tmp_path, ScriptedBackend(), case)

    outcomes = [one.outcome for one in result.turns]
    assert outcomes == [Outcome.FAILED, Outcome.PASSED, Outcome.UNCHECKED]
    assert result.outcome is Outcome.FAILED
    assert [one.agent_response for one in result.turns] == ["OK: one", "OK: two", "OK: three"]
    assert result.reasons()[0].startswith("turn 1: contains: 0.00")


async def test_the_metrics_of_the_case_see_the_last_answer_and_global_ones_run_once(tmp_path):
    agent = an_agent(
        {"turns": [turn("one"), turn("two")]}, evaluations={"metrics": [contains("two")]}
    )

    result = (await report_of(tmp_path, agent, ScriptedBackend())).results[0]

    assert result.passed
    assert len(result.rows) == len(result.metric_results) == 1
    assert (result.agent_response, result.test_input) == ("OK: two", "one\n\ntwo")


def called(name, text="done"):
    return ExecutionResult(
        response=text,
        tool_calls=[{"name": name, "call_id": name}],
        tool_results=[{"name": name, "call_id": name, "result": 1}],
        token_usage=TokenUsage(prompt_tokens=2, completion_tokens=1, total_tokens=3),
    )


async def test_tools_are_looked_at_per_turn_and_over_the_whole(tmp_path):
    backend = ScriptedBackend({"one": called("find"), "two": called("pay")})
    case = {
        "turns": [turn("one", expected_tools=["find"]), turn("two", expected_tools=["find"])],
        "expected_tools": ["find", "pay"],
        "tool_order": True,
        "only_expected_tools": True,
        "forbidden_tools": ["drop"],
    }

    result = await run_one(tmp_path, backend, case)

    assert [one.tools_matched for one in result.turns] == [True, False]
    assert result.tools_matched
    assert result.outcome is Outcome.FAILED
    assert result.reasons() == ["turn 2: no call of 'find'; called: pay"]
    assert result.tool_calls == ["find", "pay"]
    assert result.token_usage.total_tokens == 6


async def test_an_agent_that_breaks_ends_the_conversation_and_the_transcript_stays(tmp_path):
    backend = ScriptedBackend({"one": "fine", "two": BackendSessionError("it broke")})
    case = {"turns": [turn("one", contains("fine")), turn("two"), turn("three")]}

    report = await report_of(tmp_path, an_agent(case), backend)

    [result] = report.results
    assert backend.messages == ["one", "two"]
    assert backend.sessions[0].closed
    assert [one.outcome for one in result.turns] == [None, Outcome.AGENT_ERROR]
    assert result.turns[0].agent_response == "fine"
    assert result.errors == ["turn 2: it broke"]
    assert exit_code(report) is ExitCode.EXECUTION


async def test_a_session_that_cannot_be_opened_is_an_error_of_the_agent(tmp_path):
    class Closed(ScriptedBackend):
        async def create_session(self):
            raise BackendSessionError("no conversations here")

    result = await run_one(tmp_path, Closed(), {"turns": [turn("one", contains("x"))]})

    assert (result.outcome, result.errors) == (Outcome.AGENT_ERROR, ["no conversations here"])


async def test_an_empty_answer_in_the_middle_fails_the_case_and_the_conversation_goes_on(tmp_path):
    backend = ScriptedBackend({"one": " ", "two": "fine"})

    result = await run_one(
        tmp_path, backend, {"turns": [turn("one"), turn("two", contains("fine"))]}
    )

    assert result.errors == ["turn 1: the agent returned an empty response"]
    assert [one.outcome for one in result.turns] == [Outcome.FAILED, Outcome.PASSED]
    assert result.outcome is Outcome.FAILED


async def test_the_time_limit_of_a_case_holds_for_the_whole_conversation(tmp_path):
    async def answer(message):
        await asyncio.sleep(30 if message == "two" else 0)
        return "fine"

    backend = ScriptedBackend(answer)
    case = {"turns": [turn("one"), turn("two", contains("fine"))]}

    result = await run_one(tmp_path, backend, case, case_timeout=0.5)

    assert result.outcome is Outcome.AGENT_ERROR
    assert result.errors == ["the case took longer than 0.5 s"]
    assert [one.agent_response for one in result.turns] == ["fine", None]
    assert backend.cancelled == 1
    assert backend.sessions[0].closed


async def test_a_conversation_whose_turns_check_nothing_is_unchecked(tmp_path):
    result = await run_one(tmp_path, ScriptedBackend(), {"turns": [turn("one"), turn("two")]})

    assert result.outcome is Outcome.UNCHECKED


async def test_a_file_goes_with_its_own_turn(tmp_path):
    (tmp_path / "note.txt").write_text("the code is 7")
    files = [{"path": "note.txt", "type": "text"}]
    backend = ScriptedBackend()
    case = {"turns": [turn("one"), turn("two", contains("the code is 7"), files=files)]}

    result = await run_one(tmp_path, backend, case)

    assert ["code is 7" in message for message in backend.messages] == [False, True]
    assert result.passed


async def test_a_metric_of_a_turn_sees_the_conversation_until_then(tmp_path):
    (tmp_path / "turn_checks.py").write_text(
        "def first(seen):\n    return len(seen.turns) == 2 and seen.input == 'one'\n"
        "def whole(seen):\n    return len(seen.turns) == 4 and seen.input == 'two'\n"
    )
    case = {
        "turns": [turn("one", {"metric": "turn_checks:first", "threshold": 1}), turn("two")],
        "evaluations": [{"metric": "turn_checks:whole", "threshold": 1}],
    }
    agent = an_agent(case).with_base_dir(tmp_path)

    report = await report_of(tmp_path, agent, ScriptedBackend())

    assert [row.score for row in report.results[0].rows] == [1, 1]
    assert report.summary.metrics_evaluated == {"first": 1, "whole": 1}


async def test_a_recorded_conversation_is_graded_again_turn_by_turn(tmp_path):
    before = {"turns": [turn("one", contains("OK")), turn("two", contains("OK"))]}
    held = await run_one(tmp_path, ScriptedBackend(), before)
    now = {"turns": [turn("one", contains("OK")), turn("two", contains("no"))]}

    graded = await rescore(an_agent(now | {"evaluations": [contains("two")]}), recorded(held))

    [result] = graded.report.results
    assert held.passed
    assert [one.outcome for one in result.turns] == [Outcome.PASSED, Outcome.FAILED]
    assert result.metric_results[0].passed
    assert result.outcome is Outcome.FAILED


async def test_a_recorded_conversation_of_other_turns_is_not_graded(tmp_path):
    held = await run_one(tmp_path, ScriptedBackend(), {"turns": [turn("one"), turn("two")]})

    graded = await rescore(an_agent({"turns": [turn("one\n\ntwo", contains("O"))]}), recorded(held))

    assert (graded.report.results, graded.ungraded) == ([], ("#1",))


class Talkative(BaseEvaluator):
    PARAM_SPEC = ParamSpec(required=frozenset({EvalParam.TURNS}))

    async def _evaluate_impl(self, **kwargs):
        said = [(one.role, one.content) for one in kwargs["turns"]]
        return {"score": float(said == self.wanted), "passed": said == self.wanted}


async def test_a_metric_about_conversations_is_given_all_of_it(tmp_path):
    evaluator = Talkative()
    evaluator.wanted = [
        ("user", "one"), ("assistant", "OK: one"), ("user", "two"), ("assistant", "OK: two"),
    ]  # fmt: skip
    executor = TestExecutor(
        str(tmp_path / "agent.yaml"),
        agent_config=an_agent({"turns": [turn("one"), turn("two")]}),
        backend=ScriptedBackend(),
        evaluators={"talkative": evaluator},
    )

    report = await executor.execute_tests()

    assert report.results[0].passed


async def test_hostile_text_of_a_turn_stays_text_in_the_report(tmp_path):
    case = {"turns": [turn("</details>\n```\n# heading", contains("x")), turn("<b>two</b>")]}
    report = await report_of(tmp_path, an_agent(case), ScriptedBackend())

    text = generate_markdown_report(report)

    assert "#### Turn 1 ❌ FAILED" in text
    assert "````text\n</details>\n```\n# heading\n````" in text
    assert "**Input:** &lt;b&gt;two&lt;/b&gt;\n" in text


@pytest.mark.parametrize(
    ("case", "message"),
    [
        ({}, "'input' is missing; write the user's message, or 'turns', 'script' or"),
        ({"input": "a", "turns": [turn("b")]}, "has 'turns' and 'input'; move 'input'"),
        ({"turns": [turn("b")], "files": [{"path": "a", "type": "text"}]}, "move 'files' into"),
        ({"turns": []}, "at least 1 item"),
        ({"turns": [{"ground_truth": "x"}]}, "input\n  Field required"),
    ],
    ids=["nothing", "both", "files of the case", "no turns", "turn without input"],
)
def test_a_case_is_one_input_or_turns(case, message):
    with pytest.raises(ValidationError) as refused:
        an_agent(case)

    assert message in str(refused.value)


def told(agent):
    return [(one.path, one.message) for one in check(agent)]


def test_what_is_wrong_with_a_turn_is_found_at_its_place():
    case = {
        "turns": [
            turn("one", {"metric": "exact_match"}),
            turn("two", contains("x"), ground_truth="y", expected_tools=["nope"]),
        ]
    }

    found = dict(told(an_agent(case)))

    assert "'ground_truth' in the turn" in found["test_cases[0].turns[0].evaluations[0]"]
    assert "no metric compares with it" in found["test_cases[0].turns[1].ground_truth"]
    assert "no tools" in found["test_cases[0].turns[1].expected_tools[0]"]


async def test_a_metric_of_a_turn_without_its_input_stops_the_run(tmp_path):
    case = {"turns": [turn("one", {"metric": "exact_match"})]}

    with pytest.raises(ConfigError, match=r"test_cases\[0\]\.turns\[0\].*nothing to compare"):
        await report_of(tmp_path, an_agent(case), ScriptedBackend())


@pytest.mark.parametrize(
    ("request_", "is_found"),
    [({"q": "{input}"}, True), ({"q": "{input}", "id": "{conversation_id}"}, False)],
    ids=["forgets", "has an id"],
)
def test_a_url_that_is_told_nothing_of_before_cannot_hold_a_conversation(request_, is_found):
    backend = {"type": "http", "url": "http://localhost:1", "request": request_}
    case = {"turns": [turn("one"), turn("two", contains("x"))]}

    found = dict(told(an_agent(case, backend=backend, model=None, instructions=None)))

    assert ("test_cases[0].turns" in found) is is_found


TWO_TOOLS = {"expected_tools": ["find", "pay"]}


@pytest.mark.parametrize(
    "case",
    [{"input": "one"} | TWO_TOOLS, {"turns": [turn("one", **TWO_TOOLS)]}],
    ids=["input", "turn"],
)
@pytest.mark.parametrize("is_scored_again", [False, True], ids=["run", "scored again"])
async def test_a_report_tells_no_match_where_only_one_of_two_expected_tools_was_called(
    tmp_path, case, is_scored_again
):
    agent = an_agent(case)
    report = await report_of(tmp_path, agent, ScriptedBackend({"one": called("find")}))
    if is_scored_again:
        report = (await rescore(agent, recorded(*report.results))).report

    text = generate_markdown_report(report)

    assert "- **Match:** ❌ fail" in text
    assert "- **Match:** ✅" not in text


@pytest.mark.parametrize(
    "case",
    [{"input": "one"}, {"turns": [turn("one")]}],
    ids=["input", "turn"],
)
async def test_a_case_whose_agent_broke_does_not_pass_when_it_is_scored_again(tmp_path, case):
    kind = {"metric": "not_contains", "value": "sorry"}
    agent = an_agent(case | {"evaluations": [kind], "expected_tools": []})
    broken = ScriptedBackend({"one": BackendSessionError("it broke")})
    [held] = (await report_of(tmp_path, agent, broken)).results

    graded = await rescore(agent, recorded(held))

    assert held.outcome is Outcome.AGENT_ERROR
    assert [one.outcome for one in graded.report.results] == [Outcome.AGENT_ERROR]
    assert exit_code(graded.report) is ExitCode.EXECUTION


async def test_the_latency_of_a_conversation_is_that_of_all_its_turns(tmp_path):
    limit = {"metric": "latency", "max_ms": 3_600_000}
    case = {"turns": [turn("a"), turn("b")], "evaluations": [limit]}

    result = await run_one(tmp_path, ScriptedBackend(), case)

    [row] = result.metric_results
    assert (result.outcome, row.error) == (Outcome.PASSED, None)
    assert result.agent_time_ms == sum(one.agent_time_ms for one in result.turns)
