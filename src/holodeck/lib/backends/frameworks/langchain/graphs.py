"""Compiled graphs of LangGraph, such as those of `langchain.agents.create_agent`, and entrypoints.

`partial(graph.ainvoke, config={"recursion_limit": 9}, context=Context())` says how to run one.
"""

import inspect
import json
import typing
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from uuid import uuid4

from holodeck.lib.backends.frameworks.base import (
    ALL,
    FrameworkAdapter,
    FrameworkError,
    StreamingSession,
    TurnRecord,
    check_options,
    exhaust,
    field_of,
    for_conversation,
    split_run,
)
from holodeck.lib.backends.frameworks.langchain.callbacks import (
    LangChainTurnReader,
    callback_handler,
    config_with,
    ids_of,
)
from holodeck.lib.support.stubs import call_tool, has_stubs, missing_argument

if TYPE_CHECKING:
    from holodeck.lib.backends.base import Message

Shape = Literal["text", "messages", "state"]
"""What an entrypoint takes: the message as text, all messages, or a mapping with `messages`."""
INTERRUPT = "interrupt"
"""The name of an approval that a node asks for itself."""
_WRAP = (
    "; write a function around it:\n"
    "    async def agent(message, context):\n"
    "        state = await graph.ainvoke({…: message})\n"
    "        return {'response': state[…], 'tool_calls': …}"
)


def adapt(value: object) -> "GraphAdapter | None":
    """Return the adapter of a compiled graph; None for anything else.

    Raises FrameworkError for a graph that is not compiled, or has no messages.
    """
    graph, options = split_run(value)
    kinds = {base.__name__ for base in type(graph).__mro__}
    if "StateGraph" in kinds:
        raise FrameworkError("the graph is not compiled; name what graph.compile() returns")
    if "Pregel" not in kinds:
        return None
    check_options(options, "graph.ainvoke", "config", "context")
    if "__previous__" in getattr(graph, "channels", ()):
        return EntrypointAdapter(graph, options)
    builder = getattr(graph, "builder", None)
    schemas = getattr(builder, "schemas", {})
    keys = list(schemas.get(getattr(builder, "input_schema", None), {}))
    if "messages" not in keys:
        raise FrameworkError(
            f"the graph's input has no key 'messages', only {', '.join(keys) or 'one value'}{_WRAP}"
        )
    return GraphAdapter(graph, options)


class GraphAdapter(FrameworkAdapter):
    """A graph whose state has messages."""

    objects: ClassVar[tuple[str, ...]] = ("CompiledStateGraph",)
    takes_stubs = True
    answers_approvals = True

    def __init__(self, graph: Any, options: Mapping[str, Any]) -> None:
        super().__init__(graph, options)
        self.takes_stubs = self.tools() is not None  # those that other nodes call would run

    async def open(self, context: Sequence["Message"]) -> "GraphSession":
        return GraphSession(self._agent, await for_conversation(self._options), context)

    def tools(self) -> list[str] | None:
        """Return the tools of an agent of `create_agent`; None where a node may call others."""
        names: list[str] = []
        for name, node in self._agent.nodes.items():
            tools = getattr(node.bound, "tools_by_name", None)
            if tools is not None:
                names += tools
            elif name != "__start__" and not _is_of_create_agent(node.bound):
                return None
        return names

    def required_arguments(self) -> dict[str, list[str]]:
        return {
            name: _schema_of(tool).get("required", [])
            for node in self._agent.nodes.values()
            for name, tool in getattr(node.bound, "tools_by_name", {}).items()
        }


def _schema_of(tool: Any) -> Mapping[str, Any]:
    """Return the JSON schema of the arguments that a model writes."""
    schema = tool.tool_call_schema
    return schema if isinstance(schema, Mapping) else schema.model_json_schema()


class EntrypointAdapter(GraphAdapter):
    """A function with `@entrypoint`."""

    objects: ClassVar[tuple[str, ...]] = ("entrypoint",)
    takes_stubs = False
    reads = ALL - {"tools"}

    def __init__(self, graph: Any, options: Mapping[str, Any]) -> None:
        super().__init__(graph, options)
        self._shape = _shape_of(graph)

    async def open(self, context: Sequence["Message"]) -> "EntrypointSession":
        options = await for_conversation(self._options)
        return EntrypointSession(self._agent, options, self._shape, context)

    def tools(self) -> list[str] | None:
        """Return None: only a run shows what the function calls."""
        return None


def _shape_of(graph: Any) -> Shape:
    """Return what an entrypoint takes. Raises FrameworkError if its type does not tell."""
    [(name, node)] = graph.nodes.items()
    function = getattr(node.bound, "func", None) or node.bound.afunc
    parameter = next(iter(inspect.signature(function).parameters.values()))
    kind = parameter.annotation
    with suppress(Exception):  # a name in a hint that exists only for a type checker
        kind = typing.get_type_hints(function)[parameter.name]
    if kind is str:
        return "text"
    if typing.get_origin(kind) in {list, Sequence} or kind is list:
        return "messages"
    if typing.is_typeddict(kind) and "messages" in kind.__annotations__:
        return "state"
    raise FrameworkError(
        f"the parameter {parameter.name!r} of the entrypoint {name!r} has no type that says what it"
        " takes; write str, list[BaseMessage], or a TypedDict with 'messages'"
    )


def _is_of_create_agent(bound: Any) -> bool:
    """Whether a node is the one of `create_agent` that asks the model."""
    function = getattr(bound, "afunc", None) or getattr(bound, "func", None)
    module = getattr(getattr(function, "func", function), "__module__", "")
    return module in {"langchain.agents.factory", "langgraph.prebuilt.chat_agent_executor"}


class GraphSession(StreamingSession):
    """A conversation with a graph.

    With a checkpointer it has a thread of its own, to which new messages are sent; without one,
    every message comes with those before it.
    """

    traced_as = "LangChain"

    def __init__(
        self, graph: Any, options: Mapping[str, Any], context: Sequence["Message"]
    ) -> None:
        self._known: set[str] = set()
        has_checkpointer = not (graph.checkpointer is None or isinstance(graph.checkpointer, bool))
        self._threads = [uuid4().hex] if has_checkpointer else []
        """The last one is the conversation's; a failed turn leaves others behind."""
        self._checkpoint: str | None = None
        """The state of the thread after the latest turn that succeeded."""
        self._has_failed = False
        self._interrupts: dict[str, Any] = {}
        """What the graph waits for: the values of its interrupts, by their ids."""
        super().__init__(graph, options, context)

    def _convert(self, messages: Sequence["Message"]) -> list[Any]:
        from langchain_core.messages import convert_to_messages

        converted = list(convert_to_messages([dict(message) for message in messages]))
        for message in converted:  # the state may repeat it
            message.id = uuid4().hex
        self._known |= ids_of(converted)
        return converted

    async def close(self) -> None:
        """Delete what the checkpointer keeps of the conversation."""
        while self._threads:
            thread = self._threads.pop()
            with suppress(NotImplementedError):
                await self._agent.checkpointer.adelete_thread(thread)

    def _answer(self, message: str, *, streams: bool) -> AsyncGenerator[str, None]:
        self.turn = TurnRecord()
        reader = LangChainTurnReader(self.turn, self._known)
        return self._run(self._input(message), reader, streams=streams)

    async def _resume(self, decisions: Sequence[bool]) -> None:
        from langgraph.types import Command

        open_calls = self.turn.tool_calls or ()
        reader = LangChainTurnReader(self.turn, self._known)
        reader.note_earlier_calls(open_calls)
        left = iter(decisions)
        answers = {
            name: _answer_to(value, [next(left) for _ in _approvals_in(value)])
            for name, value in self._interrupts.items()
        }
        await exhaust(self._run(Command(resume=answers), reader, streams=False))

    async def _run(
        self, sent: Any, reader: LangChainTurnReader, *, streams: bool
    ) -> AsyncGenerator[str, None]:
        """Run the graph until it ends or waits, and yield its text if it `streams`."""
        self._interrupts = {}
        arguments = {**self._options, "config": self._config(reader)}
        modes = ["updates", "values", *(["messages"] if streams else [])]
        state: Any = None
        try:
            graph = with_stubs(self._agent) if has_stubs() else self._agent
            events = graph.astream(sent, **arguments, stream_mode=modes, subgraphs=True)
            async with aclosing(events):
                async for namespace, mode, payload in events:
                    if mode == "updates":
                        waiting = payload.get("__interrupt__") or ()
                        self._interrupts |= {interrupt.id: interrupt.value for interrupt in waiting}
                        _note_update(reader, payload)
                    elif mode == "values" and not namespace:
                        state = payload
                    elif mode == "messages" and payload[0].type in {"ai", "AIMessageChunk"}:
                        yield str(payload[0].text)
            if self._interrupts:
                self._pause(state, reader.interrupted)
            else:
                await self._finish(state)
        except BaseException:
            self._has_failed = True
            raise
        finally:
            reader.finish()

    def _pause(self, state: Any, tools: Mapping[str, str]) -> None:
        """Note what the graph waits for. Raises FrameworkError if it cannot continue.

        `tools` has the call of the tool that an interrupt paused, by the id of the interrupt.
        """
        if not self._threads:
            raise FrameworkError(
                "the graph waits for a person's answer to the interrupt"
                f" {next(iter(self._interrupts.values()))!r}, and cannot continue after it;"
                " compile it with a checkpointer"
            )
        self._known |= ids_of(list(field_of(state, "messages") or []))
        open_calls = self.turn.open_calls()
        for name, value in self._interrupts.items():
            for approval in _approvals_in(value):
                paused = [call for call in open_calls if call["call_id"] == tools.get(name)]
                if approval["name"] == INTERRUPT and paused:  # the tool itself goes on afterwards
                    approval |= {key: paused[0][key] for key in ("name", "arguments")}
                    self.turn.pending_approvals.append(approval)
                    continue
                same = [call for call in open_calls if _is_about(approval, call)]
                if same:
                    open_calls.remove(same[0])
                    approval["call_id"] = same[0]["call_id"]
                self.turn.pending_approvals.append(approval)

    def _input(self, message: str) -> Any:
        """Return what the graph gets."""
        from langchain_core.messages import HumanMessage

        return {"messages": [*self._earlier, HumanMessage(message)]}

    def _config(self, reader: LangChainTurnReader) -> dict[str, Any]:
        config = config_with(callback_handler(reader), self._options.get("config"))
        if not self._threads:
            return config
        if self._has_failed and self._checkpoint is None:
            self._threads.append(uuid4().hex)
        place = {"thread_id": self._threads[-1]}
        if self._has_failed and self._checkpoint is not None:
            place |= {"checkpoint_ns": "", "checkpoint_id": self._checkpoint}
        return {**config, "configurable": {**config.get("configurable", {}), **place}}

    async def _finish(self, state: Any) -> None:
        """Read the state after a turn, and continue from there."""
        messages = list(field_of(state, "messages") or [])
        answer = messages[-1] if messages else None
        if answer is None or answer.type not in {"ai", "tool"}:
            found = "none" if answer is None else f"one of type {answer.type!r}"
            raise FrameworkError(f"the graph ended without an answer: its last message is {found}")
        structured = field_of(state, "structured_response")
        self.turn.response = str(answer.text) if structured is None else structured
        self._known |= ids_of(messages)
        if self._threads:
            place = {"configurable": {"thread_id": self._threads[-1]}}
            config = (await self._agent.aget_state(place)).config
            self._checkpoint = config["configurable"].get("checkpoint_id")
            messages = []
        self._earlier = messages
        self._has_failed = False


class EntrypointSession(GraphSession):
    """A conversation with an entrypoint, which may answer with any value."""

    def __init__(
        self, graph: Any, options: Mapping[str, Any], shape: Shape, context: Sequence["Message"]
    ) -> None:
        self._shape = shape
        self._sent: list[Any] = []
        """The messages of the latest turn's input."""
        super().__init__(graph, options, context)

    def remember(self, messages: Sequence["Message"]) -> None:
        if messages and self._shape == "text":
            raise FrameworkError(
                "the entrypoint takes one message as text, and no earlier ones; give its parameter"
                " the type list[BaseMessage]"
            )
        super().remember(messages)

    def _input(self, message: str) -> Any:
        given = super()._input(message)
        self._sent = given["messages"]
        return {"text": message, "messages": self._sent, "state": given}[self._shape]

    async def _finish(self, state: Any) -> None:
        """Continue from the messages that it returned, all or new ones, or from its answer."""
        from langchain_core.messages import AIMessage

        said = _messages_in(state)
        has_all = any(message is self._sent[-1] for message in said)
        text = state if isinstance(state, str) else json.dumps(state, default=str)
        messages = said if has_all else [*self._sent, *(said or [AIMessage(text)])]
        structured = field_of(state, "structured_response")
        await super()._finish({"messages": messages, "structured_response": structured})
        if not said:
            self.turn.response = "" if state is None else state


def _messages_in(value: Any) -> list[Any]:
    """Return the messages that a value is or has."""
    from langchain_core.messages import BaseMessage

    found = field_of(value, "messages") or value
    listed = found if isinstance(found, list | tuple) else [found]
    return [message for message in listed if isinstance(message, BaseMessage)]


def _note_update(reader: LangChainTurnReader, update: Mapping[str, Any]) -> None:
    """Note the messages of the nodes in an update."""
    from langchain_core.messages import BaseMessage, convert_to_messages

    for node, values in update.items():
        if node == "__interrupt__":
            continue
        for value in values if isinstance(values, list | tuple) else [values]:
            messages = (
                value if isinstance(value, BaseMessage) else field_of(value, "messages") or []
            )
            listed = messages if isinstance(messages, list | tuple) else [messages]
            messages = convert_to_messages(listed)
            reader.note_messages(messages, node)
            structured = field_of(value, "structured_response")
            if structured is not None:
                reader.note_structured_response(messages, structured)


def with_stubs(graph: Any) -> Any:
    """Return a copy of the graph whose tools stubs can take the place of, as in graphs within."""
    from langgraph.prebuilt import ToolNode
    from langgraph.pregel import Pregel

    nodes = dict(graph.nodes)
    for name, node in graph.nodes.items():
        if type(node.bound) is ToolNode:
            nodes[name] = node.copy({"bound": _stubbed_node(node.bound)})
        elif isinstance(node.bound, Pregel):
            nodes[name] = node.copy({"bound": with_stubs(node.bound)})
    return graph.copy({"nodes": nodes})


def _stubbed_node(node: Any) -> Any:
    """Return a node with the same tools, whose calls stubs can take."""
    from langchain_core.messages import ToolMessage
    from langgraph.prebuilt import ToolNode

    # It shows its settings in no other way.
    wrap, wrap_async = node._wrap_tool_call, node._awrap_tool_call  # noqa: SLF001

    async def call_or_stub(request: Any, execute: Any) -> Any:
        async def run() -> Any:
            if wrap_async is not None:
                return await wrap_async(request, execute)
            return await execute(request)

        call = request.tool_call
        schema = {} if request.tool is None else _schema_of(request.tool)
        refusal = missing_argument(schema, call["args"])
        result = await call_tool(call["name"], call["args"], run, _content_of, refusal)
        if isinstance(result, str | list | dict) or result is None:
            text = result if isinstance(result, str) else json.dumps(result)
            return ToolMessage(text, name=call["name"], tool_call_id=call["id"])
        return result

    return ToolNode(
        list(node.tools_by_name.values()),
        name=node.name,
        tags=node.tags,
        handle_tool_errors=node._handle_tool_errors,  # noqa: SLF001
        messages_key=node._messages_key,  # noqa: SLF001
        wrap_tool_call=wrap,
        awrap_tool_call=call_or_stub,
    )


def _content_of(message: Any) -> Any:
    return getattr(message, "content", message)


def _approvals_in(value: Any) -> list[dict[str, Any]]:
    """Return what an interrupt asks a person to approve.

    That of `HumanInTheLoopMiddleware` has tool calls, all in one interrupt or each in its own; any
    other one is a call of `interrupt`, unless a tool made it.
    """
    fields = value if isinstance(value, Mapping) else {"value": value}
    if "action_requests" in fields:
        return [
            {"name": request["name"], "arguments": request["args"]}
            for request in fields["action_requests"]
        ]
    if fields.get("type") == "tool_approval":
        return [{"name": fields["name"], "arguments": fields["args"]}]
    return [{"name": INTERRUPT, "arguments": dict(fields)}]


def _answer_to(value: Any, decisions: Sequence[bool]) -> Any:
    """Return what the interrupt gets for these decisions about its approvals."""
    answers = [{"type": "approve" if is_approved else "reject"} for is_approved in decisions]
    if isinstance(value, Mapping) and "action_requests" in value:
        return {"decisions": answers}
    is_one = isinstance(value, Mapping) and value.get("type") == "tool_approval"
    return answers[0] if is_one else decisions[0]


def _is_about(approval: Mapping[str, Any], call: Mapping[str, Any]) -> bool:
    return all(approval[key] == call[key] for key in ("name", "arguments"))
