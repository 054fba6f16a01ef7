"""Conversations at the terminal: shown as they happen, and debugged by a person."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from itertools import chain
from typing import Any

from holodeck.lib.conversation.engine import Conversation
from holodeck.lib.conversation.events import (
    CriterionJudged,
    Event,
    MessageAdded,
    RunFinished,
    RunStarted,
)
from holodeck.lib.conversation.messages import (
    AgentRole,
    text_of,
    tool_arguments,
    tool_calls_in,
    tool_name,
)
from holodeck.lib.conversation.types import (
    AgentInput,
    CriterionStatus,
    Participant,
    ScenarioResult,
    ScenarioUsageError,
)
from holodeck.lib.llm.limiter import pause_time_limits
from holodeck.lib.secrets.redact import Redactor
from holodeck.lib.ui.conversation import (
    DisplayedMessage,
    find_missing_terminal,
    read_typed_line,
    show_messages,
)
from holodeck.lib.ui.terminal import ANSIColors
from holodeck.models.cases.messages import Message

NAMES = {"user": "User", "assistant": "Agent", "system": "System", "developer": "System"}
COLOURS = {"user": ANSIColors.GREEN, "assistant": ANSIColors.CYAN}
STATUSES = {
    "SUCCESS": ("PASSED", ANSIColors.GREEN),
    "FAILED": ("FAILED", ANSIColors.RED),
    "ERROR": ("ERROR", ANSIColors.RED),
    "CANCELLED": ("CANCELLED", ANSIColors.YELLOW),
}
_shown_runs: dict[str, bool] = {}
"""The runs on display, and whether each must show its name."""
_lock = threading.Lock()


class ConversationPrinter:
    """A listener that shows a run on stderr; with its name once several runs are shown.

    Args:
        is_named: Whether to show the name even if it is the only run.
        has_end: Whether to show the result; not where more than the conversation decides it.
        clean: Hides secrets.
        before: Messages from before the conversation.
    """

    def __init__(
        self,
        *,
        is_named: bool = False,
        has_end: bool = True,
        clean: Callable[[str], str] | None = None,
        before: Sequence[Message] = (),
    ) -> None:
        self._before = before
        self._is_named = is_named
        self._has_end = has_end
        self._clean = Redactor().redact if clean is None else clean

    def __call__(self, event: Event) -> None:
        is_named = self._is_named or _is_one_of_several(event)
        if isinstance(event, RunFinished) and not self._has_end:
            return
        earlier = self._before if isinstance(event, RunStarted) else ()
        clean = self._clean
        shown = [
            DisplayedMessage(clean(line.sender), clean(line.text), line.color, line.is_data)
            for line in [*_lines_of(event), *chain.from_iterable(map(_message_lines, earlier))]
        ]
        name = clean(event.scenario_id) if is_named else ""
        show_messages(shown, name, gap=isinstance(event, RunStarted) and not name)


def _is_one_of_several(event: Event) -> bool:
    """Whether another run was on display at the same time; if so, the name stays."""
    run = event.scenario_run_id
    with _lock:
        if isinstance(event, RunStarted):
            _shown_runs[run] = False
            if len(_shown_runs) > 1:
                _shown_runs.update(dict.fromkeys(_shown_runs, True))
        if isinstance(event, RunFinished):
            return _shown_runs.pop(run, False)
        return _shown_runs.get(run, False)


def _lines_of(event: Event) -> Iterator[DisplayedMessage]:
    match event:
        case RunStarted():
            yield DisplayedMessage("Scenario", event.name, ANSIColors.YELLOW)
        case MessageAdded():
            yield from _message_lines(event.message)
        case CriterionJudged():
            row = event.verdict
            passed = row.status is CriterionStatus.PASSED
            colour = ANSIColors.GREEN if passed else ANSIColors.RED
            why = f": {row.reasoning}" if row.reasoning else ""
            sender = f"Judge, {row.status.value}"
            yield DisplayedMessage(sender, f"{row.criterion}{why}", colour)
        case RunFinished():
            status, colour = STATUSES[event.status]
            result = event.result
            # With criteria, the reasoning repeats the verdicts that were just shown.
            why = f": {result.reasoning}" if result.reasoning and not result.criteria else ""
            text = f"{event.scenario_id} ({result.total_time or 0.0:.2f} s){why}"
            yield DisplayedMessage(status, text, colour)


def _message_lines(message: Message) -> Iterator[DisplayedMessage]:
    role, text = str(message.get("role", "")), text_of(message)
    when = ", earlier" if message.get("earlier") else ""
    if role in {"tool", "function"}:
        name = message.get("name")
        who = f"Result of {name}" if name else "Result"
        yield DisplayedMessage(f"{who}{when}", text, ANSIColors.YELLOW, True)
        return
    who, colour = NAMES.get(role, role), COLOURS.get(role, ANSIColors.YELLOW)
    calls = list(tool_calls_in(message))
    if text or not calls:
        yield DisplayedMessage(f"{who}{when}", text, colour)
    for call in calls:
        yield DisplayedMessage(
            f"{who} calls {tool_name(call)}{when}", tool_arguments(call), colour, True
        )


PROMPT = "User> "
COMMANDS = (
    "/judge (the verdict now), /pass [reason], /fail [reason], /quit; write //… for a text that"
    " begins with /"
)
BY_HAND = "by_hand"
"""The reason code of a case that a person ended."""
_QUIT = "the person debugging it has quit"
_POLL_S = 0.1
_debugged: ContextVar[str | None] = ContextVar("holodeck_debugged_case", default=None)
_terminal_lock = threading.Lock()


class SilentUser:
    """Stands in for a user where a person writes all of the user's messages."""

    role = AgentRole.USER

    async def call(self, input: AgentInput) -> Any:  # noqa: A002, ARG002 - the name is public API
        return []


def add_debug_user(participants: Sequence[Participant]) -> list[Participant]:
    """Return the participants, with a user for the person to speak as if there is none."""
    roles = {
        getattr(participant, "role", None) for participant in participants
    }  # missing roles fail later
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
    show_messages([DisplayedMessage("debug", text, ANSIColors.YELLOW)])


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
