"""Agents whose requests to models pass through a tap, which sees what their backends cannot."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from threading import Lock
from typing import TYPE_CHECKING, Any

from holodeck.errors import BackendError, BackendInitError
from holodeck.lib.backends.base import (
    NO_SEAL_BEHIND_TAP,
    AgentBackend,
    AgentSession,
    Capabilities,
    ExecutionResult,
    InContext,
    Message,
    RequestedCall,
    ToolResult,
    backend_in_context,
    capabilities_of,
    open_session,
    remember,
)
from holodeck.lib.backends.parsing import parse_arguments, unique_call_id
from holodeck.lib.llm.completion import RawToolCall
from holodeck.lib.llm.formats import ReturnedResult
from holodeck.lib.llm.request_handler import needs_model
from holodeck.lib.processes.threads import is_user_code_running
from holodeck.lib.support.environment import process_variables, proxy_for, variables_set
from holodeck.lib.tap.channel import EARLIER_WORK, Channel, TappedTurn
from holodeck.lib.tap.exchange import ROUTES, find_upstreams
from holodeck.lib.tap.tap import Tap
from holodeck.models.results.evidence import Fact
from holodeck.models.token_usage import TokenUsage, sum_of

if TYPE_CHECKING:
    from holodeck.lib.backends.http_backend import HttpBackend

LOCATION = "backend"
UNUSED_URL = (
    "no request of this turn came through the tap; the service must send its requests to the URL"
    " that '{tap_url}' in the request gives it"
)
_NAMES = " or ".join(route.variable for route in ROUTES)
_ALIASES = " or ".join(alias for route in ROUTES for alias in route.aliases)
UNUSED_VARIABLE = (
    "no request of this turn came through the tap; its client must take its base URL from"
    f" {_NAMES}, and not be given another one; if it takes it from {_ALIASES}, set that"
)
ONE_PER_PROCESS = (
    "another agent of this process has 'tap: true', and the environment variables are the same for"
    " both; run one after the other, or use 'type: process'"
)
TakeTurn = Callable[[], AbstractContextManager[TappedTurn]]
"""Collects the requests of a turn."""


class TappedBackend(InContext, AgentBackend):
    """Reaches an agent through another backend, and reads its requests to models on a tap.

    The tap tells what the backend does not know: tool calls that models requested, their results
    as the next request tells them, and token usage. Subclasses say how the agent gets to the tap.

    Args:
        backend: The way to the agent.
        is_scripted: Whether the agent's model is scripted, so that nothing is behind the tap.
    """

    def __init__(self, backend: AgentBackend, *, is_scripted: bool = False) -> None:
        self._backend = backend
        self._is_scripted = is_scripted
        self._tap: Tap | None = None

    async def initialize(self) -> None:
        """Start the tap and prepare the agent; may be called twice. Raises BackendInitError."""
        if self._tap is None:
            self._tap = await start_tap(process_variables(), is_scripted=self._is_scripted)
        await self._backend.initialize()

    async def invoke_once(
        self, message: str, context: Sequence[Message] | None = None
    ) -> ExecutionResult:
        await self.initialize()
        with self.conversation() as (reached, turn):
            backend = backend_in_context(reached, self.case_context, LOCATION)
            return await observed(turn, partial(backend.invoke_once, message, context))

    async def create_session(self, context: Sequence[Message] | None = None) -> AgentSession:
        await self.initialize()
        with ExitStack() as stack:
            reached, turn = stack.enter_context(self.conversation())
            backend = backend_in_context(reached, self.case_context, LOCATION)
            session = await open_session(backend, context)
            return TappedSession(session, turn, stack.pop_all())

    @property
    def capabilities(self) -> Capabilities:
        """Those of the agent, whose concurrency only a tap per conversation allows."""
        return replace(
            capabilities_of(self._backend),
            concurrency=None,
            runs_user_code=False,
            model_problem=None,
        )

    async def teardown(self) -> None:
        """Release the agent, then stop the tap."""
        tap, self._tap = self._tap, None
        try:
            await self._backend.teardown()
        finally:
            if tap is not None:
                await tap.close()

    def conversation(self) -> AbstractContextManager[tuple[AgentBackend, TakeTurn]]:
        """Return the backend for a conversation, and what collects the requests of its turns."""
        raise NotImplementedError


class TappedServiceBackend(TappedBackend):
    """Gives each conversation a URL of its own, so that any number may run concurrently."""

    _backend: "HttpBackend"

    @property
    def capabilities(self) -> Capabilities:
        """Those of the agent, whose tools run, but whose model sees what stubs make of it."""
        return replace(super().capabilities, stub_problem=None, seal_problem=NO_SEAL_BEHIND_TAP)

    @contextmanager
    def conversation(self) -> Iterator[tuple[AgentBackend, TakeTurn]]:
        """Yield the backend that names the conversation's own channel."""
        assert self._tap is not None  # noqa: S101 - started by `initialize`
        channel = self._tap.open_channel(UNUSED_URL, replaces_results=True)
        try:
            yield self._backend.with_tap_url(channel.url), channel.turn
        finally:
            self._tap.close_channel(channel)


class TappedPythonBackend(TappedBackend):
    """Leads code in this process to the tap by environment variables, one case at a time.

    The variables are set while the agent is loaded and while it answers. They say nothing about the
    case: a request belongs to the turn under way, unless work of an earlier one may be left.
    """

    def __init__(self, backend: AgentBackend, *, is_scripted: bool = False) -> None:
        super().__init__(backend, is_scripted=is_scripted)
        self._channel: Channel | None = None
        self._variables: Mapping[str, str] = {}
        self._left: set[asyncio.Task[Any]] = set()
        """Tasks that the agent began in a turn and left running; of all cases."""

    async def initialize(self) -> None:
        """Start the tap and load the agent; may be called twice. Raises BackendInitError."""
        if self._channel is None:
            if not _is_tapped.acquire(blocking=False):
                raise BackendInitError(ONE_PER_PROCESS)
            try:
                self._tap = await start_tap(process_variables(), is_scripted=self._is_scripted)
            except BaseException:
                _is_tapped.release()
                raise
            self._channel = self._tap.open_channel(UNUSED_VARIABLE)
            self._variables = self._tap.variables(self._channel, process_variables())
        with variables_set(self._variables):
            await super().initialize()

    async def create_session(self, context: Sequence[Message] | None = None) -> AgentSession:
        """Return a conversation, whose agent may be made for it. Raises BackendError."""
        await self.initialize()
        with variables_set(self._variables):
            return await super().create_session(context)

    async def teardown(self) -> None:
        """Release the agent, then stop the tap."""
        channel, self._channel = self._channel, None
        try:
            await super().teardown()
        finally:
            if channel is not None:
                _is_tapped.release()

    @contextmanager
    def conversation(self) -> Iterator[tuple[AgentBackend, TakeTurn]]:
        """Yield the backend and the turns of the one channel."""
        yield self._backend, self._turn

    @contextmanager
    def _turn(self) -> Iterator[TappedTurn]:
        assert self._channel is not None  # noqa: S101 - set by `initialize`
        self._left -= {task for task in self._left if task.done()}
        has_work_left = bool(self._left) or is_user_code_running()
        before = asyncio.all_tasks()
        with variables_set(self._variables), self._channel.turn() as turn:
            if has_work_left:
                turn.problem = EARLIER_WORK
            yield turn
        self._left |= {task for task in asyncio.all_tasks() - before if not task.done()}


class ProcessTaps:
    """The taps of the processes of an agent: one channel for each, by environment variables.

    Args:
        is_scripted: Whether the agent's model is scripted.
    """

    def __init__(self, *, is_scripted: bool = False) -> None:
        self._is_scripted = is_scripted
        self._tap: Tap | None = None
        self._environment: Mapping[str, str] = {}

    async def start(self, environment: Mapping[str, str]) -> None:
        """Start listening, for processes in that environment. Raises BackendInitError."""
        if self._tap is None:
            self._tap = await start_tap(environment, is_scripted=self._is_scripted)
            self._environment = environment

    def open(self) -> "ProcessTap":
        """Return the tap of a further process."""
        assert self._tap is not None  # noqa: S101 - started before the processes
        channel = self._tap.open_channel(UNUSED_VARIABLE, replaces_results=True)
        return ProcessTap(channel.turn, self._tap.variables(channel, self._environment))

    async def close(self) -> None:
        """Stop listening; may be called twice."""
        tap, self._tap = self._tap, None
        if tap is not None:
            await tap.close()


@dataclass(frozen=True)
class ProcessTap:
    """The channel of a process, which has one turn at a time."""

    take_turn: TakeTurn
    variables: Mapping[str, str]

    async def observe(self, send: Callable[[], Awaitable[ExecutionResult]]) -> ExecutionResult:
        """Return the result of a turn with what the tap saw. Raises BackendError, with it too."""
        return await observed(self.take_turn, send)


_is_tapped = Lock()
"""Held by the backend whose variables are those of the process."""


async def start_tap(environment: Mapping[str, str], *, is_scripted: bool) -> Tap:
    """Return a tap that listens; `environment` says where requests go on to, if anywhere.

    Raises BackendInitError.
    """
    has_no_model = is_scripted or not needs_model()
    tap = Tap(find_upstreams(environment, is_scripted=has_no_model), proxy_for)
    try:
        await tap.start()
    except OSError as error:
        raise BackendInitError(f"the tap cannot listen on 127.0.0.1: {error}") from error
    return tap


class TappedSession:
    """A conversation of the backend behind the tap."""

    def __init__(self, session: AgentSession, turn: TakeTurn, resources: ExitStack) -> None:
        self._session = session
        self._turn = turn
        self._resources = resources

    async def send(self, message: str) -> ExecutionResult:
        return await observed(self._turn, partial(self._session.send, message))

    def send_streaming(self, message: str) -> AsyncIterator[str]:
        return self._session.send_streaming(message)

    def remember(self, messages: Sequence[Message]) -> None:
        """Append earlier messages. Raises ConfigError if the backend's session takes none."""
        remember(self._session, messages)

    async def close(self) -> None:
        """Close the conversation and its channel; may be called twice."""
        try:
            await self._session.close()
        finally:
            self._resources.close()


async def observed(
    take_turn: TakeTurn, send: Callable[[], Awaitable[ExecutionResult]]
) -> ExecutionResult:
    """Return the result of a turn with what the tap saw. Raises BackendError, with it as well."""
    with take_turn() as turn:
        error: BackendError | None = None
        try:
            result = await send()
        except BackendError as raised:
            error = raised
    if error is not None:
        if error.seen is None:
            error.seen = with_tapped(ExecutionResult(response=""), turn)
        raise error
    return with_tapped(result, turn)


def with_tapped(result: ExecutionResult, turn: TappedTurn) -> ExecutionResult:
    """Return the result with what the tap saw besides; without a problem, it saw every request."""
    changes: dict[str, Any] = {"model_requests": [*turn.requests]}
    tapped = set[Fact]()
    if turn.problem is not None:
        if result.tool_calls is None:
            changes["tool_calls_problem"] = turn.problem
        return replace(result, tapped=frozenset(), **changes)
    merged = _Merged(result, turn)
    if result.tool_calls is None or merged.has_more:
        changes |= {"tool_calls": merged.calls, "tool_results": merged.results}
        tapped.add("tool_calls")
    if merged.has_all_reported:
        changes["tool_calls_problem"] = None
        tapped |= {"tool_calls"} if result.tool_calls_problem is not None else set()
    changes["token_usage"] = _more_usage(result.token_usage, turn)
    if changes["token_usage"] not in {None, result.token_usage}:
        tapped.add("token_usage")
    return replace(result, tapped=frozenset(tapped), **changes)


def _more_usage(reported: TokenUsage | None, turn: TappedTurn) -> TokenUsage | None:
    """Return the larger of the token usages that agent and tap know; None if they contradict."""
    billed = [
        request.token_usage
        for request in turn.requests
        if request.status is None or request.status < 400
    ]
    known = [usage for usage in billed if usage is not None]
    seen = sum_of(known)
    if reported is None or seen is None:
        return sum_of(billed) if reported is None else reported
    if len(known) < len(billed):  # the agent must know of the others
        return reported if reported != seen and _covers(reported, seen) else None
    if _covers(seen, reported):
        return seen
    return reported if _covers(reported, seen) else None


def _covers(usage: TokenUsage, other: TokenUsage) -> bool:
    return (
        usage.prompt_tokens >= other.prompt_tokens
        and usage.completion_tokens >= other.completion_tokens
    )


class _Merged:
    """The tool calls that the agent reports or the tap saw, each once."""

    def __init__(self, result: ExecutionResult, turn: TappedTurn) -> None:
        reported = [*(result.tool_calls or ())]
        seen = [(raw, returned) for raw, returned in turn.calls if raw.name not in result.left_out]
        partners = _match(reported, [raw for raw, _ in seen])
        self.has_all_reported = None not in partners
        """Whether the tap saw every call that the agent reports."""
        self.has_more = len(seen) > len(reported) - partners.count(None)
        """Whether the tap saw calls that the agent does not report."""
        by_partner = dict(zip(partners, reported, strict=True))
        known = {str(call.get("call_id")) for call in reported}
        tapped = [_tool_call(raw, returned, known) for raw, returned in seen]
        rows = [
            (by_partner[at], None) if at in by_partner else row for at, row in enumerate(tapped)
        ]
        if not self.has_all_reported:  # the order between the two is unknown
            further = [row for at, row in enumerate(tapped) if at not in by_partner]
            rows = [*((call, None) for call in reported), *further]
        self.calls = [call for call, _ in rows]
        self.results = [
            *result.tool_results,
            *(returned for _, returned in rows if returned is not None),
        ]


def _match(reported: Sequence[RequestedCall], seen: Sequence[RawToolCall]) -> list[int | None]:
    """Return for each reported call the place of the same call among those that the tap saw."""
    left = [*range(len(seen))]
    partners: list[int | None] = [None] * len(reported)
    for is_same in (_has_same_id, _has_same_arguments, _has_same_name):
        for at, call in enumerate(reported):
            if partners[at] is None:
                place = next((place for place in left if is_same(call, seen[place])), None)
                if place is not None:
                    partners[at] = place
                    left.remove(place)
    return partners


def _has_same_id(call: RequestedCall, raw: RawToolCall) -> bool:
    return _has_same_name(call, raw) and call.get("call_id") == raw.id


def _has_same_arguments(call: RequestedCall, raw: RawToolCall) -> bool:
    is_known = _has_same_name(call, raw) and "arguments" in call
    return is_known and call["arguments"] == parse_arguments(raw.arguments)[0]


def _has_same_name(call: RequestedCall, raw: RawToolCall) -> bool:
    return call["name"] == raw.name


def _tool_call(
    raw: RawToolCall, returned: ReturnedResult | None, known: set[str]
) -> tuple[RequestedCall, ToolResult | None]:
    """Return a call, and its result if that came back; an id that is known is made unique."""
    arguments, _ = parse_arguments(raw.arguments)
    call_id = unique_call_id(raw.id, known)
    known.add(call_id)
    call: RequestedCall = {"name": raw.name, "arguments": arguments, "call_id": call_id}
    if returned is None:
        return call, None
    result: ToolResult = {"name": raw.name, "result": returned.result, "call_id": call_id}
    if returned.is_error is None:
        result["is_error_unknown"] = True
    elif returned.is_error:
        result["is_error"] = True
    return call, result
