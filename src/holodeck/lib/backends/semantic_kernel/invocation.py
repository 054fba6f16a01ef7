"""One invocation of an agent: what it said, and what was seen on the way."""

from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from semantic_kernel.agents import ChatHistoryAgentThread
from semantic_kernel.contents import (
    AuthorRole,
    ChatHistory,
    ChatMessageContent,
    FunctionCallContent,
    FunctionResultContent,
    TextContent,
)

from holodeck.lib.backends.base import Message
from holodeck.lib.backends.semantic_kernel.calls import PLUGIN, AgentCall, current_call

if TYPE_CHECKING:
    from collections.abc import Sequence

    from semantic_kernel import Kernel
    from semantic_kernel.agents import ChatCompletionAgent
    from semantic_kernel.functions import KernelArguments


def new_history(context: "Sequence[Message]" = ()) -> ChatHistory:
    """A history that starts with the earlier messages given."""
    history = ChatHistory()
    called: dict[str, str] = {}
    for message in context:
        calls = [_call(one) for one in message.get("tool_calls", [])]
        called |= {str(one.id): str(one.name) for one in calls}
        role = AuthorRole(message["role"])
        said = [_result(message, called)] if role is AuthorRole.TOOL else _texts(message)
        items: list[Any] = [*said, *calls]
        history.add_message(ChatMessageContent(role=role, items=items, name=message.get("name")))
    return history


def _texts(message: Message) -> list[TextContent]:
    return [TextContent(text=message["content"])] if message["content"] else []


def _call(call: dict[str, Any]) -> FunctionCallContent:
    function = call["function"]
    return FunctionCallContent(
        id=call["id"], name=function["name"], arguments=function["arguments"]
    )


def _result(message: Message, called: dict[str, str]) -> FunctionResultContent:
    """The result of a tool, by the name under which it was called."""
    call_id = message.get("tool_call_id", "")
    return FunctionResultContent(
        id=call_id, name=called.get(call_id, call_id), result=message["content"]
    )


async def invoke(
    agent: "ChatCompletionAgent",
    kernel: "Kernel",
    arguments: "KernelArguments",
    history: ChatHistory,
    call: AgentCall,
) -> str:
    """The agent's answer to the history; the history gets every message that is new."""
    call.runs_every_tool = set(kernel.plugins) <= {PLUGIN}
    thread = ChatHistoryAgentThread(chat_history=history)
    token = current_call.set(call)
    try:
        answers = [
            answer
            async for answer in agent.invoke(thread=thread, kernel=kernel, arguments=arguments)
        ]
    finally:
        current_call.reset(token)
    return "".join(str(answer.message.content or "") for answer in answers)


async def invoke_streaming(
    agent: "ChatCompletionAgent",
    kernel: "Kernel",
    arguments: "KernelArguments",
    history: ChatHistory,
    call: AgentCall,
) -> AsyncIterator[str]:
    """The agent's answer in pieces."""
    thread = ChatHistoryAgentThread(chat_history=history)
    token = current_call.set(call)
    try:
        stream = agent.invoke_stream(thread=thread, kernel=kernel, arguments=arguments)
        async for piece in stream:
            if piece.message.content:
                yield str(piece.message.content)
    finally:
        current_call.reset(token)
