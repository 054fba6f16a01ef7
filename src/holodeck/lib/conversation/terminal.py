"""A listener that shows conversations as they happen."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from contextvars import ContextVar
from itertools import chain
from typing import Any, Protocol

from holodeck.lib.conversation.events import (
    CriterionJudged,
    Event,
    MessageAdded,
    RunFinished,
    RunStarted,
)
from holodeck.lib.conversation.messages import (
    EARLIER,
    AgentRole,
    Message,
    arguments_of,
    calls_in,
    text_of,
    tool_name,
)
from holodeck.lib.conversation.types import (
    AgentInput,
    CriterionResult,
    CriterionStatus,
    Participant,
    ScenarioResult,
    ScenarioUsageError,
)
from holodeck.lib.llm.limiter import pause_time_limits
from holodeck.lib.redact import Redactor
from holodeck.lib.ui.conversation import (
    DisplayedMessage,
    find_missing_terminal,
    read_typed_line,
    show_messages,
)
from holodeck.lib.ui.terminal import ANSIColors

NAMES = {"user": "User", "assistant": "Agent", "system": "System", "developer": "System"}
COLOURS = {"user": ANSIColors.GREEN, "assistant": ANSIColors.CYAN}
ENDS = {
    "SUCCESS": ("PASSED", ANSIColors.GREEN),
    "FAILED": ("FAILED", ANSIColors.RED),
    "ERROR": ("ERROR", ANSIColors.RED),
    "CANCELLED": ("CANCELLED", ANSIColors.YELLOW),
}
_under_way: dict[str, bool] = {}
"""The runs that are shown now, and whether each needs its name to be told from the others."""
_lock = threading.Lock()


class ConversationPrinter:
    """Shows one run on stderr; with its name, as soon as it is not the only one.

    Args:
        is_named: Whether the name stands there even if it is the only one.
        has_end: Whether the end is told; not where more than the conversation decides.
        clean: What hides secrets.
        before: What was said before the conversation.
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
        every = [*_said_in(event), *chain.from_iterable(map(_message, earlier))]
        clean = self._clean
        said = [
            DisplayedMessage(clean(one.who), clean(one.text), one.colour, one.is_data)
            for one in every
        ]
        name = self._clean(event.scenario_id) if is_named else ""
        show_messages(said, name, gap=isinstance(event, RunStarted) and not name)


def _is_one_of_several(event: Event) -> bool:
    """Whether another run has been shown meanwhile; if so, it stays like that to the end."""
    run = event.scenario_run_id
    with _lock:
        if isinstance(event, RunStarted):
            _under_way[run] = False
            if len(_under_way) > 1:
                _under_way.update(dict.fromkeys(_under_way, True))
        if isinstance(event, RunFinished):
            return _under_way.pop(run, False)
        return _under_way.get(run, False)


def _said_in(event: Event) -> Sequence[DisplayedMessage]:
    match event:
        case RunStarted():
            return [DisplayedMessage("Scenario", event.name, ANSIColors.YELLOW)]
        case MessageAdded():
            return list(_message(event.message))
        case CriterionJudged():
            return [_verdict(event.verdict)]
        case RunFinished():
            return [_end(event)]
    return []


def _message(message: Message) -> Iterator[DisplayedMessage]:
    role, text = str(message.get("role", "")), text_of(message)
    when = ", earlier" if EARLIER in message else ""
    if role in {"tool", "function"}:
        name = message.get("name")
        who = f"Result of {name}" if name else "Result"
        yield DisplayedMessage(f"{who}{when}", text, ANSIColors.YELLOW, True)
        return
    who, colour = NAMES.get(role, role), COLOURS.get(role, ANSIColors.YELLOW)
    calls = list(calls_in(message))
    if text or not calls:
        yield DisplayedMessage(f"{who}{when}", text, colour)
    for call in calls:
        yield DisplayedMessage(
            f"{who} calls {tool_name(call)}{when}", arguments_of(call), colour, True
        )


def _verdict(row: CriterionResult) -> DisplayedMessage:
    passed = row.status is CriterionStatus.PASSED
    colour = ANSIColors.GREEN if passed else ANSIColors.RED
    why = f": {row.reasoning}" if row.reasoning else ""
    return DisplayedMessage(f"Judge, {row.status.value}", f"{row.criterion}{why}", colour)


def _end(event: RunFinished) -> DisplayedMessage:
    word, colour = ENDS[event.status]
    result = event.result
    # With criteria, the reasoning repeats what the judge has just been shown to say.
    why = f": {result.reasoning}" if result.reasoning and not result.criteria else ""
    return DisplayedMessage(
        word, f"{event.scenario_id} ({result.total_time or 0.0:.2f} s){why}", colour
    )


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

    def __init__(self, ask: Callable[[str], Awaitable[str | None]] = read_typed_line) -> None:
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
    show_messages([DisplayedMessage("debug", text, ANSIColors.YELLOW)])


def debugger_for(case: str) -> Debugger:
    """Who lets a person speak in a case. Raises ScenarioUsageError where there is no terminal."""
    missing = find_missing_terminal()
    if missing is not None:
        raise ScenarioUsageError(
            f"case {case!r}",
            f"debug needs a person at a terminal, and {missing} is none; run it in a terminal"
            " (pytest: with --holodeck-debug, or -s), or leave debug out",
        )
    return Debugger()
