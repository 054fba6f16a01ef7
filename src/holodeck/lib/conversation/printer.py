"""Shows a conversation on stderr as it happens."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain

from holodeck.lib.conversation.events import (
    CriterionJudged,
    Event,
    MessageAdded,
    RunFinished,
    RunStarted,
)
from holodeck.lib.conversation.types import CriterionStatus
from holodeck.lib.secrets.redact import Redactor
from holodeck.lib.ui.conversation import Entry, show_entries
from holodeck.lib.ui.terminal import ANSIColors
from holodeck.models.cases.messages import (
    Message,
    text_of,
    tool_arguments,
    tool_calls_in,
    tool_name,
)

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
        entries = [*_entries_of(event), *chain.from_iterable(map(_entries_of_message, earlier))]
        shown = [
            replace(entry, sender=clean(entry.sender), text=clean(entry.text)) for entry in entries
        ]
        name = clean(event.scenario_id) if is_named else ""
        show_entries(shown, name, gap=isinstance(event, RunStarted) and not name)


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


def _entries_of(event: Event) -> Iterator[Entry]:
    match event:
        case RunStarted():
            yield Entry("Scenario", event.name, ANSIColors.YELLOW)
        case MessageAdded():
            yield from _entries_of_message(event.message)
        case CriterionJudged():
            row = event.verdict
            passed = row.status is CriterionStatus.PASSED
            colour = ANSIColors.GREEN if passed else ANSIColors.RED
            why = f": {row.reasoning}" if row.reasoning else ""
            sender = f"Judge, {row.status.value}"
            yield Entry(sender, f"{row.criterion}{why}", colour)
        case RunFinished():
            status, colour = STATUSES[event.status]
            result = event.result
            # With criteria, the reasoning repeats the verdicts that were just shown.
            why = f": {result.reasoning}" if result.reasoning and not result.criteria else ""
            text = f"{event.scenario_id} ({result.total_time or 0.0:.2f} s){why}"
            yield Entry(status, text, colour)


def _entries_of_message(message: Message) -> Iterator[Entry]:
    role, text = str(message.get("role", "")), text_of(message)
    when = ", earlier" if message.get("earlier") else ""
    if role in {"tool", "function"}:
        name = message.get("name")
        who = f"Result of {name}" if name else "Result"
        yield Entry(f"{who}{when}", text, ANSIColors.YELLOW, True)
        return
    who, colour = NAMES.get(role, role), COLOURS.get(role, ANSIColors.YELLOW)
    calls = list(tool_calls_in(message))
    if text or not calls:
        yield Entry(f"{who}{when}", text, colour)
    for call in calls:
        yield Entry(f"{who} calls {tool_name(call)}{when}", tool_arguments(call), colour, True)
