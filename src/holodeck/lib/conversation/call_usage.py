"""What the parties of a conversation spend on models, told by themselves."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from holodeck.lib.judging.judge import JudgeUsage, count_judge_usage
from holodeck.models.token_usage import TokenUsage


@dataclass
class CallUsage:
    """What one call of a party cost."""

    usage: TokenUsage = field(default_factory=TokenUsage.zero)
    calls: int = 0
    failed: int = 0
    """Those of the calls that were not answered."""
    spent: JudgeUsage = field(default_factory=JudgeUsage)
    """What models that judge noted themselves."""
    kept: int = 0
    """Answers that were kept and not asked for."""

    def total(self) -> TokenUsage:
        """All of it."""
        return self.usage + self.spent.usage

    def total_calls(self) -> int:
        """How many requests to models these were."""
        return self.calls + self.spent.calls

    def total_failed(self) -> int:
        """How many of them were not answered."""
        return self.failed + self.spent.failed


_tally: ContextVar[CallUsage | None] = ContextVar("holodeck_conversation_spending", default=None)


def record_usage(usage: TokenUsage, *, calls: int = 1, failed: int = 0) -> None:
    """Count the requests to a model and the tokens of its answer, for whoever is being called.

    Outside of a conversation they count nowhere.
    """
    tally = _tally.get()
    if tally is not None:
        tally.usage += usage
        tally.calls += calls
        tally.failed += failed


def record_cache_hit() -> None:
    """Count an answer that was kept and not asked for, for whoever is being called."""
    tally = _tally.get()
    if tally is not None:
        tally.kept += 1


@contextmanager
def count_usage() -> Iterator[CallUsage]:
    """Count what is spent inside the block, by models that judge, too."""
    tally = CallUsage()
    token = _tally.set(tally)
    try:
        with count_judge_usage(tally.spent):
            yield tally
    finally:
        _tally.reset(token)
