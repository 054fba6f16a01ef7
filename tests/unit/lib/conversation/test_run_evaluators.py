"""Evaluators of a run: what their inputs read, and what they do to its result."""

import pytest

from holodeck import scenario
from holodeck.errors import ConfigError
from holodeck.lib.evaluators.base import BaseEvaluator
from holodeck.lib.evaluators.nlp_metrics import F1ScoreEvaluator
from holodeck.lib.evaluators.param_spec import EvalParam, ParamSpec
from support.participants import a_user, an_agent

CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "run_sql", "arguments": '{"q": "S"}'}}
    ],
}
SAID = [CALL, {"role": "assistant", "content": "four words of answer"}]


async def run(*evaluators, **settings):
    steps = [scenario.user("q"), scenario.agent(), scenario.succeed("fine")]
    return await scenario.arun(
        "case", "…", [a_user(), an_agent(SAID)], script=steps, evaluators=evaluators, **settings
    )


def f1(threshold=None, **given):
    return scenario.evaluator(F1ScoreEvaluator(threshold=threshold), **given)


async def test_an_evaluator_that_passes_leaves_the_verdict():
    result = await run(f1(0.5), fields={"ground_truth": "four words of answer"})

    [row] = result.evaluations
    assert result.success
    assert (row.status, row.score, row.required) == ("passed", 1.0, True)
    assert row.inputs == {
        "response": "four words of answer",
        "ground_truth": "four words of answer",
    }


async def test_an_evaluator_that_fails_fails_the_scenario():
    result = await run(f1(0.5), fields={"ground_truth": "something else"})

    assert (result.success, result.reason_code) == (False, "evaluator_failed")
    assert result.reasoning.startswith("fine\nevaluator F1ScoreEvaluator: failed")
    assert result.status == "failed"


async def test_an_evaluator_that_is_not_required_only_reports():
    result = await run(f1(0.5, required=False), fields={"ground_truth": "something else"})

    assert result.success
    assert result.evaluations[0].status == "failed"


@pytest.mark.parametrize("settings", [{}, {"fields": {"ground_truth": ""}}], ids=["none", "empty"])
async def test_an_evaluator_without_its_input_does_not_pass(settings):
    result = await run(f1(0.5), **settings)

    assert (result.success, result.status) == (False, "error")
    assert result.evaluations[0].status == "skipped"
    assert "nothing for its input 'ground_truth'" in result.reasoning


class Watching(BaseEvaluator):
    """Passes, and keeps what it was given."""

    metric = "watching"
    PARAM_SPEC = ParamSpec(
        required=frozenset({EvalParam.RESPONSE, EvalParam.QUERY}),
        optional=frozenset({EvalParam.TURNS}),
    )
    uses_observation = True

    async def _evaluate_impl(self, **kwargs):
        self.given = kwargs
        return {"score": 1.0, "passed": True}


async def test_an_evaluator_that_sees_conversations_gets_the_question_of_the_last_response():
    watching = Watching()
    steps = [scenario.user("first"), scenario.agent("hello"), scenario.user("second"),
             scenario.agent(), scenario.user("bye"), scenario.succeed()]  # fmt: skip

    result = await scenario.arun(
        "case", "…", [a_user(), an_agent(SAID)], script=steps,
        evaluators=[scenario.evaluator(watching)],
    )  # fmt: skip

    assert result.success
    assert (watching.given["query"], watching.given["response"]) == ("second", SAID[1]["content"])
    assert [(one.role, one.content) for one in watching.given["turns"]] == [
        ("user", "first"), ("assistant", "hello"), ("user", "second"),
        ("assistant", SAID[1]["content"]),
    ]  # fmt: skip
    [call] = watching.given["observation"].exchanges[-1].response.tool_calls
    assert (call.name, call.args) == ("run_sql", {"q": "S"})


async def test_a_mapping_of_an_evaluator_that_sees_conversations_comes_first():
    watching = Watching()

    await run(scenario.evaluator(watching, mappings={"query": scenario.value("mine")}))

    assert watching.given["query"] == "mine"


async def test_an_evaluator_of_the_service_is_an_error_that_names_what_to_write():
    result = await run(scenario.evaluator("langevals/exact_match"))

    assert (result.success, result.status) == (False, "error")
    assert "a service that holodeck does not call" in result.reasoning
    assert "scenario.evaluator(F1ScoreEvaluator(" in result.reasoning


async def test_an_optional_evaluator_of_the_service_has_a_row_and_leaves_the_verdict():
    result = await run(scenario.evaluator("langevals/exact_match", required=False))

    assert result.success
    assert [one.status for one in result.evaluations] == ["error"]


async def test_a_mapping_is_a_function_of_the_state_or_a_constant():
    async def answer(state):
        return state.last_agent_message()

    mappings = {"response": answer, "ground_truth": "four words of answer"}

    assert (await run(f1(1.0, mappings=mappings))).success


async def test_a_mapping_that_raises_is_an_error():
    result = await run(f1(0.5, mappings={"response": lambda _state: 1 / 0}))

    assert result.status == "error"
    assert "ZeroDivisionError" in result.evaluations[0].details


async def test_the_helpers_read_what_their_expression_says():
    seen = {}
    helpers = {
        "situation": scenario.scenario_source.situation,
        "first": scenario.conversation.first_user_message,
        "last": scenario.conversation.last_agent_message,
        "input": scenario.trace.tool_calls("run_sql").last.input,
        "same": scenario.trace.tool_call("run_sql").input,
        "inputs": scenario.trace.tool_calls("run_sql").inputs,
        "field": scenario.field("golden"),
        "value": scenario.value(3),
    }

    def look(state):
        seen.update({name: helper(state) for name, helper in helpers.items()})

    steps = [scenario.user("q"), scenario.agent(), look, scenario.succeed()]
    await scenario.arun(
        "case", "…", [a_user(), an_agent(SAID)], script=steps, fields={"golden": "g"}
    )

    assert seen == {
        "situation": "…", "first": "q", "last": "four words of answer", "input": {"q": "S"},
        "same": {"q": "S"}, "inputs": [{"q": "S"}], "field": "g", "value": 3,
    }  # fmt: skip
    assert repr(helpers["input"]) == "<mapping state.tool_calls('run_sql').last.input>"


def test_what_is_no_evaluator_is_refused():
    with pytest.raises(ConfigError, match="is no evaluator"):
        scenario.evaluator(3)
