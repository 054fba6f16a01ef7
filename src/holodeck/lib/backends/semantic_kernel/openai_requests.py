"""Chat requests through openai's client that are sent as Semantic Kernel writes them."""

from typing import Any

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion

_CHANGES_THE_REQUEST = frozenset(
    {"stream", "extra_headers", "extra_query", "extra_body", "timeout", "response_format"}
)
"""Arguments that are not simply parts of the JSON, or that the client checks."""


def send_as_written(client: AsyncOpenAI) -> None:
    """Let the client send the parameters of chat requests unchanged.

    Its own `create` looks up the type of each part of each message, to rename keys of other
    requests, and then sends the same JSON. That takes a fifth of the CPU time of a test case.
    """
    completions = client.chat.completions
    create = completions.create

    async def create_as_written(**parameters: Any) -> Any:
        if any(map(parameters.get, _CHANGES_THE_REQUEST)):
            return await create(**parameters)
        return await client.post("/chat/completions", cast_to=ChatCompletion, body=parameters)

    completions.create = create_as_written  # type: ignore[method-assign]
