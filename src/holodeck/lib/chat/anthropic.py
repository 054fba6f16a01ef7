"""The Messages API of Anthropic: questions and answers as it has them."""

import json
from collections.abc import Mapping
from typing import Any

from holodeck.lib.chat.completion import Completion
from holodeck.lib.chat.faults import malformed_response
from holodeck.lib.chat.model import ChatRequest
from holodeck.lib.chat.settings import drop_none
from holodeck.models.llm import LLMProvider
from holodeck.models.token_usage import TokenUsage

MOST_TOKENS = 4096
"""The API wants a limit; this one where the configuration has none."""


def anthropic_body(llm: LLMProvider, question: ChatRequest) -> dict[str, Any]:
    """A question as a request; the format of the answer is asked for in words."""
    system = [one["content"] for one in question.messages if one["role"] == "system"]
    if question.schema is not None:
        system.append(f"Answer with JSON only, by this schema: {json.dumps(question.schema)}")
    return drop_none(
        {
            "model": llm.name,
            "messages": [dict(one) for one in question.messages if one["role"] != "system"],
            "system": "\n\n".join(system) or None,
            "max_tokens": question.max_tokens or llm.max_tokens or MOST_TOKENS,
            "temperature": llm.temperature,
            "top_p": llm.top_p,
        }
    )


def anthropic_completion(body: bytes) -> Completion:
    """The completion that an answer holds. Raises ChatFault."""
    try:
        document = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise malformed_response("is not JSON, and not a message", body) from error
    content = document.get("content") if isinstance(document, dict) else None
    if not isinstance(content, list):
        raise malformed_response("is not a message: it has no content", body)
    said = [one["text"] for one in content if isinstance(one, dict) and "text" in one]
    texts = [text for text in said if isinstance(text, str)]
    if len(texts) < len(said):
        raise malformed_response("is not a message: its content is no text", body)
    usage = document.get("usage")
    return Completion(
        "".join(texts),
        (),
        TokenUsage.of(_token_count(usage, "input_tokens"), _token_count(usage, "output_tokens")),
        is_cut=document.get("stop_reason") == "max_tokens",
    )


def _token_count(usage: Any, name: str) -> int:
    value = usage.get(name) if isinstance(usage, Mapping) else None
    return value if isinstance(value, int) and value > 0 else 0
