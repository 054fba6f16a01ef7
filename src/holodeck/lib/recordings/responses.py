"""Responses of models as recordings hold them, and the other way round."""

import base64
import json
import re
from collections.abc import Mapping
from typing import Any

from holodeck.lib.llm.http_body import MalformedHttp, TooLarge, decode_body
from holodeck.lib.llm.request_handler import StreamedResponse, in_pieces
from holodeck.lib.tap.exchange import whole_response

Json = Any
_EVENT_END = re.compile(rb"(?<=\n\n)|(?<=\r\n\r\n)")
_MAX_BYTES = 64_000_000


def recorded_response(response: StreamedResponse, body: bytes, *, is_cut: bool) -> dict[str, Json]:
    """Return a response whose body has come; `is_cut` says that the client stopped reading.

    Streams are in pieces: events, or lines. Of the headers, only the content type is kept: others
    are about the connection, or differ each time.
    """
    headers = {name.lower(): value.decode("latin-1") for name, value in response.headers}
    try:
        content = decode_body(body, headers.get(b"content-encoding"), _MAX_BYTES)
    except (MalformedHttp, TooLarge):  # the client will notice, too
        content = body
    kind = headers.get(b"content-type", "")
    fields: dict[str, Json] = {"status": response.status, "type": kind}
    if is_cut:
        fields["is_cut"] = True
    try:
        text = content.decode()
    except UnicodeDecodeError:
        return {**fields, "base64": base64.b64encode(content).decode()}
    if "event-stream" in kind:
        return {
            **fields,
            "events": [piece.decode() for piece in _EVENT_END.split(content) if piece],
        }
    if "ndjson" in kind:
        return {**fields, "events": text.splitlines(keepends=True)}
    try:
        return {**fields, "json": json.loads(text)}
    except ValueError:
        return {**fields, "text": text}


def replayed_response(recorded: Mapping[str, Json]) -> StreamedResponse:
    """Return a recorded response."""
    status, kind = recorded["status"], recorded["type"]
    match recorded:
        case {"events": events}:
            pieces = in_pieces(*(event.encode() for event in events))
            return StreamedResponse(status, [(b"content-type", kind.encode())], pieces)
        case {"json": document}:
            content = json.dumps(document, ensure_ascii=False).encode()
        case {"base64": text}:
            content = base64.b64decode(text)
        case _:
            content = recorded["text"].encode()
    return whole_response(status, kind, content)
