"""Keeps a replay on this machine: no connection leaves it, whoever opens it."""

import errno
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import ip_address
from typing import Any

from holodeck.lib.support.environment import variables_set

_NO_PROXY = {"NO_PROXY": "*", "no_proxy": "*"}
_ADDRESSED = frozenset({"socket.connect", "socket.sendto"})
_LOOKED_UP = frozenset({"socket.getaddrinfo", "socket.gethostbyname"})
_blocks = 0
"""How many blocks are entered in this process."""
_is_watching = False


@contextmanager
def only_loopback() -> Iterator[None]:
    """Refuse connections beyond this machine within the block, in every thread of the process.

    Whoever opens one gets a ConnectionRefusedError with the reason. Proxies are not used, as one on
    this machine would reach others; what is started in the block inherits that. Python's audit
    events (PEP 578) tell of connections, so code in C that bypasses the module `socket`, such as
    gRPC or uvloop, is not seen, and neither are other processes.
    """
    global _blocks, _is_watching  # noqa: PLW0603 - the hook is one of the process
    if not _is_watching:
        sys.addaudithook(_refuse)  # there is no way to remove it
        _is_watching = True
    _blocks += 1
    try:
        with variables_set(_NO_PROXY):
            yield
    finally:
        _blocks -= 1


def _refuse(event: str, args: tuple[Any, ...]) -> None:
    if not _blocks or not event.startswith("socket."):
        return
    host: Any = None
    if event in _ADDRESSED:
        address = args[1]
        host = address[0] if isinstance(address, tuple) and address else None
    elif event in _LOOKED_UP:
        host = args[0]
    if isinstance(host, bytes):
        host = host.decode(errors="replace")
    if isinstance(host, str) and not _is_here(host):
        raise ConnectionRefusedError(
            errno.ECONNREFUSED,
            f"no connection to {host}: recordings are replayed, and nothing beyond this machine is"
            " reached; record it with --record",
        )


def _is_here(host: str) -> bool:
    name = host.rstrip(".").lower()
    if name in {"", "localhost", socket.gethostname().lower()} or name.endswith(".localhost"):
        return True
    try:
        address = ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return address.is_loopback or address.is_unspecified
