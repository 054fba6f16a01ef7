"""Reads what LangChain's models and tools do in a turn: from its callbacks, and from messages.

The callbacks tell of every model and tool, in subgraphs and inside tools, too, and also of a turn
that fails. The messages of a graph's state complete them where a node does without LangChain.
"""

from collections.abc import Iterable, Mapping, Sequence
from threading import Lock
from typing import Any

from holodeck.lib.backends.frameworks.base import TurnRecord


class TurnReader:
    """Fills in the record of a turn; synchronous nodes call it from threads."""

    def __init__(self, turn: TurnRecord, known: Iterable[str]) -> None:
        """`known`: ids of the messages and tool calls of earlier turns."""
        turn.tool_calls = None  # until a model answers: a node may do without LangChain
        self._turn = turn
        self._known = set(known)
        self._speakers: dict[str, str | None] = {}
        """By message or run: the agent that spoke, in order."""
        self._requests: dict[Any, tuple[str | None, bool]] = {}
        """By run of a model: the agent, and whether its tool calls only shape the answer."""
        self._tools: dict[Any, str] = {}
        """By run of a tool: the id of its call."""
        self._errors: dict[str, str] = {}
        """By tool call: the exception; a message with the result, if one comes, goes first."""
        self._lock = Lock()

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
                self._turn.add_usage(usage.get("input_tokens"), usage.get("output_tokens"))
                self._speakers[getattr(message, "id", None) or str(run)] = agent
                if message is not None and not is_format:
                    self._note_calls(message, agent)

    def note_tool(self, run: Any, name: str, inputs: Any, call_id: str | None) -> None:
        """Note that a tool runs; one that no model asked for is a call, too."""
        with self._lock:
            if call_id is None:
                waiting = [call["call_id"] for call in self._open_calls() if call["name"] == name]
                call_id = waiting[0] if len(waiting) == 1 else None
                if not waiting:
                    call_id = str(run)
                    self._turn.add_call(name, inputs, call_id)
            if call_id is not None:
                self._tools[run] = call_id

    def note_tool_end(self, run: Any, output: Any) -> None:
        """Note the result of a tool; what it says to the graph follows in the state."""
        with self._lock:
            call_id = self._tools.pop(run, None)
            if getattr(output, "type", None) == "tool":
                self._note_result(output)
            elif call_id is not None and type(output).__module__ != "langgraph.types":
                self._turn.add_result(call_id, output)

    def note_tool_error(self, run: Any, error: BaseException) -> None:
        with self._lock:
            call_id = self._tools.pop(run, None)
            if call_id is not None:
                self._errors[call_id] = f"{type(error).__name__}: {error}"

    def note_messages(self, messages: Iterable[Any], node: str | None) -> None:
        """Note messages that a node added to the state."""
        with self._lock:
            for message in messages:
                if message.type == "tool":
                    self._note_result(message)
                elif message.type == "ai" and message.id not in self._known:
                    agent = message.name or self._speakers.get(message.id) or node
                    self._speakers[message.id] = agent
                    self._note_calls(message, agent)

    def finish(self) -> None:
        """Note what is certain only at the end of the turn, however it ended."""
        with self._lock:
            for call_id, error in self._errors.items():
                self._turn.add_result(call_id, error, is_error=True)
            for agent in self._speakers.values():
                self._turn.add_agent(agent)

    def _note_calls(self, message: Any, agent: str | None) -> None:
        noted = {call["call_id"]: call for call in self._turn.tool_calls or ()}
        for call in [*message.tool_calls, *message.invalid_tool_calls]:
            if call["id"] in noted:
                if agent:
                    noted[call["id"]]["agent"] = agent
            elif call["id"] not in self._known:
                self._turn.add_call(call["name"] or "", call["args"], call["id"], agent)

    def _note_result(self, message: Any) -> None:
        failed = message.status == "error"
        self._turn.add_result(message.tool_call_id, message.content, is_error=failed)

    def _open_calls(self) -> list[dict[str, Any]]:
        """Return the calls without a result."""
        answered = {result["call_id"] for result in self._turn.tool_results}
        return [call for call in self._turn.tool_calls or () if call["call_id"] not in answered]


def _speaker(metadata: Mapping[str, Any]) -> str | None:
    """Return the agent in which a model is asked: its name, or that of the outermost node."""
    name = metadata.get("lc_agent_name")
    if name:
        return str(name)
    outermost = str(metadata.get("langgraph_checkpoint_ns", "")).partition("|")[0]
    return outermost.partition(":")[0] or None


def callback_handler(reader: TurnReader) -> Any:
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
    """Return the ids of messages and of the tool calls in them."""
    calls = [call["id"] for one in messages for call in getattr(one, "tool_calls", ())]
    return {name for name in [*calls, *(one.id for one in messages)] if name}
