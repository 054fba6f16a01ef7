"""Ollama's client, with the whole schemas of tools."""

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

from ollama import AsyncClient

_tools: ContextVar[Sequence[Any] | None] = ContextVar("holodeck_ollama_tools", default=None)
"""The tools of the request that is being built."""


class OllamaClient(AsyncClient):
    """Sends tools as they are given.

    The library drops what its types of a schema do not have: nested objects, references and limits.
    """

    async def chat(self, *args: Any, tools: Sequence[Any] | None = None, **options: Any) -> Any:
        token = _tools.set(tools)
        try:
            return await super().chat(*args, **options)
        finally:
            _tools.reset(token)

    async def _request(
        self, cls: Any, *args: Any, json: dict[str, Any] | None = None, **options: Any
    ) -> Any:
        tools = _tools.get()
        if json is not None and tools:
            json = {**json, "tools": tools}
        return await super()._request(cls, *args, json=json, **options)
