"""Token counts, whatever the provider calls them."""

from collections.abc import Mapping
from typing import Any

from holodeck.models.token_usage import TokenUsage

_READ = ("prompt_tokens", "input_tokens")
_WRITTEN = ("completion_tokens", "output_tokens")


def usage_of(metadata: Mapping[str, Any]) -> TokenUsage:
    """The tokens that a message's metadata tells of; zero where it tells nothing."""
    usage = metadata.get("usage")
    if usage is None:
        return TokenUsage.zero()
    return TokenUsage.of(_first(usage, _READ), _first(usage, _WRITTEN))


def _first(usage: Any, names: tuple[str, ...]) -> int:
    for name in names:
        value = usage.get(name) if isinstance(usage, Mapping) else getattr(usage, name, None)
        if isinstance(value, int) and value > 0:
            return value
    return 0
