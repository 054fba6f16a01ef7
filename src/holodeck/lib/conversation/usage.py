"""What the parties of a conversation spend on models, told by themselves."""

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from holodeck.lib.conversation.events import new_id
from holodeck.lib.conversation.messages import AgentRole, Message
from holodeck.lib.conversation.types import (
    CriterionResult,
    ScenarioResult,
    after_checkpoints,
    rows_of,
)
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


class UsageMeter:
    """The books of one run."""

    def __init__(self, batch_run_id: str) -> None:
        self.thread_id = new_id("thread")
        self.scenario_run_id = new_id("scenariorun")
        self.checkpoints: list[CriterionResult] = []
        self._batch_run_id = batch_run_id
        self._started = time.perf_counter()
        self._times: defaultdict[int, float] = defaultdict(float)
        self._usage: dict[str, TokenUsage] = {}
        self._calls: Counter[str] = Counter()
        self._failed: Counter[str] = Counter()
        self._kept: Counter[str] = Counter()

    def note(self, index: int, role: AgentRole, seconds: float, tally: CallUsage) -> None:
        """Count one call of a party."""
        self._times[index] += seconds
        self._calls[role.value] += tally.total_calls()
        self._failed[role.value] += tally.total_failed()
        self._kept[role.value] += tally.kept
        self._usage[role.value] = self._usage.get(role.value, TokenUsage.zero()) + tally.total()

    def was_called(self, index: int) -> bool:
        """Whether a party was asked, whatever came of it."""
        return index in self._times

    def passed(self, result: ScenarioResult) -> None:
        """Note a checkpoint whose criteria all passed."""
        self.checkpoints = rows_of(result)  # those of earlier checkpoints are among them

    def completed(
        self, result: ScenarioResult, messages: list[Message], agents: Iterable[int]
    ) -> ScenarioResult:
        """The result with times, ids, tokens and checkpoints; once is enough."""
        if result.scenario_run_id == self.scenario_run_id:
            return result
        took, agents_took = result.total_time, result.agent_time
        known: dict[str, object] = {
            **after_checkpoints(self.checkpoints, result),
            "messages": result.messages or messages,
            "total_time": time.perf_counter() - self._started if took is None else took,
            "agent_time": sum(self._times.get(at, 0.0) for at in agents)
            if agents_took is None
            else agents_took,
            "model_calls": _some(self._calls),
            "failed_calls": _some(self._failed),
            "kept_answers": _some(self._kept),
            "token_usage": {**self._usage, **result.token_usage},
            "thread_id": self.thread_id,
            "scenario_run_id": self.scenario_run_id,
            "batch_run_id": self._batch_run_id,
        }
        return result.model_copy(update=known)


def _some(counts: Counter[str]) -> dict[str, int]:
    return {role: count for role, count in counts.items() if count}
