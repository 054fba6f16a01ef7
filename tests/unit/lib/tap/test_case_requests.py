"""What answers the requests of an agent to its model in a test case."""

import asyncio
import json
from contextlib import asynccontextmanager

import pytest

from fakes import FakeOpenAI
from holodeck.lib.llm.chat_models import HttpChatModel
from holodeck.lib.llm.client import ChatClient, RequestStats
from holodeck.lib.llm.endpoint import Endpoint
from holodeck.lib.llm.errors import RequestError
from holodeck.lib.llm.limiter import INITIAL_SLOTS, Limiters
from holodeck.lib.llm.limits import call_limits
from holodeck.lib.llm.model import ChatRequest
from holodeck.lib.llm.request_handler import AGENT, answering_requests
from holodeck.lib.llm.retry import RetryConfig
from holodeck.lib.tap.case_requests import CaseRequests, check_requests
from holodeck.lib.tap.exchange import NO_REPLY, whole_response
from holodeck.models.cases.stubs import ModelFault, ModelReply
from holodeck.models.llm import LLMProvider

CHAT = "/chat/completions"
ASKED = {"model": "m", "messages": [{"role": "user", "content": "Where is order 7?"}]}
SENT = ModelReply(text="It has been sent.")
LOOKUP = ModelReply(tool_calls=[{"get_order": {"id": 7}}])


def model(text):
    """A model that answers with that text; None for an answer without any."""

    @asynccontextmanager
    async def send(body):
        message = {"role": "assistant", "content": text}
        answer = {"choices": [{"message": message, "finish_reason": "stop"}]}
        yield whole_response(200, "application/json", json.dumps(answer).encode())

    return send


async def ask(requests, send=None, body=ASKED, path=CHAT):
    """The status and the document of the response to one request."""
    async with requests.answer("POST", path, json.dumps(body).encode(), send) as response:
        content = b"".join([piece async for piece in response.body])
    return response.status, json.loads(content)


def errors(requests, replies=(), faults=()):
    return [row.error for row in check_requests(replies, faults, requests.handled)]


async def test_replies_come_in_order_and_tools_get_the_names_that_they_are_offered_with():
    replies = [LOOKUP, SENT]
    requests = CaseRequests(replies)
    offered = [{"type": "function", "function": {"name": "Orders-get_order"}}]

    _, first = await ask(requests, body={**ASKED, "tools": offered})
    _, second = await ask(requests)

    [call] = first["choices"][0]["message"]["tool_calls"]
    assert call["function"] == {"name": "Orders-get_order", "arguments": '{"id": 7}'}
    assert second["choices"][0]["message"]["content"] == "It has been sent."
    assert errors(requests, replies) == []


async def test_a_request_without_a_reply_is_an_error_that_shows_it():
    requests = CaseRequests([SENT])
    await ask(requests)
    status, answer = await ask(requests)

    [error] = errors(requests, [SENT])
    assert status == NO_REPLY
    assert answer["error"]["message"] == error
    assert "request 2 to its model" in error
    assert "all 1 model_replies were given" in error
    assert '{"role": "user", "content": "Where is order 7?"}' in error


async def test_a_reply_that_is_not_asked_for_is_an_error():
    requests = CaseRequests([LOOKUP, SENT])
    await ask(requests)

    [error] = errors(requests, [LOOKUP, SENT])
    assert error == (
        "the agent asked its model once; 1 of 2 model_replies were not asked for, from"
        ' {"text":"It has been sent."}'
    )


async def test_faults_come_at_their_calls_and_keep_the_replies_for_later_ones():
    faults = [
        ModelFault(call=1, status=429),
        ModelFault(call=2, refusal="I cannot help with that."),
        ModelFault(call=3, cut_off=True),
        ModelFault(call=4, delay=0.01),
    ]
    replies = [SENT, SENT]
    requests = CaseRequests(replies, faults)

    answers = [await ask(requests) for _ in range(4)]

    assert [status for status, _ in answers] == [429, 200, 200, 200]
    choices = [answer["choices"][0] for _, answer in answers[1:]]
    assert [(choice["message"]["content"], choice["finish_reason"]) for choice in choices] == [
        ("I cannot help with that.", "stop"),
        ("It has b", "length"),
        ("It has been sent.", "stop"),
    ]
    assert errors(requests, replies, faults) == []
    assert [request.faults for request in requests.handled] == [
        ["status"],
        ["refusal"],
        ["cut_off"],
        ["delay"],
    ]


@pytest.mark.parametrize("status", [429, 503])
async def test_a_staged_overload_leaves_the_slots_of_the_endpoint(status):
    llm = LLMProvider(provider="openai", name="m", api_key="k", endpoint="http://127.0.0.1:9/v1")
    endpoint, limits, limiters = Endpoint.of(llm), call_limits(None), Limiters()
    client = ChatClient(endpoint, llm.name, limits, limiters)
    requests = CaseRequests([SENT], [ModelFault(call=1, status=status)])
    stats = RequestStats()

    with answering_requests({AGENT: requests}):
        await client.complete_body(ASKED, stats, RetryConfig(max_retries=1, base_delay=0.01))
    await client.close()

    assert [attempt.error[:8] for attempt in stats.attempts] == [f"HTTP {status}"]
    assert limiters.of(endpoint.name).slots == INITIAL_SLOTS


async def test_the_answer_of_a_model_is_cut_off():
    requests = CaseRequests(None, [ModelFault(call=2, cut_off=True)])

    answers = [await ask(requests, model("It has been sent.")) for _ in range(2)]

    contents = [answer["choices"][0]["message"]["content"] for _, answer in answers]
    assert contents == ["It has been sent.", "It has b"]


async def test_a_fault_that_changes_nothing_is_an_error():
    fault = ModelFault(call=1, cut_off=True)
    requests = CaseRequests(None, [fault])

    _, answer = await ask(requests, model(None))

    assert answer["choices"][0]["message"]["content"] is None
    assert errors(requests, faults=[fault]) == [
        "the fault 'cut_off' at call 1 changed nothing of the response: it is empty"
    ]


async def test_a_fault_at_a_call_that_never_comes_is_an_error():
    fault = ModelFault(call=2, status=500)
    requests = CaseRequests(None, [fault])
    await ask(requests, model("Done."))

    assert errors(requests, faults=[fault]) == [
        "the agent asked its model once; the fault 'status' at call 2 was not delivered"
    ]


async def test_a_delay_is_delivered_to_an_agent_that_does_not_wait_so_long():
    fault = ModelFault(call=1, delay=600)
    requests = CaseRequests(None, [fault])

    with pytest.raises(TimeoutError):
        await asyncio.wait_for(ask(requests, model("Done.")), 0.05)

    assert errors(requests, faults=[fault]) == []


async def test_requests_that_no_model_answers_pass():
    requests = CaseRequests([SENT])

    for path in ("/embeddings", "/moderations"):
        status, _ = await ask(requests, model("passed"), path=path)
        assert status == 200

    assert requests.handled == []


async def test_a_format_without_a_writer_is_an_error():
    requests = CaseRequests([SENT])

    status, _ = await ask(requests, path="/completions")

    assert status == NO_REPLY
    assert "its format is not known" in errors(requests, [SENT])[0]


async def test_our_own_client_streams_replies_and_raises_faults():
    requests = CaseRequests([SENT], [ModelFault(call=2, status=400)])
    llm = LLMProvider(provider="scripted")
    client = ChatClient(Endpoint.of(llm), llm.name, call_limits(None), Limiters())

    with answering_requests({AGENT: requests}):
        *pieces, completion = [piece async for piece in client.stream_body(ASKED, RequestStats())]
        with pytest.raises(RequestError, match="HTTP 400"):
            [piece async for piece in client.stream_body(ASKED, RequestStats())]

    assert "".join(pieces) == completion.text == "It has been sent."
    assert [body["stream"] for body in requests.bodies] == [True, True]


async def test_requests_of_judges_do_not_pass_the_handler():
    requests = CaseRequests([SENT])
    with FakeOpenAI("judged") as server, answering_requests({AGENT: requests}):
        llm = LLMProvider(provider="openai", name="m", endpoint=server.url, api_key="k")
        model = HttpChatModel(llm, call_limits(None), Limiters())
        answer = await model.answer(ChatRequest([{"role": "user", "content": "Is it polite?"}]))
        await model.close()

    assert (answer.text, requests.bodies) == ("judged", [])
