# ruff: noqa: SLF001 - threads show what they are made of in no other way
"""Threads that a user hands over with an agent of Semantic Kernel, and copies of them."""

from collections.abc import Callable, Mapping
from copy import copy
from typing import TYPE_CHECKING, Any

from holodeck.lib.backends.frameworks.base import FrameworkError

if TYPE_CHECKING:
    from semantic_kernel.agents import AgentThread
    from semantic_kernel.contents import ChatHistory

    from holodeck.lib.backends.base import Message

THREADS = {
    "ChatCompletionAgent": "ChatHistoryAgentThread",
    "OpenAIResponsesAgent": "ResponsesAgentThread",
    "OpenAIAssistantAgent": "AssistantAgentThread",
    "AzureAIAgent": "AzureAIAgentThread",
}
"""The thread of each kind of agent."""
TEXT = frozenset({"text", "annotation"})
"""Types of content that a copy of a message keeps."""


def check_options(agent: object, kind: str, options: Mapping[str, Any]) -> None:
    """Raise FrameworkError for arguments of `agent.invoke()` that cannot be chosen."""
    name = type(agent).__name__
    if options and kind not in THREADS:
        raise FrameworkError(f"arguments cannot be chosen for a {name}; name the object itself")
    if "messages" in options:
        raise FrameworkError(
            "'messages' cannot be chosen, as they are the inputs of the test cases; write earlier"
            " ones as a thread, or as 'history' of the case"
        )
    thread = options.get("thread")
    if thread is None:
        return
    if THREADS[kind] not in {base.__name__ for base in type(thread).__mro__}:
        raise FrameworkError(f"a {name} takes a {THREADS[kind]}, not a {type(thread).__name__}")
    if thread._is_deleted:
        raise FrameworkError(f"the {type(thread).__name__} was deleted; hand over one that exists")


def copy_of_history(history: "ChatHistory") -> "ChatHistory":
    """Return a history of the same class and settings, with a list of messages of its own."""
    return history.model_copy(update={"messages": list(history.messages)})


def chat_thread(thread: "AgentThread | None", history: "ChatHistory") -> "AgentThread":
    """Return a thread like the user's with this history."""
    from semantic_kernel.agents import ChatHistoryAgentThread

    if thread is None:
        return ChatHistoryAgentThread(chat_history=history)
    like: Any = copy(thread)
    like._chat_history = history
    return like  # type: ignore[no-any-return]


def new_service_thread(thread: "AgentThread | None", agent: Any) -> "Callable[[], AgentThread]":
    """Return what makes threads like the user's that the service does not know yet.

    Messages that the service has already are not in them; see `messages_of`.
    """

    def make() -> "AgentThread":
        if thread is None:
            return _empty_thread(agent.client, agent)
        like: Any = copy(thread)
        if thread.id is not None:
            like._messages = vars(_empty_thread(like._client, agent))["_messages"]
        like._id = None
        return like  # type: ignore[no-any-return]

    return make


def _empty_thread(client: Any, agent: Any) -> "AgentThread":
    if "AzureAIAgent" in {base.__name__ for base in type(agent).__mro__}:
        from semantic_kernel.agents import AzureAIAgentThread

        return AzureAIAgentThread(client=client)
    from semantic_kernel.agents import AssistantAgentThread

    return AssistantAgentThread(client=client)


async def messages_of(thread: Any) -> "list[Message]":
    """Return the messages that a service keeps of a thread. Raises FrameworkError for files."""
    if thread.id is None:  # they are sent when the thread is created
        return []
    found: list[Message] = []
    async for message in thread.get_messages(sort_order="asc"):
        others = [one.content_type for one in message.items if one.content_type not in TEXT]
        if others:
            raise FrameworkError(
                f"the thread {thread.id} has a message with {others[0]}, of which a test case"
                " cannot get a copy; hand over a thread of text, or create it in a function"
            )
        found.append({"role": message.role.value, "content": str(message.content or "")})
    return found
