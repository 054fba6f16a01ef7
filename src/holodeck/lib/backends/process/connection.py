"""The process of an agent, which speaks the protocol of docs/reference/process-protocol.md."""

import asyncio
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from holodeck.errors import BackendInitError, BackendSessionError
from holodeck.lib.backends.process.messages import answer_error
from holodeck.lib.llm.http_parser import too_large
from holodeck.lib.processes.channel import BadMessage, LineReader
from holodeck.lib.processes.child_process import MAX_LINE_SHOWN, ChildProcess, Launch
from holodeck.lib.support.text import DuplicateKey, load_json, one_line

CANCEL_S = 1.0
"""How long a process may take to confirm that it has cancelled a request."""
_MARGIN_BYTES = 65_536
"""What a line may have besides the answer."""
_STDOUT_IS_TAKEN = (
    "stdout belongs to the protocol: let the agent print to stderr"
    " (docs/reference/process-protocol.md)"
)


@dataclass
class _Pieces:
    """What takes the pieces of an answer that come before it."""

    take: Callable[[str], None]
    size: int = 0
    """Bytes of the lines of those that came."""


class WorkerProcess(ChildProcess):
    """A process of an agent.

    Args:
        max_answer_bytes: How long an answer may be.

    Attributes:
        can_cancel: Whether it confirms cancelled requests; otherwise it is killed instead.
    """

    name = "the agent's process"

    def __init__(self, max_answer_bytes: int) -> None:
        super().__init__()
        self.can_cancel = False
        self._max_answer_bytes = max_answer_bytes
        self._max_line = max_answer_bytes + _MARGIN_BYTES
        self._lines = LineReader(self._max_line)
        self._pieces: dict[int, _Pieces] = {}
        self._cancelled: dict[int, asyncio.TimerHandle] = {}

    async def start(self, launch: Launch) -> None:
        """Start the process. Raises BackendInitError if there is no such program."""
        try:
            await super().start(launch)
        except (OSError, ValueError) as error:
            raise BackendInitError(
                f"{self.name} cannot be started: {error}; the command is"
                f" {' '.join(launch.command)!r}"
            ) from error

    async def ask(
        self,
        method: str,
        params: Mapping[str, Any],
        on_piece: Callable[[str], None] | None = None,
    ) -> Any:
        """Return the result of a request; pieces that come before it go to `on_piece`.

        If it is cancelled, the process is told to cancel it, or killed. Raises BackendSessionError.
        """
        with self.request() as (number, answer):
            if on_piece is not None:
                self._pieces[number] = _Pieces(on_piece)
            self._send({"id": number, "method": method, "params": params})
            try:
                return await answer
            finally:
                self._pieces.pop(number, None)

    def post(self, method: str, params: Mapping[str, Any]) -> None:
        """Send a request whose answer nobody waits for, unless the process serves none any more."""
        self._send({"id": next(self._ids), "method": method, "params": params})

    def _send(self, message: Mapping[str, Any]) -> None:
        self.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    def error(self, reason: str) -> Exception:
        return BackendSessionError(reason)

    def withdraw(self, number: int) -> None:
        """Have a request cancelled; if that takes too long, kill the process."""
        if not self.can_cancel:
            self.retire()
            return
        self._send({"method": "cancel", "params": {"id": number}})
        self._cancelled[number] = self._loop.call_later(CANCEL_S, self.retire)

    def data_read(self, data: bytes) -> None:
        lines = self._lines.feed(data)
        while self.failure is None:
            try:
                line = next(lines, None)
            except BadMessage:
                raise BadMessage(too_large(self._max_answer_bytes)) from None
            if line is None:
                return
            if line.strip():
                self._handle(_message_in(line), len(line))

    def _handle(self, message: Mapping[str, Any], size: int) -> None:
        if message.get("method") == "piece":
            self._add_piece(message.get("params"), size)
            return
        number = message["id"]
        timer = self._cancelled.pop(number, None)
        if timer is not None:
            timer.cancel()
        error = message.get("error")
        self.answer(number, message["result"] if "error" not in message else answer_error(error))

    def _add_piece(self, params: Any, size: int) -> None:
        if not isinstance(params, dict) or not isinstance(params.get("text"), str):
            raise BadMessage(f"{self.name} wrote a 'piece' without 'id' and 'text'")
        pieces = self._pieces.get(params.get("id", 0))
        if pieces is None:
            return
        pieces.size += size
        if pieces.size > self._max_line:
            raise BadMessage(too_large(self._max_answer_bytes))
        pieces.take(params["text"])


def _message_in(line: bytes) -> Mapping[str, Any]:
    """Return the message in a line. Raises BadMessage if there is none."""
    text = one_line(line.decode(errors="replace"), MAX_LINE_SHOWN)
    wrote = f"{WorkerProcess.name} wrote {text!r} to stdout"
    try:
        message = load_json(line)
    except DuplicateKey as error:
        raise BadMessage(f"{wrote}, with a {error}") from None
    except (ValueError, RecursionError):
        message = None
    if not isinstance(message, dict):
        raise BadMessage(f"{wrote}; {_STDOUT_IS_TAKEN}")
    is_answer = isinstance(message.get("id"), int) and not message.keys().isdisjoint(
        ("result", "error")
    )
    if message.get("method") != "piece" and not is_answer:
        raise BadMessage(
            f"{wrote}, which has no 'id' of a request with 'result' or 'error'"
            " (docs/reference/process-protocol.md)"
        )
    return message
