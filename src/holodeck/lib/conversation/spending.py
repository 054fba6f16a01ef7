"""What the parties of a conversation spend on models, told by themselves."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from holodeck.lib.judging.judge import Spent, counted
from holodeck.models.token_usage import TokenUsage


@dataclass
class Tally:
    """What one call of a party cost."""

    usage: TokenUsage = field(default_factory=TokenUsage.zero)
    calls: int = 0
    spent: Spent = field(default_factory=Spent)
    """What models that judge noted themselves."""
    kept: int = 0
    """Answers that were kept and not asked for."""

    def total(self) -> TokenUsage:
        """All of it."""
        return self.usage + self.spent.usage

    def total_calls(self) -> int:
        """How many answers of models these were."""
        return self.calls + self.spent.calls


_tally: ContextVar[Tally | None] = ContextVar("holodeck_conversation_spending", default=None)


def note_usage(usage: TokenUsage) -> None:
    """Count an answer of a model, and its tokens, for whoever is being called.

    Outside of a conversation they count nowhere.
    """
    tally = _tally.get()
    if tally is not None:
        tally.usage += usage
        tally.calls += 1


def note_kept() -> None:
    """Count an answer that was kept and not asked for, for whoever is being called."""
    tally = _tally.get()
    if tally is not None:
        tally.kept += 1


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
