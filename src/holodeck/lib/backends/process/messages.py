"""The messages of docs/reference/process-protocol.md, as the process of an agent writes them."""

import linecache
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from holodeck.errors import BackendError, BackendInitError, BackendSessionError, Refusal
from holodeck.lib.backends.base import ExecutionResult
from holodeck.lib.backends.parsing import parse_result
from holodeck.lib.llm.errors import unreachable_reason
from holodeck.lib.support.source_files import display_code_path
from holodeck.lib.user_code.raised import source_excerpt
from holodeck.models.results.outcome import RaisedError

PROTOCOL = 1
"""The version of the protocol."""
_MAX_FRAMES = 30


@dataclass(frozen=True)
class Abilities:
    """What the process of an agent can do, by its answer to `initialize`."""

    concurrency: int = 1
    """How many messages it takes at a time."""
    history: bool = False
    """Whether its conversations can begin with earlier messages."""
    context: bool = False
    """Whether the context of a case reaches the agent."""
    streaming: bool = False
    """Whether it writes the pieces of a response."""
    cancel: bool = False
    """Whether it cancels requests."""
    trace: bool = False
    """Whether it continues the trace of a message."""
    opens_with_send: bool = False
    """Whether the first `send` of a conversation can open it."""
    closes: bool = True
    """Whether conversations hold something that `close` releases."""
    tool_errors: bool = True
    """Whether a tool result without `is_error` is none of an error; otherwise that is unknown."""
    approvals: bool = False
    """Whether it reports pending approvals, and `send` takes decisions about them."""
    tools: list[str] | None = None
    """Names of the tools that the agent can call; None if unknown."""


def parse_abilities(result: Any) -> Abilities:
    """Return the abilities in the answer to `initialize`. Raises BackendInitError."""
    answer = result if isinstance(result, Mapping) else {}
    if answer.get("protocol") != PROTOCOL:
        raise BackendInitError(
            f"the agent's process answered 'initialize' with protocol {answer.get('protocol')!r};"
            f" this version of holodeck speaks protocol {PROTOCOL}"
            " (docs/reference/process-protocol.md)"
        )
    concurrency = answer.get("concurrency", 1)
    if not isinstance(concurrency, int) or concurrency < 1:
        raise BackendInitError(
            f"the agent's process answered 'initialize' with concurrency {concurrency!r};"
            " expected a number of at least 1"
        )
    flags = {
        field.name: answer.get(field.name) is not False
        if field.default
        else answer.get(field.name) is True
        for field in fields(Abilities)
        if isinstance(field.default, bool)
    }
    tools = answer.get("tools")
    return Abilities(concurrency, **flags, tools=None if tools is None else [*map(str, tools)])


_REFUSALS: Mapping[str, Refusal] = {
    "APIConnectionError": "unreachable",
    "ConnectError": "unreachable",
    "ConnectionRefusedError": "unreachable",
    "SSLCertVerificationError": "unreachable",
    "gaierror": "unreachable",
    "AuthenticationError": "key",
    "PermissionDeniedError": "key",
    "NotFoundError": "request",
}
"""What a server refused, by the exception of Python or of a client library that reports it."""


def answer_error(error: Any) -> BackendSessionError:
    """Return the error of an answer, with the line of the user's code if it says that."""
    error = error if isinstance(error, Mapping) else {"message": str(error)}
    data = error.get("data")
    data = data if isinstance(data, Mapping) else {}
    message = " ".join(str(error.get("message", "")).split())
    text = ": ".join(filter(None, [str(data.get("type") or ""), message]))
    failure = BackendSessionError(text or "the agent's process reports an error", seen=_seen(data))
    failure.raised = _raised(text, data)
    failure.refusal = _REFUSALS.get(str(data.get("type")).rpartition(".")[2])
    if failure.refusal is None and unreachable_reason(OSError(message)) is not None:
        failure.refusal = "unreachable"  # libraries repeat the error of the system in theirs
    return failure


def _seen(data: Mapping[str, Any]) -> ExecutionResult | None:
    """Return what the agent had done until it failed; None if that is unknown."""
    if data.get("seen") is None:
        return None
    try:
        return parse_result(data["seen"])
    except BackendError:  # the failure itself matters more
        return None


def _raised(text: str, data: Mapping[str, Any]) -> RaisedError | None:
    """Return where the user's code raised the error; None without file and line."""
    frames = data.get("traceback")
    frames = frames if isinstance(frames, list) else []
    if not _is_place(data):
        return None
    code = None if data.get("code") is None else str(data["code"])
    return RaisedError(
        error=text,
        file=display_code_path(data["file"]),
        line=data["line"],
        function=str(data.get("function") or ""),
        code=code,
        traceback=[_as_line(frame) for frame in frames[-_MAX_FRAMES:] if _is_place(frame)],
        excerpt=_excerpt(data["file"], data["line"], code),
    )


def _excerpt(file: str, line: int, code: str | None) -> list[str]:
    """Return the lines around the code; empty unless the file has that code at that line.

    A process could name any other file to have it printed.
    """
    text = linecache.getline(file, line).strip()
    return source_excerpt(file, line) if code and text == code.strip() else []


def _is_place(frame: Any) -> bool:
    if not isinstance(frame, Mapping):
        return False
    return isinstance(frame.get("file"), str) and isinstance(frame.get("line"), int)


def _as_line(frame: Mapping[str, Any]) -> str:
    place = f"{display_code_path(frame['file'])}:{frame['line']} in {frame.get('function', '')}"
    return f"{place}: {frame['code']}" if frame.get("code") else place
