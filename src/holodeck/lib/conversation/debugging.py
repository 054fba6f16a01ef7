"""A person who speaks for the user when they like, or ends the case."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Protocol

from holodeck.lib.conversation.roles import AgentRole
from holodeck.lib.conversation.types import AgentInput, Participant, ScenarioResult
from holodeck.lib.conversation.usage_error import ScenarioUsageError
from holodeck.lib.limiter import pause_time_limits
from holodeck.lib.ui.colors import ANSIColors
from holodeck.lib.ui.conversation import DisplayedMessage, show
from holodeck.lib.ui.prompt import missing_terminal, typed_line

PROMPT = "User> "
COMMANDS = (
    "/judge (the verdict now), /pass [reason], /fail [reason], /quit; write //… for a text that"
    " begins with /"
)
BY_HAND = "by_hand"
"""Why a case has ended that a person ended."""
HAS_QUIT = "the person debugging it has quit"
LOOK_AGAIN_S = 0.1
_debugged: ContextVar[str | None] = ContextVar("holodeck_debugged_case", default=None)
_seat = threading.Lock()


class SilentUser:
    """Stands in for a user where a person has to do all the talking."""

    role = AgentRole.USER

    async def call(self, input: AgentInput) -> Any:  # noqa: A002, ARG002 - the name is public API
        """Nothing: it is never called while a person is there."""
        return []


def add_debug_user(participants: Sequence[Participant]) -> list[Participant]:
    """The parties, and one of the role of the user if there is none, for a person to speak as."""
    roles = {getattr(one, "role", None) for one in participants}  # wrong ones are told of later
    return [
        *participants,
        *([SilentUser()] if participants and AgentRole.USER not in roles else []),
    ]


class DebuggedConversation(Protocol):
    """The conversation that is debugged."""

    async def succeed(self, reasoning: str | None = None) -> ScenarioResult: ...
    async def fail(self, reasoning: str | None = None) -> ScenarioResult: ...
    async def verdict(self) -> ScenarioResult | None: ...


class Debugger:
    """Asks a person before the user of a run speaks.

    Args:
        ask: Gives the line that is typed after a prompt, None for the end of input.
    """

    def __init__(self, ask: Callable[[str], Awaitable[str | None]] = typed_line) -> None:
        self._ask = ask
        self._has_explained = False

    @asynccontextmanager
    async def seat(self, case: str) -> AsyncIterator[None]:
        """The one place at the terminal; who comes second waits until the first run is over.

        Raises:
            ScenarioUsageError: The run is part of one that has the place.
        """
        outer = _debugged.get()
        if outer is not None:
            raise ScenarioUsageError(
                f"case {case!r}",
                f"runs inside of case {outer!r}, which is being debugged; write debug=False",
            )
        while not _seat.acquire(blocking=False):  # noqa: ASYNC110 - of any thread and loop
            await asyncio.sleep(LOOK_AGAIN_S)
        token = _debugged.set(case)
        try:
            yield
        finally:
            _debugged.reset(token)
            _seat.release()

    async def word(
        self, talk: DebuggedConversation, *, may_pass_on: bool
    ) -> str | ScenarioResult | None:
        """What the person says for the user, or the end of the case; None lets the user speak.

        Raises:
            KeyboardInterrupt: The person has had enough, of all that would follow, too.
        """
        if not self._has_explained:
            self._has_explained = True
            enter = "Enter lets the simulated user speak, text" if may_pass_on else "Text"
            _tell(f"{enter} is what the user says; {COMMANDS}")
        while True:
            # A person may take their time: limits are for those who are tested.
            with pause_time_limits():
                line = await self._ask(PROMPT)
            try:
                return await _meant(line, talk, may_pass_on)
            except _Unclear as unclear:
                _tell(str(unclear))


class _Unclear(Exception):
    """What the person has to be told before they are asked again."""


async def _meant(
    line: str | None, talk: DebuggedConversation, may_pass_on: bool
) -> str | ScenarioResult | None:
    if line is None:
        raise KeyboardInterrupt(HAS_QUIT)
    if line.startswith("//"):
        return line[1:]
    if line.startswith("/"):
        return await _commanded(line, talk)
    if line.strip():
        return line
    if not may_pass_on:
        raise _Unclear("there is no simulated user; write what the user says")
    return None


async def _commanded(line: str, talk: DebuggedConversation) -> ScenarioResult:
    command, _, rest = line.strip().partition(" ")
    reason = rest.strip()
    if command in {"/judge", "/quit"} and reason:
        raise _Unclear(f"{command} stands alone; you wrote {reason!r} after it")
    match command:
        case "/pass":
            return _by_hand(await talk.succeed(reason or "passed by the person debugging it"))
        case "/fail":
            return _by_hand(await talk.fail(reason or "failed by the person debugging it"))
        case "/judge":
            return await _judged(talk)
        case "/quit":
            raise KeyboardInterrupt(HAS_QUIT)
    raise _Unclear(f"{command} is no command; there are {COMMANDS}")


def _by_hand(result: ScenarioResult) -> ScenarioResult:
    return result.model_copy(update={"reason_code": BY_HAND})


async def _judged(talk: DebuggedConversation) -> ScenarioResult:
    verdict = await talk.verdict()
    if verdict is None:
        raise _Unclear("there is no verdict: nobody judges, or the judge wants to go on")
    return verdict


def _tell(text: str) -> None:
    show([DisplayedMessage("debug", text, ANSIColors.YELLOW)])


def debugger_for(case: str) -> Debugger:
    """Who lets a person speak in a case. Raises ScenarioUsageError where there is no terminal."""
    missing = missing_terminal()
    if missing is not None:
        raise ScenarioUsageError(
            f"case {case!r}",
            f"debug needs a person at a terminal, and {missing} is none; run it in a terminal"
            " (pytest: with --holodeck-debug, or -s), or leave debug out",
        )
    return Debugger()
