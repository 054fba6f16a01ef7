"""The place of stubs in runs of Agent Framework."""

import json
from collections.abc import Callable, Mapping
from typing import Any

from holodeck.lib.support.stubs import call_tool, missing_argument


def stub_middleware() -> Any:
    """Return function middleware that lets stubs take the calls of tools."""
    import agent_framework

    @agent_framework.function_middleware  # type: ignore[untyped-decorator]
    async def call_or_stub(context: Any, call_next: Callable[[], Any]) -> None:
        async def run() -> Any:
            await call_next()
            return context.result

        arguments = context.arguments
        if not isinstance(arguments, Mapping):
            arguments = arguments.model_dump()
        refusal = missing_argument(context.function.parameters(), arguments)
        result = await call_tool(context.function.name, arguments, run, text_of, refusal)
        if result is not context.result:
            context.result = result if isinstance(result, str) else json.dumps(result)

    return call_or_stub


def text_of(result: Any) -> Any:
    """Return the text of the result of a function; a value that is not parsed stays as it is."""
    if not isinstance(result, list):
        return result
    return "".join(getattr(content, "text", None) or "" for content in result)
