"""Adapters of Semantic Kernel's agents, and that of a `Kernel` with a chat service."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from holodeck.lib.backends.frameworks.base import (
    Capability,
    FrameworkAdapter,
    FrameworkSession,
    TurnRecord,
)
from holodeck.lib.backends.frameworks.semantic_kernel_messages import (
    TurnReader,
    names_of_tools,
    new_history,
)
from holodeck.lib.backends.frameworks.semantic_kernel_orchestrations import OrchestrationAdapter
from holodeck.lib.backends.frameworks.semantic_kernel_responses import ResponsesAgentAdapter

if TYPE_CHECKING:
    from semantic_kernel import Kernel
    from semantic_kernel.agents import ChatCompletionAgent
    from semantic_kernel.contents import ChatHistory
    from semantic_kernel.functions import KernelArguments

    from holodeck.lib.backends.base import Message


def adapt(value: object) -> FrameworkAdapter | None:
    """Return the adapter of an agent of Semantic Kernel; None for its other objects."""
    kinds = {base.__name__ for base in type(value).__mro__}
    if "ChatCompletionAgent" in kinds:
        agent: Any = value
        return ChatAgentAdapter(agent)
    if "Kernel" in kinds:
        from semantic_kernel.agents import ChatCompletionAgent

        kernel: Any = value
        return ChatAgentAdapter(ChatCompletionAgent(kernel=kernel))
    if "OpenAIResponsesAgent" in kinds:
        responses_agent: Any = value
        return ResponsesAgentAdapter(responses_agent)
    if "OrchestrationBase" in kinds:
        orchestration: Any = value
        return OrchestrationAdapter(orchestration)
    return None


class ChatAgentAdapter(FrameworkAdapter):
    """A `ChatCompletionAgent`; each conversation has a history of its own."""

    objects = ("ChatCompletionAgent", "Kernel")
    reads: ClassVar[frozenset[Capability]] = frozenset(get_args(Capability))

    def __init__(self, agent: "ChatCompletionAgent") -> None:
        self._agent = agent

    async def open(self, context: Sequence["Message"]) -> FrameworkSession:
        return ChatSession(self._agent, new_history(context))

    def tools(self) -> list[str] | None:
        return names_of_tools(self._agent)


class ChatSession(FrameworkSession):
    """A conversation with a `ChatCompletionAgent`.

    Args:
        agent: The agent.
        history: The conversation so far; the session appends to it.
        kernel: Used as it is, instead of a copy of the agent's kernel that is read.
        arguments: Passed to each invocation.
    """

    def __init__(
        self,
        agent: "ChatCompletionAgent",
        history: "ChatHistory",
        kernel: "Kernel | None" = None,
        arguments: "KernelArguments | None" = None,
    ) -> None:
        self._agent = agent
        self._history = history
        self._kernel = kernel
        self._invocation_arguments = arguments
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

    @contextmanager
    def _reading(self, message: str) -> Iterator[TurnReader]:
        """Read one turn; if it does not end, the history is as it was before."""
        reader = TurnReader(names_agents=self._is_named)
        self.turn = reader.record
        before = len(self._history.messages)
        self._history.add_user_message(message)
        try:
            yield reader
        except BaseException:
            reader.read_interrupted()
            del self._history.messages[before:]
            raise

    def _arguments(self, reader: TurnReader) -> dict[str, Any]:
        from semantic_kernel.agents import ChatHistoryAgentThread

        async def read(message: Any) -> None:
            reader.read(message)

        return {
            "thread": ChatHistoryAgentThread(chat_history=self._history),
            "kernel": self._kernel or reader.kernel(self._agent.kernel),
            "arguments": self._invocation_arguments,
            "on_intermediate_message": read,
        }
