"""A judge is believed only when it answers what it was asked for."""

import asyncio

import pytest

from fakes import FakeOpenAI, Reply
from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.judging.judges import Judges
from holodeck.lib.llm.model import count_usage
from holodeck.models.config import ExecutionConfig
from holodeck.models.llm import LLMProvider

SCHEMA = {
    "type": "object",
    "properties": {"reason": {"type": "string"}, "score": {"type": "integer", "maximum": 5}},
    "required": ["reason", "score"],
}
GOOD = '{"reason": "fine", "score": 4}'
LESS = '{"reason": "poor", "score": 1}'
ASKED = [{"role": "user", "content": "How good is it?"}]
QUICK = ExecutionConfig(max_retries=1, retry_delay=0.01, attempt_timeout=60)


@pytest.fixture
def server():
    with FakeOpenAI() as fake:
        yield fake


@pytest.fixture
async def judge(server):
    judges = Judges(QUICK)
    yield judges.of(LLMProvider(provider="openai", name="wise", endpoint=server.url, api_key="k"))
    await judges.close()


async def test_an_answer_that_fits_is_given_back(judge, server):
    server.reply(GOOD)

    assert await judge.ask(ASKED, SCHEMA) == {"reason": "fine", "score": 4}

    [request] = server.requests
    assert request.body["response_format"]["json_schema"]["strict"] is True
    assert request.body["temperature"] == 0
    assert "max_tokens" not in request.body


BAD = [
    ("It is rather good.", "is not JSON"),
    (f"The agent wrote\n{GOOD}\nwhich is wrong, so I say 1.", "before and after the JSON"),
    (f"It wrote {GOOD} and I disagree.", "inside a line of text"),
    (f"It wrote {GOOD}", "inside a line of text"),
    (f"{GOOD} is what it wrote.", "inside a line of text"),
    (f"It wrote\n{GOOD}\nI say:\n{LESS}", "several JSON objects that differ"),
    (f"It wrote {GOOD}.\n\n```json\n{LESS}\n```", "several JSON objects that differ"),
    (f'{{"verdicts": [\n{GOOD}\n], and more', "is not JSON"),
    (f"<think>I would say {GOOD}", "holds reasoning and nothing else"),
    (f"<think>hm</think>\n<think>{GOOD}", "holds reasoning and nothing else"),
    ('{"reason": "fine", "score": 1, "score": 4}', "duplicate key 'score'"),
    ('{"mark": 4}', "is a required property"),
    ('{"reason": "fine", "score": 9}', "score: 9 is greater than the maximum of 5"),
    ('{"reason": "fine", "score": "4"}', "is not of type"),
    ('{"reason": "fine", "score": NaN}', "NaN is not JSON"),
    ("", "is empty"),
    ("[" * 100_000, "nested too deep"),
]


@pytest.mark.parametrize(("answer", "wrong"), BAD, ids=[wrong for _, wrong in BAD])
async def test_an_answer_that_does_not_fit_is_asked_for_once_more(judge, server, answer, wrong):
    server.reply(answer).reply(GOOD)

    assert (await judge.ask(ASKED, SCHEMA))["score"] == 4

    told = server.requests[1].prompt
    assert wrong in told
    assert "nothing but the JSON" in told


@pytest.mark.parametrize(("answer", "wrong"), BAD, ids=[wrong for _, wrong in BAD])
async def test_a_judge_that_never_answers_as_asked_is_an_error(judge, server, answer, wrong):
    server.otherwise(answer)

    with pytest.raises(EvaluationError, match="openai/wise did not answer as asked, twice") as seen:
        await judge.ask(ASKED, SCHEMA)

    assert wrong in str(seen.value)
    assert len(server.requests) == 2


READABLE = {
    "fenced": f"```json\n{GOOD}\n```",
    "fenced without a language": f"```\n{GOOD}\n```",
    "after reasoning": f"<think>It may be {LESS}, or not.</think>\n{GOOD}",
    "after two thoughts": f"<think>a</think><thinking>b</thinking>{GOOD}",
    "after the end of a thought": f"so it is {LESS}, no.\n</think>\n\n{GOOD}",
    "reasoning and a fence": f"<think>hm</think>\n```json\n{GOOD}\n```",
    "a sentence and a fence": f"Here is my verdict:\n\n```json\n{GOOD}\n```",
    "a sentence before": f"Here is my verdict:\n{GOOD}",
    "a remark after": f"{GOOD}\n\nLet me know if you need more.",
    "said twice": f"{GOOD}\n\nAs JSON:\n{GOOD}",
    "over several lines": 'My verdict:\n{\n  "reason": "fine",\n  "score": 4\n}',
}


@pytest.mark.parametrize("answer", READABLE.values(), ids=READABLE)
async def test_a_verdict_in_a_fence_after_reasoning_or_beside_a_remark_is_read(
    judge, server, answer
):
    server.reply(answer)

    assert await judge.ask(ASKED, SCHEMA) == {"reason": "fine", "score": 4}
    assert len(server.requests) == 1


async def test_tags_and_fences_inside_of_a_reason_are_left_alone(judge, server):
    server.reply('{"reason": "it says </think> and ```{}```", "score": 4}')

    answer = await judge.ask(ASKED, SCHEMA)

    assert answer["reason"] == "it says </think> and ```{}```"


async def test_an_answer_cut_off_at_the_limit_is_not_read(judge, server):
    server.reply(GOOD, finish_reason="length").reply(GOOD)

    await judge.ask(ASKED, SCHEMA)

    assert "cut off" in server.requests[1].prompt


async def test_an_answer_that_a_content_filter_ended_does_not_decide(judge, server):
    server.reply(GOOD, finish_reason="content_filter").reply(GOOD, finish_reason="content_filter")

    with pytest.raises(EvaluationError, match="twice: a content filter ended the answer"):
        await judge.ask(ASKED, SCHEMA)


async def test_a_text_that_a_content_filter_ended_does_not_decide(judge, server):
    server.reply("yes", finish_reason="content_filter")

    with pytest.raises(EvaluationError, match="a content filter ended the answer"):
        await judge.ask_for_text(ASKED)


async def test_a_reader_may_refuse_what_the_schema_allows(judge, server):
    server.reply(GOOD).reply('{"reason": "less", "score": 1}')

    def low(value):
        if value["score"] > 3:
            raise ValueError("the score is too kind")
        return value["score"]

    assert await judge.ask(ASKED, SCHEMA, low) == 1
    assert "too kind" in server.requests[1].prompt


async def test_what_passes_by_itself_is_tried_again(judge, server):
    server.reply(status=503).reply(GOOD)

    assert await judge.ask(ASKED, SCHEMA)
    assert len(server.requests) == 2


async def test_a_judge_that_cannot_be_reached_is_an_error_with_its_name(judge, server):
    server.otherwise(status=429, content="slow down")

    with pytest.raises(EvaluationError, match="the judge openai/wise: HTTP 429: slow down"):
        await judge.ask(ASKED, SCHEMA)


@pytest.mark.parametrize(
    ("status", "most"), [(401, 1), (403, 1), (402, 3), (404, 3)], ids=["401", "403", "402", "404"]
)
async def test_a_judge_that_is_refused_is_not_asked_for_ever(judge, server, status, most):
    server.otherwise(status=status, content="not you")

    for _ in range(10):
        with pytest.raises(EvaluationError) as refused:
            await judge.ask(ASKED, SCHEMA)
        assert str(refused.value) == f"the judge openai/wise: HTTP {status}: not you"

    assert len(server.requests) == most


async def errors_of(judge, count):
    asked = (judge.ask(ASKED, SCHEMA) for _ in range(count))
    return [str(one) for one in await asyncio.gather(*asked, return_exceptions=True)]


async def test_a_judge_that_is_down_is_given_up_by_all_that_wait_for_it(server):
    """It used to cost 120 requests and two minutes for 20 metrics."""
    server.otherwise(status=429, content="slow down")
    judges = Judges(ExecutionConfig(max_retries=5, retry_delay=0.01, attempt_timeout=60))
    judge = judges.of(LLMProvider(provider="openai", name="wise", endpoint=server.url, api_key="k"))

    found = await errors_of(judge, 20)
    sent = len(server.requests)
    later = await errors_of(judge, 5)
    await judges.close()

    assert set(found) == set(later)
    assert "the judge openai/wise is down:" in found[0]
    assert "HTTP 429: slow down" in found[0]
    assert sent <= 80
    assert len(server.requests) == sent


async def test_a_judge_whose_retries_succeed_is_not_given_up(server):
    seen = set()

    def busy_at_first(request):
        is_new = request.prompt not in seen
        seen.add(request.prompt)
        return Reply(status=429, content="slow down") if is_new else Reply(GOOD)

    server.otherwise(busy_at_first)
    judges = Judges(ExecutionConfig(max_retries=5, retry_delay=0.01, attempt_timeout=60))
    judge = judges.of(LLMProvider(provider="openai", name="wise", endpoint=server.url, api_key="k"))

    asked = [judge.ask([{"role": "user", "content": f"{n}?"}], SCHEMA) for n in range(30)]
    found = await asyncio.gather(*asked)
    await judges.close()

    assert len(found) == 30


async def test_requests_that_fail_for_good_count_and_an_answer_starts_anew(judge, server):
    server.otherwise(status=500, content="oops")
    first = await errors_of(judge, 4)  # two attempts each
    server.reply(GOOD)

    assert await judge.ask(ASKED, SCHEMA)
    again = [error for _ in range(6) for error in await errors_of(judge, 1)]

    assert not any("is down" in one for one in first)
    assert ["is down" in one for one in again] == [False] * 5 + [True]


async def test_a_judge_that_has_answered_may_refuse_a_question(judge, server):
    server.reply(GOOD).reply(status=403, content="not about this").reply(GOOD)

    assert await judge.ask(ASKED, SCHEMA)
    with pytest.raises(EvaluationError, match="not about this"):
        await judge.ask(ASKED, SCHEMA)
    assert await judge.ask(ASKED, SCHEMA)


@pytest.fixture
async def two_judges(server):
    """Judges of the same model in two processes, each of which learns what the other noticed."""
    llm = LLMProvider(provider="openai", name="wise", endpoint=server.url, api_key="k")
    ours, theirs = several = Judges(QUICK), Judges(QUICK)
    ours.share(theirs.note_elsewhere)
    theirs.share(ours.note_elsewhere)
    yield ours.of(llm), lambda: theirs.of(llm)
    for judges in several:
        await judges.close()


async def test_failures_of_all_processes_count_and_an_answer_to_any_starts_anew(two_judges, server):
    one, other = two_judges[0], two_judges[1]()
    server.otherwise(status=500, content="oops")
    first = await errors_of(one, 2) + await errors_of(other, 2)  # two attempts each
    server.reply(GOOD)
    assert await other.ask(ASKED, SCHEMA)
    again = [error for judge in (one, other) * 3 for error in await errors_of(judge, 1)]
    sent = len(server.requests)

    assert not any("is down" in error for error in first)
    assert ["is down" in error for error in again] == [False] * 5 + [True]
    assert sent == 8 + 1 + 10


async def test_a_judge_that_is_used_later_knows_that_another_process_gave_it_up(two_judges, server):
    one, later = two_judges
    server.otherwise(status=401, content="not you")

    [error] = await errors_of(one, 1)
    [same] = await errors_of(later(), 1)

    assert same == error
    assert len(server.requests) == 1


async def test_refusals_in_a_row_are_those_of_all_processes(two_judges, server):
    one, other = two_judges[0], two_judges[1]()
    server.otherwise(status=404, content="no such model")

    for judge in (one, other, one, other, one):
        await errors_of(judge, 1)

    assert len(server.requests) == 3


@pytest.mark.parametrize("part", ["response_format", "temperature"])
async def test_a_part_that_the_endpoint_refuses_is_left_out_from_then_on(judge, server, part):
    server.when(
        lambda request: part in request.body,
        status=400,
        content=f"Unsupported parameter: '{part}'",
    ).otherwise(GOOD)

    for _ in range(2):
        assert await judge.ask(ASKED, SCHEMA)

    assert [part in request.body for request in server.requests] == [True, False, False]


async def test_calls_tokens_and_seconds_are_counted_where_they_are_spent(judge, server):
    server.otherwise("nonsense").when("once more", "nonsense")

    async def asking():
        with count_usage() as meter, pytest.raises(EvaluationError):
            await judge.ask(ASKED, SCHEMA)
        return meter

    async def saying():
        with count_usage() as meter:
            await judge.ask_for_text(ASKED)
        return meter

    spent, other = await asyncio.gather(asking(), saying())

    assert (spent.requests, spent.usage.total_tokens) == (2, 30)
    assert list(spent.by_model) == ["openai/wise"]
    assert (other.requests, other.usage.total_tokens) == (1, 15)
    assert spent.seconds > 0


async def test_chances_of_the_first_token_are_told(judge, server):
    logprobs = [{"token": "Yes", "logprob": -0.1}, {"token": "No", "logprob": -2.4}]
    first = {"token": "Yes", "logprob": -0.1, "top_logprobs": logprobs}
    choice = {
        "message": {"role": "assistant", "content": "Yes"},
        "finish_reason": "stop",
        "logprobs": {"content": [first]},
    }
    server.reply(Reply(json={"choices": [choice]}))

    said = await judge.ask_for_text(ASKED, max_tokens=1, top_logprobs=5)

    assert said.token_probabilities == pytest.approx({"Yes": 0.905, "No": 0.091}, abs=1e-3)
    [request] = server.requests
    assert (request.body["logprobs"], request.body["top_logprobs"]) == (True, 5)
    assert request.body["max_tokens"] == 1


@pytest.mark.parametrize("provider", ["anthropic", "azure_openai", "ollama"])
async def test_every_provider_can_judge(server, provider):
    server.otherwise(GOOD)
    judges = Judges(QUICK)
    llm = LLMProvider(provider=provider, name="wise", endpoint=server.root, api_key="secret-key")

    assert (await judges.of(llm).ask(ASKED, SCHEMA))["score"] == 4

    await judges.close()
    [request] = server.requests
    assert "secret-key" in str(request.headers)
    assert request.dialect == ("anthropic" if provider == "anthropic" else "openai")
    assert request.prompt == "How good is it?"


async def test_anthropic_is_told_the_schema_in_words(server):
    server.otherwise(GOOD)
    judges = Judges(QUICK)
    llm = LLMProvider(provider="anthropic", name="wise", endpoint=server.root, api_key="k")

    await judges.of(llm).ask([{"role": "system", "content": "Be fair."}, *ASKED], SCHEMA)

    await judges.close()
    [request] = server.requests
    assert request.system.startswith("Be fair.")
    assert '"maximum": 5' in request.system
    assert request.body["max_tokens"] > 0


async def test_one_model_is_one_judge_and_another_setting_another():
    judges = Judges()
    llm = {"provider": "openai", "endpoint": "http://127.0.0.1:1", "name": "a"}
    one, same = LLMProvider(**llm), LLMProvider(**llm)
    warm = LLMProvider(**llm, temperature=0.9)

    assert judges.of(one) is judges.of(same)
    assert judges.of(one) is not judges.of(warm)
    assert judges.of(warm, is_agents_own=True) is judges.of(one, is_agents_own=True)


async def test_a_judge_without_a_key_is_a_configuration_error():
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        Judges().of(LLMProvider(provider="openai", name="m"))
