"""Cases with a script: what each step does, and how a script ends."""

import pytest
from pydantic import ValidationError

from fakes import ScriptedBackend
from holodeck.config.checks.agent import check
from holodeck.config.environment import Environment
from holodeck.config.loader import ConfigLoader
from holodeck.errors import ConfigError
from holodeck.lib.backends.base import ExecutionResult
from holodeck.lib.test_runner.reporter import generate_markdown_report
from holodeck.models.test_result import Outcome
from support.played import JUDGE, USER, an_agent, recorded, report_of, says, words
from support.rescore import rescore

CONTAINS_OK = {"metric": "contains", "value": "OK"}


class Remembering(ScriptedBackend):
    """Keeps what its sessions are told."""

    def __init__(self, *args, **options):
        super().__init__(*args, **options)
        self.told = []

    async def create_session(self):
        session = await super().create_session()
        session.remember = self.told.extend
        return session


@pytest.fixture
def run(tmp_path, fake_openai):
    async def run_it(*steps, backend=None, **fields):
        case = {"name": "scripted", "script": list(steps)} | fields
        agent = an_agent(fake_openai, case).with_base_dir(tmp_path)
        report = await report_of(tmp_path, agent, backend or ScriptedBackend())
        return report.results[0]

    return run_it


async def test_a_script_is_played_step_by_step_without_any_model(run, fake_openai):
    backend = Remembering()
    steps = [
        {"agent": "Hello, how can I help?"},
        {"user": "where is the bank?"},
        "agent",
        {"message": {"role": "system", "content": "the user is in a hurry"}},
        {"user": "the river bank"},
        "agent",
        {"succeed": "it went on"},
    ]

    result = await run(*steps, backend=backend)

    assert result.outcome is Outcome.PASSED
    assert backend.messages == ["where is the bank?", "the river bank"]
    assert [one["content"] for one in backend.told] == [
        "Hello, how can I help?",
        "the user is in a hurry",
    ]
    assert [one.agent_response for one in result.turns] == [
        "OK: where is the bank?",
        "OK: the river bank",
    ]
    assert (result.ending.code, result.ending.reasoning) == ("succeeded", "it went on")
    assert len(result.messages) == 6
    assert fake_openai.requests == []


async def test_lines_in_the_agents_place_need_a_backend_that_can_be_told(run):
    result = await run({"agent": "Hello"}, {"user": "hi"}, "agent", "succeed")

    assert result.outcome is Outcome.METRIC_ERROR
    assert "does not accept messages that a script writes for the agent" in result.reasons()[0]


async def test_a_script_that_says_fail_fails_the_case(run):
    result = await run({"user": "hi"}, "agent", {"fail": "enough"}, evaluations=[CONTAINS_OK])

    assert (result.outcome, result.reasons()) == (Outcome.FAILED, ["enough"])


async def test_a_script_without_a_conclusion_leaves_it_to_the_checks(run):
    result = await run({"user": "hi"}, "agent", evaluations=[CONTAINS_OK])

    assert (result.outcome, result.ending.code) == (Outcome.PASSED, "no_conclusion")


async def test_a_script_that_nothing_concludes_has_failed(run):
    result = await run({"user": "hi"}, "agent")

    assert result.outcome is Outcome.FAILED
    assert result.reasons()[0].startswith("the script ended without a conclusion: end it with")


async def test_criteria_have_to_hold_even_where_the_script_succeeds(run, fake_openai):
    fake_openai.when("final verdict", words("failed"))

    result = await run({"user": "hi"}, "agent", "succeed", criteria=["Greets"])

    assert result.outcome is Outcome.FAILED
    assert result.judge_cost.calls == 1


async def test_criteria_are_judged_where_the_script_ends(run, fake_openai):
    fake_openai.when("final verdict", words("passed"))

    result = await run({"user": "hi"}, "agent", criteria=["Greets"])

    assert (result.outcome, result.ending.code) == (Outcome.PASSED, "judged")


async def test_a_checkpoint_that_holds_lets_the_script_go_on(run, fake_openai):
    fake_openai.when("c1: Is short", words("passed")).when(JUDGE, words("passed"))
    steps = [{"user": "a"}, "agent", {"judge": ["Is short"]}, {"user": "b"}, "agent", "judge"]

    result = await run(*steps, criteria=["Greets"])

    assert result.outcome is Outcome.PASSED
    assert [(row.criterion, row.is_checkpoint) for row in result.criteria] == [
        ("Is short", True),
        ("Greets", False),
    ]


async def test_a_checkpoint_that_does_not_hold_ends_the_script(run, fake_openai):
    fake_openai.when(JUDGE, words("failed", why="too long"))
    backend = ScriptedBackend()
    steps = [{"user": "a"}, "agent", {"judge": ["Is short"]}, {"user": "b"}, "agent", "succeed"]

    result = await run(*steps, backend=backend)

    assert result.outcome is Outcome.FAILED
    assert backend.messages == ["a"]
    assert result.reasons() == ["criterion 'Is short': failed: too long"]


async def test_checkpoints_alone_conclude_a_script(run, fake_openai):
    fake_openai.when(JUDGE, words("passed"))

    result = await run({"user": "a"}, "agent", {"judge": ["Is short"]})

    assert result.outcome is Outcome.PASSED


def called(name):
    return ExecutionResult(
        "done",
        tool_calls=[{"name": name, "call_id": "1"}],
        tool_results=[{"name": name, "call_id": "1", "result": 1}],
    )


async def test_a_check_looks_at_the_last_answer_and_stands_at_its_turn(run):
    backend = ScriptedBackend({"a": called("find"), "b": "fine"})
    steps = [
        {"user": "a"}, "agent", {"check": {"expected_tools": ["find"], "forbidden_tools": ["pay"]}},
        {"user": "b"}, "agent", {"check": {"evaluations": [{"metric": "contains", "value": "fi"}]}},
    ]  # fmt: skip

    result = await run(*steps, backend=backend)

    assert result.outcome is Outcome.PASSED
    first, second = result.turns
    assert [one.expectation for one in first.tool_checks] == ["find", "no call of pay"]
    assert [one.score for one in second.metric_results] == [1.0]


async def test_a_check_that_fails_ends_the_script(run):
    backend = ScriptedBackend()
    steps = [{"user": "a"}, "agent", {"check": {"expected_tools": ["find"]}}, {"user": "b"},
             "agent", "succeed"]  # fmt: skip

    result = await run(*steps, backend=backend)

    assert result.outcome is Outcome.FAILED
    assert backend.messages == ["a"]
    assert result.ending.code == "check_failed"
    assert result.reasons() == ["turn 1: no call of 'find'; called: nothing"]


async def test_a_check_that_cannot_be_computed_leaves_the_case_undecided(run, tmp_path):
    (tmp_path / "broken_check.py").write_text("def breaks(seen):\n    raise ValueError('oh')\n")
    metric = {"metric": "broken_check:breaks", "threshold": 1}

    result = await run({"user": "a"}, "agent", {"check": {"evaluations": [metric]}}, "succeed")

    assert result.outcome is Outcome.METRIC_ERROR


STEPS = """\
import sys

import pytest

from holodeck import scenario

async def has_two(state):
    assert len(state.messages) == 2, f"{len(state.messages)} messages"

def has_nine(state):
    assert len(state.messages) == 9, "not nine"

def says_no(state):
    return False

def breaks(state):
    raise ValueError("oh")

def answers(state):
    return "fine"

def drops(state):
    scenario.fail("no")

async def drops_a_result(state):
    await scenario.fail("it paid")(state)

def returns_a_step(state):
    return scenario.fail("it paid")

def adds(state):
    state.add_message({"role": "user", "content": "b"})

def exits(state):
    sys.exit(3)

async def exits_later(state):
    sys.exit(3)

def skips(state):
    pytest.skip("not today")

async def skips_later(state):
    pytest.skip("not today")
"""


@pytest.mark.parametrize(
    ("function", "outcome", "reason"),
    [
        ("has_two", Outcome.PASSED, None),
        ("has_nine", Outcome.FAILED, "step 3 (call): not nine"),
        ("says_no", Outcome.FAILED, "script_code:says_no returned False"),
        ("breaks", Outcome.METRIC_ERROR, "ValueError: oh"),
        ("answers", Outcome.METRIC_ERROR, "returned a str; return None, and assert"),
        (
            "drops",
            Outcome.METRIC_ERROR,
            "created a step such as fail() but did not return it; return it",
        ),
        ("drops_a_result", Outcome.METRIC_ERROR, "against the agent and dropped it: it paid"),
        ("returns_a_step", Outcome.FAILED, "it paid"),
        ("adds", Outcome.PASSED, None),
        ("exits", Outcome.METRIC_ERROR, "SystemExit: 3"),
        ("exits_later", Outcome.METRIC_ERROR, "SystemExit: 3"),
        ("skips", Outcome.METRIC_ERROR, "Skipped: not today"),
        ("skips_later", Outcome.METRIC_ERROR, "Skipped: not today"),
    ],
)
async def test_a_function_of_the_users_may_look_at_the_conversation(
    run, tmp_path, function, outcome, reason
):
    (tmp_path / "script_code.py").write_text(STEPS)

    result = await run({"user": "a"}, "agent", {"call": f"script_code:{function}"}, "succeed")

    assert result.outcome is outcome
    assert reason is None or reason in result.reasons()[0]


CONTEXT = """\
from holodeck.lib.conversation.script_run import running


def knows_its_run(state):
    assert running.get().name == "scripted"
"""


async def test_a_function_that_is_not_async_finds_the_context_of_its_case(run, tmp_path):
    (tmp_path / "in_context.py").write_text(CONTEXT)

    result = await run({"user": "a"}, "agent", {"call": "in_context:knows_its_run"}, "succeed")

    assert result.outcome is Outcome.PASSED


async def test_a_simulated_user_takes_the_steps_that_have_no_text(run, fake_openai):
    fake_openai.when(USER, says("simulated")).when(JUDGE, words("passed"))
    backend = ScriptedBackend()
    steps = [{"user": "a"}, "agent", "user", "agent", {"proceed": {"turns": 1}}]

    result = await run(*steps, backend=backend, criteria=["Greets"],
                       simulate={"situation": "x"})  # fmt: skip

    assert result.outcome is Outcome.PASSED
    assert backend.messages[:2] == ["a", "simulated"]


@pytest.mark.parametrize("looks", [True, False], ids=["a check follows", "no check follows"])
async def test_a_script_whose_simulated_user_leaves_early_is_undecided_and_says_what_did_not_run(
    run, fake_openai, looks
):
    fake_openai.when(USER, says("", done=True)).when(JUDGE, words("passed"))
    backend = ScriptedBackend()
    steps = [{"user": "a"}, "agent", "user", "agent"]
    if looks:
        steps.append({"check": {"evaluations": [{"metric": "contains", "value": "never said"}]}})

    result = await run(*steps, backend=backend, criteria=["Greets"],
                       simulate={"situation": "x"})  # fmt: skip

    assert result.outcome is Outcome.METRIC_ERROR
    assert result.ending.code == "user_left"
    assert "step 3 (user)" in result.ending.reasoning
    assert "steps that did not run: step 4 (agent)" in result.ending.reasoning
    assert backend.messages == ["a"]


async def test_a_script_whose_simulated_user_says_goodbye_plays_on(run, fake_openai):
    fake_openai.when(USER, says("bye", done=True)).when(JUDGE, words("passed"))
    backend = ScriptedBackend()
    steps = [{"user": "a"}, "agent", "user", "agent"]

    result = await run(*steps, backend=backend, criteria=["Greets"],
                       simulate={"situation": "x"})  # fmt: skip

    assert result.outcome is Outcome.PASSED
    assert backend.messages == ["a", "bye"]


async def test_a_recorded_script_keeps_its_checkpoints_and_is_judged_again(run, fake_openai):
    fake_openai.when(JUDGE, words("passed"), times=2).when(JUDGE, words("failed"))
    steps = [{"user": "a"}, "agent", {"judge": ["Is short"]}]
    held = await run(*steps, criteria=["Greets"])

    case = {"name": "scripted", "script": steps, "criteria": ["Greets"]}
    graded = await rescore(an_agent(fake_openai, case), recorded(held))

    [result] = graded.report.results
    assert (held.outcome, result.outcome) == (Outcome.PASSED, Outcome.FAILED)
    assert [(row.criterion, row.status) for row in result.criteria] == [
        ("Is short", "passed"),
        ("Greets", "failed"),
    ]


async def test_hostile_lines_of_a_script_stay_text_in_the_report(tmp_path, fake_openai):
    steps = [{"agent": "```\n<b>"}, {"user": "# hi"}, "agent", {"fail": "<i> | `x`"}]
    agent = an_agent(fake_openai, {"name": "s", "script": steps})

    text = generate_markdown_report(await report_of(tmp_path, agent, Remembering()))

    assert "**Transcript:**\n\n````text\n[1] assistant: ```\n    <b>\n[2] user: # hi" in text
    assert "**Ended:** &lt;i&gt; &#124; &#96;x&#96;" in text


REFUSED = {
    "no steps": ([], {}, "at least 1 item"),
    "user without a model": (["user", "agent"], {}, "'script[0]': 'user' needs a simulated user"),
    "proceed alone": (["proceed"], {}, "'script[0]': 'proceed' needs a simulated user"),
    "judge without criteria": (
        [{"user": "a"}, "agent", "judge"], {}, "'script[2]': 'judge' has no criteria",
    ),
    "after the end": (
        [{"user": "a"}, "agent", "succeed", "agent"], {}, "'script[3]': is never reached",
    ),
    "no agent": ([{"user": "a"}], {}, "the script never calls the agent"),
    "check too early": (
        [{"user": "a"}, {"check": {"expected_tools": []}}, "agent"], {}, "'check' has no response",
    ),
    "agent twice": (
        [{"user": "a"}, "agent", "agent"], {}, "'agent' has no new message of the user",
    ),
    "two keys": ([{"user": "a", "agent": "b"}], {}, "a step has one key, this one has agent, user"),
    "no value": ([{"user": None}], {}, "'user' has no value"),
    "empty text": ([{"user": " "}], {}, "should match pattern"),
    "no turns": ([{"proceed": {"turns": 0}}], {}, "greater than or equal to 1"),
    "input too": ([{"user": "a"}, "agent"], {"input": "x"}, "write it as a step: 'user: …'"),
    "a user for nothing": (
        [{"user": "a"}, "agent"], {"simulate": {"situation": "x"}}, "'simulate' is not used",
    ),
    "turns of nothing": (
        ["user", "agent"], {"simulate": {"situation": "x"}, "max_turns": 3}, "limits 'proceed'",
    ),
    "too many turns": (
        [{"proceed": {"turns": 4}}], {"simulate": {"situation": "x"}, "max_turns": 3},
        "'proceed': 'turns' is 4, but 'max_turns' is 3",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("steps", "fields", "message"), REFUSED.values(), ids=REFUSED)
def test_a_script_that_makes_no_sense_is_refused(fake_openai, steps, fields, message):
    with pytest.raises(ValidationError) as refused:
        an_agent(fake_openai, {"script": steps} | fields)

    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("script", "message"),
    [
        (
            "[{user: hi}, agnt]",
            "5:26: test_cases[0].script[1]: found 'agnt'; did you mean 'agent'?",
        ),
        ("[{user: hi}, {chek: {}}]", "5:27: test_cases[0].script[1].chek: unknown key; did you"),
        ("[{user: hi}, agent, judge]", "5:33: test_cases[0]: 'script[2]': 'judge' has no criteria"),
    ],
    ids=["word", "key", "step"],
)
def test_a_mistake_in_a_step_is_told_with_its_place(tmp_path, script, message):
    text = f"name: x\nbackend: 'bot:Bot'\ntest_cases:\n  - name: a\n    script: {script}\n"
    (tmp_path / "agent.yaml").write_text(text)

    with pytest.raises(ConfigError) as refused:
        ConfigLoader(Environment([])).load_agent_yaml(tmp_path / "agent.yaml")

    assert message in str(refused.value)
    assert "found a mapping" not in str(refused.value)


def told(agent):
    return [(one.path, one.message) for one in check(agent) if "bot" not in one.message]


def test_what_a_script_lacks_is_found_before_the_run(fake_openai, tmp_path):
    steps = [
        {"user": "a"}, "agent", {"judge": ["Is short"]}, {"call": "nowhere_at_all:f"},
        {"check": {"evaluations": [{"metric": "exact_match"}]}},
    ]  # fmt: skip
    agent = an_agent(fake_openai, {"script": steps}, evaluations=None).with_base_dir(tmp_path)

    found = dict(told(agent))

    assert "criteria need a judge" in found["test_cases[0].script"]
    assert "no nowhere_at_all.py beside" in found["test_cases[0].script[3].call"]
    assert "nothing to compare with" in found["test_cases[0].script[4].check.evaluations[0]"]


def test_a_script_that_decides_nothing_is_warned_of(fake_openai):
    agent = an_agent(fake_openai, {"script": [{"user": "a"}, "agent"]}, evaluations=None)

    assert "checks nothing" in dict(told(agent))["test_cases[0]"]


MEETING = """\
import threading

both = threading.Barrier(2, timeout=60)


def meets_the_other(state):
    both.wait()
"""


async def test_functions_of_two_cases_wait_beside_each_other(tmp_path, fake_openai):
    (tmp_path / "meeting.py").write_text(MEETING)
    steps = [{"user": "a"}, "agent", {"call": "meeting:meets_the_other"}, "succeed"]
    cases = [{"name": name, "script": steps} for name in "ab"]
    agent = an_agent(fake_openai, *cases).with_base_dir(tmp_path)

    report = await report_of(tmp_path, agent, ScriptedBackend(), parallel_test_cases=2)

    assert [one.outcome for one in report.results] == [Outcome.PASSED, Outcome.PASSED]


async def test_a_checkpoint_and_the_final_verdict_are_paid_for_together(run, fake_openai):
    fake_openai.when(JUDGE, words("passed"))
    steps = [{"user": "a"}, "agent", {"judge": ["Is short"]}, "succeed"]

    result = await run(*steps, criteria=["Greets"])

    once = (await run({"user": "a"}, "agent", criteria=["Greets"])).judge_cost
    assert (once.calls, once.tokens.total_tokens) == (1, 15)
    assert (result.judge_cost.calls, result.judge_cost.tokens.total_tokens) == (2, 30)
    assert (result.judge_cost.failed, result.judge_cost.kept) == (0, 0)
    assert result.judge_cost.model == once.model
