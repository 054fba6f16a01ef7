"""Cases whose user a model plays, and criteria that a judge decides about."""

import pytest
from pydantic import ValidationError

from fakes import ScriptedBackend
from holodeck.config.checks.agent import check
from holodeck.errors import BackendSessionError, ConfigError, ExitCode
from holodeck.lib.backends.base import ExecutionResult
from holodeck.lib.reports.summary import exit_code
from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.lib.test_runner.reporter import generate_markdown_report
from holodeck.lib.test_runner.turns.script_steps import BEGINS
from holodeck.models.test_result import Outcome
from support.played import JUDGE, USER, an_agent, recorded, report_of, says, words
from support.rescore import rescore


def simulated(*criteria, **fields):
    told = {"criteria": list(criteria)} if criteria else {}
    return {"name": "sim", "simulate": {"situation": "wants a recipe"}} | told | fields


@pytest.fixture
def run_one(tmp_path, fake_openai):
    async def run(case, backend=None, **fields):
        agent = an_agent(fake_openai, case, **fields)
        report = await report_of(tmp_path, agent, backend or ScriptedBackend())
        return report.results[0]

    return run


async def test_the_user_and_the_agent_talk_until_the_judge_decides(run_one, fake_openai):
    fake_openai.when(USER, says("dinner?"), times=1).when(USER, says("no meat"))
    fake_openai.when(JUDGE, words("inconclusive", decision="continue"), times=1)
    fake_openai.when(JUDGE, words("passed", why="rice and beans"))
    backend = ScriptedBackend()

    result = await run_one(simulated("No meat in it"), backend)

    assert result.outcome is Outcome.PASSED
    assert backend.messages == ["dinner?", "no meat"]
    assert [call.session for call in backend.calls] == [0, 0]
    assert backend.sessions[0].closed
    assert [(one.input, one.agent_response) for one in result.turns] == [
        ("dinner?", "OK: dinner?"),
        ("no meat", "OK: no meat"),
    ]
    [row] = result.criteria
    assert (row.criterion, row.status, row.reasoning) == (
        "No meat in it", "passed", "rice and beans",
    )  # fmt: skip
    assert result.ending.code == "judged"
    assert result.messages == []


async def test_what_judge_and_simulated_user_cost_is_counted_apart(tmp_path, fake_openai):
    fake_openai.when(USER, says("hi")).when(JUDGE, words("passed"))

    report = await report_of(
        tmp_path, an_agent(fake_openai, simulated("Greets")), ScriptedBackend()
    )

    [result], summary = report.results, report.summary
    assert (result.judge_cost.calls, result.judge_cost.tokens.total_tokens) == (1, 15)
    assert (result.simulator_cost.calls, result.simulator_cost.model) == (1, "openai/m")
    assert (summary.judge_calls, summary.simulator_calls) == (1, 1)
    assert summary.simulator_usage.total_tokens == 15
    assert summary.token_usage.total_tokens == 0


async def test_a_criterion_that_does_not_hold_fails_the_case(tmp_path, fake_openai):
    fake_openai.when(USER, says("hi")).when(JUDGE, words("failed", why="no greeting"))

    report = await report_of(
        tmp_path, an_agent(fake_openai, simulated("Greets")), ScriptedBackend()
    )

    [result] = report.results
    assert result.outcome is Outcome.FAILED
    assert result.reasons() == ["criterion 'Greets': failed: no greeting"]
    assert exit_code(report) is ExitCode.TEST_FAILED


async def test_a_criterion_that_is_not_required_is_reported_only(run_one, fake_openai):
    fake_openai.when(USER, says("hi")).when(JUDGE, words("passed", "failed"))

    result = await run_one(simulated("Greets", {"text": "In rhyme", "required": False}))

    assert result.outcome is Outcome.PASSED
    assert [(row.status, row.required) for row in result.criteria] == [
        ("passed", True),
        ("failed", False),
    ]


async def test_criteria_none_of_which_is_required_check_nothing(run_one, fake_openai):
    fake_openai.when(USER, says("hi")).when(JUDGE, words("passed"))

    result = await run_one(simulated({"text": "In rhyme", "required": False}))

    assert result.outcome is Outcome.UNCHECKED


async def test_a_failed_criterion_that_is_only_reported_does_not_end_what_is_open(
    run_one, fake_openai
):
    fake_openai.when(USER, says("hi"))
    fake_openai.when(JUDGE, words("inconclusive", "failed"), times=1)
    fake_openai.when(JUDGE, words("passed", "failed"))

    result = await run_one(simulated("Greets", {"text": "In rhyme", "required": False}))

    assert result.outcome is Outcome.PASSED
    assert len(result.turns) == 2


async def test_the_judge_must_decide_when_the_turns_are_used_up(run_one, fake_openai):
    fake_openai.when(USER, says("go on"))
    fake_openai.when("final verdict", words("inconclusive", why="too short"))
    fake_openai.when(JUDGE, words(decision="continue"))

    result = await run_one(simulated("Greets", max_turns=2))

    assert len(result.turns) == 2
    assert result.outcome is Outcome.FAILED
    assert result.reasons() == ["criterion 'Greets': inconclusive: too short"]


async def test_without_criteria_a_user_who_is_never_done_fails_the_case(run_one, fake_openai):
    fake_openai.when(USER, says("and then?"))
    case = simulated(max_turns=2, evaluations=[{"metric": "contains", "value": "OK"}])

    result = await run_one(case)

    assert result.outcome is Outcome.FAILED
    assert result.ending.code == "max_turns"
    assert result.reasons() == ["Reached maximum turns (2) without conclusion"]
    assert result.metric_results[0].passed


async def test_a_user_who_is_done_leaves_it_to_the_checks_at_the_end(run_one, fake_openai):
    fake_openai.when(USER, says("hi"), times=1).when(USER, says("thanks, bye", done=True))
    ending = [{"metric": "contains", "value": "hi"}]

    result = await run_one(simulated(evaluations=ending, forbidden_tools=["pay"]))

    assert result.outcome is Outcome.PASSED
    assert (result.ending.code, len(result.turns)) == ("user_done", 1)
    assert [one["content"] for one in result.messages] == ["hi", "OK: hi", "thanks, bye"]


async def test_a_case_whose_judge_is_content_still_fails_with_its_other_checks(
    run_one, fake_openai
):
    fake_openai.when(USER, says("hi")).when(JUDGE, words("passed"))

    result = await run_one(simulated("Greets", expected_tools=["search"]))

    assert result.outcome is Outcome.FAILED
    assert result.reasons() == ["no call of 'search'; called: nothing"]


async def test_the_judge_is_not_asked_before_the_least_number_of_turns(run_one, fake_openai):
    fake_openai.when(USER, says("more")).when(JUDGE, words("passed"))

    result = await run_one(simulated("Greets", min_turns=3))

    assert len(result.turns) == 3
    assert result.judge_cost.calls == 1


async def test_the_judge_sees_what_tools_were_called_with_and_gave(run_one, fake_openai):
    fake_openai.when(USER, says("hi")).when(JUDGE, words("passed"))
    call = {"name": "search", "arguments": {"q": "beans"}, "call_id": "1"}
    answer = ExecutionResult(
        "found",
        tool_calls=[call],
        tool_results=[{"name": "search", "result": {"hits": 42}, "call_id": "1"}],
    )

    await run_one(simulated("Searches"), ScriptedBackend({"hi": answer}))

    judged = fake_openai.requests[-1].prompt
    assert 'assistant calls search({"q": "beans"})' in judged
    assert 'result of search: {"hits": 42}' in judged


async def test_an_agent_that_keeps_the_results_of_its_tools_is_not_accused(run_one, fake_openai):
    fake_openai.when(USER, says("hi")).when(JUDGE, words("passed"))
    answer = ExecutionResult("found", tool_calls=[{"name": "search", "arguments": {}}])

    await run_one(simulated("Searches"), ScriptedBackend({"hi": answer}))

    judged = fake_openai.requests[-1].prompt
    assert "[2] assistant calls search({})\n[3] assistant: found" in judged


async def test_a_persona_reaches_the_model_that_plays_the_user(run_one, fake_openai):
    fake_openai.when(USER, says("hi")).when(JUDGE, words("passed"))
    who = {"situation": "is hungry", "persona": "terse", "facts": ["has rice"], "language": "Greek"}

    await run_one(simulated("Helps", simulate=who, situation="A quiet evening"))

    played, judged = (one.prompt for one in fake_openai.requests)
    assert all(text in played for text in ("is hungry", "terse", "- has rice", "Greek"))
    assert "# Situation\nA quiet evening" in judged


async def test_an_opening_line_is_said_word_by_word(run_one, fake_openai):
    fake_openai.when(JUDGE, words("passed"))

    result = await run_one(simulated("Helps", simulate={"situation": "x", "opening": "Hey you"}))

    assert [one.input for one in result.turns] == ["Hey you"]
    assert result.simulator_cost is None


async def test_an_agent_that_speaks_first_is_told_that_the_conversation_begins(
    run_one, fake_openai
):
    fake_openai.when(USER, says("hi")).when(JUDGE, words("passed"))
    backend = ScriptedBackend()
    case = simulated("Greets", simulate={"situation": "x", "agent_first": True}, min_turns=2)

    result = await run_one(case, backend)

    assert backend.messages == [BEGINS, "hi"]
    assert [one["role"] for one in result.messages] == ["assistant", "user", "assistant"]


async def test_an_agent_that_breaks_ends_the_conversation_with_its_own_error(tmp_path, fake_openai):
    fake_openai.when(USER, says("one"), times=1).when(USER, says("two"))
    fake_openai.when(JUDGE, words(decision="continue"))
    backend = ScriptedBackend({"one": "fine", "two": BackendSessionError("it broke")})

    report = await report_of(tmp_path, an_agent(fake_openai, simulated("Greets")), backend)

    [result] = report.results
    assert result.outcome is Outcome.AGENT_ERROR
    assert result.errors == ["turn 2: it broke"]
    assert [one.agent_response for one in result.turns] == ["fine", None]
    assert exit_code(report) is ExitCode.EXECUTION
    assert backend.sessions[0].closed


async def test_an_empty_answer_fails_the_case_and_the_conversation_goes_on(run_one, fake_openai):
    fake_openai.when(USER, says("one"), times=1).when(USER, says("two"))
    fake_openai.when(JUDGE, words("passed"))
    backend = ScriptedBackend({"one": " ", "two": "fine"})

    result = await run_one(simulated("Greets", min_turns=2), backend)

    assert result.outcome is Outcome.FAILED
    assert result.errors == ["turn 1: the agent returned an empty response"]


async def test_a_judge_that_cannot_be_understood_leaves_the_case_undecided(tmp_path, fake_openai):
    fake_openai.when(USER, says("hi")).when(JUDGE, "Great!").otherwise("Great!")

    report = await report_of(
        tmp_path, an_agent(fake_openai, simulated("Greets")), ScriptedBackend()
    )

    [result] = report.results
    assert result.outcome is Outcome.METRIC_ERROR
    assert result.reasons()[0].startswith(
        "the criteria were not judged: the judge openai/m did not"
    )
    assert exit_code(report) is ExitCode.EVALUATION


async def test_a_simulated_user_that_breaks_is_not_the_agents_fault(tmp_path, fake_openai):
    fake_openai.when(USER, status=401, content="bad key")

    report = await report_of(
        tmp_path, an_agent(fake_openai, simulated("Greets")), ScriptedBackend()
    )

    [result] = report.results
    assert result.outcome is Outcome.METRIC_ERROR
    assert result.reasons()[0].startswith("the simulated user failed: ")
    assert exit_code(report) is ExitCode.EVALUATION


async def test_a_user_who_never_says_anything_leaves_the_case_undecided(run_one, fake_openai):
    fake_openai.when(USER, says("")).when(JUDGE, words("passed")).otherwise(says(""))

    result = await run_one(simulated("Greets"))

    assert result.outcome is Outcome.METRIC_ERROR
    assert result.reasons() == ["the simulated user said nothing"]


async def test_the_time_limit_of_a_case_holds_for_what_is_simulated(tmp_path, fake_openai):
    agent = an_agent(fake_openai, simulated("Greets"))

    with fake_openai.held():
        report = await report_of(tmp_path, agent, ScriptedBackend(), case_timeout=0.5)

    assert report.results[0].errors == [
        "the case took longer than 0.5 s: still waiting for the simulated user"
    ]


@pytest.mark.parametrize(
    "said", [{"input": "hi"}, {"turns": [{"input": "hi"}]}], ids=["one input", "turns"]
)
async def test_criteria_are_judged_wherever_the_words_come_from(run_one, fake_openai, said):
    fake_openai.when("final verdict", words("passed", "failed", why="by the text"))

    result = await run_one({"criteria": ["Greets", "In rhyme"]} | said)

    assert result.outcome is Outcome.FAILED
    assert [row.status for row in result.criteria] == ["passed", "failed"]
    assert result.judge_cost.calls == 1
    assert "[1] user: hi\n[2] assistant: OK: hi" in fake_openai.requests[0].prompt


async def test_files_that_the_agent_was_sent_are_shown_to_the_judge(run_one, fake_openai, tmp_path):
    (tmp_path / "a.txt").write_text("the code is 7")
    fake_openai.when(JUDGE, words("passed"))
    case = {"input": "hi", "files": [{"path": "a.txt", "type": "text"}], "criteria": ["Knows it"]}

    await run_one(case)

    assert "the code is 7" in fake_openai.requests[0].prompt


async def test_a_judge_that_breaks_leaves_a_written_case_undecided(run_one, fake_openai):
    fake_openai.when(JUDGE, "no").otherwise("no")

    result = await run_one({"input": "hi", "criteria": ["Greets"]})

    assert result.outcome is Outcome.METRIC_ERROR
    assert result.agent_response == "OK: hi"


async def test_the_criteria_of_a_recorded_conversation_are_judged_again(run_one, fake_openai):
    fake_openai.when(USER, says("hi")).when(JUDGE, words("passed"), times=1)
    fake_openai.when("c1: In rhyme", words("failed", why="prose"))
    held = await run_one(simulated("Greets"))

    graded = await rescore(an_agent(fake_openai, simulated("In rhyme")), recorded(held))

    [result] = graded.report.results
    assert (held.outcome, result.outcome) == (Outcome.PASSED, Outcome.FAILED)
    assert [(row.criterion, row.reasoning) for row in result.criteria] == [("In rhyme", "prose")]
    assert result.turns == held.turns
    assert result.simulator_cost == held.simulator_cost
    assert "[2] assistant: OK: hi" in fake_openai.requests[-1].prompt


async def test_an_answer_whose_judge_broke_can_be_judged_again(run_one, fake_openai):
    fake_openai.when(JUDGE, "no", times=1).when("cannot be used", "no", times=1)
    fake_openai.when(JUDGE, words("passed"))
    case = {"input": "hi", "criteria": ["Greets"]}
    held = await run_one(case)

    graded = await rescore(an_agent(fake_openai, case), recorded(held))

    [result] = graded.report.results
    assert (held.outcome, result.outcome) == (Outcome.METRIC_ERROR, Outcome.PASSED)
    assert (result.errors, result.ending) == ([], None)


async def test_a_conversation_that_broke_off_is_not_graded_again(run_one, fake_openai):
    fake_openai.when(USER, status=401, content="bad key").when(JUDGE, words("passed"))
    held = await run_one(simulated("Greets"))

    graded = await rescore(an_agent(fake_openai, simulated("Greets")), recorded(held))

    assert graded.ungraded == ("sim",)


async def test_half_an_emoji_of_a_model_breaks_nothing(run_one, fake_openai):
    fake_openai.when(USER, says("cut \ud83d")).when(JUDGE, words("passed", why="seen \udc4d"))

    result = await run_one(simulated("Greets"))

    assert result.outcome is Outcome.PASSED
    assert result.turns[0].input == "cut ?"
    assert result.criteria[0].reasoning == "seen ?"
    assert result.judge_cost.calls == 1


async def test_the_report_shows_the_transcript_with_the_verdicts(tmp_path, fake_openai):
    fake_openai.when(USER, says("<b>hi</b>\n```\n# x"), times=1).when(USER, says("bye", done=True))
    fake_openai.when("final verdict", words("passed", "failed", why="</details> | `x`"))
    fake_openai.when(JUDGE, words(decision="continue"))
    criteria = ("Greets | <i>", {"text": "*Rhymes*", "required": False})
    agent = an_agent(fake_openai, simulated(*criteria))

    text = generate_markdown_report(await report_of(tmp_path, agent, ScriptedBackend()))

    assert "#### Turn 1\n\n**Input:**\n\n````text\n<b>hi</b>\n```\n# x\n````" in text
    assert "[3] user: bye" in text
    why = "&lt;/details&gt; &#124; &#96;x&#96;"
    assert f"| Greets &#124; &lt;i&gt; | ✅ pass, judge not checked | {why} |" in text
    assert f"| \\*Rhymes\\* | fail, reported only, judge not checked | {why} |" in text
    assert "- **Judge:** openai/m, 2 calls, 30 tokens" in text
    assert "| Simulated users | 2 calls, 30 tokens |\n" in text


REFUSED = {
    "input too": ({"input": "hi"}, "has 'simulate' and 'input'; write it as 'simulate: {opening"),
    "turns too": ({"turns": [{"input": "hi"}]}, "has 'simulate' and 'turns'; remove one"),
    "files": ({"files": [{"path": "a", "type": "text"}]}, "a simulated user has none; remove them"),
    "no criteria": ({"criteria": []}, "at least 1 item"),
    "an empty criterion": ({"criteria": [" "]}, "criteria.0"),
    "a criterion twice": ({"criteria": ["a", {"text": "a"}]}, "'criteria[1]' is a duplicate"),
    "too few turns": (
        {"criteria": ["a"], "min_turns": 3, "max_turns": 2},
        "'min_turns' is 3, but 'max_turns' is 2",
    ),
    "fewer than usual": (
        {"criteria": ["a"], "min_turns": 11},
        "'min_turns' is 11, but 'max_turns' is 10",
    ),
    "no turns": ({"max_turns": 0}, "greater than or equal to 1"),
    "nobody to hold back": ({"min_turns": 2}, "'min_turns' needs a judge; write 'criteria'"),
    "no situation": ({"simulate": {"agent_first": True}}, "'situation' is missing"),
    "an unknown key": ({"simulate": {"situation": "x", "mood": "y"}}, "mood"),
}


@pytest.mark.parametrize(("fields", "message"), REFUSED.values(), ids=REFUSED)
def test_a_simulated_case_that_makes_no_sense_is_refused(fake_openai, fields, message):
    with pytest.raises(ValidationError) as refused:
        an_agent(fake_openai, simulated() | fields)

    assert message in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"max_turns": 3}, "'max_turns' limits a simulated conversation; write 'simulate'"),
        ({"situation": "x"}, "'situation' is not used"),
    ],
    ids=["turns of a written case", "a situation for nobody"],
)
def test_a_key_that_would_do_nothing_is_refused(fake_openai, fields, message):
    with pytest.raises(ValidationError, match=message):
        an_agent(fake_openai, {"input": "hi"} | fields)


def told(agent):
    return [(one.path, one.message) for one in check(agent) if "bot" not in one.message]


def test_a_judge_or_a_user_without_a_model_is_found_before_the_run(fake_openai, tmp_path):
    cases = (simulated("Greets"), {"input": "hi", "criteria": ["Greets"]})
    agent = an_agent(fake_openai, *cases, evaluations=None)

    found = told(agent)

    judge = "criteria need a judge model; write 'evaluations: {model: …}'"
    user = "a simulated user needs a model; write 'model' under 'simulate' or under 'evaluations'"
    assert found == [
        ("test_cases[0].criteria", judge),
        ("test_cases[0].simulate", user),
        ("test_cases[1].criteria", judge),
    ]
    with pytest.raises(ConfigError, match="criteria need a judge"):
        TestExecutor(str(tmp_path / "agent.yaml"), agent_config=agent, backend=ScriptedBackend())


def test_a_simulated_user_of_a_written_judge_needs_a_model_of_its_own(fake_openai, tmp_path):
    agent = an_agent(fake_openai, simulated(forbidden_tools=["pay"]), evaluations=None)

    with pytest.raises(ConfigError, match="a simulated user needs a model"):
        TestExecutor(str(tmp_path / "agent.yaml"), agent_config=agent, backend=ScriptedBackend())


def test_a_key_that_is_missing_for_judge_or_user_is_told(fake_openai):
    model = {"provider": "openai", "name": "m"}
    case = simulated("Greets", simulate={"situation": "x", "model": model | {"name": "u"}})
    agent = an_agent(fake_openai, case, evaluations={"model": model})

    found = dict(told(agent))

    assert "the judge of 'criteria': missing API key" in found["test_cases[0].criteria"]
    assert "the simulated user: missing API key" in found["test_cases[0].simulate"]


def test_a_model_that_only_judges_criteria_is_not_called_useless(fake_openai):
    assert told(an_agent(fake_openai, {"input": "hi", "criteria": ["Greets"]})) == []


def test_a_url_that_is_told_nothing_of_before_cannot_hold_a_simulated_conversation(fake_openai):
    backend = {"type": "http", "url": "http://localhost:1", "request": {"q": "{input}"}}

    found = dict(told(an_agent(fake_openai, simulated("Greets"), backend=backend)))

    assert "does not contain the earlier messages" in found["test_cases[0].simulate"]


async def test_a_judge_who_is_asked_again_reads_what_the_judge_of_the_run_read(
    run_one, fake_openai
):
    fake_openai.when(JUDGE, words("passed"))
    for case in (
        {"turns": [{"input": "one"}, {"input": "two"}], "criteria": ["Greets"]},
        {"input": "one", "criteria": ["Greets"]},
    ):
        held = await run_one(case)
        first = fake_openai.requests[-1].prompt

        graded = await rescore(an_agent(fake_openai, case), recorded(held))

        assert graded.report.results[0].passed
        assert "[2] assistant: OK: one" in first
        assert fake_openai.requests[-1].prompt == first
