"""What a call to a model may take: how long, how often it is tried, how many at once."""

from dataclasses import dataclass
from typing import Any

from holodeck.lib.limiter import QUIET_S, Limiters
from holodeck.models.config import ExecutionConfig, Setting


@dataclass(frozen=True)
class CallLimits:
    """What one agent call may take."""

    timeout: float | None
    """Seconds for the whole call, retries included; None: no limit."""
    attempt_timeout: float | None
    """Seconds for one try; None: no limit of its own."""
    retries: int
    retry_delay: float
    """Longest wait before the first retry, in seconds."""
    answer_bytes: int
    """Of one answer; what is larger is not read to its end."""


def call_limits(execution: ExecutionConfig | None) -> CallLimits:
    """The limits that the settings say; their defaults where nothing is set."""
    given = execution or ExecutionConfig()
    return CallLimits(
        timeout=_setting(given, "llm_timeout"),
        attempt_timeout=_setting(given, "attempt_timeout"),
        retries=_setting(given, "max_retries"),
        retry_delay=_setting(given, "retry_delay"),
        answer_bytes=round(_setting(given, "max_answer_mb") * 1_000_000),
    )


def limiters_for(execution: ExecutionConfig | None) -> Limiters:
    """As many slots as `--parallel` asks for, soon; `auto` leaves it to limiter and endpoint."""
    wanted = execution.parallel_test_cases if execution else None
    return Limiters(wanted, quiet_s=QUIET_S) if isinstance(wanted, int) else Limiters()


def _setting(execution: ExecutionConfig, field: str) -> Any:
    value = getattr(execution, field)
    if value is not None:
        return value
    metadata = ExecutionConfig.model_fields[field].metadata
    return next(item.default for item in metadata if isinstance(item, Setting))
