"""Agents of Semantic Kernel whose conversations a service keeps in threads: assistants.

Each conversation has a thread of its own, which is deleted at its end. A run of the thread cannot
be undone, so after a turn that fails the conversation goes on in a new thread.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from holodeck.lib.backends.frameworks.base import (
    Capability,
    FrameworkAdapter,
    FrameworkError,
    FrameworkSession,
    TurnRecord,
)
from holodeck.lib.backends.frameworks.semantic_kernel_messages import (
    TurnReader,
    service_tools,
    token_counts,
)
from holodeck.lib.backends.frameworks.semantic_kernel_runs import (
    CLEANUP_S,
    completed,
    delete_thread,
    read_steps,
    runs_of,
)
from holodeck.lib.backends.frameworks.semantic_kernel_threads import messages_of, new_service_thread

if TYPE_CHECKING:
    from semantic_kernel.agents import AgentThread
    from semantic_kernel.contents import ChatMessageContent

    from holodeck.lib.backends.base import Message

MANY_TOOLS = frozenset({"mcp", "openapi", "connected_agent", "azure_function"})
"""Types of tools whose functions have names that the agent does not know."""
CODE = "code_interpreter"


class AssistantAdapter(FrameworkAdapter):
    """An agent on the Assistants API of OpenAI or Azure OpenAI.

    Args:
        agent: The agent.
        options: Arguments of each invocation that the user chose.
    """

    objects: ClassVar[tuple[str, ...]] = ("OpenAIAssistantAgent", "AzureAssistantAgent")
    reads: ClassVar[frozenset[Capability]] = frozenset(get_args(Capability))

    def __init__(self, agent: Any, options: Mapping[str, Any]) -> None:
        self._agent = agent
        self._options = {name: value for name, value in options.items() if name != "thread"}
        self._thread: AgentThread | None = options.get("thread")

    async def open(self, context: Sequence["Message"]) -> FrameworkSession:
        earlier = [] if self._thread is None else await messages_of(self._thread)
        new_thread = new_service_thread(self._thread, self._agent)
        return AssistantSession(self._agent, self._options, new_thread, [*earlier, *context])

    def tools(self) -> list[str] | None:
        """Return the names of the kernel's functions and of the service's own tools.

        None if a tool of the service has further ones, such as an MCP server.
        """
        kinds = service_tools(self._agent)
        if not MANY_TOOLS.isdisjoint(kinds):
            return None
        return [*functions_of(self._agent, self._options), *kinds]


class AzureAIAdapter(AssistantAdapter):
    """An agent of Azure AI Foundry. Raises FrameworkError if its client has no threads."""

    objects: ClassVar[tuple[str, ...]] = ("AzureAIAgent",)
    reads: ClassVar[frozenset[Capability]] = frozenset(get_args(Capability))

    def __init__(self, agent: Any, options: Mapping[str, Any]) -> None:
        if not hasattr(agent.client.agents, "threads"):
            raise FrameworkError(
                "an AzureAIAgent needs threads, which azure-ai-projects has no more since version"
                " 2; install 'azure-ai-projects<2'"
            )
        super().__init__(agent, options)


def functions_of(agent: Any, options: Mapping[str, Any]) -> list[str]:
    """Return the names of the functions of the kernel that the agent may call."""
    kernel = options.get("kernel") or agent.kernel
    behavior = options.get("function_choice_behavior")
    functions = (
        kernel.get_list_of_function_metadata(behavior.filters)
        if behavior is not None and behavior.filters
        else kernel.get_full_list_of_function_metadata()
    )
    return [one.fully_qualified_name for one in functions]


class AssistantSession(FrameworkSession):
    """A conversation with an agent whose service keeps it.

    Args:
        agent: The agent.
        options: Arguments of each invocation.
        new_thread: Makes a thread that the service does not know yet.
        context: The messages before the first turn.
    """

    traced_as = "Semantic Kernel"

    def __init__(
        self,
        agent: Any,
        options: Mapping[str, Any],
        new_thread: "Callable[[], AgentThread]",
        context: Sequence["Message"],
    ) -> None:
        self._agent = agent
        self._options = dict(options)
        self._users_callback = self._options.pop("on_intermediate_message", None)
        self._runs = runs_of(agent)
        self._new_thread = new_thread
        self._is_named = agent.definition.name is not None
        self._own_tools = service_tools(agent)
        self._functions = frozenset(functions_of(agent, options))
        self._history: list[Message] = list(context)
        self._known = 0
        """Of how many messages of the history the thread knows."""
        self._creating: asyncio.Task[AgentThread] | None = None
        self._created: list[asyncio.Task[AgentThread]] = []
        """All threads of the conversation, the last one of which may be in use."""
        self.turn = TurnRecord()

    async def send(self, message: str) -> TurnRecord:
        async with (
            self._reading(message) as (reader, arguments),
            aclosing(self._agent.invoke(**arguments)) as responses,
        ):
            async for response in responses:
                if response.message.metadata.get("code"):  # a program of the code interpreter
                    continue
                reader.read(response.message)
                reader.record.response += str(response.message.content or "")
        return self.turn

    async def send_streaming(self, message: str) -> AsyncIterator[str]:
        """Yield the response in pieces; in one, if they would be mixed with a program's output."""
        if CODE in self._own_tools:
            yield str((await self.send(message)).response)
            return
        async with self._reading(message) as (reader, arguments):
            arguments.pop("polling_options", None)
            async with aclosing(self._agent.invoke_stream(**arguments)) as pieces:
                async for piece in pieces:
                    text = str(piece.message.content or "")
                    if text:
                        reader.record.response += text
                        yield text
            reader.record.add_agent(self._agent.name if self._is_named else None)

    def remember(self, messages: Sequence["Message"]) -> None:
        self._history += messages

    async def close(self) -> None:
        """Delete the threads; a failure is logged, and a cancellation waits until it is done."""
        threads, self._created, self._creating = self._created, [], None
        await completed(asyncio.gather(*map(self._delete, threads)))

    @asynccontextmanager
    async def _reading(self, message: str) -> AsyncIterator[tuple[TurnReader, dict[str, Any]]]:
        """Read one turn; if it does not end, the conversation goes on in a new thread."""
        reader = TurnReader(names_agents=self._is_named, counts_usage=False)
        self.turn = reader.record
        asked: Message = {"role": "user", "content": message}
        try:
            thread = await self._thread()
            yield reader, self._arguments(reader, thread, [*self._history[self._known :], asked])
            await self._read_run(reader, thread)
        except BaseException:
            reader.read_interrupted()
            if self._own_tools and reader.record.tool_calls is not None:
                reader.record.tool_calls_problem = "the turn ended before the service told them all"
            self._creating, self._known = None, 0
            raise
        answer: Message = {"role": "assistant", "content": reader.record.response}
        self._history += [asked, answer]
        self._known = len(self._history)

    def _arguments(
        self, reader: TurnReader, thread: "AgentThread", messages: Sequence["Message"]
    ) -> dict[str, Any]:
        async def read(message: Any) -> None:
            if not self._is_of_service(message):
                reader.read(message)
            if self._users_callback is not None:
                await self._users_callback(message)

        return {
            **self._options,
            "messages": [one for message in messages for one in _as_text(message)],
            "thread": thread,
            "kernel": reader.kernel(self._options.get("kernel") or self._agent.kernel),
            "on_intermediate_message": read,
        }

    def _is_of_service(self, message: "ChatMessageContent") -> bool:
        """Whether the message is about a tool of the service, which the steps tell exactly."""
        items: list[Any] = message.items
        names = (one.name for one in items if one.content_type.startswith("function_"))
        return bool(self._own_tools) and any(name not in self._functions for name in names)

    async def _read_run(self, reader: TurnReader, thread: "AgentThread") -> None:
        """Add what only the service knows: the order of calls, those of its tools, and tokens."""
        run = await self._runs.latest(str(thread.id))
        if run is None or run.status != "completed":
            raise FrameworkError(_not_completed(run))
        steps = await self._runs.steps(str(thread.id), run.id)
        read_steps(reader, steps, self._agent.name if self._is_named else None)
        reader.record.add_usage(*token_counts(run.usage))

    async def _thread(self) -> "AgentThread":
        """Return the thread of the conversation, which is created if there is none."""
        if self._creating is None:
            self._creating = asyncio.ensure_future(_create(self._new_thread()))
            self._created.append(self._creating)
        # A thread whose creation is cancelled may exist, and nobody would know its id.
        return await asyncio.shield(self._creating)

    async def _delete(self, creating: "asyncio.Task[AgentThread]") -> None:
        try:
            thread = await asyncio.wait_for(creating, CLEANUP_S)
        except Exception:  # noqa: BLE001 - whoever sent a message has seen it
            return
        await delete_thread(self._agent, thread)


async def _create(thread: "AgentThread") -> "AgentThread":
    await thread.create()
    return thread


def _as_text(message: "Message") -> "list[ChatMessageContent]":
    """Return a message as threads take them, which know text of users and of assistants."""
    from semantic_kernel.contents import AuthorRole, ChatMessageContent

    if message["role"] not in {"user", "assistant", "tool"}:
        raise FrameworkError(
            f"a thread takes no message with the role {message['role']!r}; write it into the"
            " instructions of the agent"
        )
    if not message["content"]:
        return []
    role = AuthorRole.USER if message["role"] == "user" else AuthorRole.ASSISTANT
    return [ChatMessageContent(role=role, content=message["content"])]


def _not_completed(run: Any) -> str:
    if run is None:
        return "the service knows no run of the turn"
    error = getattr(run.last_error, "message", None)
    incomplete = getattr(run.incomplete_details, "reason", None)
    status, reason = (getattr(one, "value", one) for one in (run.status, error or incomplete))
    return f"the run ended as {status!r}" + (f": {reason}" if reason else "")
