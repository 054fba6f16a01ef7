"""A model for tests of agents that are built in Python: it answers with replies in order."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from types import TracebackType
from typing import Any

from holodeck.errors import ExecutionError
from holodeck.lib.llm.request_handler import StreamedResponse
from holodeck.lib.processes.threads import BackgroundLoop
from holodeck.lib.tap.case_requests import CaseRequests, check_requests
from holodeck.lib.tap.exchange import NO_REPLY, error_response
from holodeck.lib.tap.server import LoopbackServer, ReceivedRequest
from holodeck.lib.tap.tap import NO_MODEL
from holodeck.models.cases.stubs import ModelFault, ModelReply


class ScriptedModel:
    """A model on 127.0.0.1 that gives its replies in order, while it is entered.

    Leaving it raises ExecutionError if a request came that no reply was left for, if a reply was
    not asked for, or if a fault was not delivered.

    Args:
        replies: What it answers.
        faults: What goes wrong with which request.
    """

    def __init__(self, replies: Sequence[ModelReply], faults: Sequence[ModelFault]) -> None:
        self._replies, self._faults = replies, faults
        self._requests = CaseRequests(replies, faults)
        self._server = LoopbackServer(self._respond, "holodeck-scripted-model")
        self._loop = BackgroundLoop()

    @property
    def url(self) -> str:
        """The base URL for clients of OpenAI's API: chat completions and responses."""
        return f"{self.root}/v1"

    @property
    def root(self) -> str:
        """The base URL for clients of Anthropic's and Ollama's API."""
        return f"http://127.0.0.1:{self._server.port}"

    @property
    def requests(self) -> Sequence[Mapping[str, Any]]:
        """The bodies of the requests until now."""
        return self._requests.bodies

    def __enter__(self) -> "ScriptedModel":
        self._loop.run(self._server.start)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.run(self._server.close)
        rows = check_requests(self._replies, self._faults, self._requests.handled)
        if rows and error is None:
            raise ExecutionError("\n".join(row.error or "" for row in rows))

    def _respond(self, received: ReceivedRequest) -> AbstractAsyncContextManager[StreamedResponse]:
        method, path, body = received.method, received.target, received.body
        return self._requests.answer(method, path, body, _no_model)


def _no_model(_: bytes) -> AbstractAsyncContextManager[StreamedResponse]:
    return nullcontext(error_response(NO_REPLY, "no_model", NO_MODEL))
