# ruff: noqa: SLF001 - threads show what they are made of in no other way
"""Threads that a user hands over with an agent of Semantic Kernel, and copies of them."""

from collections.abc import Mapping
from copy import copy
from typing import TYPE_CHECKING, Any

from holodeck.lib.backends.frameworks.base import FrameworkError

if TYPE_CHECKING:
    from semantic_kernel.agents import AgentThread
    from semantic_kernel.contents import ChatHistory

THREADS = {
    "ChatCompletionAgent": "ChatHistoryAgentThread",
    "OpenAIResponsesAgent": "ResponsesAgentThread",
}
"""The thread of each kind of agent."""


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
