"""The requests of an agent to its model in a run of a case: scripted replies, and faults."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

from holodeck.lib.llm.completion import Completion, RawToolCall
from holodeck.lib.llm.http_body import MalformedHttp, TooLarge
from holodeck.lib.llm.request_handler import Send, StreamedResponse
from holodeck.lib.support.text import one_line, plural
from holodeck.lib.support.tool_names import tools_named
from holodeck.lib.tap.exchange import NO_REPLY, error_response
from holodeck.lib.tap.formats import Embeddings, OtherRequest, Reader, UnreadableBody
from holodeck.lib.tap.reading import body_reader, find_reader
from holodeck.lib.tap.replies import PATHS, cut, render_reply
from holodeck.models.cases.stubs import FaultKind, ModelFault, ModelReply
from holodeck.models.results.turn import HandledRequest, ToolCheck
from holodeck.models.token_usage import TokenUsage

NEVER = "the agent never asked its model"
FAULT = "a fault of the test case"
_SHOWN_CHARS = 300


@dataclass(frozen=True)
class _Request:
    number: int
    """Counts the requests for an answer of the model, from 1."""
    path: str
    document: Mapping[str, Any]

    @property
    def last_message(self) -> str:
        """The end of the conversation that the model is to continue, as JSON."""
        messages = self.document.get("messages") or self.document.get("input") or self.document
        last = messages[-1] if isinstance(messages, list) else messages
        return one_line(json.dumps(last, ensure_ascii=False), _SHOWN_CHARS)

    def tool_named(self, name: str) -> str:
        """Return a tool's name with the prefix that the agent's framework gives it, if any."""
        offered = [tool.get("function", tool).get("name", "") for tool in self._tools]
        meant = tools_named(name, offered)
        return meant[0] if len(meant) == 1 else name

    @property
    def _tools(self) -> list[Any]:
        tools = self.document.get("tools")
        return [tool for tool in tools or () if isinstance(tool, dict)]


class CaseRequests:
    """Answers an agent's requests with replies in order, or its model's, and gives them faults.

    Args:
        replies: What the scripted model answers; None for an agent with a model.
        faults: What goes wrong with which request.
    """

    def __init__(
        self, replies: Sequence[ModelReply] | None, faults: Sequence[ModelFault] = ()
    ) -> None:
        self.handled: list[HandledRequest] = []
        """What became of the requests for an answer of the model, in order."""
        self.bodies: list[Mapping[str, Any]] = []
        """What they were."""
        self._replies = replies
        self._faults = faults
        self._replies_given = 0
        self._calls = 0
        self._lock = Lock()

    @asynccontextmanager
    async def answer(self, path: str, body: bytes, send: Send) -> AsyncIterator[StreamedResponse]:
        """Yield the response to a request; see `RequestHandler`."""
        kind = find_reader("POST", path)
        if kind in {OtherRequest, Embeddings}:
            async with send(body) as response:
                yield response
            return
        request = self._begin(path, body)
        faults = {fault.kind: fault for fault in self._faults if fault.call == request.number}
        if "delay" in faults:
            self._note(request, fault="delay")  # also if the agent does not wait so long
            await asyncio.sleep(faults["delay"].delay or 0)
        if "status" in faults:
            self._note(request, fault="status")
            yield error_response(faults["status"].status or 0, "fault", FAULT)
        elif "refusal" in faults:
            refusal = Completion(faults["refusal"].refusal, (), TokenUsage())
            yield self._render(request, refusal, "refusal")
        else:
            async with self._respond(request, body, send) as response:
                if "cut_off" not in faults:
                    yield response
                    return
                reader = OtherRequest() if kind is None else kind()
                yield await self._cut_off(request, response, reader)

    def _begin(self, path: str, body: bytes) -> _Request:
        """Return a request that has come."""
        try:
            document = json.loads(body)
        except ValueError:
            document = None
        if not isinstance(document, Mapping):
            document = {}
        with self._lock:
            self.bodies.append(document)
            self.handled.append(HandledRequest())
            return _Request(len(self.handled), path, document)

    def _note(
        self,
        request: _Request,
        *,
        reply: int | None = None,
        fault: FaultKind | None = None,
        problem: str | None = None,
    ) -> None:
        """Note what became of a request."""
        with self._lock:
            known = self.handled[request.number - 1]
            faults = [*known.faults, *(() if fault is None else (fault,))]
            reply = known.reply if reply is None else reply
            noted = HandledRequest(reply=reply, faults=faults, problem=problem or known.problem)
            self.handled[request.number - 1] = noted

    def _respond(
        self, request: _Request, body: bytes, send: Send
    ) -> AbstractAsyncContextManager[StreamedResponse]:
        """Return the response of the model, or of the scripted one."""
        return send(body) if self._replies is None else self._reply(request)

    @asynccontextmanager
    async def _reply(self, request: _Request) -> AsyncIterator[StreamedResponse]:
        with self._lock:
            at, self._replies_given = self._replies_given, self._replies_given + 1
        replies = self._replies or ()
        if at >= len(replies):
            count = f"all {len(replies)} model_replies were given" if replies else "there are none"
            yield self._refuse(request, f"the scripted model has no reply to it: {count}")
            return
        self._note(request, reply=at)
        calls = [
            self._tool_call(request.tool_named(name), arguments)
            for call in replies[at].tool_calls or ()
            for name, arguments in call.items()
        ]
        yield self._render(request, Completion(replies[at].text, calls, TokenUsage()))

    def _tool_call(self, name: str, arguments: Mapping[str, Any]) -> RawToolCall:
        with self._lock:
            self._calls += 1
            return RawToolCall(f"call_{self._calls}", name, json.dumps(arguments))

    def _render(
        self, request: _Request, reply: Completion, fault: FaultKind | None = None
    ) -> StreamedResponse:
        """Return the reply in the format of the request, which may be the effect of a fault."""
        response = render_reply(request.path, request.document, reply, request.number)
        if response is None:
            known = ", ".join(PATHS)
            return self._refuse(request, f"its format is not known; these are: {known}")
        self._note(request, fault=fault)
        return response

    async def _cut_off(
        self, request: _Request, response: StreamedResponse, reader: Reader
    ) -> StreamedResponse:
        """Return the first half of a response; the whole, if there is nothing to cut off."""
        content = [piece async for piece in response.body]
        problem = f"its response has the status {response.status}"
        if response.status == 200:
            try:
                pieces = body_reader(reader, response.headers)
                for piece in content:
                    pieces.feed(piece)
                pieces.end()
            except (UnreadableBody, MalformedHttp, TooLarge, ValueError, LookupError) as error:
                problem = f"its response is not readable: {error}"
            else:
                reply = cut(Completion(reader.text, reader.calls, reader.usage or TokenUsage()))
                if reply is not None:
                    return self._render(request, reply, "cut_off")
                problem = "its response is empty"
        nothing = f"the fault 'cut_off' at call {request.number} changed nothing"
        self._note(request, problem=f"{nothing}: {problem}")

        async def unchanged() -> AsyncIterator[bytes]:
            for piece in content:
                yield piece

        return StreamedResponse(response.status, response.headers, unchanged(), response.reason)

    def _refuse(self, request: _Request, reason: str) -> StreamedResponse:
        """Note that a request cannot be answered, and return the error that says so."""
        problem = (
            f"the agent's request {request.number} to its model (POST {request.path}) got no"
            f" answer: {reason}; it ends with {request.last_message}"
        )
        self._note(request, problem=problem)
        return error_response(NO_REPLY, "no_reply", problem)


def check_requests(
    replies: Sequence[ModelReply],
    faults: Sequence[ModelFault],
    requests: Sequence[HandledRequest],
) -> list[ToolCheck]:
    """Return a row for each reply and fault that was not delivered, and each unexpected request.

    A fault that was not delivered would pass as one that the agent has withstood.
    """
    sent = f"the agent asked its model {plural(len(requests), 'time')}" if requests else NEVER
    errors = {
        f"request {number}": request.problem
        for number, request in enumerate(requests, 1)
        if request.problem is not None
    }
    for at, fault in enumerate(faults):
        request = requests[fault.call - 1] if fault.call <= len(requests) else HandledRequest()
        if fault.kind not in request.faults and request.problem is None:
            errors[f"model_faults[{at}]"] = (
                f"{sent}; the fault {fault.kind!r} at call {fault.call} was not delivered"
            )
    given = sum(request.reply is not None for request in requests)
    if given < len(replies):
        left, reply = len(replies) - given, replies[given].model_dump_json(exclude_none=True)
        errors[f"model_replies[{given}]"] = (
            f"{sent}; {left} of {len(replies)} model_replies were not asked for, from"
            f" {one_line(reply, _SHOWN_CHARS)}"
        )
    return [
        ToolCheck(expectation=expectation, passed=False, error=error)
        for expectation, error in errors.items()
    ]
