"""One suite over every metric of DeepEval, through the library, with a judge on loopback."""

import asyncio
import os
import subprocess
import sys
from dataclasses import replace
from itertools import cycle
from typing import Any

import pytest
from pydantic import TypeAdapter

from fakes import FakeOpenAI
from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.base import Observation
from holodeck.lib.evaluators.build import build_evaluator
from holodeck.lib.evaluators.deepeval.base import DeepEvalBaseEvaluator
from holodeck.lib.judging.judge import Judge
from holodeck.lib.judging.judges import Judges
from holodeck.lib.llm.model import count_usage
from holodeck.lib.test_runner.eval_kwargs_builder import EvalKwargsBuilder
from holodeck.models.config import ExecutionConfig
from holodeck.models.evaluation import Metric
from holodeck.models.llm import LLMProvider
from holodeck.models.test_result import ToolInvocation
from support.deepeval_cases import (
    ANSWER,
    CASES,
    PASSAGES,
    SEEN,
    TURNS,
    Script,
    said,
    verdicts,
    without,
)
from support.evaluators import EVALUATORS

METRIC = TypeAdapter(Metric)
QUICK = ExecutionConfig(max_retries=1, retry_delay=0.01, attempt_timeout=60)
ASKING = [name for name, case in CASES.items() if case.calls]
JUDGED = [name for name in ASKING if name != "knowledge_retention"]


@pytest.fixture
def server():
    with FakeOpenAI() as fake:
        yield fake


@pytest.fixture
async def judge(server):
    judges = Judges(QUICK)
    yield judges.of(LLMProvider(provider="openai", name="wise", endpoint=server.url, api_key="k"))
    await judges.close()


def built(name: str, judge: Judge | None, **keys: Any) -> DeepEvalBaseEvaluator:
    metric = METRIC.validate_python({**CASES[name].keys, **keys})
    evaluator = build_evaluator(metric, judge=judge)
    assert isinstance(evaluator, DeepEvalBaseEvaluator)
    return evaluator


def inputs(evaluator: DeepEvalBaseEvaluator, seen: Observation = SEEN) -> dict[str, Any]:
    builder = EvalKwargsBuilder(
        seen.response,
        seen.input,
        seen.ground_truth,
        retrieval_context=list(seen.retrieval_context) or None,
        observation=seen,
    )
    return builder.build_for(evaluator)


async def graded(
    name: str, judge: Judge, server: FakeOpenAI, script: Script, seen: Observation = SEEN, **keys
) -> dict[str, Any]:
    server.otherwise(lambda request: said(script, request))
    evaluator = built(name, judge, **keys)
    return await evaluator.evaluate(**inputs(evaluator, seen))


def test_every_metric_of_deepeval_is_in_this_suite():
    assert {name for name, one in EVALUATORS.items() if one.extra == "deepeval"} == set(CASES)


@pytest.mark.parametrize("name", CASES)
async def test_good_is_one_and_bad_is_zero(name, judge, server):
    """A release of DeepEval that turns a scale round fails here."""
    case = CASES[name]

    best = await graded(name, judge, server, case.good, case.seen)
    worst = await graded(name, judge, server, case.bad, case.seen_bad)

    assert (best["score"], best["passed"]) == (1.0, True)
    assert (worst["score"], worst["passed"]) == (0.0, False)
    assert best[best_name(name)] == 1.0
    assert best["reasoning"]
    assert worst["reasoning"]
    named_after_harm = {"hallucination", "bias", "toxicity", "pii_leakage"}
    assert (best["scale"] == "0-1, 1 is good") is (name in named_after_harm)


def best_name(name: str) -> str:
    return built(name, None).metric


@pytest.mark.parametrize("name", CASES)
async def test_the_judge_sees_the_case_and_each_call_is_counted(name, judge, server):
    with count_usage() as spent:
        await graded(name, judge, server, CASES[name].good, CASES[name].seen)

    prompts = "\n".join(request.prompt for request in server.requests)
    assert [text for text in CASES[name].sees if text not in prompts] == []
    assert spent.requests == len(server.requests) == CASES[name].calls
    assert spent.usage.total_tokens == 15 * spent.requests
    texts = sum("response_format" not in request.body for request in server.requests)
    assert texts == (name == "goal_accuracy")


@pytest.mark.parametrize(
    ("name", "absent"),
    [(name, absent) for name, case in CASES.items() for absent in sorted(case.needs)],
)
async def test_a_missing_input_is_named(name, absent, judge, server):
    evaluator = built(name, judge)
    given = inputs(evaluator)
    del given[absent]

    with pytest.raises(EvaluationError, match=f"needs {absent}, which is missing"):
        await evaluator.evaluate(**given)

    assert server.requests == []


@pytest.mark.parametrize("absent", ["expected_output", "retrieval_context", "turns"])
async def test_what_the_case_does_not_have_is_missing(absent, judge):
    for name, case in CASES.items():
        if absent in case.needs:
            evaluator = built(name, judge)
            with pytest.raises(EvaluationError, match=absent):
                await evaluator.evaluate(**inputs(evaluator, without(absent)))


MALFORMED = {
    "prose": "It is rather good.",
    "quoted": 'It wrote\n```json\n{"verdicts": []}\n```\nand nothing else.',
    "wrong keys": '{"foo": 1}',
    "empty": "",
    "a list": "[]",
}


# one answer for each metric: a single parser decides what is malformed
@pytest.mark.parametrize(
    ("name", "answer"), list(zip(JUDGED, cycle(MALFORMED.values()), strict=False))
)
async def test_a_malformed_answer_is_never_a_score(name, answer, judge, server):
    server.otherwise(answer)
    evaluator = built(name, judge)

    with pytest.raises(EvaluationError, match="did not answer as asked, twice"):
        await evaluator.evaluate(**inputs(evaluator))


async def test_one_malformed_answer_is_repaired(judge, server):
    server.reply("Sure!").reply('{"foo": 1}', status=200)
    with pytest.raises(EvaluationError):
        await graded("hallucination", judge, server, CASES["hallucination"].good)

    server.reply("Sure!")
    result = await graded("hallucination", judge, server, CASES["hallucination"].good)

    assert result["score"] == 1.0


OUT_OF_RANGE = [
    ("geval", {"score": 11}, "'score' is 11, which is not between 0 and 10"),
    ("geval", {"score": -1}, "not between 0 and 10"),
    ("conversational_geval", {"score": 10.5}, "not between 0 and 10"),
    ("plan_quality", {"score": 5}, "'score' is 5, which is not between 0 and 1"),
    ("goal_accuracy", {"score": 2}, "'score' is 2, which is not between 0 and 1"),
    ("task_completion", {"verdict": 8}, "'verdict' is 8, which is not between 0 and 1"),
]


@pytest.mark.parametrize(("name", "changes", "wrong"), OUT_OF_RANGE)
async def test_a_score_out_of_range_is_an_error(name, changes, wrong, judge, server):
    with pytest.raises(EvaluationError, match=wrong):
        await graded(name, judge, server, {**CASES[name].good, **changes})

    assert wrong in server.requests[-1].prompt


MISCOUNTED = [name for name in JUDGED if isinstance(CASES[name].good.get("verdicts"), list)]


@pytest.mark.parametrize("name", [one for one in MISCOUNTED if one != "role_adherence"])
async def test_a_judge_that_leaves_verdicts_out_is_not_believed(name, judge, server):
    with pytest.raises(EvaluationError, match="'verdicts'"):
        await graded(name, judge, server, {**CASES[name].good, "verdicts": []})


@pytest.mark.parametrize("name", ["faithfulness", "hallucination", "bias", "prompt_alignment"])
async def test_a_judge_that_gives_one_verdict_for_two_is_not_believed(name, judge, server):
    good = CASES[name].good["verdicts"][:1]

    with pytest.raises(EvaluationError, match="'verdicts' has 1 items; 2 are to be judged"):
        await graded(name, judge, server, {**CASES[name].good, "verdicts": good})


@pytest.mark.parametrize(
    ("index", "wrong"), [(0, "'index' is 0"), (9, "'index' is 9"), (-1, "'index' is -1")]
)
async def test_only_messages_of_the_assistant_fall_out_of_its_role(index, wrong, judge, server):
    script = {"verdicts": [{"index": index, "reason": "rude", "ai_message": None}]}

    with pytest.raises(EvaluationError, match=wrong):
        await graded("role_adherence", judge, server, script)


NOTHING = [
    ("faithfulness", {"claims": []}, {}, "no claim"),
    ("argument_correctness", {}, {"tool_calls": ()}, "called no tool"),
    ("conversation_completeness", {"intentions": []}, {}, "no request of the user"),
    ("knowledge_retention", {"data": None}, {}, "nothing to remember"),
    ("plan_adherence", {"plan": []}, {}, "no plan"),
    ("plan_quality", {"plan": []}, {}, "no plan"),
    ("topic_adherence", {"qa_pairs": []}, {}, "no question"),
    ("turn_faithfulness", {"claims": []}, {}, "no claim"),
    ("tool_use", {}, {"turns": (), "tool_calls": ()}, "called no tool"),
]


@pytest.mark.parametrize(("name", "changes", "seen", "reason"), NOTHING)
async def test_where_nothing_was_judged_nothing_is_decided(
    name, changes, seen, reason, judge, server
):
    script = {**CASES[name].good, **changes}

    result = await graded(name, judge, server, script, replace(SEEN, **seen))

    assert result["inconclusive"] is True
    assert reason in result["reasoning"]


@pytest.mark.parametrize("name", ["plan_quality", "tool_use", "step_efficiency"])
async def test_steps_that_cannot_be_seen_are_not_judged(name, judge, server):
    evaluator = built(name, judge)
    turns = (TURNS[0], replace(TURNS[1], tool_calls=None), *TURNS[2:])

    with pytest.raises(EvaluationError, match="tool calls of a turn are unknown"):
        await evaluator.evaluate(**inputs(evaluator, replace(SEEN, turns=turns)))

    assert server.requests == []


async def test_each_turn_is_judged_with_the_passages_retrieved_so_far(judge, server):
    found = [ToolInvocation(name="search", args={}, result=one, passages=[one]) for one in PASSAGES]
    turns = [replace(TURNS[at], tool_calls=(found[at // 2],)) for at in (1, 3)]
    seen = replace(SEEN, turns=(TURNS[0], turns[0], TURNS[2], turns[1]))

    await graded(
        "turn_contextual_precision", judge, server, CASES["turn_contextual_precision"].good, seen
    )

    prompts = [one.prompt for one in server.requests if PASSAGES[0] in one.prompt]
    assert sorted(PASSAGES[1] in one for one in prompts) == [False, True]


@pytest.mark.parametrize("name", ["faithfulness", "answer_relevancy", "summarization"])
async def test_an_empty_answer_is_wrong_unasked(name, judge, server):
    result = await graded(name, judge, server, {}, replace(SEEN, response=" "))

    assert (result["score"], result["reasoning"]) == (0.0, "the response is empty")
    assert server.requests == []


@pytest.mark.parametrize("name", ["geval", "task_completion", "bias"])
async def test_an_empty_answer_is_graded(name, judge, server):
    result = await graded(name, judge, server, CASES[name].good, replace(SEEN, response=""))

    assert isinstance(result["passed"], bool)


async def test_an_answer_that_names_a_picture_loads_none(judge, server, tmp_path):
    secret = tmp_path / "secret.png"
    secret.write_text("hidden")
    seen = replace(SEEN, response=f"Look: [DEEPEVAL:IMAGE:{secret}] \ud800")

    result = await graded("answer_relevancy", judge, server, CASES["answer_relevancy"].good, seen)

    assert result["score"] == 1.0


@pytest.mark.parametrize("name", ["contextual_relevancy", "faithfulness", "turn_relevancy"])
async def test_a_judge_that_is_refused_is_an_error_and_leaves_nothing_running(name, judge, server):
    server.otherwise(status=429)
    evaluator = built(name, judge)

    with pytest.raises(EvaluationError, match="wise"):
        await evaluator.evaluate(**inputs(evaluator))

    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_what_one_failure_leaves_behind_asks_no_more(judge, server):
    script = {**CASES["summarization"].good, "verdicts": []}

    with pytest.raises(EvaluationError, match="'verdicts'"):
        await graded("summarization", judge, server, script)

    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_one_question_that_fails_ends_the_others(judge, server):
    server.when("Rule 1", status=400)
    server.when("Rule 2", fault="hang")
    evaluator = built("contextual_relevancy", judge)

    with pytest.raises(EvaluationError, match="wise"):
        await evaluator.evaluate(**inputs(evaluator))

    assert asyncio.all_tasks() == {asyncio.current_task()}


@pytest.mark.parametrize("name", ["geval", "faithfulness", "turn_relevancy"])
async def test_a_judge_that_never_answers_is_an_error_in_time(name, judge, server):
    server.otherwise(fault="hang")
    evaluator = built(name, judge, timeout_ms=200)

    with pytest.raises(EvaluationError, match=r"timed out after 0\.2 s"):
        await evaluator.evaluate(**inputs(evaluator))


@pytest.mark.parametrize("name", ["geval", "faithfulness", "turn_relevancy"])
async def test_cancellation_leaves_nothing_running(name, judge, server):
    server.otherwise(fault="hang")
    evaluator = built(name, judge)
    task = asyncio.create_task(evaluator.evaluate(**inputs(evaluator)))
    await server.saw(1)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert asyncio.all_tasks() == {asyncio.current_task()}


async def test_one_evaluator_serves_many_cases_at_once(judge, server):
    server.otherwise(lambda request: said(CASES["faithfulness"].good, request))
    evaluator = built("faithfulness", judge)

    results = await asyncio.gather(*(evaluator.evaluate(**inputs(evaluator)) for _ in range(10)))

    assert [result["score"] for result in results] == [1.0] * 10


async def test_strict_mode_counts_only_a_perfect_score(judge, server):
    half = {**CASES["bias"].good, "verdicts": [*verdicts("no", 1), *verdicts("yes", 1)]}

    assert (await graded("bias", judge, server, half))["score"] == 0.5
    strict = await graded("bias", judge, server, half, strict_mode=True, threshold=0.1)

    assert (strict["score"], strict["passed"], strict["threshold"]) == (0.0, False, 1.0)


@pytest.mark.parametrize("score", [8, 0.5])
async def test_a_strict_judge_says_zero_or_one(score, judge, server):
    script = {**CASES["geval"].good, "score": score}

    with pytest.raises(EvaluationError, match="'score'"):
        await graded("geval", judge, server, script, strict_mode=True)


async def test_without_reasons_one_call_is_saved(judge, server):
    result = await graded("bias", judge, server, CASES["bias"].good, include_reason=False)

    assert (result["score"], result["reasoning"]) == (1.0, "")
    assert len(server.requests) == CASES["bias"].calls - 1


BANDS = [
    {"score": [3, 5], "expected_outcome": "curt"},
    {"score": [6, 7], "expected_outcome": "kind"},
]


async def test_a_rubric_sets_the_scale(judge, server):
    script = {"score": 5}
    keys = {"rubric": BANDS, "criteria": None, "evaluation_steps": ["Look for a please"]}

    result = await graded("geval", judge, server, script, **keys)

    assert (result["score"], result["raw_score"], result["raw_scale"]) == (0.5, 5, "3-7")
    [request] = server.requests
    assert "kind" in request.prompt
    with pytest.raises(EvaluationError, match="not between 3 and 7"):
        await graded("geval", judge, server, {"score": 8}, **keys)


async def test_a_conversation_without_an_answer_is_an_error(judge, server):
    evaluator = built("turn_relevancy", judge)

    with pytest.raises(EvaluationError, match="a user message that the agent answers"):
        await evaluator.evaluate(turns=[TURNS[1], {"role": "user", "content": "Hello?"}])


async def test_the_names_of_other_metrics_are_understood(judge, server):
    server.otherwise(lambda request: said(CASES["hallucination"].good, request))

    result = await built("hallucination", judge).evaluate(
        query="Dogs?", response=ANSWER, context=["one text", "and another"]
    )

    assert result["score"] == 1.0


PROGRAM = """
import asyncio, os, sys
from holodeck.lib.evaluators.deepeval import FaithfulnessEvaluator
from holodeck.models.llm import LLMProvider

async def main():
    model = LLMProvider(provider="openai", name="wise", endpoint=sys.argv[1], api_key="k")
    found = await FaithfulnessEvaluator(model_config=model).evaluate(
        input="Dogs?", actual_output="Yes.", retrieval_context=["Dogs may come in."]
    )
    assert found["score"] == 1.0
    assert "OTHERS" not in os.environ

asyncio.run(main())
"""


def test_nothing_is_printed_or_written_and_no_setting_is_read(server, tmp_path):
    script = {"truths": ["t"], "claims": ["c"], "verdicts": verdicts("yes", 1)}
    server.otherwise(lambda request: said(script, request))
    folder, home = tmp_path / "folder", tmp_path / "home"
    for path in (folder, home):
        path.mkdir()
    (folder / ".env").write_text("OTHERS=1\n")
    environment = {
        **os.environ,
        "HOME": str(home),
        "OPENAI_API_KEY": "not-for-judges",
        "DEEPEVAL_EVAL_MODE": "system_one",
        "DEEPEVAL_VERBOSE_MODE": "1",
    }

    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, server.url],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [".env"]
    assert list(home.iterdir()) == []
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer k"}


async def test_a_flaky_judge_is_asked_again(judge, server):
    server.reply(status=503)

    result = await graded("hallucination", judge, server, CASES["hallucination"].good)

    assert result["score"] == 1.0
    assert len(server.requests) == CASES["hallucination"].calls + 1
