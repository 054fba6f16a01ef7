"""How an MCP server is started or reached, and what is known of it when it fails."""

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from holodeck.lib.support.text import one_line

MAX_MESSAGE_BYTES = 10_000_000
_STDERR_BYTES = 4_000
_MAX_STRAY_LINES = 3
_SHOWN = 500

_PASSED_ON = re.compile(
    "HOME|LOGNAME|PATH|SHELL|TERM|USER|LANG|LANGUAGE|LC_.*|TZ|TMPDIR|TEMP|TMP|XDG_.*"
    "|(?:HTTPS?|ALL|NO)_PROXY|SSL_CERT_(?:FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE"
    "|NODE_EXTRA_CA_CERTS|NPM_CONFIG_.*|UV_.*|PIP_.*|DOCKER_.*",
    re.IGNORECASE,
)


class MessageTooLarge(Exception):
    """A server sent more in one message than is read."""


def passed_on(variables: Mapping[str, str]) -> dict[str, str]:
    """Return the variables of holodeck that a server gets; API keys are not among them."""
    return {name: value for name, value in variables.items() if _PASSED_ON.fullmatch(name)}


@dataclass(frozen=True)
class ServerProcess:
    """A server that speaks through stdin and stdout."""

    command: Sequence[str]
    cwd: Path
    env: Mapping[str, str]
    """All of its variables."""
    encoding: str = "utf-8"


@dataclass(frozen=True)
class ServerUrl:
    """A server that is reached at a URL."""

    transport: Literal["http", "sse", "websocket"]
    url: str
    headers: Mapping[str, str]
    connect_timeout: float | None = None
    """Seconds until a connection must stand, and until a request must be sent."""
    read_timeout: float | None = None
    """Seconds in which the server may send nothing."""
    terminate_on_close: bool = True
    """Whether the server is told the end of the session."""


@dataclass
class ServerOutput:
    """What a server wrote besides its messages: the end of its stderr, and stray lines."""

    stray: deque[str] = field(default_factory=lambda: deque(maxlen=_MAX_STRAY_LINES))
    """The last lines of stdout that are not messages."""
    exit_code: int | None = None
    """None while the process runs, and without one."""
    _stderr: bytearray = field(default_factory=bytearray)

    def add_stderr(self, data: bytes) -> None:
        """Keep the end of what was written to stderr."""
        self._stderr += data
        del self._stderr[:-_STDERR_BYTES]

    def describe(self) -> str:
        """Return what may explain a failure, as the end of a message; "" if there is nothing."""
        parts = []
        if self.exit_code is not None:
            parts.append(f"it ended with exit code {self.exit_code}")
        if self.stray:
            lines = one_line(" | ".join(self.stray), _SHOWN)
            parts.append(f"it wrote to stdout, where only messages belong: {lines}")
        last = self._stderr.decode(errors="replace").strip()
        if last:
            parts.append(f"its last lines: {one_line(last[-_SHOWN:], _SHOWN)}")
        return "".join(f"; {part}" for part in parts)
