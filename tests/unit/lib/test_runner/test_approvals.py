"""Approvals that an agent waits for, which test cases expect and answer."""

import pytest

from fakes import ScriptedBackend
from holodeck.errors import BackendSessionError, ConfigError
from holodeck.lib.backends.base import Capabilities, ExecutionResult
from holodeck.lib.support.approvals import ApprovalDecisions
from holodeck.models.results.outcome import Outcome
from holodeck.models.token_usage import TokenUsage
from support.agents import an_agent, contains, executor_of
from support.played import recorded
from support.rescore import rescore

USAGE = TokenUsage.of(10, 5)


class Asking(ScriptedBackend):
    """Asks for an approval of each mail, one after the other."""

    capabilities = Capabilities(answers_approvals=True)

    def __init__(self, *mails, fails=False):
        super().__init__(self._answer)
        self._mails = mails
        self._left = []
        self._fails = fails

    def _answer(self, message):
        before = []
        if not isinstance(message, ApprovalDecisions):
            self._left = [*self._mails]
        elif self._fails:
            return BackendSessionError("the mail server is down")
        else:
            sent = self._left.pop(0)
            [is_approved] = message.decisions
            before = [call_of(sent)]
            result = {"name": "send_email", "call_id": sent, "result": "sent"}
            results = [result if is_approved else {**result, "blocked": True}]
        if not self._left:
            return ExecutionResult(
                "done", tool_calls=before, tool_results=results if before else [], token_usage=USAGE
            )
        call = call_of(self._left[0])
        return ExecutionResult(
            "",
            tool_calls=[*before, call],
            tool_results=results if before else [],
            pending_approvals=[call],
            token_usage=USAGE,
        )


def call_of(mail):
    return {"name": "send_email", "arguments": {"to": mail}, "call_id": mail}


def expecting(*mails, then="approve"):
    return [{"tool": "send_email", "args": {"to": mail}, "then": then} for mail in mails]


async def run(tmp_path, backend, *cases):
    agent = an_agent(*cases)
    executor = executor_of(tmp_path, agent, backend)
    report = await executor.execute_tests()
    await executor.shutdown()
    return report.results


async def test_the_answer_comes_after_the_approvals_that_a_case_expects(tmp_path):
    case = {
        "input": "Write to both",
        "expect_approval": expecting("b", "a"),
        "expected_tools": [{"name": "send_email", "result": "sent", "count": 2}],
        "evaluations": [contains("done")],
    }

    [result] = await run(tmp_path, Asking("a", "b"), case)

    assert result.outcome is Outcome.PASSED, result.reasons()
    assert [check.expectation for check in result.tool_checks][1:] == [
        "approve send_email(to='b')",
        "approve send_email(to='a')",
    ]
    assert [str(approval) for approval in result.approvals] == [
        'send_email({"to": "a"})',
        'send_email({"to": "b"})',
    ]
    assert result.tool_calls == ["send_email", "send_email"]
    assert result.token_usage.total_tokens == 45


async def test_a_rejected_call_is_not_one_of_an_expected_tool(tmp_path):
    case = {
        "input": "Write",
        "expect_approval": expecting("a", then="reject")[0],
        "expected_tools": ["send_email"],
    }

    [result] = await run(tmp_path, Asking("a"), case)

    assert result.outcome is Outcome.FAILED
    assert [check.passed for check in result.tool_checks] == [False, True]
    [call] = result.tool_invocations
    assert "a rejected approval kept it from running" in call.error


async def test_an_approval_that_nobody_expects_is_an_error_that_says_what_waits(tmp_path):
    [result] = await run(
        tmp_path, Asking("a"), {"input": "Write", "evaluations": [contains("done")]}
    )

    assert result.outcome is Outcome.AGENT_ERROR
    [error] = result.errors
    assert error.startswith(
        'the agent waits for a person to approve send_email({"to": "a"}); write'
    )
    assert "'expect_approval: {tool: send_email, then: approve}'" in error


@pytest.mark.parametrize(
    "expected",
    [expecting("b"), [{"tool": "refund", "then": "approve"}], expecting("a")],
    ids=["arguments", "tool", "one of two"],
)
async def test_another_approval_than_expected_fails_and_is_not_answered(tmp_path, expected):
    backend = Asking("a", "a")

    [result] = await run(tmp_path, backend, {"input": "Write", "expect_approval": expected})

    assert result.outcome is Outcome.FAILED
    assert result.errors == ['the agent waits for a person to approve send_email({"to": "a"})']
    assert result.approvals[-1].answer is None


async def test_an_approval_that_the_agent_does_not_ask_for_fails(tmp_path):
    [result] = await run(tmp_path, Asking(), {"input": "Hi", "expect_approval": expecting("a")})

    assert result.outcome is Outcome.FAILED
    assert result.reasons() == ["the agent did not ask for it; it asked for nothing"]


async def test_each_turn_of_a_conversation_has_its_approvals(tmp_path):
    turn = {"input": "Write", "expect_approval": expecting("a")}

    [result] = await run(tmp_path, Asking("a"), {"turns": [turn, turn]})

    assert result.outcome is Outcome.PASSED, result.reasons()
    assert len(result.turns[1].approvals) == 1


async def test_approvals_of_a_case_are_those_of_all_its_turns(tmp_path):
    turns = [{"input": "Write"}, {"input": "Write again"}]

    once, twice = await run(
        tmp_path,
        Asking("a"),
        {"turns": turns, "expect_approval": expecting("a")},
        {"turns": turns, "expect_approval": expecting("a", "a")},
    )

    assert (once.outcome, twice.outcome) == (Outcome.FAILED, Outcome.PASSED)


async def test_a_script_answers_the_approvals_of_its_case(tmp_path):
    script = [{"user": "Write"}, "agent", "succeed"]

    [result] = await run(
        tmp_path, Asking("a"), {"script": script, "expect_approval": expecting("a")}
    )

    assert result.outcome is Outcome.PASSED, result.reasons()


async def test_a_turn_that_fails_after_an_approval_is_an_error(tmp_path):
    [result] = await run(
        tmp_path, Asking("a", fails=True), {"input": "Write", "expect_approval": expecting("a")}
    )

    assert result.outcome is Outcome.AGENT_ERROR
    assert "the mail server is down" in result.errors[0]
    assert result.evidence.tool_calls is None


@pytest.mark.parametrize(
    ("recorded_with", "scored_with", "outcome"),
    [
        (expecting("a"), expecting("a"), Outcome.PASSED),
        (expecting("a"), expecting("b"), Outcome.FAILED),
        (None, expecting("a"), Outcome.METRIC_ERROR),
    ],
    ids=["the same", "another", "not recorded"],
)
async def test_recorded_approvals_are_graded_again(tmp_path, recorded_with, scored_with, outcome):
    case = {"input": "Write", "evaluations": [contains("done")]}
    backend = Asking(*("a" if recorded_with else ()))
    [held] = await run(tmp_path, backend, case | {"expect_approval": recorded_with})

    graded = await rescore(an_agent(case | {"expect_approval": scored_with}), recorded(held))

    assert [result.outcome for result in graded.report.results] == [outcome]


async def test_an_agent_that_reports_no_approvals_is_refused(tmp_path):
    case = {"input": "Write", "expect_approval": expecting("a")}

    with pytest.raises(ConfigError, match="reports no approvals") as raised:
        await run(tmp_path, ScriptedBackend(), case)

    assert "test_cases[0].expect_approval" in str(raised.value)
