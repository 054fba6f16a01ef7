"""The processes of an agent, each of which serves many conversations.

They speak the protocol of docs/reference/process-protocol.md.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from holodeck.errors import BackendError, BackendInitError, BackendSessionError
from holodeck.lib.backends.process.messages import (
    PROTOCOL,
    Abilities,
    answer_error,
    parse_abilities,
)
from holodeck.lib.llm.http_body import too_large
from holodeck.lib.processes.channel import BadMessage, LineReader
from holodeck.lib.processes.child_process import MAX_LINE_SHOWN, ChildProcess, Launch
from holodeck.lib.support.text import DuplicateKey, load_json, one_line
from holodeck.lib.user_code.raised import with_location

if TYPE_CHECKING:
    from holodeck.lib.backends.tapped_backend import ProcessTap, ProcessTaps

logger = logging.getLogger(__name__)

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


class Worker(ChildProcess):
    """A process of an agent, and how many conversations and messages it has.

    Args:
        max_answer_bytes: How long an answer may be.
        tap: Sees what it does in a turn; None without a tap.
    """

    name = "the agent's process"

    def __init__(self, max_answer_bytes: int, tap: "ProcessTap | None") -> None:
        super().__init__()
        self._max_answer_bytes = max_answer_bytes
        self._max_line = max_answer_bytes + _MARGIN_BYTES
        self._lines = LineReader(self._max_line)
        self._pieces: dict[int, _Pieces] = {}
        self._cancelled: dict[int, asyncio.TimerHandle] = {}
        self.tap = tap
        self.abilities = Abilities()
        self.concurrency = 1
        """How many messages it gets at a time; with a tap, one, as they cannot be told apart."""
        self.slots = asyncio.Semaphore(1)
        self.messages = 0
        """Messages under way or waiting."""
        self.conversations = 0

    async def start(self, launch: Launch) -> None:
        """Start the process. Raises BackendInitError if there is no such program."""
        try:
            await super().start(launch)
        except (OSError, ValueError) as error:
            raise BackendInitError(
                f"{self.name} cannot be started: {error}; the command is"
                f" {' '.join(launch.command)!r}"
            ) from error

    async def initialize(self) -> None:
        """Ask what the agent can do. Raises BackendError."""
        greeting = {"protocol": PROTOCOL, "max_answer_bytes": self._max_answer_bytes}
        self.abilities = parse_abilities(await self.ask("initialize", greeting))
        self.concurrency = 1 if self.tap is not None else self.abilities.concurrency
        self.slots = asyncio.Semaphore(self.concurrency)

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
        if not self.abilities.cancel:
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
    wrote = f"{Worker.name} wrote {text!r} to stdout"
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


class Pool:
    """Processes that are started once, and each replaced when it is needed after its end.

    Args:
        launch: How a process is started.
        size: The number of processes.
        start_timeout: Seconds until each is ready.
        max_answer_bytes: How long an answer may be.
        taps: See what each sends to models; None without taps.
    """

    def __init__(
        self,
        launch: Launch,
        size: int,
        start_timeout: float,
        max_answer_bytes: int,
        taps: "ProcessTaps | None" = None,
    ) -> None:
        self._launch = launch
        self._max_answer_bytes = max_answer_bytes
        self._size = size
        self._start_timeout = start_timeout
        self._taps: ProcessTaps | None = taps
        self._loop: asyncio.AbstractEventLoop | None = None
        self._lock = asyncio.Lock()
        self._slots = asyncio.Semaphore()
        self._workers: list[Worker] = []
        self._ending: list[Worker] = []
        """Those that have ended or hang, and were replaced."""
        self.abilities = Abilities()
        """Those of the first process."""

    @property
    def is_started(self) -> bool:
        return bool(self._workers)

    @property
    def concurrency(self) -> int:
        """How many messages the processes take at a time."""
        return self._size * (1 if self._taps is not None else self.abilities.concurrency)

    async def start(self) -> None:
        """Start the processes, unless they run on this event loop already.

        Raises BackendInitError.
        """
        loop = asyncio.get_running_loop()
        if self._loop is loop and self._workers:
            return
        if self._loop is not loop:
            self._abandon()
            self._loop, self._lock = loop, asyncio.Lock()
        async with self._lock:
            if self._workers:
                return
            if self._taps is not None:
                await self._taps.start(self._launch.env or {})
            started = [asyncio.create_task(self._start_worker()) for _ in range(self._size)]
            try:
                workers = await asyncio.gather(*started)
            except BaseException:
                for task in started:
                    task.cancel()
                results = await asyncio.gather(*started, return_exceptions=True)
                await self._close_all([ready for ready in results if isinstance(ready, Worker)])
                raise
            self.abilities = workers[0].abilities
            self._slots = asyncio.Semaphore(self.concurrency)
            self._workers = [*workers]

    @asynccontextmanager
    async def slot(self, worker: Worker | None) -> AsyncIterator[Worker]:
        """Wait for a slot of that worker, or of the one with the least to do, and yield it.

        A worker that has ended is replaced. Raises BackendError.
        """
        await self.start()
        async with self._slots:
            while True:
                chosen = worker or await self._least_busy()
                chosen.messages += 1
                try:
                    async with chosen.slots:
                        if worker is None and not chosen.is_usable:
                            continue
                        yield chosen
                        return
                finally:
                    chosen.messages -= 1

    async def close(self) -> None:
        """Close all processes."""
        if self._loop is not asyncio.get_running_loop():
            self._abandon()
            return
        workers, self._workers = self._workers, []
        ending, self._ending = self._ending, []
        await self._close_all([*workers, *ending])

    async def _least_busy(self) -> Worker:
        """Return the worker with the least to do; a new one if no other has a free slot."""
        free = self._free_worker()
        if free is not None:
            return free
        async with self._lock:
            free = self._free_worker()
            for index, worker in enumerate(self._workers):
                if free is None and not worker.is_usable:
                    reason = worker.failure or "the agent's process hangs"
                    logger.info("%s; starting it again", reason)
                    free = self._workers[index] = await self._start_worker()
                    self._ending.append(worker)
        return free or min(self._workers, key=_load)

    def _free_worker(self) -> Worker | None:
        usable = [worker for worker in self._workers if worker.is_usable]
        best = min(usable, key=_load, default=None)
        return None if best is None or best.messages >= best.concurrency else best

    async def _start_worker(self) -> Worker:
        """Start a process and return it once it is ready. Raises BackendInitError."""
        tap, launch = None, self._launch
        if self._taps is not None:
            tap = self._taps.open()
            launch = replace(launch, env={**(launch.env or {}), **tap.variables})
        worker = Worker(self._max_answer_bytes, tap)
        await worker.start(launch)
        failure: BackendInitError
        try:
            async with asyncio.timeout(self._start_timeout):
                await worker.initialize()
            return worker
        except TimeoutError:
            failure = BackendInitError(
                f"the agent's process was not ready within {self._start_timeout:g} s"
                f" (backend.start_timeout){worker.tail()}"
            )
        except BackendInitError as error:
            failure = error
        except BackendError as error:
            failure = BackendInitError(f"the agent cannot be created: {with_location(error)}")
            failure.__cause__ = error
        except BaseException:
            worker.kill("the start of the agent's process was cancelled")
            raise
        await worker.close(0)
        raise failure

    async def _close_all(self, workers: Sequence[Worker]) -> None:
        await asyncio.gather(*(worker.close() for worker in workers))

    def _abandon(self) -> None:
        """Kill the processes of an event loop that runs no more."""
        for worker in (*self._workers, *self._ending):
            with suppress(RuntimeError):  # the loop is closed
                worker.kill("its event loop has ended")
        self._workers, self._ending = [], []


def _load(worker: Worker) -> tuple[int, int]:
    return worker.messages, worker.conversations
