"""What clients of servers have in common: addresses, and errors of the connection."""

import socket
from collections.abc import Iterator
from urllib.parse import urlsplit

from holodeck.errors import ConfigError
from holodeck.models.tools.database import DatabaseConfig

_CREDENTIALS = (
    *("authentication failed", "no password supplied", "unauthorized", "forbidden"),
    *("authentication required", "invalid username-password", "permission denied for user"),
)


def server_url(config: DatabaseConfig, *schemes: str) -> str:
    """Return the address of the server. Raises ConfigError if it has none of the schemes."""
    key = "url" if config.url is not None else "connection_string"
    url = config.url or ""
    if config.connection_string is not None:
        url = config.connection_string.get_secret_value()
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        known = " or ".join(f"{scheme}://" for scheme in schemes)
        raise ConfigError(
            f"database.{key}",
            f"is not an address of {config.provider}; it begins with {known} and a host",
        )
    return url


def host_of(url: str, default_port: int) -> str:
    """Return host and port of a URL."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or default_port}"


def no_answer(seconds: float) -> str:
    """Return what is wrong with a store that exceeds its time limit, and what to change."""
    return f"no answer within {seconds:g} s; check that it runs, or raise 'timeout' of the database"


def explain_connection(error: Exception, key: str) -> str | None:
    """Return what is wrong with a connection and what to change; None for other errors.

    `key` is the setting that holds the credentials.
    """
    causes = list(_chain(error))
    texts = " ".join(str(cause) for cause in causes).lower()
    if any(words in texts for words in _CREDENTIALS):
        return f"the server rejects the credentials ({_one_line(error)}); change {key!r}"
    for one in causes:
        if isinstance(one, socket.gaierror) or "name or service not known" in str(one).lower():
            return f"the host is unknown ({_one_line(one)}); change the address"
        if isinstance(one, ConnectionError) or "refused" in str(one).lower():
            return (
                f"the server cannot be reached ({_one_line(one)}); start it, or change the address"
            )
    return None


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split())[:300]
