"""Models that holodeck's own client does not call are recorded and replayed, too."""

import json
from types import SimpleNamespace

import pytest

from holodeck.lib.backends.semantic_kernel.model_chat import LocalCompletions
from holodeck.lib.llm.chat_models import LibraryChatModel
from holodeck.lib.llm.client import RequestStats
from holodeck.lib.llm.completion import Completion, RawToolCall, to_document
from holodeck.lib.llm.errors import RequestError
from holodeck.lib.llm.formats import parse_completion
from holodeck.lib.llm.limiter import Limiters
from holodeck.lib.llm.limits import call_limits
from holodeck.lib.llm.model import ChatRequest
from holodeck.lib.llm.request_handler import answering_requests
from holodeck.lib.local_models.chat import LocalChatModel
from holodeck.lib.recordings.recording import Recording, RecordingSettings
from holodeck.lib.secrets.redact import Redactor
from holodeck.models.llm import LLMProvider
from holodeck.models.token_usage import TokenUsage

ANSWER = Completion("seven", [], TokenUsage.of(3, 2), finish_reason="stop")
QUESTION = ChatRequest([{"role": "user", "content": "How many?"}])
LLM = LLMProvider(provider="openai", name="m", api_key="k", endpoint="http://models.example/v1")


@pytest.fixture
def recording(tmp_path):
    """Opens the recording of a case in a mode."""

    def opened(mode):
        settings = RecordingSettings(mode, (), None, is_strict=False, redactor=Redactor())
        return Recording(tmp_path / "case.json", {}, settings)

    return opened


def library_model(count):
    async def create(**_):
        count.append(1)
        return SimpleNamespace(model_dump_json=lambda: json.dumps(to_document(ANSWER)))

    return LibraryChatModel(LLM, create, call_limits(None), Limiters())


def local_model(_):
    return LocalChatModel(LLM, lambda _: pytest.fail("the weights are not needed"))


async def test_the_model_of_a_library_is_asked_once_and_replayed(recording):
    count = []
    for mode in ("missing", "replay"):
        opened = recording(mode)
        with answering_requests(opened.handlers("judge")):
            answer = await library_model(count).answer(QUESTION)
        opened.save()

        assert (answer.text, answer.usage) == ("seven", TokenUsage.of(3, 2))
    assert len(count) == 1


@pytest.mark.parametrize("make", [library_model, local_model])
async def test_a_model_is_not_asked_in_a_replay(recording, make):
    count = []
    opened = recording("replay")

    with answering_requests(opened.handlers("judge")), pytest.raises(RequestError, match="not rec"):
        await make(count).answer(QUESTION)

    assert count == []
    assert len(opened.misses) == 1


async def test_a_local_agent_needs_no_weights_in_a_replay(recording):
    body = {"messages": [{"role": "user", "content": "How many?"}]}
    model = LocalCompletions("qwen", lambda _: pytest.fail("the weights are not needed"))
    opened = recording("missing")
    request = {"path": "POST /chat/completions", "body": {**body, "model": "qwen"}}
    response = {"status": 200, "type": "application/json", "json": to_document(ANSWER)}
    opened.add(opened.ask("agent", request), response)
    opened.save()

    with answering_requests(recording("replay").handlers("agent")):
        await model.prepare()
        completion = await model.complete_body(body, RequestStats())

    assert completion == ANSWER


@pytest.mark.parametrize(
    "completion",
    [
        ANSWER,
        Completion(None, (RawToolCall("c1", "look", '{"id": 7}'),), TokenUsage.of(1, 1)),
        Completion("", (), TokenUsage(), finish_reason="length", is_cut=True),
    ],
)
def test_a_completion_is_the_same_after_it_was_written(completion):
    read = parse_completion(json.dumps(to_document(completion)).encode())

    assert (read.text or None) == (completion.text or None)
    assert (read.calls, read.usage) == ([*completion.calls], completion.usage)
    assert read.is_cut == completion.is_cut
