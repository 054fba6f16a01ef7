"""Writers of the wire formats of models: a response, whole or as the events of a stream."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from holodeck.lib.llm.completion import Completion, RawToolCall, to_document
from holodeck.lib.llm.request_handler import StreamedResponse
from holodeck.lib.support.text import json_or_none
from holodeck.lib.tap.exchange import whole_response

JsonObject = dict[str, Any]


@dataclass(frozen=True)
class _Format:
    """A wire format: how it writes a response, and how the same as a stream."""

    document: Callable[[JsonObject, Completion], JsonObject]
    """Adds the response to what every response of the format has: the model and an id."""
    events: Callable[[JsonObject, Completion], Iterator[JsonObject]]
    """Yields the events of the stream for a document and its response."""
    has_lines: bool = False
    """Whether each event is a line, and not a server-sent event; such a format streams unless the
    request refuses."""
    end: str = ""
    """What follows the events."""


def render_reply(
    path: str, request: Mapping[str, Any], reply: Completion, number: int
) -> StreamedResponse | None:
    """Return the response to a request, in the format that its path says; None if it is unknown.

    The number makes the id of the response.
    """
    path = urlsplit(path).path.rstrip("/")
    kind = next((kind for end, kind in _FORMATS.items() if path.endswith(end)), None)
    if kind is None:
        return None
    head = {"id": f"response_{number}", "model": request.get("model") or "scripted"}
    document = kind.document(head, reply)
    if not request.get("stream", kind.has_lines):
        return whole_response(200, "application/json", json.dumps(document).encode())
    events = kind.events(document, reply)
    if kind.has_lines:
        lines = "".join(f"{json.dumps(event)}\n" for event in events)
        return whole_response(200, "application/x-ndjson", lines.encode())
    stream = "".join(map(_server_sent, events)) + kind.end
    return whole_response(200, "text/event-stream", stream.encode())


def cut(reply: Completion) -> Completion | None:
    """Return a response that ended at the limit of tokens; None if there is nothing to cut off.

    The text loses its second half, or the last tool call that of its arguments.
    """
    text, calls = reply.text or "", [*reply.calls]
    if calls:
        last = calls[-1]
        calls[-1] = RawToolCall(last.id, last.name, last.arguments[: len(last.arguments) // 2])
    elif text:
        text = text[: len(text) // 2]
    else:
        return None
    return Completion(text or None, calls, reply.usage, is_cut=True)


def _server_sent(event: JsonObject) -> str:
    name = f"event: {event['type']}\n" if "type" in event else ""
    return f"{name}data: {json.dumps(event)}\n\n"


def _finish(reply: Completion, end: str, calls: str, cut_off: str) -> str:
    """Return the word of a format for how a response ended."""
    if reply.is_cut:
        return cut_off
    return calls if reply.calls else end


def _chat_completion(head: JsonObject, reply: Completion) -> JsonObject:
    reason = _finish(reply, "stop", "tool_calls", "length")
    choices = to_document(replace(reply, finish_reason=reason))["choices"]
    return {**head, "object": "chat.completion", "created": 0, "choices": choices}


def _chat_chunks(document: JsonObject, _: Completion) -> Iterator[JsonObject]:
    [choice] = document["choices"]
    delta = dict(choice["message"])
    if "tool_calls" in delta:
        calls = enumerate(delta["tool_calls"])
        delta["tool_calls"] = [{**call, "index": index} for index, call in calls]
    for part, reason in ((delta, None), ({}, choice["finish_reason"])):
        chosen = {"index": 0, "delta": part, "finish_reason": reason}
        yield {**document, "object": "chat.completion.chunk", "choices": [chosen]}


def _response(head: JsonObject, reply: Completion) -> JsonObject:
    output: list[JsonObject] = []
    status = "incomplete" if reply.is_cut else "completed"
    if reply.text is not None:
        text = {"type": "output_text", "text": reply.text, "annotations": [], "logprobs": []}
        message = {"id": f"message_of_{head['id']}", "type": "message", "role": "assistant"}
        output.append({**message, "status": status, "content": [text]})
    output += [
        {
            "id": f"item_of_{call.id}",
            "type": "function_call",
            "status": status,
            "call_id": call.id,
            "name": call.name,
            "arguments": call.arguments,
        }
        for call in reply.calls
    ]
    return {
        **head,
        "object": "response",
        "created_at": 0,
        "status": status,
        "error": None,
        "incomplete_details": {"reason": "max_output_tokens"} if reply.is_cut else None,
        "instructions": None,
        "metadata": {},
        "output": output,
        "parallel_tool_calls": True,
        "tool_choice": "auto",
        "tools": [],
    }


def _response_events(document: JsonObject, _: Completion) -> Iterator[JsonObject]:
    begun = {**document, "status": "in_progress", "incomplete_details": None, "output": []}
    events: list[JsonObject] = [{"type": "response.created", "response": begun}]
    for index, item in enumerate(document["output"]):
        events += _item_events(index, item)
    events.append({"type": f"response.{document['status']}", "response": document})
    return ({**event, "sequence_number": number} for number, event in enumerate(events))


def _item_events(index: int, item: JsonObject) -> list[JsonObject]:
    place = {"item_id": item["id"], "output_index": index}
    if item["type"] == "function_call":
        empty, name = {**item, "arguments": ""}, "response.function_call_arguments"
        inner: list[JsonObject] = [
            {"type": f"{name}.delta", **place, "delta": item["arguments"]},
            {"type": f"{name}.done", **place, "arguments": item["arguments"]},
        ]
    else:
        [part], empty = item["content"], {**item, "content": []}
        place["content_index"] = 0
        inner = [
            {"type": "response.content_part.added", **place, "part": {**part, "text": ""}},
            {"type": "response.output_text.delta", **place, "delta": part["text"], "logprobs": []},
            {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []},
            {"type": "response.content_part.done", **place, "part": part},
        ]
    begun = {**empty, "status": "in_progress"}
    return [
        {"type": "response.output_item.added", "output_index": index, "item": begun},
        *inner,
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


def _anthropic_message(head: JsonObject, reply: Completion) -> JsonObject:
    blocks: list[JsonObject] = [{"type": "text", "text": reply.text}] if reply.text else []
    blocks += [
        {"type": "tool_use", "id": call.id, "name": call.name, "input": _arguments(call)}
        for call in reply.calls
    ]
    return {
        **head,
        "type": "message",
        "role": "assistant",
        "content": blocks,
        "stop_reason": _finish(reply, "end_turn", "tool_use", "max_tokens"),
        "stop_sequence": None,
        # the format requires a usage; readers take one without tokens for an unknown one
        "usage": {"input_tokens": 0, "output_tokens": 0},
    }


def _anthropic_events(document: JsonObject, reply: Completion) -> Iterator[JsonObject]:
    yield {"type": "message_start", "message": {**document, "content": [], "stop_reason": None}}
    arguments = iter(reply.calls)
    for index, block in enumerate(document["content"]):
        if block["type"] == "text":
            start = {**block, "text": ""}
            delta = {"type": "text_delta", "text": block["text"]}
        else:
            start = {**block, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": next(arguments).arguments}
        yield {"type": "content_block_start", "index": index, "content_block": start}
        yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    end = {"stop_reason": document["stop_reason"], "stop_sequence": None}
    yield {"type": "message_delta", "delta": end, "usage": {"output_tokens": 0}}
    yield {"type": "message_stop"}


def _ollama_message(head: JsonObject, reply: Completion) -> JsonObject:
    message: JsonObject = {"role": "assistant", "content": reply.text or ""}
    if reply.calls:
        message["tool_calls"] = [
            {"function": {"name": call.name, "arguments": _arguments(call)}} for call in reply.calls
        ]
    reason = _finish(reply, "stop", "stop", "length")
    created = "1970-01-01T00:00:00Z"
    rest = {"created_at": created, "message": message, "done": True, "done_reason": reason}
    return {"model": head["model"], **rest}


def _arguments(call: RawToolCall) -> Any:
    """Return arguments as an object, as formats require that cannot show any that are cut off."""
    return json_or_none(call.arguments) or {}


_FORMATS: Mapping[str, _Format] = {
    "/chat/completions": _Format(_chat_completion, _chat_chunks, end="data: [DONE]\n\n"),
    "/responses": _Format(_response, _response_events),
    "/messages": _Format(_anthropic_message, _anthropic_events),
    "/api/chat": _Format(_ollama_message, lambda document, _: iter([document]), has_lines=True),
}
"""By the end of the path."""
PATHS: Sequence[str] = [*_FORMATS]
"""The ends of the paths of requests that can be answered."""
