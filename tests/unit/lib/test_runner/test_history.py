"""Cases that go on from an earlier conversation."""

import json
from pathlib import Path

import pytest

from fakes import ScriptedBackend
from holodeck.errors import ConfigError
from holodeck.lib.backends.base import ExecutionResult
from holodeck.lib.backends.python.backend import CallableBackend
from holodeck.lib.evaluators.base import BaseEvaluator, Turn
from holodeck.lib.evaluators.param_spec import EvalParam, ParamSpec
from holodeck.lib.records.fingerprint import fingerprint_of
from holodeck.lib.records.run_store import Run
from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.lib.test_runner.messages import to_agent_messages, to_judge_messages, to_turns
from holodeck.lib.test_runner.reporter import generate_markdown_report
from holodeck.models.agent import Agent
from holodeck.models.cases.messages import EarlierMessage
from holodeck.models.records.record import CaseFinished
from holodeck.models.test_result import ToolInvocation
from support.rescore import rescore

CALL = {"id": "c1", "function": {"name": "find", "arguments": {"n": 9}}}
HISTORY = [
    {"role": "user", "content": "Where is it?"},
    {"role": "assistant", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": "shipped"},
    {"role": "assistant", "content": "On its way."},
]
CONTAINS = {"metric": "contains", "value": "OK"}


def an_agent(**case):
    raw = {"name": "scripted", "backend": "desk:answer"}
    case = {"history": HISTORY, "evaluations": [CONTAINS]} | case
    return Agent.model_validate(raw | {"test_cases": [case]})


async def report_of(folder, agent, backend, evaluators=None):
    executor = TestExecutor(
        str(folder / "agent.yaml"), agent_config=agent, backend=backend, evaluators=evaluators
    )
    return await executor.execute_tests()


def words(context):
    return [(one["role"], one["content"]) for one in context]


BEFORE = [
    ("user", "Where is it?"), ("assistant", ""), ("tool", "shipped"), ("assistant", "On its way."),
]  # fmt: skip


async def test_one_input_is_said_after_what_was_said_before(tmp_path):
    backend = ScriptedBackend()

    report = await report_of(tmp_path, an_agent(input="And now?"), backend)

    [call] = backend.calls
    assert (call.message, call.session, words(call.context)) == ("And now?", None, BEFORE)
    assert call.context[1]["tool_calls"][0]["function"] == {"name": "find", "arguments": '{"n": 9}'}
    assert report.results[0].passed


async def test_turns_go_on_from_what_was_said_before(tmp_path):
    backend = ScriptedBackend()

    await report_of(tmp_path, an_agent(turns=[{"input": "one"}, {"input": "two"}]), backend)

    assert [words(call.context) for call in backend.calls] == [
        BEFORE,
        [*BEFORE, ("user", "one"), ("assistant", "OK: one")],
    ]


async def test_earlier_calls_of_tools_are_not_those_of_this_run(tmp_path):
    agent = an_agent(input="And now?", expected_tools=["find"], evaluations=[])

    report = await report_of(tmp_path, agent, ScriptedBackend())

    [result] = report.results
    assert (result.tools_matched, result.tool_calls) == (False, [])


class Conversation(BaseEvaluator):
    """Keeps the turns it was given."""

    PARAM_SPEC = ParamSpec(required=frozenset({EvalParam.TURNS}))

    async def _evaluate_impl(self, **kwargs):
        self.seen = kwargs["turns"]
        return {"score": 1.0, "passed": True}


@pytest.mark.parametrize(
    "said", [{"input": "And now?"}, {"turns": [{"input": "And now?"}]}], ids=["input", "turns"]
)
async def test_metrics_about_conversations_see_what_was_said_before_and_know_it(tmp_path, said):
    metric = Conversation()

    report = await report_of(
        tmp_path, an_agent(**said, evaluations=[]), ScriptedBackend(), {"conversation": metric}
    )

    shipped = ToolInvocation(name="find", args={"n": 9}, result="shipped", bytes=9)
    assert metric.seen == (
        Turn("user", "Where is it?", earlier=True),
        Turn("assistant", "On its way.", (shipped,), earlier=True),
        Turn("user", "And now?"),
        Turn("assistant", "OK: And now?"),
    )
    assert report.results[0].passed


async def test_a_metric_about_an_answer_is_given_only_the_new_one(tmp_path):
    old = {"metric": "contains", "value": "On its way"}

    report = await report_of(
        tmp_path, an_agent(input="And now?", evaluations=[old]), ScriptedBackend()
    )

    assert not report.results[0].passed


def test_calls_that_led_to_no_words_stand_in_an_answer_that_is_empty():
    history = [EarlierMessage.model_validate(one) for one in [*HISTORY[:3], HISTORY[0], HISTORY[3]]]

    turns = to_turns(to_judge_messages(history))

    assert [(one.role, one.content, len(one.tool_calls)) for one in turns] == [
        ("user", "Where is it?", 0), ("assistant", "", 1), ("user", "Where is it?", 0),
        ("assistant", "On its way.", 0),
    ]  # fmt: skip


def test_two_calls_with_the_same_id_keep_their_own_results():
    lost = {"role": "tool", "tool_call_id": "c1", "content": "lost"}
    history = [EarlierMessage.model_validate(one) for one in [*HISTORY, HISTORY[1], lost]]

    found = [
        call.result
        for turn in to_turns(to_judge_messages([*history, history[3]]))
        for call in turn.tool_calls
    ]

    assert found == ["shipped", "lost"]


def test_who_of_several_users_spoke_is_told():
    [message] = to_agent_messages([EarlierMessage(role="user", content="Hi", name="Ann")])

    assert message == {"role": "user", "content": "Hi", "name": "Ann"}


async def test_the_report_shows_it_apart_from_the_answers_of_the_run(tmp_path):
    hostile = {"role": "user", "content": "```\n# heading </details>"}
    agent = an_agent(input="And now?", history=[hostile, *HISTORY])

    report = await report_of(tmp_path, agent, ScriptedBackend())

    text = generate_markdown_report(report)
    earlier, _, rest = text.partition("**Earlier messages:**")[2].partition("**Input:**")
    assert "\n[4] result of" in earlier
    assert '[3] assistant calls find({"n": 9})' in earlier
    assert "````text\n[1] user: ```" in earlier
    assert "On its way." not in rest
    kept = json.loads(report.model_dump_json())["results"][0]["history"]
    assert [one["role"] for one in kept] == ["user", "user", "assistant", "tool", "assistant"]


def recorded(result):
    finished = {0: CaseFinished(index=0, hash="x", result=result)}
    return Run(path=Path("run.jsonl"), started=None, finished=finished, ended=None)


@pytest.mark.parametrize(
    "said", [{"input": "And now?"}, {"turns": [{"input": "And now?"}]}], ids=["input", "turns"]
)
async def test_a_recorded_answer_is_graded_again_with_what_was_said_before(tmp_path, said):
    (tmp_path / "desk.py").write_text(
        "def first(seen):\n    return len(seen.turns) == 4 and seen.turns[0].earlier\n"
    )
    first = [{"metric": "desk:first", "threshold": 1}]
    held = (await report_of(tmp_path, an_agent(**said), ScriptedBackend())).results[0]

    graded = await rescore(
        an_agent(**said, evaluations=first).with_base_dir(tmp_path), recorded(held)
    )

    assert graded.report.results[0].passed


async def test_a_recorded_answer_to_another_history_is_not_graded(tmp_path):
    held = (await report_of(tmp_path, an_agent(input="And now?"), ScriptedBackend())).results[0]
    other = [HISTORY[0], {"role": "assistant", "content": "It is lost."}]

    graded = await rescore(an_agent(input="And now?", history=other), recorded(held))

    assert (graded.report.results, graded.ungraded) == ([], ("#1",))


def test_a_case_is_run_again_when_its_transcript_has_changed(tmp_path):
    def fingerprint(text):
        (tmp_path / "said.json").write_text(text)
        agent = an_agent(input="And now?", history={"file": "said.json"}).with_base_dir(tmp_path)
        return fingerprint_of(agent).hashes

    assert fingerprint("[1]") == fingerprint("[1]") != fingerprint("[2]")


class Forgetful:
    async def initialize(self): ...

    async def invoke_once(self, message, context=None): ...

    async def create_session(self): ...

    async def teardown(self): ...


async def answer(message):
    return message


@pytest.mark.parametrize(
    ("backend", "said"),
    [
        (CallableBackend(answer), {"input": "a"}),
        (CallableBackend(lambda: Forgetful()), {"turns": [{"input": "a"}]}),  # noqa: PLW0108
        (Forgetful(), {"turns": [{"input": "a"}]}),
    ],
    ids=["function", "backend behind a function", "backend"],
)
async def test_an_agent_that_cannot_be_told_of_it_ends_the_run_before_it_is_called(
    tmp_path, backend, said
):
    with pytest.raises(ConfigError, match=r"test_cases\[0\]\.history: the agent cannot be given"):
        await report_of(tmp_path, an_agent(**said), backend)


async def test_an_agent_without_sessions_can_be_told_of_it_for_one_input(tmp_path):
    class Once(Forgetful):
        async def invoke_once(self, message, context=None):
            return ExecutionResult(response=f"OK: {len(context)} before {message}")

    report = await report_of(tmp_path, an_agent(input="this"), Once())

    assert report.results[0].agent_response == "OK: 4 before this"


async def test_a_recorded_answer_after_other_calls_of_tools_is_not_graded(tmp_path):
    held = (await report_of(tmp_path, an_agent(input="And now?"), ScriptedBackend())).results[0]
    for changed in ({"name": "lose", "arguments": {"n": 9}}, {"name": "find", "arguments": {}}):
        call = {"role": "assistant", "tool_calls": [CALL | {"function": changed}]}
        other = [HISTORY[0], call, *HISTORY[2:]]

        graded = await rescore(an_agent(input="And now?", history=other), recorded(held))

        assert (graded.report.results, graded.ungraded) == ([], ("#1",))

    graded = await rescore(an_agent(input="And now?"), recorded(held))

    assert len(graded.report.results) == 1
