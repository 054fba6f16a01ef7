"""Lets a person at the terminal write the user's messages, or end the case."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar

from holodeck.lib.conversation.engine import Conversation
from holodeck.lib.conversation.messages import AgentRole
from holodeck.lib.conversation.participants import SilentUser
from holodeck.lib.conversation.types import BY_HAND, Participant, ScenarioResult, ScenarioUsageError
from holodeck.lib.llm.limiter import pause_time_limits
from holodeck.lib.ui.conversation import (
    Entry,
    find_missing_terminal,
    read_typed_line,
    show_entries,
)
from holodeck.lib.ui.terminal import ANSIColors

PROMPT = "User> "
COMMANDS = (
    "/judge (the verdict now), /pass [reason], /fail [reason], /quit; write //… for a text that"
    " begins with /"
)
_QUIT = "the person debugging it has quit"
_POLL_S = 0.1
_debugged: ContextVar[str | None] = ContextVar("holodeck_debugged_case", default=None)
_terminal_lock = threading.Lock()


def add_debug_user(participants: Sequence[Participant]) -> list[Participant]:
    """Return the participants, with a user for the person to speak as if there is none."""
    # Without a role, the conversation refuses the participant.
    roles = {getattr(participant, "role", None) for participant in participants}
    needs_user = participants and AgentRole.USER not in roles
    return [*participants, *([SilentUser()] if needs_user else [])]


class _InvalidInput(Exception):
    """The person's input cannot be used; the message says why."""


class Debugger:
    """Lets a person write the user's next message, or end the case.

    Args:
        ask: Returns the line that is typed after a prompt; None for the end of input.
    """

    def __init__(self, ask: Callable[[str], Awaitable[str | None]] = read_typed_line) -> None:
        self._ask = ask
        self._has_explained = False

    @asynccontextmanager
    async def terminal(self, case: str) -> AsyncIterator[None]:
        """Hold the terminal for a run; other runs wait until it is free.

        Raises:
            ScenarioUsageError: Another run that holds the terminal contains this run.
        """
        outer = _debugged.get()
        if outer is not None:
            raise ScenarioUsageError(
                f"case {case!r}",
                f"runs inside case {outer!r}, which is being debugged; write debug=False",
            )
        while not _terminal_lock.acquire(blocking=False):  # noqa: ASYNC110 - of any thread and loop
            await asyncio.sleep(_POLL_S)
        token = _debugged.set(case)
        try:
            yield
        finally:
            _debugged.reset(token)
            _terminal_lock.release()

    async def next_input(
        self, conversation: Conversation, *, may_skip: bool
    ) -> str | ScenarioResult | None:
        """Return the user's message or the end of the case; None lets the simulated user speak.

        Raises:
            KeyboardInterrupt: The person quits, which ends all further cases as well.
        """
        if not self._has_explained:
            self._has_explained = True
            enter = "Enter lets the simulated user speak, text" if may_skip else "Text"
            _print(f"{enter} is what the user says; {COMMANDS}")
        while True:
            with pause_time_limits():  # they limit the agent, not the person
                line = await self._ask(PROMPT)
            if line is None:
                raise KeyboardInterrupt(_QUIT)
            try:
                if line.startswith("/") and not line.startswith("//"):
                    return await _run_command(line, conversation)
            except _InvalidInput as error:
                _print(str(error))
                continue
            if line.startswith("//"):
                return line[1:]
            if line.strip():
                return line
            if may_skip:
                return None
            _print("there is no simulated user; write what the user says")


async def _run_command(line: str, conversation: Conversation) -> ScenarioResult:
    command, _, rest = line.strip().partition(" ")
    reason = rest.strip()
    if command in {"/judge", "/quit"} and reason:
        raise _InvalidInput(f"{command} takes no text; you wrote {reason!r} after it")
    match command:
        case "/pass":
            result = await conversation.succeed(reason or "passed by the person debugging it")
            return result.model_copy(update={"reason_code": BY_HAND})
        case "/fail":
            result = await conversation.fail(reason or "failed by the person debugging it")
            return result.model_copy(update={"reason_code": BY_HAND})
        case "/judge":
            verdict = await conversation.verdict()
            if verdict is None:
                raise _InvalidInput("there is no verdict: there is no judge, or it wants to go on")
            return verdict
        case "/quit":
            raise KeyboardInterrupt(_QUIT)
    raise _InvalidInput(f"unknown command {command}; the commands are {COMMANDS}")


def _print(text: str) -> None:
    show_entries([Entry("debug", text, ANSIColors.YELLOW)])


def debugger_for(case: str) -> Debugger:
    """Return the debugger of a case. Raises ScenarioUsageError without a terminal."""
    missing = find_missing_terminal()
    if missing is not None:
        raise ScenarioUsageError(
            f"case {case!r}",
            f"debug needs a person at a terminal, and {missing} is not one; run it in a terminal"
            " (pytest: with --holodeck-debug, or -s), or leave debug out",
        )
    return Debugger()
