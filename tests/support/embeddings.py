"""Embeddings of the fake model server: texts with the same words have similar vectors."""

import hashlib
import math
import re
from typing import Any

from support.wire_types import Reply, Request

DIMENSIONS = 64


def vector_of(text: str, dimensions: int = DIMENSIONS) -> list[float]:
    """A vector of length 1 with a number for each word, by its hash."""
    numbers = [0.0] * dimensions
    for word in re.findall(r"\w+", text.casefold()):
        numbers[hashlib.sha256(word.encode()).digest()[0] % dimensions] += 1.0
    length = math.hypot(*numbers)
    return [one / length for one in numbers] if length else [1.0, *numbers[1:]]


def embeddings_reply(request: Request) -> Reply:
    """The vectors for a request, as OpenAI or Ollama writes them."""
    texts = request.embedded_texts
    vectors = [vector_of(text, request.body.get("dimensions") or DIMENSIONS) for text in texts]
    tokens = sum(len(text.split()) for text in texts)
    if request.path == "/api/embed":
        return Reply(json={"embeddings": vectors, "prompt_eval_count": tokens})
    data: list[dict[str, Any]] = [
        {"object": "embedding", "index": index, "embedding": vector}
        for index, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return Reply(json={"object": "list", "data": data, "model": request.model, "usage": usage})
