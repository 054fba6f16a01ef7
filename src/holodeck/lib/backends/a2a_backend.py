"""Agents that speak A2A 1.0: `backend: {type: a2a, url: …}`; the adapter for a2a-sdk."""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from holodeck.errors import BackendError, BackendInitError, BackendSessionError, MissingExtra
from holodeck.lib.backends.base import (
    AgentBackend,
    AgentSession,
    Capabilities,
    ExecutionResult,
    Message,
    without_history,
)
from holodeck.lib.backends.parsing import passages_in
from holodeck.lib.files.remote_files import is_allowed
from holodeck.lib.llm.http_connection import Server
from holodeck.lib.llm.limits import call_limits, call_with_limit, stream_with_limit
from holodeck.lib.observability.tracing import continue_trace
from holodeck.lib.support.text import describe, message_of
from holodeck.models.backend import A2aBackendConfig
from holodeck.models.config import ExecutionConfig

NO_HISTORY = "an A2A agent takes no earlier messages; send them as turns of the case"
_POLL_S = 0.5
_CANCEL_S = 0.5
"""How long the agent may take to confirm that a task is canceled; Ctrl-C waits for it."""
_WORKING = {"SUBMITTED", "WORKING"}
_FAILED = {"FAILED", "CANCELED", "REJECTED", "AUTH_REQUIRED"}
_MAX_EXACT = 2**53
"""Beyond it, the floats of protobuf do not hold each whole number."""


class A2aBackend(AgentBackend):
    """Sends messages to an agent; each conversation has a context of its own.

    Args:
        config: Where the agent card is, and headers.
        execution: Time limits; their defaults if not given. Messages are not retried.
    """

    def __init__(self, config: A2aBackendConfig, execution: ExecutionConfig | None = None) -> None:
        self._config = config
        self._timeout = call_limits(execution).timeout
        self._http: Any = None
        self._client: Any = None
        self._name = ""

    async def initialize(self) -> None:
        """Read the agent card. Raises BackendInitError, or ConfigError without a2a-sdk."""
        if self._client is not None:
            return
        try:
            await call_with_limit(self._connect, self._timeout)
        except BackendError as error:
            await self.teardown()
            if isinstance(error.__cause__, ImportError):
                raise MissingExtra("a2a", "backend") from error
            if isinstance(error, BackendInitError):
                raise
            raise BackendInitError(f"the agent card cannot be read: {error}") from error

    @property
    def capabilities(self) -> Capabilities:
        """Earlier messages do not reach the agent, whose own messages make a task."""
        return Capabilities(history_problems=without_history(NO_HISTORY))

    async def create_session(self, context: Sequence[Message] | None = None) -> "A2aSession":
        if context:
            raise BackendSessionError(NO_HISTORY)
        await self.initialize()
        return A2aSession(self._client, self._name, self._timeout)

    async def teardown(self) -> None:
        """Close the connections."""
        http, self._http, self._client = self._http, None, None
        if http is not None:
            await http.aclose()

    async def _connect(self) -> None:
        import httpx
        from a2a.client import (
            A2ACardResolver,
            AgentCardResolutionError,
            ClientConfig,
            ClientFactory,
        )

        headers = {name: value.get_secret_value() for name, value in self._config.headers.items()}
        self._http = httpx.AsyncClient(
            headers=headers,
            timeout=None,  # noqa: S113 - call_with_limit
            follow_redirects=False,  # the headers are for this host
            event_hooks={"request": [continue_trace]},
        )
        is_card = self._config.url.endswith(".json")
        resolver = A2ACardResolver(self._http, self._config.url)
        try:
            card = await resolver.get_agent_card(relative_card_path="/" if is_card else None)
        except AgentCardResolutionError as error:
            raise BackendSessionError(_problem(error)) from error
        if headers:
            self._check_hosts(card)
        self._name = card.name
        self._client = ClientFactory(ClientConfig(httpx_client=self._http)).create(card)

    def _check_hosts(self, card: Any) -> None:
        """Raise BackendInitError if the card leads the headers to a host that is not allowed."""
        own = Server(self._config.url)
        # the SDK uses interfaces of this kind only
        interfaces = [
            supported_interface
            for supported_interface in card.supported_interfaces
            if supported_interface.protocol_binding == "JSONRPC"
        ]
        for server in (Server(interface.url) for interface in interfaces):
            if _origin(server) == _origin(own) or is_allowed(server, self._config.allowed_hosts):
                continue
            raise BackendInitError(
                f"the agent card of {own.contact} names {server.contact}, to which 'headers' are"
                " not sent unless it is allowed; write"
                f" 'allowed_hosts: [\"{server.authority}\"]' in 'backend'"
            )


class A2aSession(AgentSession):
    """A conversation: messages in one context, and in one task while that waits for input."""

    def __init__(self, client: Any, agent: str, timeout: float | None) -> None:
        self._client = client
        self._agent = agent
        self._timeout = timeout
        self._context_id = ""
        self._task_id = ""

    async def send(self, message: str) -> ExecutionResult:
        return await call_with_limit(partial(self._send, message), self._timeout)

    async def send_streaming(self, message: str) -> AsyncIterator[str]:
        """Yield the texts of messages and artifacts as they come."""
        answer = _Answer()
        has_text = False
        async for piece in stream_with_limit(self._take_turn(message, answer), self._timeout):
            has_text = True
            yield piece
        if not has_text:
            yield self._result(answer).response

    async def close(self) -> None:
        """Do nothing: the agent keeps its contexts as it likes."""

    async def _send(self, message: str) -> ExecutionResult:
        answer = _Answer()
        async for _ in self._take_turn(message, answer):
            pass
        return self._result(answer)

    async def _take_turn(self, message: str, answer: "_Answer") -> AsyncIterator[str]:
        """Yield the texts of the response; a task that is left before its end is canceled."""
        answer.task_id = self._task_id
        try:
            async for piece in self._ask(message, answer):
                yield piece
        except BaseException as error:
            if answer.task_id and answer.state in {"", *_WORKING}:
                await self._cancel(answer.task_id)
            if not isinstance(error, Exception):
                raise
            raise BackendSessionError(_problem(error), seen=self._result(answer)) from error
        self._context_id = answer.context_id or self._context_id
        self._task_id = answer.task_id if answer.state == "INPUT_REQUIRED" else ""
        if answer.state in _FAILED:
            what = answer.state.lower().replace("_", " ")
            said = f": {answer.said}" if answer.said else ""
            raise BackendSessionError(f"the task is {what}{said}", seen=self._result(answer))

    async def _ask(self, message: str, answer: "_Answer") -> AsyncIterator[str]:
        from a2a.helpers import new_text_message
        from a2a.types import GetTaskRequest, Role, SendMessageRequest

        sent = new_text_message(
            message,
            context_id=self._context_id or None,
            task_id=self._task_id or None,
            role=Role.ROLE_USER,
        )
        async for event in self._client.send_message(SendMessageRequest(message=sent)):
            if piece := answer.note(event):
                yield piece
        while answer.state in _WORKING:
            await asyncio.sleep(_POLL_S)
            answer.note_task(await self._client.get_task(GetTaskRequest(id=answer.task_id)))

    async def _cancel(self, task_id: str) -> None:
        """Ask the agent to stop working on a task, whatever it answers."""
        from a2a.types import CancelTaskRequest

        with suppress(Exception):
            async with asyncio.timeout(_CANCEL_S):
                await self._client.cancel_task(CancelTaskRequest(id=task_id))

    def _result(self, answer: "_Answer") -> ExecutionResult:
        data = answer.data()
        return ExecutionResult(
            answer.text(),
            structured_output=data,
            agents=[self._agent],
            retrieval_context=passages_in(data),
        )


class _Answer:
    """What an agent sent in a turn: a message, or a task with its status and artifacts."""

    def __init__(self) -> None:
        self.state = ""
        self.said = ""
        """The text of the message, or of the status in which the task stopped; not its progress."""
        self.context_id = ""
        self.task_id = ""
        self._artifacts: dict[str, list[str]] = {}
        """By id: the texts of its parts, which may come one by one."""
        self._data: dict[str, list[Any]] = {}
        """By id of the artifact, "" for what the agent said: its data."""

    def note(self, event: Any) -> str:
        """Note an event; return its text that is part of the response."""
        kind = event.WhichOneof("payload")
        if kind is None:
            raise ValueError("an event has neither a message nor a task")
        if kind == "message":
            self.context_id = event.message.context_id
            self._note_message(event.message)
            return self.said
        if kind == "artifact_update":
            update = event.artifact_update
            self._note_place(update.context_id, update.task_id)
            return self._note_artifact(update.artifact, append=update.append)
        if kind == "status_update":
            self._note_place(event.status_update.context_id, event.status_update.task_id)
            self._note_status(event.status_update.status)
        if kind == "task":
            self.note_task(event.task)
        return ""

    def note_task(self, task: Any) -> None:
        """Note a whole task."""
        self._note_place(task.context_id, task.id)
        self._note_status(task.status)
        for artifact in task.artifacts:
            self._note_artifact(artifact, append=False)

    def text(self) -> str:
        """Return the response: the artifacts, or else what the agent said, or else its data."""
        texts = ["".join(chunks) for chunks in self._artifacts.values()]
        text = "\n".join(text for text in texts if text) or self.said
        data = self.data()
        return text or ("" if data is None else json.dumps(data, ensure_ascii=False))

    def data(self) -> Any:
        """Return the data of the response; a list if there are several pieces; None without."""
        pieces = [piece for pieces in self._data.values() for piece in pieces]
        return pieces[0] if len(pieces) == 1 else pieces or None

    def _note_place(self, context_id: str, task_id: str) -> None:
        self.context_id, self.task_id = context_id, task_id

    def _note_status(self, status: Any) -> None:
        from a2a.types import TaskState

        self.state = TaskState.Name(status.state).removeprefix("TASK_STATE_")
        if status.HasField("message") and self.state not in _WORKING:
            self._note_message(status.message)

    def _note_message(self, message: Any) -> None:
        texts, self._data[""] = _read(message.parts)
        self.said = "\n".join(texts)

    def _note_artifact(self, artifact: Any, *, append: bool) -> str:
        texts, data = _read(artifact.parts)
        name = artifact.artifact_id
        if not append:
            self._artifacts[name], self._data[name] = [], []
        self._artifacts.setdefault(name, []).extend(texts)
        self._data.setdefault(name, []).extend(data)
        return "".join(texts)


def _origin(server: Server) -> tuple[bool, str, int]:
    return server.is_secure, server.host, server.port


def _read(parts: Any) -> tuple[list[str], list[Any]]:
    """Return the texts of parts, and their data."""
    from google.protobuf.json_format import MessageToDict

    texts, data = [], []
    for part in parts:
        match part.WhichOneof("content"):
            case "text":
                texts.append(part.text)
            case "url":
                texts.append(part.url)
            case "data":
                data.append(_reproducible(MessageToDict(part.data)))
            case _:
                texts.append(f"({part.filename or part.media_type or 'file'})")
    return texts, data


def _reproducible(value: Any) -> Any:
    """Return data with its keys sorted and its whole numbers as such: protobuf keeps neither."""
    if isinstance(value, dict):
        return {key: _reproducible(value[key]) for key in sorted(value)}
    if isinstance(value, list):
        return [_reproducible(item) for item in value]
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) <= _MAX_EXACT
    return int(value) if is_whole else value


def _problem(error: Exception) -> str:
    """Return what went wrong; it does not end with the error, as that of the user's code would."""
    import httpx
    from a2a.utils.errors import A2AError

    cause = error.__cause__
    if isinstance(cause, httpx.HTTPStatusError) and cause.response.is_redirect:
        status = cause.response.status_code
        return f"HTTP {status}: the URL redirects; write the URL that it redirects to"
    if isinstance(error, A2AError):
        return " ".join(message_of(error).split())
    return f"the agent's response does not follow A2A ({describe(error)})"
