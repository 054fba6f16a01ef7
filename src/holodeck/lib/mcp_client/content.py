"""The content of results of MCP tools: texts, images and other blocks."""

import base64
import json
from dataclasses import dataclass
from typing import Any

from holodeck.lib.support.text import plural


@dataclass(frozen=True)
class Image:
    """An image in a result."""

    data: bytes
    media_type: str


def texts_of(result: Any) -> list[str]:
    """Return a text for each content block of a result (`mcp.types.CallToolResult`).

    A result with structured content only is one text: its JSON.
    """
    texts = [_text_of(block) for block in result.content]
    if not texts and result.structuredContent is not None:
        return [json.dumps(result.structuredContent, ensure_ascii=False)]
    return texts


def images_of(result: Any) -> list[Image]:
    """Return the images of a result; one that cannot be decoded is left out."""
    found = []
    for block in result.content:
        data, media_type = _binary_of(block)
        if media_type.startswith("image/") and data:
            found.append(Image(data, media_type))
    return found


def _text_of(block: Any) -> str:
    if block.type == "text":
        return str(block.text)
    if block.type == "resource" and hasattr(block.resource, "text"):
        return str(block.resource.text)
    data, media_type = _binary_of(block)
    if data is None:  # such as the link to a resource
        return str(block.model_dump_json(exclude_none=True))
    return f"[{media_type or 'binary data'}, {plural(len(data), 'byte', form=',')}]"


def _binary_of(block: Any) -> tuple[bytes | None, str]:
    """Return the bytes of a block and their type; None for a block without."""
    holder = block.resource if block.type == "resource" else block
    encoded = getattr(holder, "blob", None) or getattr(holder, "data", None)
    if encoded is None:
        return None, ""
    try:
        data = base64.b64decode(encoded, validate=True)
    except ValueError:
        data = b""
    return data, holder.mimeType or ""
