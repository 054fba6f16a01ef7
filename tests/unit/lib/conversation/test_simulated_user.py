"""The simulated user: speaks for the user only, leaks nothing, and knows when to stop."""

import json

import pytest

from holodeck import scenario
from holodeck.errors import BackendError, ConfigError
from support.participants import a_judge, an_agent, texts_of


def user_at(server, **options):
    return scenario.UserSimulatorAgent(
        model="openai/player", api_base=server.url, api_key="k", **options
    )


def line(message, done=False):
    return json.dumps({"message": message, "done": done})


async def play(user, *steps, agent=None, judge=None, **settings):
    participants = [user, agent or an_agent("a1", "a2"), *([judge] if judge else [])]
    return await scenario.arun(
        "case", "wants a recipe", participants, script=list(steps), **settings
    )


async def test_the_user_speaks_by_the_situation(fake_openai):
    fake_openai.reply(line("dinner idea?")).reply(line("without meat"))

    result = await play(user_at(fake_openai), max_turns=2)

    assert texts_of(result.messages) == ["dinner idea?", "a1", "without meat", "a2"]
    assert [one["role"] for one in result.messages] == ["user", "assistant"] * 2
    first, second = (one.prompt for one in fake_openai.requests)
    assert "# Your situation\nwants a recipe" in first
    assert "USER: dinner idea?\nASSISTANT: a1" in second
    assert result.token_usage["User"].total_tokens > 0


ANSWERS = {
    "thought aloud": f"<think>I am the user</think>{line('hi')}",
    "thought in the message": line("<think>hm</think> hi"),
    "end of a thought": f"so I say</think>\n{line('hi')}",
    "fenced": f"```json\n{line('hi')}\n```",
    "a sentence before the JSON": f"Here it is:\n{line('hi')}",
    "a remark after the JSON": f"{line('hi')}\n\nThe user is polite.",
    "plain text": "hi",
    "named": "User: hi",
}


@pytest.mark.parametrize("answer", ANSWERS.values(), ids=ANSWERS)
async def test_only_the_message_of_an_answer_is_used(fake_openai, answer):
    fake_openai.reply(answer)

    result = await play(user_at(fake_openai), scenario.user(), scenario.succeed())

    assert texts_of(result.messages) == ["hi"]


UNUSABLE = {
    "empty": line(""),
    "nothing but a thought": "<think>I wonder",
    "the assistant's words": "Assistant: how can I help?",
    "an echo of the agent": line("a1"),
    "broken JSON": '{"message": "hi',
    "two messages": f"{line('hi')}\n{line('ho')}",
    "another type": '{"message": 3, "done": false}',
}


@pytest.mark.parametrize("answer", UNUSABLE.values(), ids=UNUSABLE)
async def test_an_answer_without_a_message_is_retried_once(fake_openai, answer):
    fake_openai.reply(answer).reply(line("better"))

    result = await play(user_at(fake_openai), scenario.agent(), scenario.user(), scenario.succeed())

    assert texts_of(result.messages) == ["a1", "better"]
    assert "That was no message of the user" in fake_openai.requests[1].prompt


async def test_a_silent_user_leads_to_the_verdict(fake_openai):
    fake_openai.reply(line("hi")).reply(line("")).reply(line(""))
    judge = a_judge(when_asked)
    judge.criteria = ["is kind"]

    result = await play(user_at(fake_openai), judge=judge)

    assert result.success
    assert texts_of(result.messages) == ["hi", "a1"]


def when_asked(given):
    if not given.judgment_request:
        return []
    return scenario.ScenarioResult(success=True, messages=given.messages)


async def test_a_user_who_is_done_leads_to_the_verdict_with_a_last_message(fake_openai):
    fake_openai.reply(line("hi")).reply(line("thanks, bye", done=True))
    judge = a_judge(when_asked)
    judge.criteria = ["is kind"]

    result = await play(user_at(fake_openai), judge=judge)

    assert result.success
    assert texts_of(result.messages) == ["hi", "a1", "thanks, bye"]


async def test_nobody_is_done_before_the_agent_has_spoken(fake_openai):
    fake_openai.reply(line("hi", done=True))

    result = await play(user_at(fake_openai), scenario.user(), scenario.agent(), scenario.succeed())

    assert texts_of(result.messages) == ["hi", "a1"]


async def test_the_opening_is_sent_verbatim(fake_openai):
    result = await play(
        user_at(fake_openai, opening="quick dinner idea?"), scenario.user(), scenario.succeed()
    )

    assert texts_of(result.messages) == ["quick dinner idea?"]
    assert fake_openai.requests == []


async def test_the_agent_may_speak_first(fake_openai):
    fake_openai.reply(line("hi"))

    result = await play(
        user_at(fake_openai, agent_first=True), scenario.proceed(turns=2), scenario.succeed()
    )

    assert texts_of(result.messages) == ["a1", "hi", "a2"]


async def test_persona_facts_and_language_are_in_the_prompt(fake_openai):
    fake_openai.reply(line("moin"))
    user = user_at(fake_openai, persona="a hiker", facts=["has rice", "no oven"], language="German")

    await play(user, scenario.user(), scenario.succeed())

    prompt = fake_openai.requests[0].prompt
    assert "# Who you are\na hiker" in prompt
    assert "may state\n- has rice\n- no oven" in prompt
    assert "Write in German." in prompt


def test_facts_are_a_list(fake_openai):
    with pytest.raises(ConfigError, match=r"facts: is one text; write a list"):
        user_at(fake_openai, facts="I am Bob")


async def test_an_endpoint_that_fails_breaks_the_run(fake_openai):
    fake_openai.reply(status=401, content="no")

    with pytest.raises(BackendError, match="401") as raised:
        await play(user_at(fake_openai), scenario.user())

    assert "in case 'case', step 1 (user): UserSimulatorAgent raised it" in raised.value.__notes__
