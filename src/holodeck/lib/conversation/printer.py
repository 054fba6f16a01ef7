"""A listener that shows conversations as they happen."""

import threading
from collections.abc import Callable, Iterator, Sequence
from itertools import chain

from holodeck.lib.conversation.events import (
    CriterionJudged,
    Event,
    MessageAdded,
    RunFinished,
    RunStarted,
)
from holodeck.lib.conversation.messages import arguments_of, calls_in, text_of, tool_name
from holodeck.lib.conversation.roles import EARLIER, Message
from holodeck.lib.conversation.types import CriterionResult, CriterionStatus
from holodeck.lib.redact import Redactor
from holodeck.lib.ui.colors import ANSIColors
from holodeck.lib.ui.conversation import DisplayedMessage, show

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
        show(said, name, gap=isinstance(event, RunStarted) and not name)


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
