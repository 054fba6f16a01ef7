"""What agents of Microsoft Agent Framework say, what can be known of them, and where stubs go."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holodeck.lib.backends.frameworks.base import FrameworkError, TurnRecord
from holodeck.lib.support.stubs import call_tool, missing_argument

if TYPE_CHECKING:
    from holodeck.lib.backends.base import Message

OWN_OPTIONS = ("messages", "message", "stream", "middleware")
"""Arguments of `run` that an adapter sets."""
REFUSALS = ("Error: Requested function ", "Error: Argument parsing failed.")
"""How the framework begins the result of a call that reaches no function."""


def has_client(agent: Any) -> bool:
    """Whether the framework itself calls the model, and the tools that it requests."""
    import agent_framework

    return isinstance(agent, agent_framework.RawAgent)


def read_response(turn: TurnRecord, response: Any, agent: str | None = None) -> None:
    """Note the tool calls, their results and the usage of an agent's response."""
    read_messages(turn, response.messages, agent)
    turn.add_usage(*token_counts(response.usage_details), requests=None)


def read_messages(turn: TurnRecord, messages: Sequence[Any], agent: str | None = None) -> None:
    """Note the tool calls in messages, and their results."""
    for message in messages:
        for content in message.contents:
            if content.type == "function_call":
                turn.add_call(content.name, content.arguments, content.call_id, agent)
            elif content.type.endswith("_tool_call"):  # a tool of the provider
                name = content.tool_name or content.type.removesuffix("_tool_call")
                turn.add_call(name, content.arguments, content.call_id, agent)
        read_results(turn, message)


def read_results(turn: TurnRecord, message: Any) -> None:
    """Note the results of tools in a message."""
    for content in message.contents:
        if content.type == "function_result":
            failed = content.exception is not None
            result = content.exception if failed else content.result
            refused = failed and str(content.result).startswith(REFUSALS)
            turn.add_result(content.call_id, result, is_error=failed, is_refused=refused)
            turn.traced_functions.append(content.call_id)
        elif content.type.endswith("_tool_result"):
            turn.add_result(content.call_id, _provider_result(content))


def _provider_result(content: Any) -> Any:
    """Return the output of a tool of the provider; its text, where it has some."""
    output = getattr(content, "output", None) or getattr(content, "outputs", None)
    texts = [getattr(part, "text", None) for part in output] if isinstance(output, list) else [None]
    known = [text for text in texts if isinstance(text, str)]
    return "\n".join(known) if len(known) == len(texts) else str(output)


def token_counts(usage: Mapping[str, int | None] | None) -> tuple[int | None, int | None]:
    """Return prompt and completion tokens; None for what is unknown."""
    usage = usage or {}
    return usage.get("input_token_count"), usage.get("output_token_count")


def answer(response: Any) -> Any:
    """Return the structured answer if the agent has a response format, or else the last text.

    Where middleware ended the run after a call, the results of the last message are the answer.
    """
    try:
        value = response.value
    except ValueError:  # the model did not keep to the format
        value = None
    if value is not None:
        return value
    texts = [
        message.text
        for message in response.messages
        if message.role == "assistant" and message.text
    ]
    return "\n".join(last_results(response)) or (texts[-1] if texts else "")


def last_results(response: Any) -> list[str]:
    """Return the results of tools in the last message, after which middleware ended the run."""
    last = response.messages[-1].contents if response.messages else ()
    return [str(content.result) for content in last if content.type == "function_result"]


def new_text(update: Any) -> str:
    """Return the text that an update adds; at its end, a text may be sent again as a whole."""
    return "".join(
        content.text or ""
        for content in update.contents
        if content.type == "text" and getattr(content, "merge_mode", None) != "replace"
    )


def note_approvals(turn: TurnRecord, response: Any) -> list[Any]:
    """Note what the agent waits for a person to approve; return the framework's requests for it.

    Raises FrameworkError if the agent waits for other input of a person.
    """
    requests = list(response.user_input_requests)
    for request in requests:
        call = getattr(request, "function_call", None)
        if call is None:
            raise FrameworkError(
                f"the agent waits for input of a person ({request.type}), and a test has none;"
                " answer it in the agent's code"
            )
        turn.add_approval(call.name, call.arguments, call.call_id)
    return requests


def tool_names(agent: Any) -> list[str] | None:
    """Return the names of an agent's tools; None if some become known only in a run."""
    import agent_framework

    if not has_client(agent):
        return None
    providers = agent.context_providers
    if not all(isinstance(provider, agent_framework.HistoryProvider) for provider in providers):
        return None
    tools = list(agent.default_options.get("tools") or ())
    for server in agent.mcp_tools:
        if not server.is_connected:
            return None
        tools += server.functions
    names = [_tool_name(tool) for tool in tools]
    return None if None in names else [name for name in names if name is not None]


def note_agent_tools(turn: TurnRecord, agent: Any) -> None:
    """Note which of the turn's calls ran an agent as a tool (`agent.as_tool()`)."""
    options = getattr(agent, "default_options", None) or {}
    for tool in options.get("tools") or ():
        function = getattr(tool, "func", None)
        if "as_tool.<locals>" not in getattr(function, "__qualname__", ""):
            continue
        if any(call["name"] == tool.name for call in turn.tool_calls or ()):
            turn.add_agent_tool(tool.name)
            turn.add_usage(None, None, requests=0)


def _tool_name(tool: Any) -> str | None:
    if isinstance(tool, Mapping):  # a tool of the provider, as its API describes it
        name = tool.get("name") or tool.get("type")
    else:
        name = getattr(tool, "name", None)
    return name if isinstance(name, str) else None


def to_messages(messages: Sequence["Message"]) -> list[Any]:
    """Return messages in the format of chat completions as messages of the framework."""
    return [_to_message(message) for message in messages]


def _to_message(message: "Message") -> Any:
    import agent_framework

    text, role = message["content"], message["role"]
    contents: list[Any] = []
    if role == "tool":
        call_id = message.get("tool_call_id", "")
        contents.append(agent_framework.Content.from_function_result(call_id, result=text))
    elif text:
        contents.append(agent_framework.Content.from_text(text))
    for call in message.get("tool_calls", ()):
        function = call["function"]
        contents.append(
            agent_framework.Content.from_function_call(
                call["id"], function["name"], arguments=function["arguments"]
            )
        )
    return agent_framework.Message(role, contents, author_name=message.get("name"))


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
