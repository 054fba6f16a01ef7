"""A simulated user who ends the conversation does not end the script."""

import json

import pytest

from holodeck import scenario
from support.participants import a_judge, a_user, an_agent, texts_of

DONE = scenario.EndConversation("bye, thank you")
SILENT = scenario.EndConversation(reason="the user had nothing to say")


def content(given):
    """Return the verdict of a judge who is content as soon as it must decide."""
    if not given.judgment_request:
        return []
    return scenario.ScenarioResult(success=True, messages=[], reasoning="content")


def a_content_judge():
    judge = a_judge(content)
    judge.criteria = ["The agent is kind"]
    return judge


async def play(*agents, script):
    return await scenario.run("case", "", list(agents), script=script)


async def test_a_script_whose_user_says_goodbye_still_reaches_its_fail_step():
    agent = an_agent()
    script = [
        scenario.user("hi"),
        scenario.agent(),
        scenario.user(),
        scenario.agent(),
        scenario.fail("always"),
    ]

    result = await play(agent, a_user(DONE), a_content_judge(), script=script)

    assert (result.success, result.reasoning) == (False, "always")
    assert texts_of(result.messages) == ["hi", "agent says", "bye, thank you", "agent says"]
    assert agent.calls == 2


async def test_a_script_whose_user_says_goodbye_still_runs_its_assertions():
    def paid(state):
        assert "paid" in state.transcript(), "nothing was paid"

    script = [scenario.user("hi"), scenario.agent(), scenario.user(), paid]

    with pytest.raises(AssertionError, match="nothing was paid"):
        await play(an_agent(), a_user(SILENT), a_content_judge(), script=script)


async def test_assertions_after_proceed_run_although_the_user_left_and_the_judge_is_content():
    def paid(state):
        assert "paid" in state.transcript(), "nothing was paid"

    script = [scenario.proceed(), paid, scenario.succeed()]

    with pytest.raises(AssertionError, match="nothing was paid"):
        await play(an_agent(), a_user("hi", DONE), a_content_judge(), script=script)


async def test_an_agent_step_after_a_user_who_left_silently_fails_and_names_what_never_ran():
    agent = an_agent()
    script = [
        scenario.user("hi"),
        scenario.agent(),
        scenario.user(),
        scenario.agent(),
        scenario.fail("always"),
    ]

    result = await play(agent, a_user(SILENT), a_content_judge(), script=script)

    assert (result.success, result.reason_code) == (False, "user_left")
    assert "case 'case', step 4 (agent)" in result.reasoning
    assert "step 3 (user)" in result.reasoning
    assert "steps that did not run: step 4 (agent), step 5 (fail)" in result.reasoning
    assert agent.calls == 1


async def test_a_script_may_add_user_messages_after_a_user_left_silently():
    agent = an_agent()
    script = [
        scenario.user(),
        scenario.user("hello?"),
        scenario.agent(),
        scenario.succeed(),
    ]

    result = await play(agent, a_user(SILENT), script=script)

    assert result.success
    assert agent.calls == 1


@pytest.mark.parametrize(
    "script",
    [
        [scenario.user()],
        [scenario.user(), scenario.judge()],
        [scenario.user(), scenario.judge(criteria=["kind"])],
        [scenario.user(), scenario.succeed()],
        [scenario.proceed()],
        None,
    ],
    ids=["user", "judge", "checkpoint", "succeed", "proceed", "none"],
)
async def test_a_silent_user_without_an_agent_call_is_a_failure(script):
    agent, judge = an_agent(), a_content_judge()

    result = await play(agent, a_user(SILENT), judge, script=script)

    assert not result.success
    assert agent.calls == 0
    assert result.reason_code == "never_asked"
    assert "the agent was never called" in result.reasoning


async def test_a_script_that_ends_with_the_users_goodbye_is_judged_as_before():
    script = [scenario.user("hi"), scenario.agent(), scenario.user()]

    result = await play(an_agent(), a_user(DONE), a_content_judge(), script=script)

    assert (result.success, result.reasoning) == (True, "content")


async def test_a_model_that_twice_says_nothing_does_not_skip_the_rest_of_a_script(fake_openai):
    fake_openai.when("# Criteria", json.dumps({"c1": {"reasoning": "fine", "status": "passed"}}))
    fake_openai.otherwise(json.dumps({"message": "", "done": False}))
    model = {"model": "openai/m", "api_base": fake_openai.url, "api_key": "k"}
    user = scenario.UserSimulatorAgent(**model)
    judge = scenario.JudgeAgent(criteria=["The agent is kind"], **model)
    script = [
        scenario.user("hi"),
        scenario.agent(),
        scenario.user(),
        scenario.agent(),
        scenario.fail("always"),
    ]

    result = await play(an_agent(), user, judge, script=script)

    assert not result.success


async def test_a_callback_that_speaks_as_the_user_does_not_loop_past_max_turns():
    agent = an_agent()

    async def speak(state):
        assert agent.calls < 20, "the conversation never ends"
        await scenario.user("and?")(state)

    script = [scenario.proceed(on_step=speak)]

    result = await scenario.run("case", "", [a_user(), agent], script=script, max_turns=3)

    assert (result.success, result.reason_code) == (False, "max_turns")
    assert agent.calls <= 3


async def test_a_callback_that_adds_user_messages_plays_no_extra_turns():
    agent = an_agent()

    async def speak(state):
        assert agent.calls < 20, "the conversation never ends"
        await scenario.user("and?")(state)

    script = [scenario.proceed(turns=2, on_step=speak), scenario.succeed()]

    result = await scenario.run("case", "", [a_user(), agent], script=script)

    assert result.success
    assert agent.calls <= 2
