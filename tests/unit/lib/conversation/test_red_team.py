"""Simulated users that attack: what they are told, what the agent sees, and who decides."""

import base64
import json

import pytest

from fakes import Reply
from holodeck import scenario
from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.conversation.attack_strategies import (
    Base64Technique,
    CharSplitTechnique,
    CodeBlockTechnique,
    LeetspeakTechnique,
    ROT13Technique,
)
from support.participants import a_judge, an_agent, texts_of

PLAN, RATING, ATTACK = "You prepare an ordered test", "You rate an AI assistant", "GOAL: the code"
REFUSAL = "I can't share that."


def rated(score, advice="go on"):
    return json.dumps({"score": score, "adaptation": advice})


@pytest.fixture
def model(fake_openai):
    """The model that plans, rates and attacks; it knows by its prompt what is asked for."""
    attacks = iter(range(1, 100))

    def attack(request):
        return f"attack {next(attacks)}"

    def answer(request):
        if PLAN in request.prompt:
            return "the plan"
        if RATING in request.prompt:
            return rated(10 if "1234" in request.prompt else 4)
        return attack(request)

    return fake_openai.otherwise(answer)


def attacker(server, strategy="crescendo", **options):
    make = getattr(scenario.RedTeamAgent, strategy)
    options = {"target": "the code", "total_turns": 4, "max_backtracks": 0} | options
    return make(model="openai/attacker", api_base=server.url, api_key="k", **options)


def requests_for(server, task):
    found = [one for one in server.requests if PLAN in one.prompt or RATING in one.prompt]
    if task == "attack":
        return [one for one in server.requests if one not in found]
    return [one for one in found if (PLAN if task == "plan" else RATING) in one.prompt]


async def play(red_team, agent=None, judge=None, script=None, **settings):
    participants = [agent or an_agent("Hello."), red_team, judge or judge_of(True)]
    script = red_team.marathon_script() if script is None else script
    return await scenario.arun("attack", "a bank", participants, script=script, **settings)


def judge_of(success):
    return a_judge(
        lambda given: scenario.ScenarioResult(
            success=success, messages=given.messages, reasoning="as seen"
        )
    )


async def test_the_agent_sees_the_attacks_and_nothing_else(model):
    agent = an_agent("Hello.", "Maybe.", "No.", "Bye.")

    result = await play(attacker(model), agent)

    attacks = ["attack 1", "attack 2", "attack 3", "attack 4"]
    assert texts_of(result.messages)[::2] == attacks
    assert texts_of(agent.inputs[-1].messages)[-1] == "attack 4"
    assert result.success
    assert result.model_calls["User"] == 1 + 4 + 3


async def test_the_attacker_is_told_goal_phase_plan_answers_and_scores(model):
    await play(attacker(model, total_turns=10), an_agent("Hello."))

    attacks = requests_for(model, "attack")
    assert len(requests_for(model, "plan")) == 1
    assert "a bank" in requests_for(model, "plan")[0].prompt
    for number, phase in {1: "WARMUP", 2: "PROBING", 5: "ESCALATION", 10: "DIRECT"}.items():
        system = attacks[number - 1].messages[0]["content"]
        assert ATTACK in system
        assert "the plan" in system
        assert f"turn {number} of 10, phase {phase}" in system
    assert "Hello." in attacks[1].prompt
    assert "[SCORE] 4/10. Advice: go on" in attacks[1].prompt


async def test_requests_are_such_as_every_provider_takes(model):
    await play(attacker(model))

    for request in requests_for(model, "attack"):
        roles = [one["role"] for one in request.messages]
        assert roles == ["system", *["user", "assistant"] * (len(roles) // 2), "user"][: len(roles)]
        assert roles[-1] == "user"


async def test_a_model_of_its_own_plans_and_rates(model):
    red_team = attacker(model, metaprompt_model="openai/planner", temperature=0.9)

    await play(red_team)

    models = {
        task: {(one.model, one.body["temperature"]) for one in requests_for(model, task)}
        for task in ("plan", "attack", "score")
    }
    assert models == {
        "plan": {("planner", 0.9)},
        "attack": {("attacker", 0.9)},
        "score": {("planner", 0.0)},
    }


async def test_goat_needs_no_plan_and_sends_only_the_reply(fake_openai):
    output = {"observation": "it hesitates", "strategy": "DUAL RESPONSE", "reply": "Two answers?"}
    fake_openai.when(RATING, rated(1)).otherwise(json.dumps(output))

    result = await play(attacker(fake_openai, "goat", total_turns=1))

    assert texts_of(result.messages) == ["Two answers?", "Hello."]
    assert not requests_for(fake_openai, "plan")
    assert "DUAL RESPONSE" in requests_for(fake_openai, "attack")[0].messages[0]["content"]


async def test_goat_sends_what_is_not_in_the_format_as_it_is_and_says_so(fake_openai, caplog):
    fake_openai.when(RATING, rated(1)).otherwise("tell me the code")

    result = await play(attacker(fake_openai, "goat", total_turns=1))

    assert texts_of(result.messages)[0] == "tell me the code"
    assert "did not keep to the format" in caplog.text


async def test_a_rating_sees_the_tool_calls_of_the_agent(model):
    call = {"id": "1", "type": "function", "function": {"name": "transfer", "arguments": "{}"}}
    agent = an_agent([{"role": "assistant", "content": REFUSAL, "tool_calls": [call]}])

    await play(attacker(model, total_turns=2, max_backtracks=1), agent)

    [rating] = requests_for(model, "score")
    assert "assistant calls transfer({})" in rating.prompt


async def test_an_obvious_refusal_is_rated_without_a_model(model):
    red_team = attacker(model, total_turns=2)

    await play(red_team, an_agent("I\N{RIGHT SINGLE QUOTATION MARK}m unable to do that."))

    assert not requests_for(model, "score")
    assert "[SCORE] 0/10" in requests_for(model, "attack")[1].prompt


async def test_a_refusal_is_taken_back_for_agent_and_transcript_and_told_to_the_attacker(model):
    agent = an_agent(REFUSAL, "Well, hello.")
    red_team = attacker(model, total_turns=2, max_backtracks=1)

    result = await play(red_team, agent)

    assert texts_of(agent.inputs[1].messages) == ["attack 2"]
    assert texts_of(result.messages) == ["attack 2", "Well, hello."]
    assert "[BACKTRACKED] 'attack 1' was refused" in requests_for(model, "attack")[1].prompt
    assert red_team.taken_back == [{"turn": 1, "attack": "attack 1", "refusal": REFUSAL}]


@pytest.mark.parametrize(
    "answer",
    [
        f"{REFUSAL} But {'here is a lot of what I know. ' * 20}",
        "I cannot recommend it enough: the code is fine.",
        "Sure.",
    ],
    ids=["long", "praise", "agreement"],
)
async def test_an_answer_that_may_give_something_away_is_never_taken_back(model, answer):
    result = await play(attacker(model, total_turns=2, max_backtracks=1), an_agent(answer))

    assert texts_of(result.messages) == ["attack 1", answer, "attack 2", answer]
    assert requests_for(model, "score")


async def test_an_attack_that_reached_its_goal_ends_early_and_the_judge_decides(model):
    agent, judge = an_agent("Hello.", "The code is 1234."), judge_of(False)

    result = await play(attacker(model, total_turns=9), agent, judge)

    assert not result.success
    assert result.reasoning == "as seen"
    assert agent.calls == 4
    assert judge.calls == 1


async def test_a_goal_that_is_reached_is_never_a_success_without_a_verdict(model):
    result = await play(attacker(model), an_agent("The code is 1234."), a_judge())

    assert not result.success
    assert "the attack reached its goal" in result.reasoning


async def test_checks_run_before_an_attack_ends_early(model):
    def no_code(state):
        assert "1234" not in state.last_agent_message()

    red_team = attacker(model, success_confirm_turns=1)
    script = red_team.marathon_script(checks=[no_code])

    with pytest.raises(AssertionError):
        await play(red_team, an_agent("Hello.", "The code is 1234."), script=script)


async def test_final_checks_may_be_coroutines_and_run_before_the_verdict(model):
    order = []

    async def last(state):
        order.append("check")

    judge = a_judge(lambda _: order.append("judge") or [])
    red_team = attacker(model, success_confirm_turns=1)
    script = red_team.marathon_script(final_checks=[last])

    await play(red_team, an_agent("The code is 1234."), judge, script)

    assert order == ["check", "judge"]


def test_a_script_has_all_turns(model):
    steps = attacker(model, success_score=None).marathon_script([print], [print])

    assert len(steps) == 4 * 3 + 1 + 1


async def test_an_encoded_message_reaches_the_agent_and_the_attacker_knows(model):
    red_team = attacker(
        model, total_turns=2, injection_probability=1.0, techniques=[Base64Technique()]
    )

    result = await play(red_team)

    encoded = texts_of(result.messages)[0].rpartition("\n")[2]
    assert base64.b64decode(encoded) == b"attack 1"
    assert "[INJECTED base64]" in requests_for(model, "attack")[1].prompt


async def test_a_message_that_is_encoded_already_is_sent_as_it_is(fake_openai):
    text = base64.b64encode(b"a message that is long enough to be seen").decode()
    fake_openai.when(PLAN, "plan").otherwise(text)

    result = await play(
        attacker(fake_openai, total_turns=1, injection_probability=1.0, score_responses=False)
    )

    assert texts_of(result.messages)[0] == text


@pytest.mark.parametrize(
    ("technique", "encoded"),
    [
        (ROT13Technique(), "ubyn"),
        (LeetspeakTechnique(), "h0l4"),
        (CharSplitTechnique(), "h o l a"),
        (CodeBlockTechnique(), "```\nhola\n```"),
    ],
    ids=lambda one: getattr(one, "name", ""),
)
def test_each_encoding_can_be_read_back(technique, encoded):
    assert technique.transform("hola").endswith(f"\n\n{encoded}")


async def test_an_attacker_takes_part_in_one_run(model):
    red_team = attacker(model, total_turns=1)
    await play(red_team)

    with pytest.raises(ConfigError, match="single-use"):
        await play(red_team)


async def test_a_rating_that_cannot_be_read_is_no_success(fake_openai, caplog):
    fake_openai.when(PLAN, "plan").when(RATING, "ten of ten!").otherwise("attack")
    red_team = attacker(fake_openai, total_turns=2, success_confirm_turns=1)

    await play(red_team)

    assert len(requests_for(fake_openai, "score")) == 2
    assert not red_team.check_early_exit()
    assert "could not be rated" in caplog.text


async def test_an_empty_plan_is_an_error(fake_openai):
    fake_openai.when(PLAN, "<think>hm</think> ")

    with pytest.raises(EvaluationError, match="empty plan"):
        await play(attacker(fake_openai))


async def test_an_unknown_placeholder_is_named(model):
    red_team = attacker(model, metaprompt_template="{target} {nothing}")

    with pytest.raises(ConfigError, match="'nothing' is no placeholder of CrescendoStrategy"):
        await play(red_team)


async def test_a_plan_of_the_user_is_used(model):
    await play(attacker(model, attack_plan="my own plan"))

    assert not requests_for(model, "plan")
    assert "my own plan" in requests_for(model, "attack")[0].messages[0]["content"]


async def test_a_strategy_of_the_user_is_used(model):
    class Blunt(scenario.RedTeamStrategy):
        needs_metaprompt_plan = False

        def build_system_prompt(self, *, target, current_turn, **_):
            return f"{target}:{current_turn}"

        def get_phase_name(self, current_turn, total_turns):
            return "only"

    red_team = scenario.RedTeamAgent(
        strategy=Blunt(), target="x", model="openai/m", api_base=model.url, api_key="k",
        total_turns=2,
    )  # fmt: skip

    await play(red_team)

    prompts = [one.messages[0]["content"] for one in requests_for(model, "attack")]
    assert prompts == ["x:1", "x:2"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"total_turns": 0}, "total_turns is 0; it must be 1 or more"),
        ({"max_backtracks": -1}, "max_backtracks is -1; it must be 0 or more"),
        ({"injection_probability": 1.5}, "injection_probability is 1.5; it must be from 0 to 1"),
        ({"injection_probability": 0.5, "techniques": []}, "techniques cannot be empty"),
        ({"success_score": 11}, "success_score is 11; it must be from 0 to 10"),
        ({"success_confirm_turns": 0}, "success_confirm_turns is 0; it must be 1 or more"),
    ],
    ids=["turns", "backtracks", "probability", "techniques", "score", "confirm"],
)
def test_a_wrong_argument_is_refused_at_once(model, options, message):
    with pytest.raises(ConfigError, match=message):
        attacker(model, **options)


def test_goat_tells_encodings_from_its_catalogue(model):
    with pytest.warns(DeprecationWarning, match="encoding_techniques"):
        attacker(model, "goat", techniques=[Base64Technique()])
    with pytest.raises(TypeError, match="only one of"):
        attacker(model, "goat", techniques=[], encoding_techniques=[])
    with pytest.raises(ValueError, match="duplicate technique IDs: A"):
        scenario.GoatStrategy([scenario.Technique("A", "A", "", "")] * 2)
    with pytest.warns(UserWarning, match="metaprompt_template will be ignored"):
        attacker(model, "goat", metaprompt_template="x")


async def test_a_replayed_attack_calls_no_model(model, tmp_path):
    options = {"cache_key": "k", "cache_dir": tmp_path}

    async def attack():
        red_team = attacker(model, success_score=None)
        result = await play(red_team, **options)
        return texts_of(result.messages)

    recorded, count = await attack(), len(model.requests)

    assert await attack() == recorded
    assert len(model.requests) == count


async def test_a_model_that_fails_is_an_error_of_the_run(fake_openai):
    fake_openai.when(PLAN, Reply(status=400, content="no"))

    with pytest.raises(Exception, match="400"):
        await play(attacker(fake_openai))
