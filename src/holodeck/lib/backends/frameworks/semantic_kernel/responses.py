"""`OpenAIResponsesAgent` of Semantic Kernel, whose conversations the provider keeps."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, get_args

from holodeck.lib.backends.frameworks.base import (
    Capability,
    FrameworkAdapter,
    FrameworkSession,
    TurnRecord,
)
from holodeck.lib.backends.frameworks.semantic_kernel.messages import (
    SemanticKernelTurnReader,
    names_of_tools,
    new_history,
    service_tools,
)

if TYPE_CHECKING:
    from semantic_kernel.agents import OpenAIResponsesAgent
    from semantic_kernel.contents import ChatMessageContent

    from holodeck.lib.backends.base import Message


class ResponsesAgentAdapter(FrameworkAdapter):
    """An agent on the Responses API; each conversation has a thread of its own."""

    objects = ("OpenAIResponsesAgent",)
    reads: ClassVar[frozenset[Capability]] = frozenset(get_args(Capability)) - {"streaming"}

    def __init__(self, agent: "OpenAIResponsesAgent", options: Mapping[str, Any]) -> None:
        self._agent = agent
        self._options = options

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
        self._agent = agent
        self._options = options
        self._is_named = "name" in agent.model_fields_set
        thread = options.get("thread")
        self._new: list[ChatMessageContent] = new_history(context).messages
        """Messages that the provider has not been sent."""
        self._history: list[ChatMessageContent] = []
        """The conversation, if the provider keeps none."""
        self._response_id: str | None = None
        if thread is not None:
            self._response_id = thread.response_id
            self._history = list(thread._chat_history.messages)  # noqa: SLF001
        self.turn = TurnRecord()

    async def send(self, message: str) -> TurnRecord:
        from semantic_kernel.agents import ResponsesAgentThread
        from semantic_kernel.contents import ChatHistory

        reader = SemanticKernelTurnReader(names_agents=self._is_named)
        self.turn = reader.record

        callback = self._options.get("on_intermediate_message")

        async def read(one: Any) -> None:
            read_response(reader, one)
            if callback is not None:
                await callback(one)

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
                    "messages": [*self._new, *asked],
                    "thread": thread,
                    "kernel": reader.kernel(self._options.get("kernel") or self._agent.kernel),
                    "on_intermediate_message": read,
                }
            ):
                read_response(reader, response.message)
                texts.append(str(response.message.content or ""))
        except BaseException:
            reader.read_interrupted()
            if service_tools(self._agent) and reader.record.tool_calls is not None:
                reader.record.tool_calls_problem = (
                    "the turn ended before the provider told them all"
                )
            raise
        reader.record.response = "".join(texts)
        self._response_id, self._new = thread.response_id, []
        if not self._agent.store_enabled:
            self._history = [get_message async for get_message in thread.get_messages()]
        return self.turn

    def remember(self, messages: Sequence["Message"]) -> None:
        self._new += new_history(messages).messages


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
