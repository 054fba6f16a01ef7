"""G-Eval weights the scores by the probabilities of their tokens, as the library itself does."""

import json
import math
import re

import httpx
import pytest
from pydantic import TypeAdapter

import holodeck
from fakes import FakeOpenAI, Reply
from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.build import build_evaluator
from holodeck.lib.evaluators.deepeval import adapter
from holodeck.lib.judging.judges import Judges
from holodeck.models.config import ExecutionConfig
from holodeck.models.evaluation import Metric
from holodeck.models.llm import LLMProvider

QUICK = ExecutionConfig(max_retries=0, attempt_timeout=60)
ANSWER = "Nine euros, please."
STEPS = ["Look for a please"]
PLAIN = "not weighted by token probabilities: "
NO_TOKENS = PLAIN + "the judge's endpoint returns none"


@pytest.fixture
def server():
    with FakeOpenAI() as fake:
        yield fake


@pytest.fixture
async def judge(server):
    judges = Judges(QUICK)
    yield judges.of(LLMProvider(provider="openai", name="wise", endpoint=server.url, api_key="k"))
    await judges.close()


@pytest.fixture
def score(judge):
    """What holodeck makes of the judge's answer."""

    async def scored(**keys):
        kind = {} if "metric" in keys else {"type": "geval", "name": "kind"}
        written = {**kind, "evaluation_steps": STEPS, **keys}
        evaluator = build_evaluator(TypeAdapter(Metric).validate_python(written), judge=judge)
        given = {"turns": [{"role": "user", "content": "Hi"},
                           {"role": "assistant", "content": ANSWER}]}  # fmt: skip
        return await evaluator.evaluate(**(given if "metric" in keys else {"response": ANSWER}))

    return scored


async def score_of_library(server, model="gpt-4o"):
    """What the library's G-Eval makes of it, with the library's own client."""
    from deepeval.metrics import GEval
    from deepeval.models import OpenAIModel

    library, client = adapter.library(), httpx.AsyncClient()
    metric = GEval(
        name="kind",
        evaluation_params=[library.cases.SingleTurnParams.ACTUAL_OUTPUT],
        evaluation_steps=STEPS,
        model=OpenAIModel(model=model, api_key="k", base_url=server.url, async_http_client=client),
    )
    case = library.cases.LLMTestCase(input="", actual_output=ANSWER)
    async with client:
        await metric.a_measure(case, _show_indicator=False)
    return metric.score


def tokens_of(text, alternatives):
    """The tokens of a text; for each that is named, the probabilities of what it might be."""
    every = re.findall(r"10|\d|[^\d]+", text)
    return [
        {
            "token": one,
            "logprob": -0.1,
            "top_logprobs": [
                {"token": other, "logprob": math.log(chance)}
                for other, chance in alternatives.get(one, {one: 1.0}).items()
            ],
        }
        for one in every
    ]


def said(score, alternatives=None, *, reason="It says please.", tokens=None):
    """The judge's answer, with the probabilities of its tokens if there are any to tell."""
    text = f'{{"reason": {json.dumps(reason)}, "score": {score}}}'
    choice = {"index": 0, "message": {"role": "assistant", "content": text},
              "finish_reason": "stop"}  # fmt: skip
    if alternatives is not None:
        choice["logprobs"] = {"content": tokens or tokens_of(text, alternatives)}
    usage = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
    head = {"id": "c", "object": "chat.completion", "created": 1, "model": "wise"}
    return Reply(json={**head, "choices": [choice], "usage": usage})


WEIGHTED = {
    "several": (said(8, {"8": {"8": 0.5, "9": 0.3, "10": 0.1, "7": 0.1}}), 0.84),
    "one": (said(8, {}), 0.8),
    "ten": (said(10, {"10": {"10": 0.75, "8": 0.25}}), 0.95),
    "unlikely ones": (said(8, {"8": {"8": 0.6, "9": 0.2, "3": 0.009, " 7": 0.1}}), 0.825),
    "the same number in the reason": (
        said(8, {"8": {"8": 0.5, "6": 0.5}}, reason="8 words, 8 of them kind."), 0.7
    ),
}  # fmt: skip


@pytest.mark.parametrize(("reply", "wanted"), WEIGHTED.values(), ids=WEIGHTED)
async def test_a_score_is_weighted_as_the_library_does(reply, wanted, score, server):
    server.otherwise(reply)

    ours = await score()

    assert ours["score"] == pytest.approx(wanted)
    assert ours["score"] == pytest.approx(await score_of_library(server))
    assert (ours["raw_score"], ours["note"]) == (pytest.approx(10 * wanted, abs=1e-6), None)
    assert [(one.body["logprobs"], one.body["top_logprobs"]) for one in server.requests] == [
        (True, 20), (True, 20),
    ]  # fmt: skip


UNWEIGHTED = {
    "no tokens": (said(8), NO_TOKENS),
    "empty": (said(8, {}, tokens=[{}]), PLAIN + "no token of the judge's answer is its score"),
    "not a token": (
        said(8.5, {"8": {"8": 0.5, "9": 0.5}}),
        PLAIN + "no token of the judge's answer is its score",
    ),
}


@pytest.mark.parametrize(("reply", "note"), UNWEIGHTED.values(), ids=UNWEIGHTED)
async def test_without_probabilities_the_answer_counts_and_the_result_says_so(
    reply, note, score, server
):
    server.otherwise(reply)

    ours = await score()

    assert (ours["raw_score"], ours["note"]) == (json.loads(text_of(reply))["score"], note)
    if note == NO_TOKENS:
        assert ours["score"] == await score_of_library(server)


def text_of(reply):
    return reply.json["choices"][0]["message"]["content"]


REFUSALS = {
    "of the parameter": "Unsupported parameter: 'logprobs' is not supported with this model.",
    "without a reason": "Bad request",
}


@pytest.mark.parametrize("refusal", REFUSALS.values(), ids=REFUSALS)
async def test_an_endpoint_that_refuses_probabilities_is_asked_for_the_answer(
    refusal, score, server
):
    server.when(lambda request: "logprobs" in request.body, status=400, content=refusal)
    server.otherwise(said(8))

    first, second = await score(), await score()

    assert (first["score"], first["note"]) == (second["score"], second["note"]) == (0.8, NO_TOKENS)
    assert ["logprobs" in one.body for one in server.requests] == [True, False, False]
    assert all("top_logprobs" not in one.body for one in server.requests[1:])
    assert first["score"] == await score_of_library(server, model="gpt-4.5-preview")


async def test_a_request_that_is_refused_for_something_else_is_an_error(score, server):
    server.otherwise(status=400, content="no such deployment")

    with pytest.raises(EvaluationError, match="no such deployment"):
        await score()

    assert ["logprobs" in one.body for one in server.requests] == [True, False]


async def test_an_endpoint_that_returns_few_alternatives_is_asked_for_few(score, server):
    limit = "Invalid value for 'top_logprobs': must be less than or equal to 5."
    server.when(lambda request: request.body["top_logprobs"] > 5, status=400, content=limit)
    server.otherwise(said(8, {"8": {"8": 0.5, "6": 0.5}}))

    scores = [(await score())["score"] for _ in range(2)]

    assert scores == pytest.approx([0.7, 0.7])
    assert [one.body["top_logprobs"] for one in server.requests] == [20, 5, 5]


async def test_a_one_that_may_be_the_beginning_of_ten_weights_nothing(score, server):
    """A tokenizer that writes each digit as a token of its own would make 5.8 of a sure 9 or 10."""
    server.otherwise(said(9, {"9": {"9": 0.6, "1": 0.4}}))

    ours = await score()

    assert (ours["score"], ours["note"]) == (0.9, PLAIN + "1 may be the first token of 10")


async def test_numbers_outside_the_rubric_weigh_nothing(score, server):
    server.otherwise(said(5, {"5": {"5": 0.5, "4": 0.25, "8": 0.25}}))
    bands = [{"score": [3, 4], "expected_outcome": "curt"},
             {"score": [5, 5], "expected_outcome": "kind"}]  # fmt: skip

    ours = await score(rubric=bands)

    assert ours["raw_score"] == pytest.approx(14 / 3, abs=1e-6)
    assert ours["score"] == pytest.approx((14 / 3 - 3) / 2)


async def test_a_strict_score_is_asked_for_alone(score, server):
    server.otherwise(said(1, {"1": {"1": 0.6, "0": 0.4}}))

    ours = await score(strict_mode=True)

    assert (ours["score"], ours["note"]) == (1.0, None)
    assert ["logprobs" in one.body for one in server.requests] == [False]


async def test_the_score_of_a_conversation_is_weighted_at_its_own_place(score, server):
    alternatives = {"8": {"8": 0.5, "6": 0.5}}
    reply = said(8, alternatives, reason="In 8 turns")
    first = reply.json["choices"][0]["logprobs"]["content"][1]
    assert first["token"] == "8"
    first["top_logprobs"] = [{"token": "8", "logprob": 0.0}]
    server.otherwise(reply)

    ours = await score(type="deepeval", metric="conversational_geval")

    assert (ours["score"], ours["note"]) == (pytest.approx(0.7), None)


async def test_the_row_of_a_run_has_the_note(server, tmp_path):
    (tmp_path / "shop.py").write_text("def answer(text):\n    return 'Nine euros, please.'\n")
    server.otherwise(said(8))
    metric = {"type": "geval", "name": "kind", "evaluation_steps": STEPS}
    model = LLMProvider(provider="openai", name="wise", endpoint=server.url, api_key="k")

    report = await holodeck.arun(lambda _: ANSWER, ["How much?"], metrics=[metric], model=model)

    [row] = report.results[0].metric_results
    assert (row.score, row.note, row.reasoning) == (0.8, NO_TOKENS, "It says please.")
    assert NO_TOKENS in report.to_markdown()
