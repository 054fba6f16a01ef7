"""llama.cpp in the process: loads a GGUF file and answers chat requests, one at a time.

It is the only door to the library, for models of embeddings, too.

Temperature 0 gives the same answer run after run, whatever was asked before. This needs a single
slot, and prompts that are computed anew each time: reusing the start of an earlier prompt was
measured to change the answers.
"""

import asyncio
import atexit
import math
import os
import queue
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from operator import mul
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from holodeck.errors import (
    BackendSessionError,
    BackendTimeoutError,
    EvaluationError,
    MissingExtra,
    ModelStoreError,
)

if TYPE_CHECKING:
    from xllamacpp import Server


JsonObject = dict[str, Any]

_STOP_SECONDS = 10.0
"""How long the end of the program waits for a running answer to stop."""


@dataclass(frozen=True)
class RuntimeSettings:
    """How a model is loaded."""

    context: int = 4096
    """Tokens of prompt and answer together; a model that knows fewer gets its own most."""
    threads: int | None = None
    """None means the cores that this process may use, 8 at most."""
    batch: int = 128
    """Tokens of a prompt computed between two chances to stop."""
    embeds: bool = False
    """Whether it makes vectors and does not answer; then `batch` is the longest text."""


class LocalModel:
    """One loaded model; any thread and any event loop may ask it, and each waits for its turn."""

    _loaded: ClassVar[dict[tuple[Path, RuntimeSettings], "LocalModel"]] = {}
    _loading: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def load(cls, path: Path, settings: RuntimeSettings = RuntimeSettings()) -> "LocalModel":
        """The model of a GGUF file, loaded once per process.

        Raises MissingExtra without llama.cpp, and ModelStoreError for a file that it cannot load.
        """
        key = (path.resolve(), settings)
        with cls._loading:
            if key not in cls._loaded:
                cls._loaded[key] = cls(key[0], settings)
            return cls._loaded[key]

    def __init__(self, path: Path, settings: RuntimeSettings) -> None:
        """Use `load`, which shares models."""
        self.path = path
        self.settings = settings
        started = time.perf_counter()
        self._server: Server | None = _serve(path, settings, "model.provider: local")
        self.load_seconds = time.perf_counter() - started
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        # A daemon, so that a hanging answer cannot keep the program from ending; `close` at exit
        # stops it first, because a thread must not be inside llama.cpp when Python goes away.
        self._worker = threading.Thread(target=self._work, name="holodeck-llama", daemon=True)
        self._worker.start()
        atexit.register(self.close)

    def complete(self, request: JsonObject, time_limit: float | None = None) -> JsonObject:
        """The answer to an OpenAI chat.completions request; see `acomplete`."""
        job = self._submit(request, time_limit)
        try:
            return job.answer.result()
        finally:
            job.stop.set()

    async def acomplete(self, request: JsonObject, time_limit: float | None = None) -> JsonObject:
        """The answer to an OpenAI chat.completions request, without blocking the event loop.

        `time_limit` counts seconds from when it is this request's turn; None means no limit. The
        wait before is in the answer's `timings.queued_ms`. A cancelled call stops computing.
        Raises BackendTimeoutError, and BackendSessionError for a request that cannot be answered.
        """
        job = self._submit(request, time_limit)
        try:
            return await asyncio.wrap_future(job.answer)
        finally:
            job.stop.set()

    def close(self) -> None:
        """Stop the running answer, fail the waiting ones, and free the model's memory."""
        atexit.unregister(self.close)
        with self._loading:
            self._loaded.pop((self.path, self.settings), None)
        self._closing.set()
        self._jobs.put(None)
        if threading.current_thread() is not self._worker:
            self._worker.join(_STOP_SECONDS)
        self._server = None

    def _submit(self, request: JsonObject, time_limit: float | None) -> "_Job":
        if self._closing.is_set():
            raise BackendSessionError(f"the local model {self.path.name} is closed")
        job = _Job(request, time_limit, self._closing)
        self._jobs.put(job)
        return job

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            if job.answer.set_running_or_notify_cancel():
                self._settle(job)
        # Asked while the model was being closed: run to be told that it was stopped.
        while not self._jobs.empty():
            if (job := self._jobs.get()) is not None and job.answer.set_running_or_notify_cancel():
                self._settle(job)

    def _settle(self, job: "_Job") -> None:
        try:
            assert self._server is not None  # noqa: S101 - `close` waits for this thread
            job.answer.set_result(job.run(self._server))
        except Exception as error:  # noqa: BLE001 - carried over to the one who waits
            job.answer.set_exception(error)


@dataclass
class _Job:
    """A request, and what has been heard of its answer."""

    request: JsonObject
    time_limit: float | None
    closing: threading.Event
    stop: threading.Event = field(default_factory=threading.Event)
    answer: "Future[JsonObject]" = field(default_factory=Future)
    asked_at: float = field(default_factory=time.perf_counter)
    started_at: float = 0.0
    error: JsonObject | None = None
    text: list[str] = field(default_factory=list)
    logprobs: list[JsonObject] = field(default_factory=list)
    finish_reason: str = "stop"
    last: JsonObject = field(default_factory=dict)

    def run(self, server: "Server") -> JsonObject:
        self.started_at = time.perf_counter()
        streamed = {
            "stream": True,
            "stream_options": {"include_usage": True},
            "return_progress": True,  # so that a long prompt can be stopped, too
        }
        try:
            if not self.must_stop():
                server.handle_chat_completions({**self.request, **streamed}, self.hear)
        except (ValueError, RuntimeError) as error:
            raise BackendSessionError(f"the local model refused the request: {error}") from error
        self.check()
        return self.completion()

    def hear(self, chunk: JsonObject) -> bool:
        """Take a piece of the answer; True stops llama.cpp."""
        self.error = chunk.get("error", self.error)
        for choice in chunk.get("choices") or []:
            self.text.append(choice["delta"].get("content") or "")
            self.logprobs += (choice.get("logprobs") or {}).get("content") or []
            self.finish_reason = choice.get("finish_reason") or self.finish_reason
        if "usage" in chunk:
            self.last = chunk
        return self.must_stop()

    def must_stop(self) -> bool:
        return self.stop.is_set() or self.closing.is_set() or self.is_late()

    def is_late(self) -> bool:
        elapsed = time.perf_counter() - self.started_at
        return self.time_limit is not None and elapsed > self.time_limit

    def check(self) -> None:
        """Raise what went wrong."""
        if self.error is not None:
            raise BackendSessionError(_explained(self.error))
        if self.last:
            return
        if self.is_late():
            raise BackendTimeoutError(
                f"the local model did not answer within {self.time_limit:g} s"
            )
        raise BackendSessionError("the local model was stopped before it had answered")

    def completion(self) -> JsonObject:
        message = {"role": "assistant", "content": "".join(self.text)}
        choice: JsonObject = {"index": 0, "message": message, "finish_reason": self.finish_reason}
        if self.logprobs:
            choice["logprobs"] = {"content": self.logprobs}
        queued_ms = (self.started_at - self.asked_at) * 1000
        timings = {**self.last.get("timings", {}), "queued_ms": queued_ms}
        kept = {key: self.last[key] for key in ("id", "created", "model", "usage")}
        return {"object": "chat.completion", **kept, "choices": [choice], "timings": timings}


def _explained(error: JsonObject) -> str:
    if error.get("type") != "exceed_context_size_error":
        return f"the local model failed: {error.get('message', error)}"
    return (
        f"the conversation is {error['n_prompt_tokens']} tokens long and the local model can"
        f" take {error['n_ctx']}; shorten the instructions, the input or what the tools return"
    )


def open_embeddings(
    path: Path, settings: RuntimeSettings, needed_by: str
) -> Callable[[JsonObject], JsonObject]:
    """What answers OpenAI embeddings requests by the model of a GGUF file, which it keeps loaded.

    Raises MissingExtra without llama.cpp, and ModelStoreError for a file that it cannot load.
    """
    answer: Callable[[JsonObject], JsonObject] = _serve(path, settings, needed_by).handle_embeddings
    return answer


def _serve(path: Path, settings: RuntimeSettings, needed_by: str) -> "Server":
    # Threads that wait by spinning make each answer several times slower on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # noqa: TID251 - read by OpenMP at import
    try:
        import xllamacpp  # noqa: PLC0415 - a door
    except ImportError as error:
        raise MissingExtra("local", needed_by) from error
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.model_alias = {path.stem}
    params.n_ctx = settings.context
    params.n_parallel = 1
    params.n_batch = params.n_ubatch = settings.batch
    params.cpuparams.n_threads = settings.threads or _cores()
    params.embedding = settings.embeds
    params.use_jinja = True
    params.warmup = False
    params.verbosity = -1
    params.cache_prompt = False
    params.cache_ram_mib = 0
    # llama.cpp listens on a loopback port that nobody here uses; nobody else shall.
    params.port = 0
    params.api_keys = [secrets.token_urlsafe(32)]
    params.ui = False
    try:
        return xllamacpp.Server(params)
    except RuntimeError as error:
        raise ModelStoreError(
            f"{path}: llama.cpp cannot load it; it is damaged, of a kind that this version does"
            " not know, or too large for this machine's memory"
        ) from error


def _cores() -> int:
    usable = getattr(os, "sched_getaffinity", None)
    return min(8, len(usable(0)) if usable else os.cpu_count() or 1)


Vector = tuple[float, ...]

PIECE = 1000
"""Characters of a text that are understood at once: some 200 tokens of English, of which the
model was made for 256."""
MAX_CHARACTERS = 20_000
"""Longest text: about four seconds on one core."""

_SETTINGS = RuntimeSettings(context=512, batch=512, embeds=True)
_DIGITS = 6
"""The model computes with seven, so that a text is like itself by 1 and not almost."""
_TOO_LONG = "too large to process"
"""What llama.cpp says of a text with too many tokens; it has no code of its own."""


class EmbeddingModel:
    """One loaded model; any thread may ask it, and each waits for its turn.

    Asking blocks, for milliseconds to seconds: coroutines ask through `run_in_thread`.
    """

    _loaded: ClassVar[dict[Path, "EmbeddingModel"]] = {}
    _loading: ClassVar[threading.Lock] = threading.Lock()

    @classmethod
    def load(cls, path: Path) -> "EmbeddingModel":
        """The model of a GGUF file, loaded once per process.

        Raises MissingExtra without llama.cpp, and ModelStoreError for a file that it cannot load.
        """
        key = path.resolve()
        with cls._loading:
            if key not in cls._loaded:
                cls._loaded[key] = cls(key)
            return cls._loaded[key]

    def __init__(self, path: Path) -> None:
        """Use `load`, which shares models."""
        self.path = path
        self._answer: Callable[[JsonObject], JsonObject] | None = open_embeddings(
            path, _SETTINGS, "comparing meanings"
        )
        self._turn = threading.Lock()
        # At exit, because a thread must not be inside llama.cpp when Python goes away.
        atexit.register(self.close)

    def likeness(self, one: str, other: str) -> float:
        """How alike two texts are in meaning, from 0 to 1; a blank one is like no other.

        It is the cosine of their vectors, and 0 where that is negative.
        """
        if not one.strip() or not other.strip():
            return 0.0
        first, second = self.embed((one, other))
        return min(1.0, max(0.0, round(cosine(first, second), _DIGITS)))

    def embed(self, texts: Iterable[str]) -> list[Vector]:
        """The vector of each text, of length 1. Raises EvaluationError for a text too long.

        A long text is understood piece by piece, and its vector is the mean of theirs.
        """
        return [self._vector(text) for text in texts]

    def close(self) -> None:
        """Free the model's memory, once nobody is being answered."""
        atexit.unregister(self.close)
        with self._loading:
            self._loaded.pop(self.path, None)
        if self._turn.acquire(timeout=_STOP_SECONDS):
            self._answer = None
            self._turn.release()

    def _vector(self, text: str) -> Vector:
        if len(text) > MAX_CHARACTERS:
            raise EvaluationError(
                f"a text of {len(text)} characters is too long to compare by meaning;"
                f" {MAX_CHARACTERS} is the most"
            )
        sayable = text.encode(errors="replace").decode()  # half of a pair is no character
        return _mean([one for piece in split_text(sayable) for one in self._understood(piece)])

    def _understood(self, piece: str) -> list[tuple[int, Vector]]:
        """Vectors with the lengths of what they stand for: several for what has many tokens."""
        vector = self._ask(piece)
        if vector is not None:
            return [(len(piece), vector)]
        middle = len(piece) // 2
        return [*self._understood(piece[:middle]), *self._understood(piece[middle:])]

    def _ask(self, piece: str) -> Vector | None:
        """The vector of a piece; None if it has more tokens than the model takes."""
        with self._turn:
            if self._answer is None:
                raise BackendSessionError(f"the local model {self.path.name} is closed")
            said = self._answer({"input": [piece]})
        if "error" not in said:
            return tuple(said["data"][0]["embedding"])
        message = said["error"].get("message", said["error"])
        if _TOO_LONG in message and len(piece) > 1:
            return None
        raise BackendSessionError(f"the local model failed: {message}")


def cosine(one: Vector, other: Vector) -> float:
    """The cosine of the angle between two vectors of length 1."""
    return math.fsum(map(mul, one, other))


def split_text(text: str, most: int = PIECE) -> Iterator[str]:
    """The text in pieces of at most `most` characters, cut at white space where there is some."""
    while len(text) > most:
        cut = max(text.rfind(space, 1, most) for space in (" ", "\n", "\t"))
        cut = most if cut < 0 else cut
        yield text[:cut]
        text = text[cut:]
    yield text


def _mean(found: Sequence[tuple[int, Vector]]) -> Vector:
    """The mean direction of vectors, each counting as much as the text that it stands for."""
    if len(found) == 1:
        return found[0][1]
    sums = [sum(values) for values in zip(*([n * one for one in v] for n, v in found), strict=True)]
    length = math.hypot(*sums)
    return tuple(one / length for one in sums)
