# ruff: noqa: SLF001 - threads show what they are made of in no other way
"""Adapters of Semantic Kernel's agents, and that of a `Kernel` with a chat service.

`(agent, thread)` and `partial(agent.invoke, thread=…)` begin every conversation with a thread.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Any

from holodeck.lib.backends.frameworks.base import (
    ALL,
    FrameworkAdapter,
    FrameworkError,
    FrameworkSession,
    StreamingSession,
    TurnRecord,
    run_method,
    split_run,
)
from holodeck.lib.backends.frameworks.semantic_kernel.messages import (
    SemanticKernelTurnReader,
    answer_text,
    arguments_of_tools,
    invokes_functions,
    names_of_tools,
    new_history,
    service_tools,
)
from holodeck.lib.backends.frameworks.semantic_kernel.orchestrations import OrchestrationAdapter

if TYPE_CHECKING:
    from semantic_kernel import Kernel
    from semantic_kernel.agents import AgentThread, ChatCompletionAgent, OpenAIResponsesAgent
    from semantic_kernel.contents import ChatHistory, ChatMessageContent
    from semantic_kernel.functions import KernelArguments

    from holodeck.lib.backends.base import Message

NOT_STREAMED = (
    "Semantic Kernel does not stream calls that it does not invoke; name 'agent.invoke' instead of"
    " 'agent.invoke_stream'"
)
WITH_SERVICE_THREADS = frozenset({"OpenAIAssistantAgent", "AzureAIAgent"})
"""Classes on the Assistants API, whose end OpenAI has announced, and on that of Azure."""


def adapt(value: object) -> FrameworkAdapter | None:
    """Return the adapter of an agent of Semantic Kernel; None for its other objects.

    Raises FrameworkError for arguments of `agent.invoke()` that cannot be chosen, and for agents
    that cannot be tested.
    """
    found, options = split_run(value)
    agent: Any = found
    bases = {base.__name__ for base in type(agent).__mro__}
    for name in bases & WITH_SERVICE_THREADS:
        raise FrameworkError(
            f"an agent of the class {name} keeps its conversations in threads of a service, which"
            " holodeck no longer reads; use an OpenAIResponsesAgent, or name a function that asks"
            " the agent, with 'tap: true' for its tool calls"
        )
    if "Kernel" in bases:
        from semantic_kernel.agents import ChatCompletionAgent

        check_options(agent, "Kernel", options)
        # Semantic Kernel would make up another name each time, which it sends to the model.
        unnamed = ChatCompletionAgent(kernel=agent, name="agent")
        unnamed.model_fields_set.discard("name")
        return ChatAgentAdapter(unnamed)
    for kind, adapter in _ADAPTERS.items():
        if kind in bases:
            check_options(agent, kind, options)
            adapted = adapter(agent, options)
            if isinstance(adapted, ChatAgentAdapter):
                adapted.always_streams = run_method(value) == "invoke_stream"
            return adapted
    return None


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


def chat_thread(thread: "AgentThread | None", history: "ChatHistory") -> "AgentThread":
    """Return a thread like the user's with this history."""
    # `semantic_kernel.agents` imports the module again for each look at this name.
    from semantic_kernel.agents.chat_completion.chat_completion_agent import ChatHistoryAgentThread

    if thread is None:
        return ChatHistoryAgentThread(chat_history=history)
    like: Any = copy(thread)
    like._chat_history = history
    return like  # type: ignore[no-any-return]


class ChatAgentAdapter(FrameworkAdapter):
    """A `ChatCompletionAgent`; each conversation has a history of its own."""

    objects = ("ChatCompletionAgent", "Kernel", "(agent, AgentThread)")
    takes_stubs = True
    always_streams = False
    """Whether the user named `invoke_stream`."""

    async def open(self, context: Sequence["Message"]) -> FrameworkSession:
        thread = self._options.get("thread")
        history = new_history()
        if thread is not None:  # of the same class and settings, with messages of its own
            messages = [*thread._chat_history.messages]
            history = thread._chat_history.model_copy(update={"messages": messages})
        session = ChatAgentSession(self._agent, history, options=self._options)
        session.always_streams = self.always_streams
        session.remember(context)
        return session

    def tools(self) -> list[str] | None:
        return names_of_tools(self._agent)

    def required_arguments(self) -> dict[str, list[str]]:
        return arguments_of_tools(self._agent)


class ChatAgentSession(StreamingSession):
    """A conversation with a `ChatCompletionAgent`.

    Args:
        agent: The agent.
        history: The conversation so far; the session appends to it.
        kernel: Used as it is, instead of a copy of the agent's kernel that is read.
        arguments: Passed to each invocation.
        options: Further arguments of each invocation, which the user chose.
    """

    traced_as = "Semantic Kernel"

    def __init__(
        self,
        agent: "ChatCompletionAgent",
        history: "ChatHistory",
        kernel: "Kernel | None" = None,
        arguments: "KernelArguments | None" = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self._history = history
        super().__init__(agent, {"arguments": arguments, **(options or {})})
        self._kernel = kernel
        self._is_named = "name" in agent.model_fields_set

    async def _answer(self, message: str, *, streams: bool) -> AsyncGenerator[str, None]:
        with self._reading(message) as reader:
            record, usage, model = reader.record, None, None
            if not streams:
                async for response in self._agent.invoke(**self._arguments(reader)):
                    reader.read(response.message)
                    record.response += answer_text(response.message)
                    record.ends_with_calls = response.message.role.value == "tool"
                return
            if not invokes_functions(self._agent, self._options.get("arguments")):
                record.tool_calls_problem = NOT_STREAMED
            async for piece in self._agent.invoke_stream(**self._arguments(reader)):
                usage = piece.message.metadata.get("usage") or usage
                model = piece.message.ai_model_id or model
                if piece.message.content:
                    text = str(piece.message.content)
                    record.response += text
                    yield text
            if not record.response and self._history.messages[-1].role.value == "tool":
                record.response = answer_text(self._history.messages[-1])
                record.ends_with_calls = True
                yield record.response
            reader.count(usage, model)
            record.add_agent(self._agent.name if self._is_named else None)

    def remember(self, messages: Sequence["Message"]) -> None:
        for message in self._convert(messages):
            self._history.add_message(message)

    def _convert(self, messages: Sequence["Message"]) -> list[Any]:
        return new_history(messages).messages

    def add_user_message(self, history: "ChatHistory", message: str) -> None:
        """Append a message of the user to the history."""
        history.add_user_message(message)

    @contextmanager
    def _reading(self, message: str) -> Iterator[SemanticKernelTurnReader]:
        """Read a turn; if it does not end, the history is as it was before."""
        reader = SemanticKernelTurnReader(names_agents=self._is_named)
        self.turn = reader.record
        before = len(self._history.messages)
        self.add_user_message(self._history, message)
        try:
            yield reader
        except BaseException:
            reader.read_interrupted()
            del self._history.messages[before:]
            raise

    def _arguments(self, reader: SemanticKernelTurnReader) -> dict[str, Any]:
        kernel = self._kernel or reader.kernel(self._options.get("kernel") or self._agent.kernel)
        return {
            **self._options,
            "thread": chat_thread(self._options.get("thread"), self._history),
            "kernel": kernel,
            "on_intermediate_message": _with_callback(reader.read, self._options),
        }


def _with_callback(
    read: Callable[[Any], None], options: Mapping[str, Any]
) -> Callable[[Any], Awaitable[None]]:
    """Return a callback that reads a message, and calls the user's own."""
    users = options.get("on_intermediate_message")

    async def note(message: Any) -> None:
        read(message)
        if users is not None:
            await users(message)

    return note


class ResponsesAgentAdapter(FrameworkAdapter):
    """An agent on the Responses API; each conversation has a thread of its own."""

    objects = ("OpenAIResponsesAgent",)
    reads = ALL - {"streaming"}
    takes_stubs = True

    async def open(self, context: Sequence["Message"]) -> FrameworkSession:
        return ResponsesSession(self._agent, self._options, context)

    def tools(self) -> list[str] | None:
        return None if service_tools(self._agent) else names_of_tools(self._agent)


class ResponsesSession(FrameworkSession):
    """A conversation with an agent on the Responses API; it may continue a thread of the user."""

    traced_as = "Semantic Kernel"

    def __init__(
        self,
        agent: "OpenAIResponsesAgent",
        options: Mapping[str, Any],
        context: Sequence["Message"],
    ) -> None:
        super().__init__(agent, options, context)
        self._is_named = "name" in agent.model_fields_set
        thread = options.get("thread")
        self._history: list[ChatMessageContent] = []
        """The conversation, if the provider keeps none."""
        self._response_id: str | None = None
        if thread is not None:
            self._response_id = thread.response_id
            self._history = list(thread._chat_history.messages)

    async def send(self, message: str) -> TurnRecord:
        from semantic_kernel.agents import ResponsesAgentThread
        from semantic_kernel.contents import ChatHistory

        reader = SemanticKernelTurnReader(names_agents=self._is_named)
        self.turn = reader.record
        read = partial(read_response, reader)
        # A thread for each turn: if this one fails, the next begins where this one did.
        thread = ResponsesAgentThread(
            client=self._agent.client,
            chat_history=ChatHistory(messages=list(self._history)),
            previous_response_id=self._response_id,
            enable_store=self._agent.store_enabled,
        )
        asked = new_history([{"role": "user", "content": message}]).messages
        texts = []
        try:
            async for response in self._agent.invoke(
                **{
                    **self._options,
                    "messages": [*self._earlier, *asked],
                    "thread": thread,
                    "kernel": reader.kernel(self._options.get("kernel") or self._agent.kernel),
                    "on_intermediate_message": _with_callback(read, self._options),
                }
            ):
                read(response.message)
                texts.append(answer_text(response.message))
        except BaseException:
            reader.read_interrupted()
            if service_tools(self._agent) and reader.record.tool_calls is not None:
                reader.record.tool_calls_problem = (
                    "the turn ended before the provider told them all"
                )
            raise
        reader.record.response = "".join(texts)
        self._response_id, self._earlier = thread.response_id, []
        if not self._agent.store_enabled:
            self._history = [get_message async for get_message in thread.get_messages()]
        return self.turn

    def _convert(self, messages: Sequence["Message"]) -> list[Any]:
        return new_history(messages).messages


def read_response(reader: SemanticKernelTurnReader, message: "ChatMessageContent") -> None:
    """Add a message to the record, with the calls of tools that the provider ran for it."""
    record = reader.record
    before = list(record.tool_calls or ())
    reader.read(message)
    new = {call["call_id"]: call for call in (record.tool_calls or ())[len(before) :]}
    for item in getattr(message.inner_content, "output", None) or ():
        if item.type == "function_call":
            before += [new.pop(item.call_id)] if item.call_id in new else []
        elif item.type.endswith("_call"):
            before.append(_provider_call(item, message.name if reader.names_agents else None))
    record.tool_calls = [*before, *new.values()]
    for item in getattr(message.inner_content, "output", None) or ():
        if item.type == "mcp_call" and (item.error or item.output) is not None:
            plain = _plain(item)
            is_error = plain.get("error") is not None
            record.add_result(item.id, plain["error" if is_error else "output"], is_error=is_error)


def _provider_call(item: Any, agent: str | None) -> dict[str, Any]:
    """Return a call; its arguments are left out if the provider does not tell them."""
    plain = _plain(item)
    name = plain.get("name") or item.type.removesuffix("_call")
    row = {"name": name, "call_id": item.id, **({"agent": agent} if agent else {})}
    if "arguments" in plain:
        return {**row, "arguments": plain["arguments"]}
    told = {key: plain[key] for key in ("action", "queries", "code") if plain.get(key) is not None}
    return {**row, "arguments": told} if told else row


def _plain(item: Any) -> dict[str, Any]:
    plain: dict[str, Any] = item.model_dump(mode="json", warnings=False)
    return plain


_ADAPTERS: dict[str, type[FrameworkAdapter]] = {
    "ChatCompletionAgent": ChatAgentAdapter,
    "OpenAIResponsesAgent": ResponsesAgentAdapter,
    "OrchestrationBase": OrchestrationAdapter,
}
"""What adapts the objects of a class of Semantic Kernel."""
