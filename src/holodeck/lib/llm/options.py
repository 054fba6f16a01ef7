"""Options of requests to one model, beyond those that every model has."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from holodeck.errors import ConfigError
from holodeck.lib.llm.limits import CallLimits


@dataclass(frozen=True)
class RequestOptions:
    """How requests to a model differ from the usual ones."""

    timeout: float | None = None
    """Seconds for one attempt; None for the usual limit."""
    retries: int | None = None
    """Retries after the first attempt; None for the usual number."""
    headers: Mapping[str, str] = field(default_factory=dict)
    """Further headers; one of ours with the same name is left out."""
    body: Mapping[str, Any] = field(default_factory=dict)
    """Further keys of the request's body, in the names of OpenAI."""
    left_out: frozenset[str] = frozenset()
    """Keys of the body that are never sent."""
    client: Any = None
    """The user's own client of OpenAI's library, which sends the requests."""
    library: Mapping[str, Any] = field(default_factory=dict)
    """Arguments of LiteLLM, for a model that it calls."""

    def limits(self, usual: CallLimits) -> CallLimits:
        """Return the limits of a call; with a limit of its own, each attempt may take that long."""
        return replace(
            usual,
            timeout=usual.timeout if self.timeout is None else None,
            attempt_timeout=usual.attempt_timeout if self.timeout is None else self.timeout,
            retries=usual.retries if self.retries is None else self.retries,
        )

    def add_headers(self, headers: Mapping[str, str]) -> dict[str, str]:
        """Return the headers with the further ones. Raises ConfigError."""
        for name, value in self.headers.items():
            if not (_is_header_text(name) and name and _is_header_text(value)):
                raise ConfigError("headers", f"{name!r} is no header with one line of ASCII text")
        names = {name.lower() for name in self.headers}
        kept = {name: value for name, value in headers.items() if name.lower() not in names}
        return {**kept, **self.headers}

    def change_body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        """Return the body with the further keys, and without those that are left out."""
        changed = {**body, **self.body}
        return {key: value for key, value in changed.items() if key not in self.left_out}


def _is_header_text(text: object) -> bool:
    return isinstance(text, str) and text.isascii() and text.isprintable()


NO_OPTIONS = RequestOptions()
