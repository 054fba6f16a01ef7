"""What a run does beyond the documented arguments of its executor."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from holodeck.models.cases.messages import Message
from holodeck.models.results.origin import Selection
from holodeck.models.test_result import TestResult

if TYPE_CHECKING:
    from holodeck.lib.conversation.events import EventStream, Listener


class HasEvents(Protocol):
    """A conversation that can be followed."""

    before: "Sequence[Message]"
    """The messages before it."""
    events: "EventStream"


OnConversation = Callable[[HasEvents], None]
"""Called with a conversation before it begins."""


@dataclass(frozen=True)
class RunOptions:
    """Who follows a run, and what was known before it."""

    carried_over: Mapping[int, TestResult] = field(default_factory=dict)
    """Results of an earlier run by the index of their case; these cases do not run again."""
    selection: Selection | None = None
    """Which cases of the file were selected, for the report; None if all run."""
    run_id: Callable[[], str | None] = lambda: None
    """Returns the record of the run, which events name, once it has begun; else None."""
    is_checked: bool = False
    """Whether the static checks of `holodeck validate` were done before the run; otherwise they are
    its first step."""
    is_debugged: bool = False
    """Whether `on_conversation` lets a person speak for users, which needs all cases in this
    process."""
    clean: Callable[[TestResult], TestResult] | None = None
    """Returns a result without secrets, before anything else sees it; None leaves it as it is."""
    on_result: Callable[[int, TestResult], None] | None = None
    """Called with the index of the case and its result before `progress_callback`."""
    on_conversation: OnConversation | None = None
    """Called with each conversation before it begins."""
    on_event: "Listener | None" = None
    """Called with the events of the cases, in a thread of its own."""
    event_relay: "Listener | None" = None
    """Called with the same events at once; it must neither wait nor fail."""


NO_OPTIONS = RunOptions()
