"""The embedded model for real: SmolLM2-135M answers, calls a tool, repeats itself, and stops."""

import asyncio
import json
import subprocess
import sys
import time
from functools import partial

import pytest

from holodeck.errors import BackendSessionError, BackendTimeoutError, ModelStoreError
from holodeck.lib.local_models.catalog import DEFAULT_MODEL
from holodeck.lib.local_models.chat import reply_to
from holodeck.lib.local_models.chat_request import ChatSettings
from holodeck.lib.local_models.runtime import LocalModel, RuntimeSettings
from holodeck.lib.local_models.store import ModelStore
from holodeck.lib.support.environment import cache_dir

pytestmark = pytest.mark.model

NUMBER = {"type": "number"}
ADD = {
    "type": "function",
    "function": {
        "name": "add",
        "description": "Add two numbers.",
        "parameters": {
            "type": "object",
            "properties": {"a": NUMBER, "b": NUMBER},
            "required": ["a", "b"],
        },
    },
}
STORY = {
    "messages": [{"role": "user", "content": "Tell me about trains, in detail."}],
    "temperature": 0,
    "max_tokens": 40,
}
ALONE = """
import asyncio, json, sys
from pathlib import Path
from holodeck.lib.local_models.runtime import LocalModel
model = LocalModel.load(Path(sys.argv[1]))
print(asyncio.run(model.acomplete(json.loads(sys.argv[2])))["choices"][0]["message"]["content"])
"""


@pytest.fixture(scope="module")
def weights():
    return ModelStore(cache_dir()).ensure(DEFAULT_MODEL)


@pytest.fixture(scope="module")
def model(weights):
    loaded = LocalModel.load(weights)
    yield loaded
    loaded.close()


def ask(text, most=40):
    return {**STORY, "messages": [{"role": "user", "content": text}], "max_tokens": most}


def text_of(completion):
    return completion["choices"][0]["message"]["content"]


async def test_it_answers_in_the_shape_of_a_completion(model):
    answer = await model.acomplete(ask("Say hello.", 8))

    assert answer["object"] == "chat.completion"
    assert text_of(answer)
    assert answer["choices"][0]["finish_reason"] in {"stop", "length"}
    assert 0 < answer["usage"]["completion_tokens"] <= 8


def test_it_is_loaded_once(model, weights):
    assert LocalModel.load(weights) is model


async def test_the_answer_depends_neither_on_earlier_requests_nor_on_the_process(model, weights):
    first = text_of(await model.acomplete(STORY))
    await model.acomplete(ask("Tell me about trains, in detail, please, and about ships."))
    again = text_of(await model.acomplete(STORY))
    program = [sys.executable, "-c", ALONE, str(weights), json.dumps(STORY)]
    run = partial(subprocess.run, program, capture_output=True, text=True, check=True)
    alone = await asyncio.to_thread(run)

    assert first == again == alone.stdout.removesuffix("\n")
    assert alone.stderr == ""


async def test_requests_wait_for_their_turn_and_know_how_long(model):
    answers = await asyncio.gather(*(model.acomplete(ask("Say hello.", 8)) for _ in range(3)))

    waits = [answer["timings"]["queued_ms"] for answer in answers]
    assert waits == sorted(waits)
    assert waits[2] > waits[0]
    assert len({text_of(answer) for answer in answers}) == 1


@pytest.mark.parametrize("words", [1, 3000], ids=["answering", "reading a long prompt"])
async def test_a_cancelled_request_stops_computing(model, words):
    long = {**ask("dog " * words + "Count to a thousand.", 3000), "ignore_eos": True}
    if words > 1:
        long["max_tokens"] = 10
    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.3):
            await model.acomplete(long)

    started = time.perf_counter()
    await model.acomplete(ask("Hi", 1))
    assert time.perf_counter() - started < 60  # the whole answer would take minutes


async def test_a_time_limit_counts_from_the_turn_of_the_request(model):
    with pytest.raises(BackendTimeoutError, match=r"within 0\.2 s"):
        await model.acomplete({**ask("Count to a thousand.", 3000), "ignore_eos": True}, 0.2)


async def test_a_conversation_that_is_too_long_is_an_error_in_tokens(model):
    with pytest.raises(BackendSessionError, match=r"is \d+ tokens long and .* take 4096"):
        await model.acomplete(ask("dog " * 5000))


async def test_a_request_that_llama_cpp_refuses_is_an_error(model):
    with pytest.raises(BackendSessionError, match=r"refused the request: .*messages"):
        await model.acomplete({"messages": "hello"})


def test_an_invalid_model_file_is_an_error(tmp_path):
    (tmp_path / "bad.gguf").write_bytes(b"GGUF and nothing")

    with pytest.raises(ModelStoreError, match=r"bad\.gguf: llama\.cpp cannot load it"):
        LocalModel.load(tmp_path / "bad.gguf")


async def test_a_closed_model_refuses_and_the_running_answer_stops(weights):
    model = LocalModel.load(weights, RuntimeSettings(context=512))
    endless = {**ask("Count to a thousand.", 3000), "ignore_eos": True}
    running, waiting = (asyncio.ensure_future(model.acomplete(endless)) for _ in range(2))
    await asyncio.sleep(0.2)
    await asyncio.to_thread(model.close)

    for request in (running, waiting):
        with pytest.raises(BackendSessionError, match="was stopped before"):
            await request
    with pytest.raises(BackendSessionError, match="is closed"):
        await model.acomplete(ask("Hi"))


async def test_it_calls_a_tool_and_answers_with_what_the_tool_returned(model):
    asked = [
        {"role": "system", "content": "You are a helpful assistant."},
        {"role": "user", "content": "What is 17 plus 25?"},
    ]
    called = await reply_to(model, asked, [ADD])
    (call,) = called.calls
    function = {"name": call.name, "arguments": call.arguments}
    calls = [{"id": call.id, "type": "function", "function": function}]
    result = {"role": "tool", "tool_call_id": call.id, "content": "42"}
    messages = [*asked, {"role": "assistant", "content": None, "tool_calls": calls}, result]
    answered = await reply_to(model, messages, [ADD], ChatSettings(max_tokens=60))

    assert (call.name, json.loads(call.arguments)) == ("add", {"a": 17, "b": 25})
    assert (call.id, called.finish_reason) == ("call_1", "tool_calls")
    assert not answered.calls
    assert "42" in answered.text
    assert answered.usage.completion_tokens > 0
