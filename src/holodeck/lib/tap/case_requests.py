"""The requests of an agent to its model in a run of a case: scripted replies, and faults."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from holodeck.lib.llm.completion import Completion, RawToolCall
from holodeck.lib.llm.formats import Embeddings, OtherRequest, UnreadableBody
from holodeck.lib.llm.http_body import MalformedHttp, TooLarge
from holodeck.lib.llm.request_handler import Send, StreamedResponse, in_pieces
from holodeck.lib.support.text import json_or_none, one_line
from holodeck.lib.support.tool_names import tools_named
from holodeck.lib.tap.exchange import NO_REPLY, error_response
from holodeck.lib.tap.reading import body_reader, find_reader
from holodeck.lib.tap.replies import PATHS, cut, render_reply
from holodeck.models.cases.stubs import FaultKind, ModelFault, ModelReply
from holodeck.models.results.turn import HandledRequest, ToolCheck
from holodeck.models.token_usage import TokenUsage

FAULT = "a fault of the test case"
_SHOWN_CHARS = 300


@dataclass
class _Request:
    """A request for an answer of the model, and what has become of it."""

    number: int
    """From 1."""
    path: str
    document: Any
    """Its body; empty if it is no JSON object."""
    reply: int | None = None
    faults: list[FaultKind] = field(default_factory=list)
    problem: str | None = None

    @property
    def last_message(self) -> str:
        """The end of the conversation that the model is to continue, as JSON."""
        messages = self.document.get("messages") or self.document.get("input") or self.document
        last = messages[-1] if isinstance(messages, list) else messages
        return one_line(json.dumps(last, ensure_ascii=False), _SHOWN_CHARS)

    def tool_named(self, name: str) -> str:
        """Return a tool's name with the prefix that the agent's framework gives it, if any."""
        tools = [tool.get("function", tool) for tool in self.document.get("tools") or ()]
        meant = tools_named(name, [tool.get("name", "") for tool in tools])
        return meant[0] if len(meant) == 1 else name

    def render(self, reply: Completion, fault: FaultKind | None = None) -> StreamedResponse:
        """Return a reply in the format of the request; it may be the effect of a fault."""
        response = render_reply(self.path, self.document, reply, self.number)
        if response is None:
            return self.reject(f"its format is not known; these are: {', '.join(PATHS)}")
        self.faults += [] if fault is None else [fault]
        return response

    def reject(self, reason: str) -> StreamedResponse:
        """Return the error of a request that cannot be answered."""
        self.problem = (
            f"the agent's request {self.number} to its model (POST {self.path}) got no answer:"
            f" {reason}; it ends with {self.last_message}"
        )
        return error_response(NO_REPLY, "no_reply", self.problem)


class CaseRequests:
    """Answers an agent's requests with replies in order, or its model's, and gives them faults.

    Args:
        replies: What the scripted model answers; None for an agent with a model.
        faults: What goes wrong with which request.
    """

    def __init__(
        self, replies: Sequence[ModelReply] | None, faults: Sequence[ModelFault] = ()
    ) -> None:
        self._replies = replies
        self._left = iter(enumerate(replies or ()))
        self._faults = faults
        self._requests: list[_Request] = []
        self._call_numbers = count(1)

    @property
    def sends_on(self) -> bool:
        """Whether it may send a request on to the model."""
        return self._replies is None

    @property
    def has_refused(self) -> bool:
        """Whether a request got no answer, or not the fault that it was to get."""
        return any(request.problem is not None for request in self._requests)

    @property
    def handled(self) -> list[HandledRequest]:
        """What became of the requests for an answer of the model, in order."""
        return [
            HandledRequest(reply=request.reply, faults=[*request.faults], problem=request.problem)
            for request in self._requests
        ]

    @property
    def bodies(self) -> list[Mapping[str, Any]]:
        """The bodies of these requests."""
        return [request.document for request in self._requests]

    @asynccontextmanager
    async def answer(
        self, method: str, path: str, body: bytes, send: Send
    ) -> AsyncIterator[StreamedResponse]:
        """Yield the response to a request; see `RequestHandler`."""
        if find_reader(method, path) in {OtherRequest, Embeddings}:
            async with send(body) as response:
                yield response
            return
        document = json_or_none(body.decode(errors="replace"))
        number = len(self._requests) + 1
        request = _Request(number, path, document if isinstance(document, dict) else {})
        self._requests.append(request)
        faults = {fault.kind: fault for fault in self._faults if fault.call == number}
        if "delay" in faults:
            request.faults.append("delay")  # also if the agent does not wait so long
            await asyncio.sleep(faults["delay"].delay or 0)
        if "status" in faults:
            request.faults.append("status")
            yield error_response(faults["status"].status or 0, "fault", FAULT)
        elif "refusal" in faults:
            refusal = Completion(faults["refusal"].refusal, (), TokenUsage())
            yield request.render(refusal, "refusal")
        else:
            asked = nullcontext(self._reply(request)) if self._replies is not None else send(body)
            async with asked as response:
                is_whole = "cut_off" not in faults
                yield response if is_whole else await _cut_off(request, response)

    def _reply(self, request: _Request) -> StreamedResponse:
        """Return the response of the scripted model."""
        request.reply, reply = next(self._left, (None, None))
        if reply is None:
            given = f"all {len(self._replies or ())} model_replies were given"
            reason = given if self._replies else "there are no model_replies"
            return request.reject(f"the scripted model has no reply to it: {reason}")
        calls = [
            RawToolCall(f"call_{number}", request.tool_named(name), json.dumps(arguments))
            for (name, arguments), number in zip(reply.calls, self._call_numbers, strict=False)
        ]
        return request.render(Completion(reply.text, calls, TokenUsage()))


async def _cut_off(request: _Request, response: StreamedResponse) -> StreamedResponse:
    """Return the first half of a response; the whole, if there is nothing to cut off."""
    content = [piece async for piece in response.body]
    try:
        reply = cut(_read(request, response, content))
    except (UnreadableBody, MalformedHttp, TooLarge, ValueError, LookupError) as error:
        reason = str(error)
    else:
        if reply is not None:
            return request.render(reply, "cut_off")
        reason = "it is empty"
    fault = f"the fault 'cut_off' at call {request.number} changed nothing of the response"
    request.problem = request.problem or f"{fault}: {reason}"
    return replace(response, body=in_pieces(*content))


def _read(request: _Request, response: StreamedResponse, content: Sequence[bytes]) -> Completion:
    """Return what a response says. Raises UnreadableBody, MalformedHttp, TooLarge, ValueError."""
    if response.status != 200:
        raise UnreadableBody(f"it has the status {response.status}")
    reader = (find_reader("POST", request.path) or OtherRequest)()
    body = body_reader(reader, response.headers)
    for piece in content:
        body.feed(piece)
    body.end()
    return Completion(reader.text, reader.calls, TokenUsage())


def check_requests(
    replies: Sequence[ModelReply],
    faults: Sequence[ModelFault],
    requests: Sequence[HandledRequest],
) -> list[ToolCheck]:
    """Return a row for each reply and fault that was not delivered, and each unexpected request.

    A fault that was not delivered would pass as one that the agent has withstood.
    """
    times = f"the agent asked its model {len(requests)} times"
    sent = {0: "the agent never asked its model", 1: "the agent asked its model once"}.get(
        len(requests), times
    )
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
