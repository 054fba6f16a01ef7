"""Reads messages of Semantic Kernel: tool calls, their results, token usage and agents.

The agents of users and the agent that holodeck builds are read by the same code.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from holodeck.lib.backends.frameworks.base import TurnRecord
from holodeck.lib.support.stubs import call_tool

if TYPE_CHECKING:
    from semantic_kernel import Kernel
    from semantic_kernel.contents import ChatHistory, ChatMessageContent, FunctionCallContent
    from semantic_kernel.functions import KernelArguments

    from holodeck.lib.backends.base import Message

HANDOFF = "Handoff"
"""Semantic Kernel's name for the group of functions that hand over to other agents."""
PROMPT_TOKENS = ("prompt_tokens", "input_tokens")
COMPLETION_TOKENS = ("completion_tokens", "output_tokens")
"""Names that the providers use."""

_running: ContextVar[tuple[Any, "FunctionCallContent"] | None] = ContextVar(
    "holodeck_kernel_function", default=None
)
"""The function that the kernel invokes, and the model's call of it."""


class SemanticKernelTurnReader:
    """Reads what agents do in a turn into a record.

    Args:
        names_agents: Whether the names in the messages are those that the user gave.
    """

    def __init__(self, *, names_agents: bool = True) -> None:
        self.record = TurnRecord()
        self.names_agents = names_agents
        self._read: list[ChatMessageContent] = []
        self._histories: list[tuple[ChatHistory, int]] = []
        """Histories that Semantic Kernel is working on, and where the turn begins in each."""
        self._called: list[FunctionCallContent] = []
        """Calls of functions that are in none of the histories."""
        self._invoked: set[str | None] = set()
        self._ran: set[str | None] = set()
        self._failed: set[str | None] = set()
        """Ids of calls of known functions, of those whose function ran, and of those that failed;
        a filter of the user may have kept a function from running."""
        self._sees_functions = False
        self._counted: list[Any] = []
        """Usages that were counted; Semantic Kernel repeats one in each part of a stream."""

    def read(self, message: "ChatMessageContent") -> None:
        """Add a message of an agent or a tool to the record; one that was read before, not."""
        if any(message is earlier for earlier in self._read):
            return
        self._read.append(message)
        agent = message.name if self.names_agents else None
        items: list[Any] = message.items
        for item in items:
            if item.content_type == "function_call":
                self.record.add_call(item.name or "", item.arguments, item.id, agent)
            elif item.content_type == "function_result":
                refused = self._sees_functions and item.id not in self._invoked
                blocked = item.id in self._invoked - self._ran - self._failed
                self.record.add_result(
                    item.id,
                    item.result,
                    is_error=item.id in self._failed,
                    is_refused=refused,
                    is_blocked=blocked,
                    name=item.name,
                )
        only_reasons = bool(items) and all(item.content_type == "reasoning" for item in items)
        if message.role.value == "assistant" and not only_reasons:
            self.record.add_agent(agent)
            self.count(message.metadata.get("usage"), message.ai_model_id, agent)

    def count(self, usage: Any, model: str | None, agent: str | None = None) -> None:
        """Add the token usage of a request, unless it was counted before; None is unknown."""
        if usage is None or not any(usage is counted for counted in self._counted):
            self._counted.append(usage)
            self.record.add_usage(*token_counts(usage), model=model, agent=agent)

    def read_interrupted(self) -> None:
        """Add what Semantic Kernel has not reported because the turn did not end.

        Tool calls are unknown if none of them reached a function: perhaps some were refused.
        """
        reported = {call["call_id"] for call in self.record.tool_calls or ()}
        for call in self._called:
            if call.id not in reported:
                self.record.add_call(call.name or "", call.arguments, call.id)
        for history, start in self._histories:
            for message in history.messages[start:]:
                self.read(message)
        if not (self._read or self._called):
            self.record.tool_calls = None

    def kernel(self, kernel: "Kernel") -> "Kernel":
        """Return a copy of the kernel whose functions the reader sees; filters come on top."""
        self._sees_functions = True
        calls, errors, runs = self._call_filter(), self._error_filter(), self._run_filter()
        stubs = _stub_filter()
        return kernel.model_copy(
            update={
                "auto_function_invocation_filters": [
                    *kernel.auto_function_invocation_filters,
                    (id(calls), calls),
                ],
                "function_invocation_filters": [
                    (id(stubs), stubs),  # the first is the nearest to the function
                    (id(runs), runs),
                    *kernel.function_invocation_filters,
                    (id(errors), errors),
                ],
            }
        )

    # Semantic Kernel copies the filters of a kernel deeply; of all callables, only functions stay
    # the same.
    def _call_filter(self) -> Callable[..., Awaitable[None]]:
        async def note_call(context: Any, next: Callable[..., Awaitable[None]]) -> None:  # noqa: A002
            call = context.function_call_content
            self._invoked.add(call.id)
            # a function made of a prompt has no method
            method = getattr(context.function, "method", None)
            if "_as_kernel_function" in getattr(method, "__qualname__", ""):
                self.record.add_agent_tool(call.name)
                self.record.add_usage(None, None, requests=0)
            self._note_history(context.chat_history, call)
            token = _running.set((context.function, call))
            try:
                await next(context)
            finally:
                _running.reset(token)

        return note_call

    def _error_filter(self) -> Callable[..., Awaitable[None]]:
        async def note_error(context: Any, next: Callable[..., Awaitable[None]]) -> None:  # noqa: A002
            try:
                await next(context)
            except Exception:
                running = _running.get()
                if running is not None and running[0] is context.function:
                    self._failed.add(running[1].id)
                raise

        return note_error

    def _run_filter(self) -> Callable[..., Awaitable[None]]:
        async def note_run(context: Any, next: Callable[..., Awaitable[None]]) -> None:  # noqa: A002
            running = _running.get()
            if running is not None and running[0] is context.function:
                self._ran.add(running[1].id)
            await next(context)

        return note_run

    def _note_history(self, history: "ChatHistory | None", call: "FunctionCallContent") -> None:
        if history is None:
            return
        messages = enumerate(history.messages)
        begins = (
            index for index, message in messages if any(item is call for item in message.items)
        )
        start = next(begins, None)
        if start is None:  # one for the results only, as of agents whose service keeps the calls
            self._called.append(call)
            start = len(history.messages)
        if not any(history is known for known, _ in self._histories):
            self._histories.append((history, start))


def _stub_filter() -> Callable[..., Awaitable[None]]:
    async def call_or_stub(context: Any, next: Callable[..., Awaitable[None]]) -> None:  # noqa: A002
        from semantic_kernel.functions import FunctionResult

        async def run() -> Any:
            await next(context)
            return context.result

        running = _running.get()
        is_tool = running is not None and running[0] is context.function
        if running is None or not is_tool or context.function.plugin_name == HANDOFF:
            await next(context)
            return
        arguments = running[1].parse_arguments() or {}
        name = context.function.fully_qualified_name
        result = await call_tool(name, arguments, run, _value_of)
        if not isinstance(result, FunctionResult):
            context.result = FunctionResult(function=context.function.metadata, value=result)

    return call_or_stub


def _value_of(result: Any) -> Any:
    return None if result is None else result.value


def answer_text(message: "ChatMessageContent") -> str:
    """Return the text of an answer; a filter that ended the turn makes a result the answer."""
    if message.role.value == "tool":
        items: list[Any] = message.items
        results = [item.result for item in items if item.content_type == "function_result"]
        return "\n".join(map(str, results))
    return str(message.content or "")


def service_tools(agent: Any) -> list[str]:
    """Return the types of the tools that the service of an agent runs itself."""
    tools = getattr(agent, "definition", agent)
    kinds = [
        str(tool["type"] if isinstance(tool, Mapping) else tool.type)
        for tool in getattr(tools, "tools", None) or ()
    ]
    return [kind for kind in dict.fromkeys(kinds) if kind != "function"]


def invokes_functions(agent: Any, arguments: "KernelArguments | None") -> bool:
    """Whether Semantic Kernel invokes whatever the model calls, with these arguments of a run."""
    behaviors = [agent.function_choice_behavior]
    for given in (agent.arguments, arguments):
        settings = {} if given is None else given.execution_settings or {}
        behaviors += [setting.function_choice_behavior for setting in settings.values()]
    known = [behavior for behavior in behaviors if behavior is not None]
    return all(behavior.auto_invoke_kernel_functions for behavior in known)


def names_of_tools(agent: Any) -> list[str]:
    """Return the names of the functions that an agent offers to its model."""
    return list(arguments_of_tools(agent))


def arguments_of_tools(agent: Any) -> dict[str, list[str]]:
    """Return the names of these functions, with the arguments that each needs."""
    settings = agent.arguments.execution_settings if agent.arguments else None
    behaviors = [setting.function_choice_behavior for setting in (settings or {}).values()]
    chosen = next((behavior for behavior in behaviors if behavior is not None), None)
    behavior = chosen or agent.function_choice_behavior
    if behavior is None or not behavior.enable_kernel_functions:
        return {}
    functions = (
        agent.kernel.get_list_of_function_metadata(behavior.filters)
        if behavior.filters
        else agent.kernel.get_full_list_of_function_metadata()
    )
    return {
        function.fully_qualified_name: [
            parameter.name for parameter in function.parameters if parameter.is_required
        ]
        for function in functions
    }


def token_counts(usage: Any) -> tuple[int | None, int | None]:
    """Return prompt and completion tokens of a request; None where unknown."""
    return _count(usage, PROMPT_TOKENS), _count(usage, COMPLETION_TOKENS)


def _count(usage: Any, names: Sequence[str]) -> int | None:
    for name in names:
        value = usage.get(name) if isinstance(usage, dict) else getattr(usage, name, None)
        if isinstance(value, int) and value >= 0:
            return value
    return None


def new_history(context: Sequence["Message"] = ()) -> "ChatHistory":
    """Return a history of the given messages."""
    from semantic_kernel.contents import (
        AuthorRole,
        ChatHistory,
        ChatMessageContent,
        FunctionCallContent,
        FunctionResultContent,
        TextContent,
    )

    history = ChatHistory()
    tool_names: dict[str, str] = {}
    """By the id of the tool call."""
    for message in context:
        items: list[Any] = []
        role = AuthorRole(message["role"])
        if role is AuthorRole.TOOL:
            call_id = message.get("tool_call_id", "")
            name = tool_names.get(call_id, call_id)
            items.append(FunctionResultContent(id=call_id, name=name, result=message["content"]))
        elif message["content"]:
            items.append(TextContent(text=message["content"]))
        for call in message.get("tool_calls", []):
            name, arguments = call["function"]["name"], call["function"]["arguments"]
            items.append(FunctionCallContent(id=call["id"], name=name, arguments=arguments))
            tool_names[str(call["id"])] = str(name)
        history.add_message(ChatMessageContent(role=role, items=items, name=message.get("name")))
    return history
