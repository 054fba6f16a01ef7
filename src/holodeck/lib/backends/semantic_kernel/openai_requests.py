"""Chat requests through openai's client that are sent as Semantic Kernel writes them."""

from functools import cached_property
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from openai import AsyncOpenAI
from openai.types.chat import ChatCompletion

if TYPE_CHECKING:
    from openai.resources.chat import AsyncCompletions

_CHANGES_THE_REQUEST = frozenset(
    {"stream", "extra_headers", "extra_query", "extra_body", "timeout", "response_format"}
)
"""Arguments that are not simply parts of the JSON, or that the client checks."""


def send_as_written(client: AsyncOpenAI) -> None:
    """Let the client send the parameters of chat requests unchanged.

    Its own `create` looks up the type of each part of each message, to rename keys of other
    requests, and then sends the same JSON. That takes a fifth of the CPU time of a test case.
    """
    vars(client)["chat"] = SimpleNamespace(completions=_Completions(client))


class _Completions:
    """Takes the place of `client.chat.completions`, which is imported only if it is needed."""

    def __init__(self, client: AsyncOpenAI) -> None:
        self._client = client

    async def create(self, **parameters: Any) -> Any:
        """Send a chat request."""
        if any(map(parameters.get, _CHANGES_THE_REQUEST)):
            return await self._own.create(**parameters)
        return await self._client.post("/chat/completions", cast_to=ChatCompletion, body=parameters)

    @cached_property
    def _own(self) -> "AsyncCompletions":
        from openai.resources.chat import AsyncChat

        return AsyncChat(self._client).completions

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)
