"""How each provider writes an answer: as one JSON document, as a stream, and as an error."""

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from support.wire_types import Dialect, Reply, Request, ToolCall

Document = dict[str, Any]

CREATED = 1_760_000_000
CREATED_AT = "2025-10-09T08:53:20.000000Z"


@dataclass(frozen=True)
class Writer:
    """One provider's way of writing."""

    document: Callable[[Request, Reply], Document]
    stream: Callable[[Request, Reply], list[bytes]]
    error: Callable[[int, str], Document]
    stream_type: str


def pieces(content: str | None) -> list[str]:
    """The content word by word; joined again it is the content."""
    return re.findall(r"\s*\S+|\s+$", content or "")


def arguments_of(call: ToolCall) -> Any:
    """The arguments as a value, or the raw text when it is not JSON."""
    try:
        return json.loads(call.raw_arguments)
    except ValueError:
        return call.raw_arguments


def sse(documents: Iterable[Document], *, named: bool = False) -> list[bytes]:
    """Server-sent events, with the type as the event's name where `named`."""
    return [
        (f"event: {d['type']}\n" if named else "").encode() + f"data: {json.dumps(d)}\n\n".encode()
        for d in documents
    ]


def call_id(request: Request, index: int, call: ToolCall) -> str:
    return call.id if call.id is not None else f"call_{request.number}_{index}"


def openai_calls(request: Request, reply: Reply) -> list[Document]:
    return [
        {
            "id": call_id(request, i, call),
            "type": "function",
            "function": {"name": call.name, "arguments": call.raw_arguments},
        }
        for i, call in enumerate(reply.calls)
    ]


def openai_finish(reply: Reply) -> str:
    return reply.finish_reason or ("tool_calls" if reply.calls else "stop")


def openai_usage(reply: Reply) -> Document | None:
    if reply.usage is None:
        return None
    prompt, completion = reply.usage
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
    }


def openai_head(request: Request, kind: str) -> Document:
    return {
        "id": f"chatcmpl-{request.number}",
        "object": kind,
        "created": CREATED,
        "model": request.model or "fake",
    }


def openai_document(request: Request, reply: Reply) -> Document:
    message: Document = {"role": "assistant", "content": reply.content}
    if reply.calls:
        message["tool_calls"] = openai_calls(request, reply)
    choice = {"index": 0, "message": message, "finish_reason": openai_finish(reply)}
    document = openai_head(request, "chat.completion") | {"choices": [choice]}
    usage = openai_usage(reply)
    return document if usage is None else document | {"usage": usage}


def openai_stream(request: Request, reply: Reply) -> list[bytes]:
    head = openai_head(request, "chat.completion.chunk")

    def chunk(delta: Document, finish: str | None = None) -> Document:
        return head | {"choices": [{"index": 0, "delta": delta, "finish_reason": finish}]}

    chunks = [chunk({"role": "assistant", "content": ""})]
    chunks += [chunk({"content": piece}) for piece in pieces(reply.content)]
    for i, call in enumerate(openai_calls(request, reply)):
        text = call["function"]["arguments"]
        begun = call | {"index": i, "function": call["function"] | {"arguments": ""}}
        chunks.append(chunk({"tool_calls": [begun]}))
        for part in halves(text):
            chunks.append(chunk({"tool_calls": [{"index": i, "function": {"arguments": part}}]}))
    chunks.append(chunk({}, openai_finish(reply)))
    usage = openai_usage(reply)
    if usage is not None and (request.body.get("stream_options") or {}).get("include_usage"):
        chunks.append(head | {"choices": [], "usage": usage})
    return [*sse(chunks), b"data: [DONE]\n\n"]


def halves(text: str) -> tuple[str, str]:
    middle = len(text) // 2
    return text[:middle], text[middle:]


def openai_error(status: int, message: str) -> Document:
    return {"error": {"message": message, "type": "fake_error", "param": None, "code": str(status)}}


def responses_usage(reply: Reply) -> Document | None:
    if reply.usage is None:
        return None
    prompt, completion = reply.usage
    return {
        "input_tokens": prompt,
        "input_tokens_details": {"cached_tokens": 0},
        "output_tokens": completion,
        "output_tokens_details": {"reasoning_tokens": 0},
        "total_tokens": prompt + completion,
    }


def responses_output(request: Request, reply: Reply) -> list[Document]:
    calls = [
        {
            "id": f"fc_{request.number}_{i}",
            "type": "function_call",
            "status": "completed",
            "call_id": call_id(request, i, call),
            "name": call.name,
            "arguments": call.raw_arguments,
        }
        for i, call in enumerate(reply.calls)
    ]
    if reply.content is None:
        return calls
    text = {"type": "output_text", "text": reply.content, "annotations": [], "logprobs": []}
    message = {"id": f"msg_{request.number}", "type": "message", "role": "assistant"}
    return [{**message, "status": "completed", "content": [text]}, *calls]


def responses_document(request: Request, reply: Reply) -> Document:
    return {
        "id": f"resp_{request.number}",
        "object": "response",
        "created_at": CREATED,
        "status": "completed",
        "error": None,
        "incomplete_details": None,
        "instructions": request.body.get("instructions"),
        "metadata": {},
        "model": request.model or "fake",
        "output": responses_output(request, reply),
        "parallel_tool_calls": True,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": request.body.get("tools") or [],
        "top_p": 1.0,
        "usage": responses_usage(reply),
    }


def responses_stream(request: Request, reply: Reply) -> list[bytes]:
    whole = responses_document(request, reply)
    begun = whole | {"status": "in_progress", "output": [], "usage": None}
    events: list[Document] = [{"type": "response.created", "response": begun}]
    for index, item in enumerate(whole["output"]):
        events += responses_item_events(index, item)
    events.append({"type": "response.completed", "response": whole})
    return sse([{**event, "sequence_number": i} for i, event in enumerate(events)], named=True)


def responses_item_events(index: int, item: Document) -> list[Document]:
    place = {"item_id": item["id"], "output_index": index}
    if item["type"] == "function_call":
        name, empty = "response.function_call_arguments", {**item, "arguments": ""}
        inner = [
            {"type": f"{name}.delta", **place, "delta": part} for part in halves(item["arguments"])
        ]
        inner.append({"type": f"{name}.done", **place, "arguments": item["arguments"]})
    else:
        [part], empty = item["content"], {**item, "content": []}
        place["content_index"] = 0
        inner = [{"type": "response.content_part.added", **place, "part": {**part, "text": ""}}]
        inner += [
            {"type": "response.output_text.delta", **place, "delta": piece, "logprobs": []}
            for piece in pieces(part["text"])
        ]
        inner.append(
            {"type": "response.output_text.done", **place, "text": part["text"], "logprobs": []}
        )
        inner.append({"type": "response.content_part.done", **place, "part": part})
    status = {**empty, "status": "in_progress"}
    return [
        {"type": "response.output_item.added", "output_index": index, "item": status},
        *inner,
        {"type": "response.output_item.done", "output_index": index, "item": item},
    ]


def anthropic_blocks(request: Request, reply: Reply) -> list[Document]:
    text = [] if reply.content is None else [{"type": "text", "text": reply.content}]
    return text + [
        {
            "type": "tool_use",
            "id": call_id(request, i, call),
            "name": call.name,
            "input": arguments_of(call),
        }
        for i, call in enumerate(reply.calls)
    ]


def anthropic_document(request: Request, reply: Reply) -> Document:
    prompt, completion = reply.usage or (0, 0)
    return {
        "id": f"msg_{request.number}",
        "type": "message",
        "role": "assistant",
        "model": request.model or "fake",
        "content": anthropic_blocks(request, reply),
        "stop_reason": reply.finish_reason or ("tool_use" if reply.calls else "end_turn"),
        "stop_sequence": None,
        "usage": {"input_tokens": prompt, "output_tokens": completion},
    }


def anthropic_stream(request: Request, reply: Reply) -> list[bytes]:
    whole = anthropic_document(request, reply)
    opening = whole | {"content": [], "stop_reason": None}
    events: list[Document] = [{"type": "message_start", "message": opening}]
    raw = [call.raw_arguments for call in reply.calls]
    for index, block in enumerate(whole["content"]):
        events += anthropic_block_events(index, block, raw)
    ending = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
    tokens = {"output_tokens": whole["usage"]["output_tokens"]}
    events.append({"type": "message_delta", "delta": ending, "usage": tokens})
    events.append({"type": "message_stop"})
    return sse(events, named=True)


def anthropic_block_events(index: int, block: Document, raw: list[str]) -> list[Document]:
    """The events of one block; tool blocks take their arguments from the front of `raw`."""
    if block["type"] == "text":
        start: Document = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": piece} for piece in pieces(block["text"])]
    else:
        start = block | {"input": {}}
        parts = halves(raw.pop(0))
        deltas = [{"type": "input_json_delta", "partial_json": part} for part in parts]
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": d} for d in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def anthropic_error(status: int, message: str) -> Document:
    return {"type": "error", "error": {"type": f"fake_error_{status}", "message": message}}


def ollama_message(content: str | None, calls: list[ToolCall]) -> Document:
    message: Document = {"role": "assistant", "content": content or ""}
    if calls:
        message["tool_calls"] = [
            {"function": {"name": call.name, "arguments": arguments_of(call)}} for call in calls
        ]
    return message


def ollama_document(request: Request, reply: Reply) -> Document:
    document = {
        "model": request.model or "fake",
        "created_at": CREATED_AT,
        "message": ollama_message(reply.content, reply.calls),
        "done": True,
        "done_reason": reply.finish_reason or "stop",
        "total_duration": 1_000_000,
        "load_duration": 1_000,
        "prompt_eval_duration": 1_000,
        "eval_duration": 1_000,
    }
    if reply.usage is None:
        return document
    prompt, completion = reply.usage
    return document | {"prompt_eval_count": prompt, "eval_count": completion}


def ollama_stream(request: Request, reply: Reply) -> list[bytes]:
    head = {"model": request.model or "fake", "created_at": CREATED_AT, "done": False}
    lines = [head | {"message": ollama_message(piece, [])} for piece in pieces(reply.content)]
    if reply.calls:
        lines.append(head | {"message": ollama_message("", reply.calls)})
    lines.append(ollama_document(request, reply) | {"message": ollama_message("", [])})
    return [json.dumps(line).encode() + b"\n" for line in lines]


def ollama_error(status: int, message: str) -> Document:
    return {"error": message}


WRITERS: dict[Dialect, Writer] = {
    "openai": Writer(openai_document, openai_stream, openai_error, "text/event-stream"),
    "responses": Writer(responses_document, responses_stream, openai_error, "text/event-stream"),
    "anthropic": Writer(anthropic_document, anthropic_stream, anthropic_error, "text/event-stream"),
    "ollama": Writer(ollama_document, ollama_stream, ollama_error, "application/x-ndjson"),
}
