"""Agents of PydanticAI."""

from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Mapping,
    Sequence,
)
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any

from holodeck.lib.backends.frameworks.base import (
    FrameworkAdapter,
    FrameworkError,
    StreamingSession,
    TurnRecord,
    pieces_of,
    refuse_options,
    split_run,
)
from holodeck.lib.backends.frameworks.tracing import listen_to_tracer
from holodeck.lib.support.stubs import call_tool, has_stubs

if TYPE_CHECKING:
    from holodeck.lib.backends.base import Message

OWN_OPTIONS = (
    *("user_prompt", "message_history", "conversation", "event_stream_handler", "infer_name"),
    *("conversation_id", "run_id", "deferred_tool_results"),
)
"""Arguments of `run` that an adapter sets."""


def adapt(value: object) -> FrameworkAdapter | None:
    """Return the adapter of an agent; None for any other object."""
    import pydantic_ai.agent

    agent, options = split_run(value)
    if not isinstance(agent, pydantic_ai.agent.AbstractAgent):
        return None
    refuse_options(options, *OWN_OPTIONS)
    kind = getattr(agent, "deps_type", object)
    if "deps" not in options and kind not in (object, type(None)):
        shown = getattr(kind, "__name__", kind)
        raise FrameworkError(
            f"the agent needs deps, a {shown}; name functools.partial(agent.run, deps={shown}(…)),"
            " or a function without parameters that returns it"
        )
    return PydanticAIAdapter(agent, options)


class PydanticAIAdapter(FrameworkAdapter):
    """An agent; each conversation has a message history of its own."""

    objects = ("Agent",)
    takes_stubs = True
    answers_approvals = True

    async def open(self, context: Sequence["Message"]) -> "PydanticAIConversation":
        return PydanticAIConversation(self._agent, self._options, context)

    def tools(self) -> list[str] | None:
        """Return the names of function tools; None if there are other toolsets, such as MCP."""
        from pydantic_ai.toolsets import FunctionToolset

        toolsets = self._agent.toolsets
        if not all(isinstance(toolset, FunctionToolset) for toolset in toolsets):
            return None
        return [name for toolset in toolsets for name in toolset.tools]

    def required_arguments(self) -> dict[str, list[str]]:
        return {
            name: tool.tool_def.parameters_json_schema.get("required", [])
            for toolset in self._agent.toolsets
            for name, tool in getattr(toolset, "tools", {}).items()
        }


class PydanticAIConversation(StreamingSession):
    """A conversation that passes its history to each run."""

    traced_as = "PydanticAI"

    def __init__(
        self, agent: Any, options: Mapping[str, Any], context: Sequence["Message"]
    ) -> None:
        self._output_tools = output_tools(agent)
        self._history: list[Any] = []
        """What comes before `_earlier`, and was sent already."""
        self._pending: list[dict[str, Any]] = []
        """What waits for an approval."""
        super().__init__(agent, options, context)

    async def _answer(self, message: str, *, streams: bool) -> AsyncGenerator[str, None]:
        self.turn = TurnRecord(left_out=sorted(self._output_tools))
        if not streams:
            await self._run(message, None)
            return
        run = partial(self._run, message)
        async with aclosing(pieces_of(run)) as pieces:
            async for piece in pieces:
                yield piece

    async def _resume(self, decisions: Sequence[bool]) -> None:
        from pydantic_ai import DeferredToolResults

        ids = [call["call_id"] for call in self._pending]
        answers = DeferredToolResults(approvals=dict(zip(ids, decisions, strict=True)))
        await self._run(None, None, deferred_tool_results=answers)

    def _convert(self, messages: Sequence["Message"]) -> list[Any]:
        return to_messages(messages)

    async def _run(
        self, message: str | None, on_piece: Callable[[str], None] | None, **answers: Any
    ) -> None:
        from pydantic_ai import capture_run_messages

        # settings of the agent itself may name another provider than that of the process
        listen_to_tracer(getattr(getattr(self._agent, "instrument", None), "tracer", None))
        history = [*self._history, *await self._first_messages()]
        options = {**self._options, **answers}
        if has_stubs():
            users = options.get("capabilities") or ()
            options["capabilities"] = [*users, stubs_capability(self._output_tools)]
        with capture_run_messages() as seen:
            try:
                result = await self._agent.run(
                    message,
                    message_history=history or None,
                    infer_name=False,  # that would change the user's object
                    event_stream_handler=on_piece and _text_handler(self._agent, on_piece),
                    **options,
                )
            except BaseException:
                self._read(seen[len(history) :])
                raise
        self._read(result.new_messages())
        self._pending = self.turn.pending_approvals = self._approvals_in(result.output)
        if not self._pending:
            self.turn.response = result.output
        self._history, self._earlier = result.all_messages(), []

    async def _first_messages(self) -> list[Any]:
        """Return the earlier messages, with the system prompt before them.

        The framework adds that only to a run without history.
        """
        from pydantic_ai.messages import ModelRequest

        if not self._earlier or self._history:
            return self._earlier
        prompts = await self._agent.system_prompt_parts(deps=self._options.get("deps"))
        return [*([ModelRequest(parts=prompts)] if prompts else ()), *self._earlier]

    def _read(self, messages: Sequence[Any]) -> None:
        """Note what happened in the messages of a run."""
        self.turn.add_agent(self._agent.name)
        for message in messages:
            if message.kind == "response":
                usage = message.usage
                known = usage.input_tokens or usage.output_tokens  # PydanticAI has 0 for unknown
                counts = (usage.input_tokens, usage.output_tokens) if known else (None, None)
                self.turn.add_usage(*counts, model=message.model_name)
            for part in message.parts:
                self._read_part(part)

    def _read_part(self, part: Any) -> None:
        name = getattr(part, "tool_name", None)
        if name is None or name in self._output_tools:
            return
        if part.part_kind.endswith("tool-call"):
            self.turn.add_call(name, part.args, part.tool_call_id)
            return
        # A tool that asks the model to try again has a part of its own in older versions.
        default = "retried" if part.part_kind == "retry-prompt" else "success"
        failed = getattr(part, "outcome", default) != "success"
        refused = getattr(getattr(part, "retry", None), "cause", "model_retry") != "model_retry"
        self.turn.add_result(
            part.tool_call_id, part.content, is_error=failed, is_refused=refused, name=name
        )

    def _approvals_in(self, output: Any) -> list[dict[str, Any]]:
        """Return what the run waits for a person to approve.

        Raises FrameworkError if it waits for a program.
        """
        from pydantic_ai import DeferredToolRequests

        if not isinstance(output, DeferredToolRequests):
            return []
        if not output.calls:
            return [
                {"name": call.tool_name, "arguments": call.args, "call_id": call.tool_call_id}
                for call in output.approvals
            ]
        names = ", ".join(call.tool_name for call in output.calls)
        raise FrameworkError(
            f"the agent waits for the results of {names}, which are computed elsewhere; give the"
            " agent the capability HandleDeferredToolCalls"
        )


def stubs_capability(output_tools: frozenset[str]) -> Any:
    """Return a capability that lets stubs take the calls of tools."""
    from pydantic_ai.capabilities import AbstractCapability

    class Stubs(AbstractCapability[Any]):  # type: ignore[misc]
        async def wrap_tool_execute(
            self,
            ctx: Any,  # noqa: ARG002 - the framework's signature
            *,
            call: Any,
            tool_def: Any,  # noqa: ARG002 - as above
            args: Any,
            handler: Callable[[Any], Awaitable[Any]],
        ) -> Any:
            if call.tool_name in output_tools:
                return await handler(args)
            return await call_tool(call.tool_name, args, partial(handler, args))

    return Stubs()


def output_tools(agent: Any) -> frozenset[str]:
    """Return the names of the tools through which the model gives its final answer."""
    while hasattr(agent, "wrapped"):
        agent = agent.wrapped
    toolset = getattr(agent, "_output_toolset", None)
    return frozenset(getattr(toolset, "processors", ()))


def _text_handler(agent: Any, on_piece: Callable[[str], None]) -> Callable[..., Awaitable[None]]:
    """Return a handler that hands over the text of the answer.

    The user's own handler, which it would replace, gets all events from it.
    """
    users = agent.event_stream_handler

    async def passing(events: AsyncIterable[Any]) -> AsyncIterator[Any]:
        async for event in events:
            text = _new_text(event)
            if text:
                on_piece(text)
            yield event

    async def handle(context: Any, events: AsyncIterable[Any]) -> None:
        async with aclosing(passing(events)) as passed:  # type: ignore[type-var]
            if users is not None:
                await users(context, passed)
            async for _ in passed:
                pass

    return handle


def _new_text(event: Any) -> str:
    """Return the text that an event adds to the answer."""
    if event.event_kind == "part_start" and event.part.part_kind == "text":
        return str(event.part.content)
    if event.event_kind == "part_delta" and event.delta.part_delta_kind == "text":
        return str(event.delta.content_delta)
    return ""


def to_messages(messages: Sequence["Message"]) -> list[Any]:
    """Return messages in the format of chat completions as messages of the framework."""
    from pydantic_ai.messages import (
        ModelRequest,
        ModelResponse,
        SystemPromptPart,
        TextPart,
        ToolCallPart,
        ToolReturnPart,
        UserPromptPart,
    )

    names: dict[str, str] = {}
    converted: list[Any] = []
    for message in messages:
        text, role = message["content"], message["role"]
        if role == "assistant":
            parts: list[Any] = [TextPart(text)] if text else []
            for call in message.get("tool_calls", ()):
                function = call["function"]
                names[call["id"]] = function["name"]
                parts.append(ToolCallPart(function["name"], function["arguments"], call["id"]))
            converted.append(ModelResponse(parts=parts))
        elif role == "tool":
            call_id = message.get("tool_call_id", "")
            part = ToolReturnPart(names.get(call_id, message.get("name", "")), text, call_id)
            converted.append(ModelRequest(parts=[part]))
        elif role == "system":
            converted.append(ModelRequest(parts=[SystemPromptPart(text)]))
        else:
            converted.append(ModelRequest(parts=[UserPromptPart(text)]))
    return converted
