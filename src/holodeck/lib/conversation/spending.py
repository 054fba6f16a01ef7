"""What the parties of a conversation spend on models, told by themselves."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from holodeck.lib.judging.judge import Spent, counted
from holodeck.models.token_usage import TokenUsage


@dataclass
class Tally:
    """Tokens of one call."""

    usage: TokenUsage = field(default_factory=TokenUsage.zero)
    spent: Spent = field(default_factory=Spent)
    """What models that judge noted themselves."""

    def total(self) -> TokenUsage:
        """All of it."""
        return self.usage + self.spent.usage


_tally: ContextVar[Tally | None] = ContextVar("holodeck_conversation_spending", default=None)


def note_usage(usage: TokenUsage) -> None:
    """Count tokens for whoever is being called; outside of a conversation they count nowhere."""
    tally = _tally.get()
    if tally is not None:
        tally.usage += usage


@contextmanager
def tallied() -> Iterator[Tally]:
    """Count what is spent inside the block, by models that judge, too."""
    tally = Tally()
    token = _tally.set(tally)
    try:
        with counted(tally.spent):
            yield tally
    finally:
        _tally.reset(token)
