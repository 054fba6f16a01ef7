"""Reads what LangChain's models and tools do in a turn: from its callbacks, and from messages.

The callbacks tell of every model and tool, in subgraphs and inside tools, too, and also of a turn
that fails. The messages of a graph's state complete them where a node does without LangChain.
"""

import re
import sys
from collections.abc import Container, Iterable, Mapping, Sequence
from threading import Lock
from typing import Any

from holodeck.lib.backends.frameworks.base import TurnRecord
from holodeck.lib.backends.frameworks.turn_trace import OpenSteps, TraceStep

HANDOFF_BACK = "__is_handoff_back"
"""What marks the messages that langgraph-supervisor writes itself when an agent has finished."""


class LangChainTurnReader:
    """Fills in the record of a turn; synchronous nodes call it from threads."""

    def __init__(self, turn: TurnRecord, known: Iterable[str]) -> None:
        """`known`: ids of the messages of earlier turns."""
        turn.tool_calls = None  # until a model answers: a node may do without LangChain
        self._turn = turn
        self._known = set(known)
        self._speakers: dict[str, str | None] = {}
        """By message or run: the agent that spoke, in order."""
        self._requests: dict[Any, tuple[str | None, bool]] = {}
        """By run of a model: the agent, and whether its tool calls only shape the answer."""
        self._runs: dict[str, tuple[str, list[dict[str, Any]]]] = {}
        """By message of a model: its run, and the calls in it. Ids of calls may repeat."""
        self._unclaimed: list[dict[str, Any]] = []
        """The calls of models that no message of the state has yet."""
        self._ids: dict[str | None, list[str]] = {}
        """By id of a call as the model wrote it: the ids in the record, which are unique."""
        self._tools: dict[Any, str] = {}
        """By run of a tool: the id of its call."""
        self._run_calls: set[str] = set()
        """The ids of the calls for which a tool ran."""
        self._steps = OpenSteps()
        """Of the tools: what agents of other frameworks inside of them belong to."""
        self._results: list[Any] = []
        """The messages of tools that were read; the state repeats them."""
        self.interrupted: dict[str, str] = {}
        """By the id of an interrupt: the call of the tool that it paused."""
        self._errors: dict[str, str] = {}
        """By tool call: the exception; a message with the result, if one comes, goes first."""
        self._lock = Lock()

    def note_earlier_calls(self, calls: Iterable[Mapping[str, Any]]) -> None:
        """Note the calls without a result of a run that goes on."""
        for call in calls:
            named = {"id": call["call_id"], "name": call["name"], "args": call["arguments"]}
            self._add_call(named, call.get("agent"))

    def note_request(self, run: Any, metadata: Mapping[str, Any], options: object) -> None:
        """Note that a model is asked."""
        is_format = isinstance(options, Mapping) and "ls_structured_output_format" in options
        self._requests[run] = (_speaker(metadata), is_format)

    def note_response(self, run: Any, response: Any) -> None:
        """Note the answer of a model: its tool calls and its usage, which may be unknown."""
        with self._lock:
            agent, is_format = self._requests.pop(run, (None, False))
            self._turn.tool_calls = self._turn.tool_calls or []
            for generations in response.generations:
                message = getattr(generations[0], "message", None) if generations else None
                usage = getattr(message, "usage_metadata", None) or {}
                about = getattr(message, "response_metadata", None) or {}
                tokens = usage.get("input_tokens"), usage.get("output_tokens")
                self._turn.add_usage(*tokens, model=about.get("model_name"))
                self._speakers[str(run)] = agent
                if message is not None and is_format:
                    self._turn.left_out += [call["name"] for call in message.tool_calls]
                elif message is not None:
                    calls = [self._add_call(call, agent) for call in _calls_in(message)]
                    self._unclaimed += calls
                    self._runs[message.id or ""] = (str(run), calls)

    def note_tool(self, run: Any, name: str, inputs: Any, call_id: str | None) -> None:
        """Note that a tool runs; one that no model asked for is a call, too."""
        with self._lock:
            if call_id is None:
                waiting = [
                    call["call_id"] for call in self._turn.open_calls() if call["name"] == name
                ]
                call_id = waiting[0] if len(waiting) == 1 else None
                if not waiting:
                    call_id = self._add_call({"id": str(run), "name": name, "args": inputs})[
                        "call_id"
                    ]
            else:
                call_id = self._open_id(call_id, {*self._tools.values()})
            if call_id is not None:
                self._tools[run] = call_id
                self._run_calls.add(call_id)
                self._steps.begin(run, None, TraceStep("LangChain", "tool", name, call_id=call_id))

    def note_tool_end(self, run: Any, output: Any) -> None:
        """Note the result of a tool; what it says to the graph follows in the state."""
        with self._lock:
            call_id = self._end_tool(run)
            if getattr(output, "type", None) == "tool":
                self._note_result(output, call_id)
            elif call_id is not None and not _is_command(output):
                self._turn.add_result(call_id, output)
            elif target := _target_of(output):
                self._turn.add_transfer(call_id, target)

    def note_tool_error(self, run: Any, error: BaseException) -> None:
        with self._lock:
            call_id = self._end_tool(run)
            is_paused = type(error).__name__ == "GraphInterrupt"  # it begins anew after an answer
            if call_id is None:
                return
            if not is_paused:
                self._errors[call_id] = f"{type(error).__name__}: {error}"
                return
            for interrupt in error.args[0]:
                self.interrupted.setdefault(interrupt.id, call_id)  # the innermost tool is first

    def _end_tool(self, run: Any) -> str | None:
        """Return the id of the call of a tool that ends, if it is known."""
        self._steps.end(run)
        return self._tools.pop(run, None)

    def note_messages(self, messages: Iterable[Any], node: str | None) -> None:
        """Note messages that a node added to the state."""
        with self._lock:
            for message in messages:
                if message.response_metadata.get(HANDOFF_BACK):
                    continue
                if message.type == "tool":
                    self._note_result(message, None)
                elif message.type == "ai" and message.id not in self._known:
                    self._note_message(message, node)

    def note_structured_response(self, messages: Iterable[Any], response: Any) -> None:
        """Leave out the calls that gave a structured response: its schema is no tool.

        `create_agent` answers such a call itself, in the update that has the response.
        """
        with self._lock:
            answered = {message.tool_call_id for message in messages if message.type == "tool"}
            for call in (
                call for message in messages for call in getattr(message, "tool_calls", ())
            ):
                is_schema = call["name"] == type(response).__name__ or call["args"] == response
                if is_schema and call["id"] in answered:
                    self._leave_out(call["name"])

    def _leave_out(self, name: str) -> None:
        """Leave out the calls with this name for which no tool ran, and their results."""
        turn = self._turn
        left_out = {
            call["call_id"]
            for call in turn.tool_calls or ()
            if call["name"] == name and call["call_id"] not in self._run_calls
        }
        turn.left_out.append(name)
        turn.tool_calls = [
            call for call in turn.tool_calls or () if call["call_id"] not in left_out
        ]
        turn.tool_results = [
            result for result in turn.tool_results if result["call_id"] not in left_out
        ]

    def finish(self) -> None:
        """Note what is certain only at the end of the turn, however it ended."""
        with self._lock:
            for call_id, error in self._errors.items():
                self._turn.add_result(call_id, error, is_error=True)
            for agent in self._speakers.values():
                self._turn.add_agent(agent)

    def _note_message(self, message: Any, node: str | None) -> None:
        """Note a message of an agent, whose calls are those of a model unless a node made it."""
        run, calls = self._runs.get(message.id or "", (message.id, []))
        agent = message.name or self._speakers.get(run) or node
        self._speakers[run] = agent
        if not calls:
            calls = [self._claim(call) or self._add_call(call) for call in _calls_in(message)]
            self._runs[message.id or ""] = (run, calls)
        for call in calls:
            if call in self._unclaimed:
                self._unclaimed.remove(call)
            if agent:
                call["agent"] = agent

    def _claim(self, call: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the call of a model that a node copied into a message of its own."""
        for noted in self._unclaimed:
            if noted["call_id"] in self._ids.get(call["id"], ()) and noted["name"] == call["name"]:
                return noted
        return None

    def _add_call(self, call: Mapping[str, Any], agent: str | None = None) -> dict[str, Any]:
        """Add a call to the record under an id that no other one has."""
        ids = self._ids.setdefault(call["id"], [])
        call_id = f"{call['id']}_{len(ids) + 1}" if ids and call["id"] else call["id"]
        self._turn.add_call(call["name"] or "", call["args"], call_id, agent)
        added = (self._turn.tool_calls or [])[-1]
        ids.append(added["call_id"])
        return added

    def _open_id(self, call_id: str | None, taken: Container[str] = ()) -> str | None:
        """Return the id of the oldest call with this one that has no result; None if none is."""
        answered = {result["call_id"] for result in self._turn.tool_results}
        ids = self._ids.get(call_id, ())
        return next((known for known in ids if known not in answered and known not in taken), None)

    def _note_result(self, message: Any, call_id: str | None) -> None:
        if any(message is read or (read.id and message.id == read.id) for read in self._results):
            return
        self._results.append(message)
        call_id = call_id or self._open_id(message.tool_call_id)
        if call_id is not None:
            failed = message.status == "error"
            refused = failed and _is_refusal(message.content)
            self._turn.add_result(call_id, message.content, is_error=failed, is_refused=refused)


def _calls_in(message: Any) -> list[Any]:
    return [*message.tool_calls, *message.invalid_tool_calls]


def _is_command(output: Any) -> bool:
    """Whether a tool says where its graph goes on."""
    return type(output).__module__ == "langgraph.types"


def _target_of(command: Any) -> str | None:
    """Return the agent, a node of the graph around it, that a tool hands over to; None without."""
    if not _is_command(command) or command.graph != command.PARENT:
        return None
    places = command.goto if isinstance(command.goto, (list, tuple)) else [command.goto]
    names = {getattr(place, "node", place) for place in places}
    return names.pop() if len(names) == 1 else None


def _is_refusal(content: Any) -> bool:
    """Whether a graph's `ToolNode` says of a call that its tool or arguments are wrong."""
    tool_node: Any = sys.modules.get("langgraph.prebuilt.tool_node")
    if tool_node is None:
        return False
    templates = (
        tool_node.INVALID_TOOL_NAME_ERROR_TEMPLATE,
        tool_node.TOOL_INVOCATION_ERROR_TEMPLATE,
    )
    return any(re.match(_pattern(template), str(content), re.DOTALL) for template in templates)


def _pattern(template: str) -> str:
    return re.sub(r"\\{\w+\\}", ".*", re.escape(template))


def _speaker(metadata: Mapping[str, Any]) -> str | None:
    """Return the agent in which a model is asked: its name, or that of the outermost node."""
    name = metadata.get("lc_agent_name")
    if name:
        return str(name)
    outermost = str(metadata.get("langgraph_checkpoint_ns", "")).partition("|")[0]
    return outermost.partition(":")[0] or None


def callback_handler(reader: LangChainTurnReader) -> Any:
    """Return a handler for LangChain's callbacks that passes on what the reader notes."""
    from langchain_core.callbacks import BaseCallbackHandler

    class Handler(BaseCallbackHandler):  # type: ignore[misc]
        raise_error = True
        run_inline = True

        def on_chat_model_start(self, *_: Any, **event: Any) -> None:
            metadata = event.get("metadata") or {}
            reader.note_request(event["run_id"], metadata, event.get("options"))

        def on_llm_start(self, *_: Any, **event: Any) -> None:
            reader.note_request(event["run_id"], event.get("metadata") or {}, None)

        def on_llm_end(self, response: Any, **event: Any) -> None:
            reader.note_response(event["run_id"], response)

        def on_tool_start(self, serialized: Any, input_str: str, **event: Any) -> None:
            inputs = event.get("inputs")
            given = inputs if isinstance(inputs, dict) else {"input": input_str}
            name = (serialized or {}).get("name") or event.get("name") or ""
            reader.note_tool(event["run_id"], name, given, event.get("tool_call_id"))

        def on_tool_end(self, output: Any, **event: Any) -> None:
            reader.note_tool_end(event["run_id"], output)

        def on_tool_error(self, error: BaseException, **event: Any) -> None:
            reader.note_tool_error(event["run_id"], error)

    return Handler()


def config_with(handler: Any, users: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the user's RunnableConfig with a further callback handler."""
    config = dict(users or {})
    callbacks = config.get("callbacks") or []
    if isinstance(callbacks, list):
        return {**config, "callbacks": [*callbacks, handler]}
    manager = callbacks.copy()
    manager.add_handler(handler)
    return {**config, "callbacks": manager}


def ids_of(messages: Sequence[Any]) -> set[str]:
    """Return the ids of messages."""
    return {message.id for message in messages if message.id}
