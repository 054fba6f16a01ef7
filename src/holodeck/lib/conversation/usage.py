"""Time, requests and tokens that the participants of a conversation use."""

import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar

from holodeck.lib.conversation.events import new_id
from holodeck.lib.conversation.messages import AgentRole, Message
from holodeck.lib.conversation.types import CriterionResult, ScenarioResult, rows_of
from holodeck.lib.judging.judge import count_judge_usage
from holodeck.models.token_usage import TokenUsage, UsageMeter

_current: ContextVar[UsageMeter | None] = ContextVar("holodeck_conversation_usage", default=None)


def record_usage(usage: TokenUsage, *, calls: int = 1, failed: int = 0) -> None:
    """Add requests and tokens to the participant being called; without effect outside of a call."""
    meter = _current.get()
    if meter is not None:
        meter.add(usage, requests=calls, failed=failed)


def record_cache_hit() -> None:
    """Add a cached response to the participant being called; without effect outside of a call."""
    meter = _current.get()
    if meter is not None:
        meter.cache_hits += 1


@contextmanager
def count_usage() -> Iterator[UsageMeter]:
    """Count what participants and judges use inside the block."""
    with count_judge_usage() as meter:
        token = _current.set(meter)
        try:
            yield meter
        finally:
            _current.reset(token)


class RunUsage:
    """Time and usage of one run by participant, its ids, and the checkpoints that passed."""

    def __init__(self, batch_run_id: str) -> None:
        self.thread_id = new_id("thread")
        self.scenario_run_id = new_id("scenariorun")
        self.checkpoints: list[CriterionResult] = []
        self._batch_run_id = batch_run_id
        self._started = time.perf_counter()
        self._seconds: defaultdict[int, float] = defaultdict(float)
        self._meters: defaultdict[str, UsageMeter] = defaultdict(UsageMeter)

    def add(self, index: int, role: AgentRole, seconds: float, used: UsageMeter) -> None:
        """Count one call of a participant."""
        self._seconds[index] += seconds
        self._meters[role.value].merge(used)

    def was_called(self, index: int) -> bool:
        """Whether a participant was called, even without success."""
        return index in self._seconds

    def add_passed_checkpoint(self, result: ScenarioResult) -> None:
        """Remember the criteria of a checkpoint that passed."""
        self.checkpoints = rows_of(result)  # including those of earlier checkpoints

    def complete(
        self, result: ScenarioResult, messages: list[Message], agents: Iterable[int]
    ) -> ScenarioResult:
        """Return the result with times, ids, usage and checkpoints; a complete one as it is."""
        if result.scenario_run_id == self.scenario_run_id:
            return result
        total_time, agent_time = result.total_time, result.agent_time
        if total_time is None:
            total_time = time.perf_counter() - self._started
        if agent_time is None:
            agent_time = sum(self._seconds.get(index, 0.0) for index in agents)
        passed = [checkpoint.criterion for checkpoint in self.checkpoints]
        meters = self._meters.items()
        known: dict[str, object] = {
            "criteria": [*self.checkpoints, *rows_of(result)],
            "passed_criteria": [*passed, *result.passed_criteria],
            "messages": result.messages or messages,
            "total_time": total_time,
            "agent_time": agent_time,
            "model_calls": {role: meter.requests for role, meter in meters if meter.requests},
            "failed_calls": {role: meter.failed for role, meter in meters if meter.failed},
            "kept_answers": {role: meter.cache_hits for role, meter in meters if meter.cache_hits},
            "token_usage": {role: meter.usage for role, meter in meters} | result.token_usage,
            "thread_id": self.thread_id,
            "scenario_run_id": self.scenario_run_id,
            "batch_run_id": self._batch_run_id,
        }
        return result.model_copy(update=known)
