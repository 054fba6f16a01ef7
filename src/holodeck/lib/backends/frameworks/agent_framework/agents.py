"""Agents of Microsoft Agent Framework: `Agent`, and whatever else has its `run`."""

import copy
import inspect
import typing
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from holodeck.lib.backends.frameworks.agent_framework.messages import (
    OWN_OPTIONS,
    answer,
    has_client,
    last_results,
    new_text,
    note_agent_tools,
    note_approvals,
    read_messages,
    read_response,
    read_results,
    stub_middleware,
    to_messages,
    token_counts,
    tool_names,
)
from holodeck.lib.backends.frameworks.agent_framework.workflows import (
    adapt_workflow,
    pending_turn,
    response_of,
)
from holodeck.lib.backends.frameworks.base import (
    FrameworkAdapter,
    FrameworkError,
    FrameworkSession,
    StreamingSession,
    TurnRecord,
    refuse_options,
    split_run,
)
from holodeck.lib.support.stubs import has_stubs

if TYPE_CHECKING:
    from holodeck.lib.backends.base import Message


def adapt(value: object) -> FrameworkAdapter | None:
    """Return the adapter of an agent or of a workflow; None for any other object."""
    import agent_framework

    agent, options = split_run(value)
    refuse_options(options, *OWN_OPTIONS)
    function: FunctionalWorkflowAdapter | None = adapt_function(agent, options)
    workflow = function or adapt_workflow(agent, options)
    if workflow is not None:
        refuse_options(options, "session")
        return workflow
    if isinstance(agent, agent_framework.SupportsAgentRun):
        return AgentFrameworkAdapter(agent, options)
    return None


class AgentFrameworkAdapter(FrameworkAdapter):
    """An agent; each conversation has a session of its own, or a copy of the one of the user.

    The framework appends to the `context_providers` of the agent that it runs, and keeps the MCP
    connections that it opens in it. So each conversation runs a shallow copy.
    """

    objects = ("Agent", "SupportsAgentRun", "(agent, AgentSession)")
    takes_stubs = True
    answers_approvals = True

    def __init__(self, agent: Any, options: Mapping[str, Any]) -> None:
        super().__init__(agent, options)
        self._connections = AsyncExitStack()

    async def open(self, context: Sequence["Message"]) -> "AgentFrameworkConversation":
        agent = copy.copy(self._agent)
        if hasattr(agent, "context_providers"):
            agent.context_providers = list(agent.context_providers)
        if hasattr(agent, "_async_exit_stack"):
            agent._async_exit_stack = self._connections  # noqa: SLF001 - close() closes it
        return AgentFrameworkConversation(agent, self._options, context)

    def tools(self) -> list[str] | None:
        return tool_names(self._agent)

    def required_arguments(self) -> dict[str, list[str]]:
        import agent_framework

        options = getattr(self._agent, "default_options", None) or {}
        return {
            tool.name: tool.parameters().get("required", [])
            for tool in options.get("tools") or ()
            if isinstance(tool, agent_framework.FunctionTool)
        }

    async def close(self) -> None:
        """Close the MCP connections that runs of the agent opened."""
        await self._connections.aclose()


class AgentFrameworkConversation(StreamingSession):
    """A conversation in a session of the framework."""

    traced_as = "Microsoft Agent Framework"

    def __init__(
        self, agent: Any, options: Mapping[str, Any], context: Sequence["Message"]
    ) -> None:
        users = options.get("session")
        options = {name: value for name, value in options.items() if name != "session"}
        super().__init__(agent, options, context)
        self._session = agent.create_session() if users is None else users
        self._requests: list[Any] = []
        """The framework's own requests for the pending approvals."""

    async def _answer(self, message: str, *, streams: bool) -> AsyncGenerator[str, None]:
        import agent_framework

        self.turn = TurnRecord()
        session, run = self._begin([agent_framework.Message("user", [message])])
        if not streams:
            self._finish(session, await run())
            return
        stream = run(stream=True)
        async for update in stream:
            yield new_text(update)
        self._finish(session, await stream.get_final_response())

    def _convert(self, messages: Sequence["Message"]) -> list[Any]:
        return to_messages(messages)

    async def _resume(self, decisions: Sequence[bool]) -> None:
        import agent_framework

        pairs = zip(self._requests, decisions, strict=True)
        contents = [request.to_function_approval_response(approved) for request, approved in pairs]
        session, run = self._begin([agent_framework.Message("user", contents)])
        self._finish(session, await run())

    def _begin(self, new: Sequence[Any]) -> tuple[Any, Callable[..., Any]]:
        """Return a session for this turn, and a function that runs the agent in it.

        The session is a copy, so that a turn which fails leaves no trace in the conversation.
        """
        import agent_framework

        session = copy.copy(self._session)
        session.state = copy.deepcopy(session.state)
        messages = [*self._earlier, *new]

        def run(**options: Any) -> Any:
            if has_chat_middleware(self._agent):
                options["middleware"] = [request_observer(self.turn)]
            if has_stubs() and isinstance(self._agent, agent_framework.Agent):
                options["middleware"] = [*options.get("middleware", ()), stub_middleware()]
            return self._agent.run(messages, session=session, **self._options, **options)

        return session, run

    def _finish(self, session: Any, response: Any) -> None:
        """Read the response, and keep the session."""
        if has_chat_middleware(self._agent):
            # A run may be repeated, and only the last one yields the response.
            record = TurnRecord()
            read_response(record, response)
            self.turn.add_missing(record)
        else:
            read_response(self.turn, response)
        if not self.turn.tool_calls and not has_client(self._agent):
            self.turn.tool_calls = None  # a remote agent may call tools without saying so
        note_agent_tools(self.turn, self._agent)
        self.turn.add_agent(self._agent.name)
        self.turn.response = answer(response)
        self.turn.ends_with_calls = bool(last_results(response))
        self._requests = note_approvals(self.turn, response)
        self._session, self._earlier = session, []


def has_chat_middleware(agent: Any) -> bool:
    """Whether each request to the model passes through middleware given to `agent.run`."""
    import agent_framework

    has_layers = isinstance(agent, agent_framework.Agent)
    return has_layers and isinstance(agent.client, agent_framework.ChatMiddlewareLayer)


def request_observer(turn: TurnRecord) -> Any:
    """Return chat middleware that notes in `turn` what each request contains and yields.

    It is the only source for the usage of each request, and for a turn that fails.
    """
    import agent_framework

    def note(response: Any) -> None:
        read_messages(turn, response.messages)
        turn.add_usage(*token_counts(response.usage_details), model=response.model)

    @agent_framework.chat_middleware  # type: ignore[untyped-decorator]
    async def observe(context: Any, call_next: Callable[[], Any]) -> None:
        for message in context.messages:
            read_results(turn, message)
        if context.stream:
            context.stream_result_hooks.append(note)
        await call_next()
        if not context.stream and context.result is not None:
            note(context.result)

    return observe


def adapt_function(value: object, options: Mapping[str, Any]) -> "FunctionalWorkflowAdapter | None":
    """Return the adapter of a function with `@workflow`; None for any other object.

    Raises FrameworkError for one that was built, because it serves a single conversation.
    """
    kinds = {base.__name__ for base in type(value).__mro__}  # older versions have none of them
    if kinds & {"FunctionalWorkflow", "FunctionalWorkflowAgent"}:
        raise FrameworkError(
            "the workflow was built for one conversation, which test cases would share; name the"
            " function with @workflow, on which build() was called"
        )
    if "FunctionalWorkflowDefinition" not in kinds:
        return None
    return FunctionalWorkflowAdapter(value, options)


class FunctionalWorkflowAdapter(FrameworkAdapter):
    """A function with `@workflow`, of which each turn builds a workflow."""

    objects = ("FunctionalWorkflowDefinition",)
    reads = frozenset()

    async def open(self, context: Sequence["Message"]) -> "FunctionalWorkflowConversation":
        return FunctionalWorkflowConversation(self._agent, self._options, context)


class FunctionalWorkflowConversation(FrameworkSession):
    """A conversation with a function, which gets all messages if it takes a list of them."""

    traced_as = "Microsoft Agent Framework"

    def __init__(
        self, definition: Any, options: Mapping[str, Any], context: Sequence["Message"]
    ) -> None:
        self._takes_messages = takes_messages(definition.__wrapped__)
        super().__init__(definition, options, context)

    async def send(self, message: str) -> TurnRecord:
        import agent_framework

        self.turn = TurnRecord(tool_calls=None)
        history = [*self._earlier, agent_framework.Message("user", [message])]
        sent = history if self._takes_messages else message
        result = await self._agent.build().run(sent, **self._options)
        pending_turn(result.get_request_info_events())
        self.turn.response = response_of(result.get_outputs())
        response = agent_framework.Message("assistant", [str(self.turn.response)])
        self._earlier = [*history, response]
        return self.turn

    def _convert(self, messages: Sequence["Message"]) -> list[Any]:
        if messages and not self._takes_messages:
            raise FrameworkError(
                f"the workflow {self._agent.name!r} takes one message, and no earlier ones;"
                " give its parameter the type list[Message]"
            )
        return to_messages(messages)


def takes_messages(function: Any) -> bool:
    """Whether the parameter of a function with `@workflow` is a list of messages."""
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # noqa: BLE001 - a name in a hint that exists only for a type checker
        hints = {}
    for name, parameter in inspect.signature(function).parameters.items():
        kind = hints.get(name, parameter.annotation)
        if name != "ctx" and getattr(kind, "__name__", "") != "RunContext":
            return typing.get_origin(kind) in {list, Sequence}
    return False
