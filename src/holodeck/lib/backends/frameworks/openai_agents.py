"""Agents of the OpenAI Agents SDK.

`partial(Runner.run, agent, max_turns=5, run_config=RunConfig(…))` says how to run one.
"""

import json
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from holodeck.lib.backends.frameworks.base import (
    FrameworkAdapter,
    FrameworkError,
    StreamingSession,
    TurnRecord,
    check_options,
    field_of,
    for_conversation,
    split_run,
)
from holodeck.lib.support.stubs import call_tool, has_stubs, missing_argument

if TYPE_CHECKING:
    from holodeck.lib.backends.base import Message

OPTIONS = ("run_config", "context", "max_turns", "hooks", "error_handlers")
"""Arguments of `Runner.run()` that a user may choose."""
_SHARED = ("session", "conversation_id", "previous_response_id", "auto_previous_response_id")


def adapt(value: object) -> "OpenAIAgentsAdapter | None":
    """Return the adapter of an `Agent`; None for anything else.

    Raises FrameworkError for an argument of `Runner.run()` that cannot be chosen.
    """
    agent, options = split_run(value)
    if not _is_agent(agent):
        return None
    for name in options:
        if name in _SHARED:
            raise FrameworkError(
                f"{name!r} would let test cases share a conversation; leave it out: each case has"
                " a conversation of its own"
            )
    check_options(options, "Runner.run", *OPTIONS)
    return OpenAIAgentsAdapter(agent, options)


def _is_agent(value: object) -> bool:
    """Whether the object is an `Agent` of the SDK, not of a user's package called `agents`."""
    names = {(base.__module__, base.__qualname__) for base in type(value).__mro__}
    return ("agents.agent", "Agent") in names and hasattr(sys.modules.get("agents.run"), "Runner")


class OpenAIAgentsAdapter(FrameworkAdapter):
    """An agent that `Runner` runs."""

    objects: ClassVar[tuple[str, ...]] = ("Agent",)
    takes_stubs = True
    answers_approvals = True

    def __init__(self, agent: Any, options: Mapping[str, Any]) -> None:
        super().__init__(agent, options)
        self.takes_stubs = self.tools() is not None  # those of an MCP server would run

    async def open(self, context: Sequence["Message"]) -> "OpenAIAgentsSession":
        return OpenAIAgentsSession(self._agent, await for_conversation(self._options), context)

    def tools(self) -> list[str] | None:
        """Return the names of the tools and handoffs of all agents; None with an MCP server."""
        return _tool_names(self._agent, [])

    def required_arguments(self) -> dict[str, list[str]]:
        return {
            tool.name: getattr(tool, "params_json_schema", {}).get("required", [])
            for tool in self._agent.tools
        }


def _tool_names(agent: Any, seen: list[Any]) -> list[str] | None:
    from agents import Handoff

    if agent.mcp_servers or any(tool.name == "hosted_mcp" for tool in agent.tools):
        return None
    seen.append(agent)
    names = [getattr(tool, "trace_name", tool.name) for tool in agent.tools]
    for handoff in agent.handoffs:
        target = handoff if _is_agent(handoff) else _target(handoff)
        name = Handoff.default_tool_name(handoff) if _is_agent(handoff) else handoff.tool_name
        names.append(str(name))
        if target is None:
            return None
        if not any(target is known for known in seen):
            further = _tool_names(target, seen)
            if further is None:
                return None
            names += further
    return list(dict.fromkeys(names))


def _target(handoff: Any) -> Any:
    """Return the agent of a `Handoff`; None if it is only known when it happens."""
    reference = getattr(handoff, "_agent_ref", None)
    return None if reference is None else reference()


class OpenAIAgentsSession(StreamingSession):
    """A conversation that continues as users of `Runner` do.

    The items of the last result come before the next message, which the last agent gets.
    """

    traced_as = "OpenAI Agents SDK"
    _paused: Any = None
    """The result of a run that waits for approvals; None if none does."""
    _is_stubbed = False
    """Whether stubs can take the calls of its tools."""

    async def _answer(self, message: str, *, streams: bool) -> AsyncGenerator[str, None]:
        from agents import Runner

        self.turn = TurnRecord()
        with self._read_turn(_TurnReader(self.turn, self._options.get("run_config"))) as reader:
            items = [*self._earlier, {"role": "user", "content": message}]
            arguments = self._arguments(reader)
            if has_stubs() and not self._is_stubbed:
                self._agent, self._is_stubbed = with_stubs(self._agent, []), True
            if not streams:
                self._finish(await Runner.run(self._agent, items, **arguments), reader)
                return
            result = Runner.run_streamed(self._agent, items, **arguments)
            events = result.stream_events()
            try:
                async for event in events:
                    data = getattr(event, "data", None)
                    if getattr(data, "type", None) == "response.output_text.delta":
                        yield data.delta  # type: ignore[union-attr]
            except BaseException:
                await _stop(result, events)
                raise
            self._finish(result, reader)

    async def _resume(self, decisions: Sequence[bool]) -> None:
        from agents import Runner

        paused, state = self._paused, self._paused.to_state()
        for item, is_approved in zip(paused.interruptions, decisions, strict=True):
            (state.approve if is_approved else state.reject)(item)
        with self._read_turn(
            _TurnReader(self.turn, self._options.get("run_config"), paused)
        ) as reader:
            arguments = self._arguments(reader)
            arguments.pop("context", None)  # the state has it
            self._finish(await Runner.run(self._agent, state, **arguments), reader)

    def _convert(self, messages: Sequence["Message"]) -> list[Any]:
        return [item for message in messages for item in _items_of(message)]

    @contextmanager
    def _read_turn(self, reader: "_TurnReader") -> Iterator["_TurnReader"]:
        """Read a turn, and note at its end what it used, however it ended."""
        from agents import AgentsException

        try:
            yield reader
        except AgentsException as error:
            if error.run_data is not None:
                reader.read_run(error.run_data)
            result = getattr(error, "guardrail_result", None)
            if result is None:
                raise
            raise FrameworkError(
                f"the guardrail {result.guardrail.get_name()!r} stopped the run:"
                f" {result.output.output_info}"
            ) from error
        finally:
            reader.note_usage()

    def _arguments(self, reader: "_TurnReader") -> dict[str, Any]:
        return {
            **self._options,
            "hooks": _hooks(reader, self._options.get("hooks")),
            "run_config": _run_config(reader, self._options.get("run_config")),
        }

    def _finish(self, result: Any, reader: "_TurnReader") -> None:
        """Read the result of a run, and continue from there."""
        reader.read_run(result)
        self._paused = result if result.interruptions else None
        if result.interruptions:
            for item in result.interruptions:
                self.turn.add_approval(item.name, item.arguments, item.call_id)
            return
        self.turn.response = result.final_output
        self._earlier = result.to_input_list()
        self._agent = result.last_agent


def with_stubs(agent: Any, copies: list[tuple[Any, Any]]) -> Any:
    """Return a copy of the agent, and of those that it hands over to, whose tools can be stubbed.

    `copies` are those that were made, each after its agent.
    """
    from agents import FunctionTool, Handoff

    for known, stubbed in copies:
        if known is agent:
            return stubbed
    tools = [_with_stub(tool) if isinstance(tool, FunctionTool) else tool for tool in agent.tools]
    stubbed = agent.clone(tools=tools)
    copies.append((agent, stubbed))

    def hand_over(handoff: Any) -> Any:
        async def invoke(context: Any, arguments: str) -> Any:
            return with_stubs(await handoff.on_invoke_handoff(context, arguments), copies)

        return replace(handoff, on_invoke_handoff=invoke)

    stubbed.handoffs = [
        hand_over(handoff) if isinstance(handoff, Handoff) else with_stubs(handoff, copies)
        for handoff in agent.handoffs
    ]
    return stubbed


def _with_stub(tool: Any) -> Any:
    """Return the tool with a place for stubs, whose errors are treated as those of the tool."""
    from agents.tool import maybe_invoke_function_tool_failure_error_function

    async def invoke(context: Any, arguments: str) -> Any:
        run = partial(tool.on_invoke_tool, context, arguments)
        try:
            parsed = json.loads(arguments or "{}")
        except ValueError:  # the tool tells the model
            return await run()
        try:
            refusal = missing_argument(tool.params_json_schema, parsed)
            return await call_tool(tool.name, parsed, run, refusal=refusal)
        except Exception as error:
            message = await maybe_invoke_function_tool_failure_error_function(
                function_tool=tool, context=context, error=error
            )
            if message is None:
                raise
            return message

    return replace(tool, on_invoke_tool=invoke)


async def _stop(result: Any, events: Any) -> None:
    """End a streamed run, and wait until it is over, for which the SDK wants its events read."""
    result.cancel()
    with suppress(Exception):
        await events.aclose()
        async for _ in result.stream_events():
            pass


def _items_of(message: "Message") -> list[dict[str, Any]]:
    """Return a message of chat completions as items of the Responses API."""
    if message["role"] == "tool":
        answered = {"type": "function_call_output", "call_id": message.get("tool_call_id", "")}
        return [{**answered, "output": message["content"]}]
    said = {"role": message["role"], "content": message["content"]}
    calls = message.get("tool_calls", [])
    items = [said] if message["content"] or not calls else []
    for call in calls:
        named = {"type": "function_call", "call_id": call["id"]}
        items.append({**named, **{key: call["function"][key] for key in ("name", "arguments")}})
    return items


class _TurnReader:
    """Fills in the record of a turn while the run goes on.

    Args:
        turn: The record.
        run_config: Of the user; None without one.
        paused: The result of the run that goes on, whose responses were read; None for a new run.
    """

    def __init__(self, turn: TurnRecord, run_config: Any, paused: Any = None) -> None:
        self._turn = turn
        self._run_config = run_config
        self._earlier = 0 if paused is None else len(paused.raw_responses)
        """How many responses were read before."""
        self._before = _spent(None if paused is None else paused.context_wrapper.usage)
        self._responses = self._earlier
        self.usage: Any = None
        """Where the run adds up its token usage."""
        self._models: set[str | None] = set()
        """Of the responses."""
        self.failed_calls: set[str | None] = set()
        """The calls whose results, still to come, are errors."""
        self.refused_calls: set[str | None] = set()
        """The calls that reach no function: unknown tool, or arguments that do not fit."""

    def note_response(self, response: Any, agent: Any) -> None:
        """Note the tool calls of a response; the SDK counts handoffs among them."""
        self._responses += 1
        self._models.add(_model_of(agent, self._run_config))
        self._turn.add_agent(agent.name)
        for item in response.output:
            if field_of(item, "type").endswith("_call"):
                self._note_call(item, agent.name)

    def note_output(self, call_id: str | None, output: Any) -> None:
        self._turn.add_result(
            call_id,
            output,
            is_error=call_id in self.failed_calls,
            is_refused=call_id in self.refused_calls,
        )

    def note_tool(self, tool: Any) -> None:
        """Note a tool that runs; an agent as a tool runs without the hooks of this run."""
        if getattr(tool, "_is_agent_tool", False):
            self._turn.add_agent_tool(tool.name)

    def read_run(self, run: Any) -> None:
        """Read what the hooks did not see from a `RunResult`, or the data of a failed run."""
        for response in run.raw_responses[self._responses :]:
            self.note_response(response, run.last_agent)
        for item in run.new_items:
            if item.type in {"tool_call_output_item", "handoff_output_item"}:
                output = getattr(item, "output", field_of(item.raw_item, "output"))
                call_id = field_of(item.raw_item, "call_id")
                self.note_output(call_id, output)
                if item.type == "handoff_output_item":
                    self._turn.add_transfer(call_id, item.target_agent.name)

    def note_usage(self) -> None:
        """Note the tokens of all requests; the SDK counts a request of unknown usage as 0."""
        if self.usage is None or not self.usage.requests:
            return
        before, now = self._before, _spent(self.usage)
        known = [entry for entry in self.usage.request_usage_entries if entry.input_tokens]
        # The requests of an agent used as a tool are in its sum, but not in the responses.
        requests = self._responses - self._earlier
        tokens = (None, None) if len(known) < now[0] else (now[1] - before[1], now[2] - before[2])
        is_one_model = len(self._models) == 1 and requests == now[0] - before[0]
        model = self._models.pop() if is_one_model else None
        self._turn.add_usage(*tokens, requests=requests, model=model)

    def _note_call(self, item: Any, agent: str) -> None:
        call_id = field_of(item, "call_id") or field_of(item, "id")
        name = field_of(item, "name") or field_of(item, "type").removesuffix("_call")
        self._turn.add_call(name, _arguments_of(item), call_id, agent)
        for key in ("error", "output", "outputs", "results"):  # of a tool that OpenAI runs
            if field_of(item, key) is not None:
                self._turn.add_result(call_id, field_of(item, key), is_error=key == "error")


def _model_of(agent: Any, run_config: Any) -> str | None:
    """Return the name of the model that an agent asks; None for an object without a name."""
    from agents.models import get_default_model

    model = field_of(run_config, "model") or agent.model or get_default_model()
    name = model if isinstance(model, str) else getattr(model, "model", None)
    return name.removeprefix("litellm/") if isinstance(name, str) else None


def _spent(usage: Any) -> tuple[int, int, int]:
    """Return the requests of a run so far, and their prompt and completion tokens."""
    return (0, 0, 0) if usage is None else (usage.requests, usage.input_tokens, usage.output_tokens)


def _arguments_of(item: Any) -> str | dict[str, Any] | None:
    arguments = field_of(item, "arguments")
    if arguments is not None:
        return arguments  # type: ignore[no-any-return]
    fields = item if isinstance(item, Mapping) else item.model_dump(mode="json")
    names = ("input", "action", "queries", "code", "operation")
    return {name: fields[name] for name in names if fields.get(name) is not None}


def _hooks(reader: _TurnReader, users: Any) -> Any:
    """Return hooks that observe the run and call the user's hooks."""
    from agents import RunContextWrapper, RunHooks
    from agents.tool import default_tool_error_function, default_tool_timeout_error_message

    inner = RunHooks[Any]() if users is None else users
    failed = default_tool_error_function(RunContextWrapper(None), Exception())

    class Hooks(RunHooks[Any]):  # type: ignore[misc]
        def __init__(self) -> None:
            self.on_agent_start = inner.on_agent_start
            self.on_agent_end = inner.on_agent_end
            self.on_handoff = inner.on_handoff

        async def on_tool_start(self, context: Any, agent: Any, tool: Any) -> None:
            reader.note_tool(tool)
            await inner.on_tool_start(context, agent, tool)

        async def on_llm_start(
            self, context: Any, agent: Any, system_prompt: Any, input_items: Any
        ) -> None:
            reader.usage = context.usage
            for item in input_items:
                if field_of(item, "type") == "function_call_output":
                    reader.note_output(field_of(item, "call_id"), field_of(item, "output"))
            await inner.on_llm_start(context, agent, system_prompt, input_items)

        async def on_llm_end(self, context: Any, agent: Any, response: Any) -> None:
            reader.note_response(response, agent)
            await inner.on_llm_end(context, agent, response)

        async def on_tool_end(self, context: Any, agent: Any, tool: Any, result: Any) -> None:
            call_id = getattr(context, "tool_call_id", None)
            seconds = getattr(tool, "timeout_seconds", None) or 0.0
            late = default_tool_timeout_error_message(tool_name=tool.name, timeout_seconds=seconds)
            if call_id is not None:
                if isinstance(result, str) and result in {failed, late}:
                    reader.failed_calls.add(call_id)
                reader.note_output(call_id, result)
            await inner.on_tool_end(context, agent, tool, result)

    return Hooks()


def _run_config(reader: _TurnReader, users: Any) -> Any:
    """Return the user's RunConfig, which also tells of failed tool calls.

    Without one, the run is not traced, unless the user set up a trace processor: the SDK would
    upload the traces.
    """
    from agents import ModelBehaviorError

    given = users or {}
    users_formatter = field_of(given, "tool_error_formatter")

    def note_failure(failure: Any) -> Any:
        reader.failed_calls.add(failure.call_id)
        if failure.kind == "tool_not_found" or isinstance(failure.error, ModelBehaviorError):
            reader.refused_calls.add(failure.call_id)
        return None if users_formatter is None else users_formatter(failure)

    if not isinstance(given, Mapping):
        return replace(given, tool_error_formatter=note_failure)
    config = {**given, "tool_error_formatter": note_failure}
    return config if given or _has_trace_processor() else {**config, "tracing_disabled": True}


def _has_trace_processor() -> bool:
    """Whether the user set up tracing beyond the SDK's default, without setting it up."""
    from agents.tracing import processors, setup

    provider: Any = setup.GLOBAL_TRACE_PROVIDER
    if provider is None:
        return False
    try:
        used = provider._multi_processor._processors  # noqa: SLF001 - the SDK has no getter
    except AttributeError:
        return True
    return any(processor is not processors._global_processor for processor in used)  # noqa: SLF001
