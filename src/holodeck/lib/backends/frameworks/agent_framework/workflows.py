"""Workflows and orchestrations of Microsoft Agent Framework.

A workflow keeps its state between runs and refuses a second run while one is active. What makes
workflows, a builder, gives each conversation one of its own. One workflow serves one turn at a
time: before each, the state in which the conversation left it is restored from a checkpoint.
"""

import asyncio
import json
import logging
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from holodeck.lib.backends.frameworks.agent_framework.messages import (
    OWN_OPTIONS,
    answer,
    note_agent_tools,
    read_messages,
    read_response,
    stub_middleware,
    to_messages,
    tool_names,
)
from holodeck.lib.backends.frameworks.base import (
    ALL,
    FrameworkAdapter,
    FrameworkError,
    FrameworkSession,
    TurnRecord,
    refuse_options,
    split_run,
)
from holodeck.lib.support.stubs import has_stubs

if TYPE_CHECKING:
    from holodeck.lib.backends.base import Message

SILENT_EXECUTORS = {
    *("_InputToConversation", "_DispatchToAllParticipants", "_AggregateAgentConversations"),
    "GroupChatOrchestrator",
}
"""Classes of the framework's executors that call no model and no tool."""
LEADING_EXECUTORS = {"AgentBasedGroupChatOrchestrator", "MagenticOrchestrator"}
"""Classes of the framework's executors with an agent of their own, whose usage is unknown."""


TRANSFER = "handoff_to"
"""The key in the result of a transfer to another agent, and the beginning of its tool's name."""

logger = logging.getLogger(__name__)


def adapt(value: object) -> FrameworkAdapter | None:
    """Return the adapter of a workflow or of its builder; None for any other object."""
    target, options = split_run(value)
    refuse_options(options, *OWN_OPTIONS, "session")
    return adapt_workflow(target, options)


def adapt_workflow(value: object, options: Mapping[str, Any]) -> "WorkflowAdapter | None":
    """Return the adapter of a workflow or of its builder; None for any other object."""
    import agent_framework

    if isinstance(value, agent_framework.WorkflowAgent):
        if value.context_providers:
            raise FrameworkError(
                "the workflow as an agent has context providers, which would see the messages of"
                " all cases; name the workflow itself"
            )
        value = value.workflow
    if isinstance(value, agent_framework.Workflow):
        return WorkflowAdapter(value, None, options)
    build = getattr(value, "build", None)
    if not callable(build) or not type(value).__name__.endswith("Builder"):
        return None
    first, second = build(), build()
    shared = {id(part) for part in _parts(first)} & {id(part) for part in _parts(second)}
    return WorkflowAdapter(first, None if shared else build, options, spares=[first, second])


def _parts(workflow: Any) -> list[Any]:
    """Return the objects of a workflow that keep state."""
    executors = list(workflow.executors.values())
    managers = [getattr(executor, "_manager", None) for executor in executors]
    return [*executors, *(manager for manager in managers if manager is not None)]


class WorkflowAdapter(FrameworkAdapter):
    """A workflow, or a builder that makes one for each conversation."""

    objects = (
        "Workflow",
        "SequentialBuilder",
        "ConcurrentBuilder",
        "HandoffBuilder",
        "GroupChatBuilder",
        "MagenticBuilder",
        "WorkflowBuilder",
    )
    reads = ALL - {"streaming"}
    takes_stubs = True
    answers_approvals = True

    def __init__(
        self,
        first: Any,
        build: Callable[[], Any] | None,
        options: Mapping[str, Any],
        spares: Sequence[Any] = (),
    ) -> None:
        super().__init__(SharedWorkflow(first), options)
        self.takes_stubs = self._agent.takes_stubs
        self._build = build
        """Makes a workflow for each conversation; None if all of them use the first."""
        self._spares = list(spares)
        """Workflows that are built already."""
        self.is_concurrent = build is not None

    async def open(self, context: Sequence["Message"]) -> "WorkflowConversation":
        if self._build is None:
            return WorkflowConversation(self._agent, self._options, context)
        workflow = self._spares.pop() if self._spares else self._build()
        return WorkflowConversation(SharedWorkflow(workflow), self._options, context)

    def tools(self) -> list[str] | None:
        workflow: SharedWorkflow = self._agent
        return workflow.tools()


class SharedWorkflow:
    """A workflow that several conversations use in turn, each from the state that it left."""

    def __init__(self, workflow: Any) -> None:
        import agent_framework

        self.workflow = workflow
        self._checkpoints = agent_framework.InMemoryCheckpointStorage()
        self._initial: str | None = None
        """The checkpoint of the state before any conversation."""
        self._current: str | None = None
        """The checkpoint of the state in which the workflow is; None if it is unknown."""
        self._in_use: set[str | None] = set()
        """The checkpoints to which a conversation may return."""
        self._turn = asyncio.Lock()
        self._attributes = {
            name: _attributes(executor)
            for name, executor in workflow.executors.items()
            if type(executor).on_checkpoint_save is agent_framework.Executor.on_checkpoint_save
        }
        """Of the executors that no checkpoint restores, before the first case."""
        self._warned: set[tuple[str, str]] = set()
        self._stubs: Any = None
        """The middleware that lets stubs take the calls of tools."""

    async def run(
        self, checkpoint: str | None, options: Mapping[str, Any], **request: Any
    ) -> tuple[Any, str]:
        """Run the workflow from the state of a checkpoint; None is the state at the beginning.

        Returns the result, and the checkpoint of the state afterwards, which replaces the other.
        """
        async with self._turn:
            await self._restore(checkpoint)
            before, self._current = self.workflow.get_last_checkpoint_id(), None
            if has_stubs():
                options = {**options, "client_kwargs": self._client_options(options)}
            try:
                result = await self.workflow.run(
                    **request, **options, checkpoint_storage=self._checkpoints
                )
            finally:
                await self._save_initial()
            after = self.workflow.get_last_checkpoint_id()
            if after is None or after == before:
                raise FrameworkError(
                    f"the state of the workflow {self.workflow.name!r} cannot be copied, so that"
                    " cases would see each other's messages; name a function that calls a new"
                    " workflow for each message"
                )
            self._current = after
            self._in_use.discard(checkpoint)
            self._in_use.add(after)
            name = self.workflow.name
            for other in await self._checkpoints.list_checkpoint_ids(workflow_name=name):
                if other not in self._in_use:  # no conversation returns to it
                    await self._checkpoints.delete(other)
            return result, after

    def _client_options(self, options: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments for the clients of the agents, with a place for stubs.

        An agent with middleware takes none of a run; those of hand-offs, which are copies that the
        framework made, get theirs.
        """
        if self._stubs is None:
            self._stubs = stub_middleware()
            for agent in self._agents_with_middleware("HandoffAgentExecutor"):
                agent.middleware = [*agent.middleware, self._stubs]
        given = options.get("client_kwargs") or {}
        return {**given, "middleware": [*given.get("middleware", ()), self._stubs]}

    def _agents_with_middleware(self, kind: str) -> list[Any]:
        """Return the agents with middleware of the executors of this class."""
        executors = self.workflow.executors.values()
        agents = [_agent_of(other) for other in executors if type(other).__name__ == kind]
        return [agent for agent in agents if getattr(agent, "middleware", None)]

    @property
    def takes_stubs(self) -> bool:
        """Whether all tools of its agents pass a place for stubs."""
        return self.tools() is not None and not self._agents_with_middleware("AgentExecutor")

    async def _restore(self, checkpoint: str | None) -> None:
        """Bring the workflow to the state of a checkpoint, unless it is there already."""
        start = checkpoint or self._initial
        if start is None or start == self._current:
            return
        if checkpoint is None:
            self._warn_of_changed_state()
        log = logging.getLogger("agent_framework._workflows._workflow")
        log.addFilter(_is_unexpected)
        try:
            await self.workflow.run(checkpoint_id=start, checkpoint_storage=self._checkpoints)
        finally:
            log.removeFilter(_is_unexpected)

    async def _save_initial(self) -> None:
        """Keep the state before the first run; its first checkpoint has only the input besides."""
        if self._initial is not None:
            return
        ids = await self._checkpoints.list_checkpoint_ids(workflow_name=self.workflow.name)
        if ids:
            first = await self._checkpoints.load(ids[0])
            self._initial = str(uuid4())
            self._in_use.add(self._initial)
            await self._checkpoints.save(replace(first, checkpoint_id=self._initial, messages={}))

    def _warn_of_changed_state(self) -> None:
        """Warn about the user's executors that are not as they were before the first case."""
        for name, attributes in self._attributes.items():
            now = _attributes(self.workflow.executors[name])
            for key, value in now.items():
                if attributes.get(key) != value and (name, key) not in self._warned:
                    self._warned.add((name, key))
                    logger.warning(
                        "the executor %r keeps %s = %s from an earlier case; name a function that"
                        " builds the workflow for each message, or give the executor"
                        " on_checkpoint_save() and on_checkpoint_restore()",
                        name,
                        key,
                        value,
                    )

    def tools(self) -> list[str] | None:
        """Return the names of the tools of all agents; None if those of one are unknown."""
        import agent_framework

        names: dict[str, None] = {}
        for executor in self.workflow.executors.values():
            if isinstance(executor, agent_framework.AgentExecutor):
                found = tool_names(executor.agent)
            else:
                found = [] if type(executor).__name__ in SILENT_EXECUTORS else None
            if found is None:
                return None
            names.update(dict.fromkeys(found))
        return list(names)


def _attributes(executor: Any) -> dict[str, str]:
    """Return what an executor holds, apart from what the framework keeps in it."""
    own = ("_execution_lock", "_execution_lock_loop")
    return {name: repr(value) for name, value in vars(executor).items() if name not in own}


def _is_unexpected(record: logging.LogRecord) -> bool:
    """Whether it is not the warning about restoring while a hand-off waits for the user."""
    return "request_info event(s) are still pending" not in record.msg


class WorkflowConversation(FrameworkSession):
    """A conversation with a workflow, each turn of which is a run."""

    traced_as = "Microsoft Agent Framework"

    def __init__(
        self, shared: SharedWorkflow, options: Mapping[str, Any], context: Sequence["Message"]
    ) -> None:
        super().__init__(shared, options, context)
        self._shared = shared
        self._checkpoint: str | None = None
        self._pending: str | None = None
        """The request of a hand-off orchestration for the next message of the user."""
        self._approvals: list[Any] = []
        """The events that ask for the pending approvals."""

    async def send(self, message: str) -> TurnRecord:
        self.turn = TurnRecord(tool_calls=None)  # what a run that fails did is unknown
        request = self._request(message)
        result, checkpoint = await self._shared.run(self._checkpoint, self._options, **request)
        self.turn = TurnRecord()
        await self._take(result, checkpoint)
        return self.turn

    async def _resume(self, decisions: Sequence[bool]) -> None:
        pairs = zip(self._approvals, decisions, strict=True)
        responses = {
            event.request_id: event.data.to_function_approval_response(is_approved)
            for event, is_approved in pairs
        }
        result, checkpoint = await self._shared.run(
            self._checkpoint, self._options, responses=responses
        )
        await self._take(result, checkpoint)

    async def _take(self, result: Any, checkpoint: str) -> None:
        """Read the result of a run, and continue from there."""
        self._read(result)
        self.turn.response = response_of(result.get_outputs())
        requests = result.get_request_info_events()
        self._approvals = [event for event in requests if is_approval(event)]
        await self._note_approvals()
        pending = pending_turn([event for event in requests if not is_approval(event)])
        self._checkpoint, self._pending, self._earlier = checkpoint, pending, []

    async def _note_approvals(self) -> None:
        """Note the calls that wait for a person, and what their agents did before.

        A run has no response of an agent that waits; the session of the agent has its messages.
        """
        turn = self.turn
        for event in self._approvals:
            call, agent = event.data.function_call, event.source_executor_id
            turn.add_approval(call.name, call.arguments, call.call_id)
            turn.add_agent(agent)
            turn.requests = None  # the trace has those of the agent
            messages = await messages_since_user(self._shared.workflow.executors[agent])
            before = TurnRecord()
            read_messages(before, messages, agent)
            if all(known["call_id"] != call.call_id for known in before.tool_calls or ()):
                turn.tool_calls = None
            if turn.tool_calls is not None:
                turn.add_missing(before)

    def _convert(self, messages: Sequence["Message"]) -> list[Any]:
        return to_messages(messages)

    def _request(self, text: str) -> dict[str, Any]:
        """Return the arguments of `run` that hand the message to the workflow."""
        import agent_framework

        messages = [*self._earlier, agent_framework.Message("user", [text])]
        if self._pending is not None:
            return {"responses": {self._pending: messages}}
        start = self._shared.workflow.get_start_executor()
        for data in (messages if self._earlier else text, messages):
            entry = agent_framework.WorkflowMessage(data=data, source_id="user")
            if start.can_handle(entry):
                return {"message": data}
        kinds = ", ".join(str(getattr(kind, "__name__", kind)) for kind in start.input_types)
        raise FrameworkError(
            f"the workflow begins with {start.id!r}, which takes {kinds}; holodeck sends text, or"
            " a list of messages after earlier ones, so add a handler for these, or name a"
            " function around the workflow"
        )

    def _read(self, result: Any) -> None:
        """Note what the agents of the workflow did.

        An executor of the user may call any agent, unseen.
        """
        import agent_framework

        leaders = []
        for event in result:
            if event.type != "executor_completed":
                continue
            executor = self._shared.workflow.executors.get(event.executor_id)
            if isinstance(executor, agent_framework.AgentExecutor):
                for response in responses_of(event.data):
                    read_response(self.turn, response, event.executor_id)
                    note_agent_tools(self.turn, _agent_of(executor))
                    self.turn.add_agent(event.executor_id)
            elif type(executor).__name__ in LEADING_EXECUTORS:
                leaders.append(executor)
            elif type(executor).__name__ not in SILENT_EXECUTORS:
                self.turn = TurnRecord(tool_calls=None)
                return
        note_transfers(self.turn)
        if leaders:
            self.turn.usage = None
        if any(tool_names(_agent_of(leader)) != [] for leader in leaders):
            self.turn.tool_calls, self.turn.tool_results = None, []


def note_transfers(turn: TurnRecord) -> None:
    """Take transfers to other agents as calls that ran.

    Their functions never run: middleware of the framework makes the result, which no other
    middleware makes.
    """
    for result in turn.tool_results:
        if result["name"].startswith(TRANSFER):
            with suppress(ValueError, TypeError, KeyError):  # another tool with such a name
                turn.add_transfer(result["call_id"], json.loads(result["result"])[TRANSFER])
                turn.traced_functions.remove(result["call_id"])


def _agent_of(leader: Any) -> Any:
    """Return the agent that an orchestrator asks who is next; None if it is unknown."""
    return getattr(leader, "_agent", None) or getattr(
        getattr(leader, "_manager", None), "_agent", None
    )


def responses_of(data: Any) -> list[Any]:
    """Return the agent's responses among what its executor put out, or else sent on."""
    import agent_framework

    put_out = [item for item in data or () if isinstance(item, agent_framework.AgentResponse)]
    sent = [item for item in data or () if isinstance(item, agent_framework.AgentExecutorResponse)]
    return put_out or [item.agent_response for item in sent]


def response_of(outputs: Sequence[Any]) -> Any:
    """Return the answer in the outputs of a workflow: the last that is not empty."""
    for output in reversed(outputs):
        given = _as_answer(output)
        if given not in ("", None):
            return given
    return ""


def _as_answer(output: Any) -> Any:
    import agent_framework

    if isinstance(output, list) and all(
        isinstance(message, agent_framework.Message) for message in output
    ):
        output = agent_framework.AgentResponse(messages=output)
    if isinstance(output, agent_framework.Message):
        return output.text
    if not isinstance(output, agent_framework.AgentResponse):
        return output
    authors = {message.author_name for message in output.messages if message.role == "assistant"}
    if len(authors) < 2:
        return answer(output)
    return "\n\n".join(
        message.text for message in output.messages if message.role == "assistant" and message.text
    )


async def messages_since_user(executor: Any) -> list[Any]:
    """Return what an executor's agent has in its history after the last message of the user."""
    import agent_framework

    if not isinstance(executor, agent_framework.AgentExecutor):
        return []
    state = await executor.on_checkpoint_save()
    session = agent_framework.AgentSession.from_dict(state["agent_session"])
    kept = session.state.get(agent_framework.InMemoryHistoryProvider.DEFAULT_SOURCE_ID) or {}
    messages = list(kept.get("messages") or ())
    users = [index for index, message in enumerate(messages) if message.role == "user"]
    return messages[users[-1] + 1 :] if users else messages


def is_approval(event: Any) -> bool:
    """Whether a person is asked to approve a call."""
    return getattr(event.data, "type", None) == "function_approval_request"


def pending_turn(requests: Sequence[Any]) -> str | None:
    """Return the request for the user's next message; None if there is none.

    Raises FrameworkError for any other request for input of a person.
    """
    orchestrations = sys.modules.get("agent_framework_orchestrations")
    for event in requests:
        if orchestrations is None or not isinstance(
            event.data, orchestrations.HandoffAgentUserRequest
        ):
            raise FrameworkError(
                f"the workflow waits for input of a person: {event.source_executor_id!r} asks for"
                f" a {type(event.data).__name__}, and a test has none; answer it in the workflow,"
                " or name a function around the workflow that does"
            )
    return requests[-1].request_id if requests else None
