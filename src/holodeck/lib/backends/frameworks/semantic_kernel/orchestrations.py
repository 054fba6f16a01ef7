# ruff: noqa: SLF001 - Semantic Kernel shows members, callbacks and tasks in no other way
"""Orchestrations of Semantic Kernel: several agents that answer together.

A turn is one invocation in a runtime of its own, on copies of the members whose kernels and
callbacks are read. The next turn is given what was said before.
"""

import asyncio
import inspect
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from copy import copy
from typing import TYPE_CHECKING, Any, TypeGuard, cast

from holodeck.lib.backends.frameworks.base import (
    ALL,
    FrameworkAdapter,
    FrameworkError,
    FrameworkSession,
    TurnRecord,
)
from holodeck.lib.backends.frameworks.semantic_kernel.messages import (
    HANDOFF,
    SemanticKernelTurnReader,
    names_of_tools,
    new_history,
    service_tools,
)

if TYPE_CHECKING:
    from semantic_kernel.agents import HandoffOrchestration
    from semantic_kernel.agents.orchestration.orchestration_base import OrchestrationBase
    from semantic_kernel.agents.runtime import InProcessRuntime
    from semantic_kernel.contents import ChatMessageContent

    from holodeck.lib.backends.base import Message

TRANSFER = f"{HANDOFF}-transfer_to_"
"""Begins the name of a function that hands over to the agent after it."""
SILENT_MANAGER = "RoundRobinGroupChatManager"
"""The manager that sends no requests of its own, whose tokens nobody reports."""


class OrchestrationAdapter(FrameworkAdapter):
    """An orchestration; each turn has copies of its members and a runtime of its own."""

    objects = (
        "SequentialOrchestration",
        "ConcurrentOrchestration",
        "GroupChatOrchestration",
        "HandoffOrchestration",
        "MagenticOrchestration",
    )
    reads = ALL - {"streaming"}
    takes_stubs = True

    def __init__(self, agent: Any, options: Mapping[str, Any] | None = None) -> None:
        super().__init__(agent, options)
        for member in agent._members:
            if "definition" in type(member).model_fields:
                raise FrameworkError(
                    f"the member {member.name!r} keeps its conversations in threads of a service,"
                    " which holodeck does not read; use a ChatCompletionAgent"
                )

    async def open(self, context: Sequence["Message"]) -> FrameworkSession:
        return OrchestrationSession(self._agent, {}, context)

    def tools(self) -> list[str] | None:
        members: list[Any] = self._agent._members
        if any(map(service_tools, members)):
            return None
        names = [name for member in members for name in names_of_tools(member) or ()]
        if is_handoff(self._agent):
            targets = {to: None for others in self._agent._handoffs.values() for to in others}
            names += [TRANSFER + name for name in targets]
            names.append(f"{HANDOFF}-complete_task")
        return list(dict.fromkeys(names))


class OrchestrationSession(FrameworkSession):
    """A conversation with an orchestration."""

    traced_as = "Semantic Kernel"

    async def send(self, message: str) -> TurnRecord:
        reader = SemanticKernelTurnReader()
        self.turn = reader.record
        asked = new_history([{"role": "user", "content": message}]).messages
        spoken: list[ChatMessageContent] = []
        try:
            value = await self._run([*self._earlier, *asked], reader, spoken)
        except BaseException:
            reader.read_interrupted()
            raise
        if is_handoff(self._agent):
            note_transfers(reader.record)
        texts = [
            response
            for response in spoken
            if response.role.value == "assistant" and response.content
        ]
        has_answer = is_handoff(self._agent) and texts
        # A hand-off without anybody to ask ends with a sentence of Semantic Kernel's own.
        reader.record.response = texts[-1].content if has_answer else plain_value(value)
        self._earlier += [*asked, *map(_as_text, texts)]
        return self.turn

    def _convert(self, messages: Sequence["Message"]) -> list[Any]:
        return new_history(messages).messages

    async def _run(
        self,
        messages: "list[ChatMessageContent]",
        reader: SemanticKernelTurnReader,
        spoken: "list[ChatMessageContent]",
    ) -> Any:
        """Return the result of an invocation; messages of the agents are added to `spoken`."""
        orchestration = self._copy(reader, spoken)
        if len(messages) > 1 and "MagenticOrchestration" in _kinds(orchestration):
            raise FrameworkError(
                "a MagenticOrchestration takes one message and no earlier ones; test it with one"
                " input for each test case"
            )
        async with _running_runtime() as runtime:
            task = messages if messages[1:] else messages[0]
            result = await orchestration.invoke(task, runtime)
            if result.background_task is not None:
                await _finished(result.background_task)
            await _idle(runtime)
            if not result.event.is_set():
                raise RuntimeError("the orchestration ended without a result")
            return await result.get()

    def _copy(
        self, reader: SemanticKernelTurnReader, spoken: "list[ChatMessageContent]"
    ) -> "OrchestrationBase[Any, Any]":
        """Return a copy of the orchestration that is read, and whose manager begins anew."""
        users = self._agent._agent_response_callback

        async def note(message: Any) -> None:
            for part in message if isinstance(message, list) else [message]:
                reader.read(part)
                spoken.append(part)
            if users is not None:
                answered = users(message)
                if inspect.isawaitable(answered):
                    await answered

        reader.record.tool_calls_problem = _unseen_calls(self._agent._members)
        orchestration: OrchestrationBase[Any, Any] = copy(self._agent)
        state: dict[str, Any] = vars(orchestration)
        state["_members"] = [
            member.model_copy(update={"kernel": reader.kernel(member.kernel)})
            for member in state["_members"]
        ]
        state["_agent_response_callback"] = note
        for name in ("_input_transform", "_output_transform"):
            if getattr(state[name], "__self__", None) is self._agent:
                state[name] = state[name].__func__.__get__(orchestration)
        if "_human_response_function" in state:  # the next turn is the human's response
            state["_human_response_function"] = None
        if "_manager" in state:
            manager = state["_manager"] = _copy_of_manager(state["_manager"])
            if type(manager).__name__ != SILENT_MANAGER:
                reader.record.add_usage(None, None, requests=0)
        return orchestration


def is_handoff(orchestration: Any) -> "TypeGuard[HandoffOrchestration[Any, Any]]":
    return "HandoffOrchestration" in _kinds(orchestration)


def note_transfers(turn: TurnRecord) -> None:
    """Note the calls that handed over to another agent."""
    for result in turn.tool_results:
        if result["name"].startswith(TRANSFER) and not result.get("is_error"):
            turn.add_transfer(result["call_id"], result["name"].removeprefix(TRANSFER))


def plain_value(value: Any) -> Any:
    """Return the result of an orchestration as text or plain data."""
    if isinstance(value, list):
        return "\n\n".join(str(plain_value(part)) for part in value)
    if hasattr(value, "items") and hasattr(value, "role"):
        return str(value.content or "")
    return value.model_dump(mode="json") if hasattr(value, "model_dump") else value


def _kinds(value: object) -> set[str]:
    return {base.__name__ for base in type(value).__mro__}


def _as_text(message: "ChatMessageContent") -> "ChatMessageContent":
    """Return what an agent said, without tool calls and the pieces it came in."""
    [plain] = new_history([{"role": "assistant", "content": message.content}]).messages
    plain.name = message.name
    return plain


def _unseen_calls(members: Sequence[Any]) -> str | None:
    """Return whose tool calls Semantic Kernel does not report of members; None if it does."""
    for member in members:
        for kind in service_tools(member):
            return f"those of {kind} are not seen, which the service of {member.name!r} runs"
    return None


def _copy_of_manager(manager: Any) -> Any:
    """Return a manager with the state of the user's, which asks nobody."""
    update: dict[str, Any] = {
        name: copy(value)
        for name, value in vars(manager).items()
        if isinstance(value, list | dict | set)
    }
    if "human_response_function" in vars(manager):
        update["human_response_function"] = None
    return manager.model_copy(update=update)


@asynccontextmanager
async def _running_runtime() -> "AsyncIterator[InProcessRuntime]":
    """Start a runtime; nothing of it goes on after the block."""
    from semantic_kernel.agents.runtime import InProcessRuntime

    runtime = InProcessRuntime(ignore_unhandled_exceptions=False)
    runtime.start()
    loop = cast(Any, runtime._run_context)._run_task
    try:
        yield runtime
    finally:  # its own stop() waits for messages that are being answered, or has been called
        await _cancelled(loop, *runtime._background_tasks)


async def _idle(runtime: "InProcessRuntime") -> None:
    """Stop the runtime once every message is answered. Raises the exception of an agent."""
    try:
        await runtime.stop_when_idle()
    except Exception as error:  # the runtime takes its cause away; it is an argument, too
        causes = [cause for cause in error.args if isinstance(cause, BaseException)]
        raise error from (causes[0] if causes else None)


async def _finished(task: "asyncio.Task[None]") -> None:
    """Wait for a task that ends with the caller."""
    try:
        await task
    finally:
        await _cancelled(task)


async def _cancelled(*tasks: "asyncio.Task[Any]") -> None:
    """Cancel tasks, and wait until they have ended."""
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
