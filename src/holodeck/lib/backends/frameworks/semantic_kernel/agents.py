"""Adapters of Semantic Kernel's agents, and that of a `Kernel` with a chat service.

`(agent, thread)` and `partial(agent.invoke, thread=…)` begin every conversation with a thread.
"""

from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from holodeck.lib.backends.frameworks.base import (
    Capability,
    FrameworkAdapter,
    FrameworkError,
    FrameworkSession,
    TurnRecord,
    split_run,
)
from holodeck.lib.backends.frameworks.semantic_kernel.messages import (
    SemanticKernelTurnReader,
    names_of_tools,
    new_history,
)
from holodeck.lib.backends.frameworks.semantic_kernel.orchestrations import OrchestrationAdapter
from holodeck.lib.backends.frameworks.semantic_kernel.responses import ResponsesAgentAdapter
from holodeck.lib.backends.frameworks.semantic_kernel.threads import (
    chat_thread,
    check_options,
    copy_of_history,
)

if TYPE_CHECKING:
    from semantic_kernel import Kernel
    from semantic_kernel.agents import ChatCompletionAgent
    from semantic_kernel.agents.orchestration.orchestration_base import OrchestrationBase
    from semantic_kernel.contents import ChatHistory
    from semantic_kernel.functions import KernelArguments

    from holodeck.lib.backends.base import Message

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
    for kind, adapter in _ADAPTERS.items():
        if kind in bases:
            check_options(agent, kind, options)
            return adapter(agent, options)
    return None


class ChatAgentAdapter(FrameworkAdapter):
    """A `ChatCompletionAgent`; each conversation has a history of its own."""

    objects = ("ChatCompletionAgent", "Kernel", "(agent, AgentThread)")
    reads: ClassVar[frozenset[Capability]] = frozenset(get_args(Capability))

    def __init__(
        self, agent: "ChatCompletionAgent", options: Mapping[str, Any] | None = None
    ) -> None:
        self._agent = agent
        self._options = options or {}

    async def open(self, context: Sequence["Message"]) -> FrameworkSession:
        thread = self._options.get("thread")
        history = new_history() if thread is None else copy_of_history(thread._chat_history)  # noqa: SLF001
        for message in new_history(context).messages:
            history.add_message(message)
        return ChatAgentSession(self._agent, history, options=self._options)

    def tools(self) -> list[str] | None:
        return names_of_tools(self._agent)


class ChatAgentSession(FrameworkSession):
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
        self._agent = agent
        self._history = history
        self._kernel = kernel
        self._options = {"arguments": arguments, **(options or {})}
        self._is_named = "name" in agent.model_fields_set
        self.turn = TurnRecord()

    async def send(self, message: str) -> TurnRecord:
        with self._reading(message) as reader:
            texts = []
            async for response in self._agent.invoke(**self._arguments(reader)):
                reader.read(response.message)
                texts.append(str(response.message.content or ""))
            reader.record.response = "".join(texts)
        return self.turn

    async def send_streaming(self, message: str) -> AsyncIterator[str]:
        with self._reading(message) as reader:
            usage = None
            async for piece in self._agent.invoke_stream(**self._arguments(reader)):
                usage = piece.message.metadata.get("usage") or usage
                if piece.message.content:
                    text = str(piece.message.content)
                    reader.record.response += text
                    yield text
            reader.count(usage)
            reader.record.add_agent(self._agent.name if self._is_named else None)

    def remember(self, messages: Sequence["Message"]) -> None:
        for message in new_history(messages).messages:
            self._history.add_message(message)

    def add_user_message(self, history: "ChatHistory", message: str) -> None:
        """Append a message of the user to the history."""
        history.add_user_message(message)

    @contextmanager
    def _reading(self, message: str) -> Iterator[SemanticKernelTurnReader]:
        """Read one turn; if it does not end, the history is as it was before."""
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
        callback = self._options.get("on_intermediate_message")

        async def read(message: Any) -> None:
            reader.read(message)
            if callback is not None:
                await callback(message)

        kernel = self._kernel or reader.kernel(self._options.get("kernel") or self._agent.kernel)
        return {
            **self._options,
            "thread": chat_thread(self._options.get("thread"), self._history),
            "kernel": kernel,
            "on_intermediate_message": read,
        }


def _adapt_kernel(kernel: "Kernel", _: Mapping[str, Any]) -> FrameworkAdapter:
    from semantic_kernel.agents import ChatCompletionAgent

    return ChatAgentAdapter(ChatCompletionAgent(kernel=kernel))


def _adapt_orchestration(
    orchestration: "OrchestrationBase[Any, Any]", _: Mapping[str, Any]
) -> FrameworkAdapter:
    return OrchestrationAdapter(orchestration)


_ADAPTERS: dict[str, Callable[[Any, Mapping[str, Any]], FrameworkAdapter]] = {
    "ChatCompletionAgent": ChatAgentAdapter,
    "OpenAIResponsesAgent": ResponsesAgentAdapter,
    "Kernel": _adapt_kernel,
    "OrchestrationBase": _adapt_orchestration,
}
"""What adapts the objects of a class of Semantic Kernel, with the arguments that a user chose."""
