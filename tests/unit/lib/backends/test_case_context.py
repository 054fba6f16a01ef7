"""The context of a case reaches agents of every shape that have a place for it."""

from typing import Any, Optional

import pytest

from fakes import FakeOpenAI
from holodeck.errors import ConfigError
from holodeck.lib.backends.base import (
    Capabilities,
    ExecutionResult,
    backend_in_context,
    capabilities_of,
)
from holodeck.lib.backends.http_backend import HttpBackend
from holodeck.lib.backends.python.backend import CallableBackend
from holodeck.models.backend import HttpBackendConfig

USER = {"user": "u-1", "flags": {"new": True}}


def told_by_name(text, case_context):
    return f"{text} {case_context}"


def told_beside_history(text, context, *, case_context=None):
    return f"{text} {case_context} after {len(context)}"


async def told_later(text: str, context: dict[str, Any] | None = None):
    return f"{text} {context}"


def told_in_words(text, context: "dict[str, Any] | None" = None):
    return f"{text} {context}"


def told_optionally(text, context: Optional[dict] = None):  # noqa: UP045 - people write it
    return f"{text} {context}"


class Adapter:
    def run(self, input: str, context: dict | None = None):  # noqa: A002
        return {"output": f"{input} {context}"}


class Backend:
    """A backend of the user's that takes a context."""

    def __init__(self, context=None):
        self.context = context

    async def initialize(self):
        pass

    def in_context(self, context):
        return Backend(context)

    async def invoke_once(self, message, context=None):
        return ExecutionResult(response=f"{message} {self.context}")

    async def create_session(self):
        return Session(self)

    async def teardown(self):
        pass


class Session:
    def __init__(self, backend):
        self.backend = backend

    async def send(self, message):
        return await self.backend.invoke_once(message)

    async def send_streaming(self, message):
        yield message

    async def close(self):
        pass


AGENTS = [told_by_name, told_later, told_in_words, told_optionally, Adapter, Adapter(), Backend()]


@pytest.mark.parametrize("agent", AGENTS, ids=range(len(AGENTS)))
async def test_the_context_reaches_the_agent_in_calls_and_conversations(agent):
    backend = CallableBackend(agent)
    await backend.initialize()

    bound = backend_in_context(backend, USER, "here")
    once = await bound.invoke_once("hi")
    session = await bound.create_session()
    said = await session.send("hi")
    await session.close()

    assert once.response == said.response == f"hi {USER}"


@pytest.mark.parametrize("agent", AGENTS, ids=range(len(AGENTS)))
async def test_a_case_without_context_tells_the_agent_none(agent):
    backend = CallableBackend(agent)

    assert (await backend.invoke_once("hi")).response == "hi None"


async def test_history_and_context_stand_in_parameters_of_their_own():
    backend = CallableBackend(told_beside_history)
    await backend.initialize()

    session = await backend_in_context(backend, USER, "here").create_session()
    await session.send("a")

    assert (await session.send("b")).response == f"b {USER} after 2"


async def test_every_binding_has_a_copy_of_its_own():
    def spoil(text, case_context):
        case_context["flags"].clear()
        return "x"

    backend = CallableBackend(spoil)
    await backend.initialize()
    given = {"flags": {"new": True}}

    await backend_in_context(backend, given, "here").invoke_once("a")

    assert given == {"flags": {"new": True}}


def told_nothing(text):
    return text


def told_history(text, context):
    return text


def told_some_history(text, context=()):
    return text


NO_PLACE = [told_nothing, told_history, told_some_history]


@pytest.mark.parametrize("agent", NO_PLACE, ids=range(3))
async def test_an_agent_without_a_place_for_it_is_refused(agent):
    backend = CallableBackend(agent)
    await backend.initialize()

    with pytest.raises(ConfigError, match="no context: give it a parameter 'case_context'"):
        backend_in_context(backend, USER, "here")


async def test_a_url_gets_the_context_where_the_request_says():
    with FakeOpenAI() as server:
        server.reply(json={"response": "a"}).reply(json={"response": "b"})
        request = {"input": "{input}", "who": "{context}"}
        config = HttpBackendConfig(type="http", url=f"{server.root}/agent", request=request)
        backend = HttpBackend(config)
        await backend_in_context(backend, USER, "here").invoke_once("hi")
        await backend.invoke_once("hi")
        await backend.teardown()

    assert [request.body["who"] for request in server.requests] == [USER, {}]


def test_a_url_whose_request_has_no_place_for_it_is_refused():
    backend = HttpBackend(HttpBackendConfig(type="http", url="http://localhost/agent"))

    with pytest.raises(
        ConfigError, match=r"no place for the context of a case; write '\{context\}'"
    ):
        backend_in_context(backend, USER, "here")


async def test_a_backend_may_declare_what_its_agent_can_do():
    class Declaring(Backend):
        capabilities = Capabilities(concurrency=3, context_problem="it is signed out")

    backend = CallableBackend(Declaring())
    await backend.initialize()

    assert backend.capabilities.concurrency == 3
    with pytest.raises(ConfigError, match="it is signed out"):
        backend_in_context(Declaring(), USER, "here")
    assert capabilities_of(Backend()).concurrency is None
