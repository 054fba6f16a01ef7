"""What endpoints tell about their rate limits before they refuse anything."""

import math
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from holodeck.lib.limiter import Limiter

_OPENAI = [
    (f"x-ratelimit-remaining-{of}", f"x-ratelimit-reset-{of}") for of in ("requests", "tokens")
]
_ANTHROPIC = [
    (f"anthropic-ratelimit-{of}-remaining", f"anthropic-ratelimit-{of}-reset")
    for of in ("requests", "tokens", "input-tokens", "output-tokens")
]
HEADERS = (*_OPENAI, *_ANTHROPIC, ("ratelimit-remaining", "ratelimit-reset"))
"""What is left of a limit, and when it is there again."""

_UNITS = {"d": 86_400.0, "h": 3600.0, "m": 60.0, "s": 1.0, "ms": 0.001, "": 1.0}
_DURATION = re.compile(r"(?:[0-9]{1,9}(?:\.[0-9]{1,9})?(?:ms|[dhms]))+|[0-9]{1,9}(?:\.[0-9]{1,9})?")
_PART = re.compile(r"([0-9.]+)(ms|[dhms]?)")


def _now() -> datetime:
    return datetime.now(UTC)


def apply_rate_limits(
    limiter: Limiter, headers: Mapping[str, str], now: Callable[[], datetime] = _now
) -> None:
    """Let no new request start while the headers of an answer say that none is left.

    The names of the headers are in lower case, or their case does not matter.
    """
    for remaining, reset in HEADERS:
        left = headers.get(remaining)
        if left is not None and left.strip() == "0":
            seconds = seconds_until(headers.get(reset, ""), now)
            if seconds is not None:
                limiter.hold(seconds, f"{remaining} is 0")


def seconds_until(reset: str, now: Callable[[], datetime] = _now) -> float | None:
    """Seconds that `20ms`, `6m0s`, `1.5` or a date stands for; None if it makes no sense."""
    text = reset.strip().lower()
    if _DURATION.fullmatch(text):
        return math.fsum(float(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    try:
        date = datetime.fromisoformat(text.upper())
    except ValueError:
        return None
    aware = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (aware - now()).total_seconds())
