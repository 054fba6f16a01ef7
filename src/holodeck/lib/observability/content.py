"""What spans may say of inputs, answers, tool arguments and results."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from holodeck.errors import ConfigError
from holodeck.lib.patterns import compiled, replace

MOST_CHARACTERS = 20_000
MASK = "***"
MASK_SECONDS = 0.2
TOO_SLOW = f"{MASK} (not shown: a redaction pattern takes too long)"


class Content:
    """Text for spans: masked where a pattern matches, and cut where it is too long."""

    def __init__(
        self, redaction_patterns: Sequence[str] = (), clean: Callable[[str], str] = str
    ) -> None:
        self._clean = clean
        self._patterns = [_compiled(i, text) for i, text in enumerate(redaction_patterns)]

    def shown(self, value: Any) -> str:
        """The value as text; whatever is not text as JSON."""
        text = value if isinstance(value, str) else json.dumps(value, default=repr)
        return self.masked(text)

    def masked(self, text: str) -> str:
        """The text as a span may hold it."""
        # Cut before masking, so that a pattern's time is bounded; the margin keeps a secret that
        # lies across the cut whole, and hence masked.
        text = self._clean(text[: 2 * MOST_CHARACTERS])
        try:
            for pattern in self._patterns:
                text = replace(pattern, MASK, text, MASK_SECONDS)
        except TimeoutError:
            return TOO_SLOW
        if len(text) <= MOST_CHARACTERS:
            return text
        return f"{text[:MOST_CHARACTERS]}… (cut)"


def _compiled(index: int, pattern: str) -> Any:
    try:
        return compiled(pattern)
    except ConfigError as error:
        field = f"observability.traces.redaction_patterns[{index}]"
        raise ConfigError(field, error.message) from error
