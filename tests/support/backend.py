"""An agent that answers from a script, through the protocol every backend keeps."""

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass

from holodeck.errors import BackendSessionError
from holodeck.lib.backends.base import ExecutionResult, Message

Answer = str | ExecutionResult | Exception
"""What the agent says; an exception is raised instead."""

Script = Mapping[str, Answer] | Callable[[str], Answer | Awaitable[Answer]]
"""Answers by message, or what makes one (sync or async) from the message."""


@dataclass(frozen=True)
class Call:
    """One message the agent got."""

    message: str
    context: tuple[Message, ...]
    session: int | None
    """Which session, counted from 0; None outside of one."""


def echo(message: str) -> Answer:
    return f"OK: {message}"


class ScriptedBackend:
    """Keeps `AgentBackend`, strictly: nothing works before `initialize` or after `teardown`."""

    def __init__(
        self, script: Script = echo, *, delay_s: float = 0.0, init_error: Exception | None = None
    ) -> None:
        self._script = script
        self._delay_s = delay_s
        self._init_error = init_error
        self.calls: list[Call] = []
        self.sessions: list[ScriptedSession] = []
        self.in_flight = 0
        self.peak_in_flight = 0
        self.cancelled = 0
        self.initialized = 0
        self.torn_down = 0
        self.ready = False

    @property
    def messages(self) -> list[str]:
        """Every message it got, in order."""
        return [call.message for call in self.calls]

    async def initialize(self) -> None:
        self.initialized += 1
        if self._init_error is not None:
            raise self._init_error
        self.ready = True

    async def invoke_once(
        self, message: str, context: Sequence[Message] | None = None
    ) -> ExecutionResult:
        return await self.answer(Call(message, tuple(context or ()), None))

    async def create_session(self, context: Sequence[Message] | None = None) -> "ScriptedSession":
        self._check_ready()
        session = ScriptedSession(self, len(self.sessions), context or ())
        self.sessions.append(session)
        return session

    async def teardown(self) -> None:
        self.torn_down += 1
        self.ready = False

    async def answer(self, call: Call) -> ExecutionResult:
        """The scripted answer to one call, counted while it is under way."""
        self._check_ready()
        self.calls.append(call)
        self.in_flight += 1
        self.peak_in_flight = max(self.peak_in_flight, self.in_flight)
        try:
            await asyncio.sleep(self._delay_s)
            return as_result(await self._scripted(call.message))
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        finally:
            self.in_flight -= 1

    async def _scripted(self, message: str) -> Answer:
        if isinstance(self._script, Mapping):
            if message not in self._script:
                return LookupError(f"the script has no answer to {message!r}")
            return self._script[message]
        answer = self._script(message)
        return await answer if inspect.isawaitable(answer) else answer

    def _check_ready(self) -> None:
        if not self.ready:
            raise BackendSessionError(
                "the scripted backend is used before initialize or after teardown"
            )


class ScriptedSession:
    """One conversation; remembers what was said."""

    def __init__(
        self, backend: ScriptedBackend, number: int, context: Sequence[Message] = ()
    ) -> None:
        self._backend = backend
        self._number = number
        self.history: list[Message] = list(context)
        self.closed = False

    async def send(self, message: str) -> ExecutionResult:
        if self.closed:
            raise BackendSessionError("the scripted session is used after close")
        call = Call(message, tuple(self.history), self._number)
        result = await self._backend.answer(call)
        self.history.append({"role": "user", "content": message})
        self.history.append({"role": "assistant", "content": result.response})
        return result

    async def send_streaming(self, message: str) -> AsyncIterator[str]:
        result = await self.send(message)
        for word in result.response.split(" "):
            yield word if word == result.response else f"{word} "

    async def close(self) -> None:
        self.closed = True


def as_result(answer: Answer) -> ExecutionResult:
    """The answer as a result; an exception is raised."""
    if isinstance(answer, Exception):
        raise answer
    if isinstance(answer, str):
        return ExecutionResult(response=answer, tool_calls=[])  # it sees that it calls no tool
    return answer
