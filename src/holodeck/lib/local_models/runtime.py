"""llama.cpp in this process: chat completions and embeddings from GGUF files.

No other module imports the library.

Temperature 0 gives the same answer in every run, whatever was asked before. This requires a single
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
from typing import TYPE_CHECKING, Any, ClassVar, Self

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
Vector = tuple[float, ...]

_STOP_SECONDS = 10.0
"""How long the end of the program waits for a running request to stop."""


@dataclass(frozen=True)
class RuntimeSettings:
    """How a model is loaded."""

    context: int = 4096
    """Tokens of prompt and answer together; the limit of the model if that is smaller."""
    batch: int = 128
    """Tokens of a prompt that are computed between two chances to stop."""
    embeds: bool = False
    """Whether it computes embeddings and not answers; then `batch` limits the text."""


class _SharedModel:
    """A model that is loaded once per process, and closed at its end."""

    _loaded: ClassVar[dict[tuple[type, Path, RuntimeSettings], Any]] = {}
    _loading: ClassVar[threading.Lock] = threading.Lock()
    _defaults: ClassVar[RuntimeSettings] = RuntimeSettings()

    def __init__(self, path: Path, settings: RuntimeSettings) -> None:
        """Use `load`, which shares models."""
        self.path = path
        self.settings = settings

    @classmethod
    def load(cls, path: Path, settings: RuntimeSettings | None = None) -> Self:
        """Return the model of a GGUF file, which is loaded once per process.

        Raises MissingExtra without llama.cpp, and ModelStoreError for a file that it cannot load.
        """
        key = (cls, path.resolve(), settings or cls._defaults)
        with cls._loading:
            if key not in cls._loaded:
                model = cls._loaded[key] = cls(*key[1:])
                # No thread may be inside llama.cpp when the interpreter shuts down.
                atexit.register(model.close)
            known: Self = cls._loaded[key]
            return known

    def close(self) -> None:
        """Let a later `load` load the model anew."""
        atexit.unregister(self.close)
        with self._loading:
            self._loaded.pop((type(self), self.path, self.settings), None)


class LocalModel(_SharedModel):
    """A loaded chat model, for any thread and any event loop; it answers one request at a time."""

    def __init__(self, path: Path, settings: RuntimeSettings) -> None:
        super().__init__(path, settings)
        self._server: Server | None = _start_server(path, settings, "model.provider: local")
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        # A daemon thread, so that a request that hangs cannot keep the program from ending.
        self._worker = threading.Thread(target=self._work, name="holodeck-llama", daemon=True)
        self._worker.start()

    async def acomplete(self, request: JsonObject, time_limit: float | None = None) -> JsonObject:
        """Return the response to an OpenAI chat.completions request.

        `time_limit` counts seconds from the start of the computation; None for no limit. The time
        in the queue is in `timings.queued_ms`. Cancelling stops the computation. Raises
        BackendTimeoutError, and BackendSessionError for a request that cannot be answered.
        """
        job = self._submit(request, time_limit)
        try:
            return await asyncio.wrap_future(job.response)
        finally:
            job.stop.set()

    def close(self) -> None:
        """Stop the current request, fail those in the queue, and free the model's memory."""
        super().close()
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
            self._run(job)
        # Requests that came in while the model was being closed fail with that reason.
        while not self._jobs.empty():
            if (job := self._jobs.get()) is not None:
                self._run(job)

    def _run(self, job: "_Job") -> None:
        if not job.response.set_running_or_notify_cancel():
            return
        try:
            assert self._server is not None  # noqa: S101 - `close` waits for this thread
            job.response.set_result(job.run(self._server))
        except Exception as error:  # noqa: BLE001 - passed on to the caller
            job.response.set_exception(error)


@dataclass
class _Job:
    """A request, and the parts of its response so far."""

    request: JsonObject
    time_limit: float | None
    closing: threading.Event
    stop: threading.Event = field(default_factory=threading.Event)
    response: "Future[JsonObject]" = field(default_factory=Future)
    queued_at: float = field(default_factory=time.perf_counter)
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
            "return_progress": True,  # so that a long prompt can be stopped as well
        }
        try:
            if not self.must_stop():
                server.handle_chat_completions({**self.request, **streamed}, self.add)
        except (ValueError, RuntimeError) as error:
            raise BackendSessionError(f"the local model refused the request: {error}") from error
        self.raise_error()
        return self.completion()

    def add(self, chunk: JsonObject) -> bool:
        """Add a part of the response; True stops llama.cpp."""
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

    def raise_error(self) -> None:
        """Raise the error of a request that was not answered completely."""
        if self.error is not None:
            raise BackendSessionError(_error_message(self.error))
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
        queued_ms = (self.started_at - self.queued_at) * 1000
        timings = {**self.last.get("timings", {}), "queued_ms": queued_ms}
        known = {key: self.last[key] for key in ("id", "created", "model", "usage")}
        return {"object": "chat.completion", **known, "choices": [choice], "timings": timings}


def _error_message(error: JsonObject) -> str:
    if error.get("type") != "exceed_context_size_error":
        return f"the local model failed: {error.get('message', error)}"
    return (
        f"the conversation is {error['n_prompt_tokens']} tokens long and the local model can"
        f" take {error['n_ctx']}; shorten the instructions, the input or what the tools return"
    )


def _start_server(path: Path, settings: RuntimeSettings, needed_by: str) -> "Server":
    # Threads that wait by spinning make each answer several times slower on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # noqa: TID251 - read by OpenMP at import
    try:
        import xllamacpp
    except ImportError as error:
        raise MissingExtra("local", needed_by) from error
    usable = getattr(os, "sched_getaffinity", None)
    cores = min(8, len(usable(0)) if usable else os.cpu_count() or 1)
    params = xllamacpp.CommonParams()
    params.model.path = str(path)
    params.model_alias = {path.stem}
    params.n_ctx = settings.context
    params.n_parallel = 1
    params.n_batch = params.n_ubatch = settings.batch
    params.cpuparams.n_threads = cores
    params.embedding = settings.embeds
    params.use_jinja = True
    params.warmup = False
    params.verbosity = -1
    params.cache_prompt = False
    params.cache_ram_mib = 0
    # llama.cpp listens on a loopback port that holodeck does not use; the key keeps others out.
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


PIECE = 1000
"""Characters of a text that are embedded at once: about 200 tokens of English, of which the model
was made for 256."""
MAX_CHARACTERS = 20_000
"""Longest text: about four seconds on one core."""
_DIGITS = 6
"""The model computes with seven, so that a text compared with itself gives exactly 1."""
_TOO_LONG = "too large to process"
"""llama.cpp's message for a text with too many tokens; it has no error code of its own."""


class EmbeddingModel(_SharedModel):
    """A loaded embedding model, for any thread; it computes one text at a time.

    Texts of up to 1000 characters give the vectors of the published model, which would ignore the
    end of longer ones; those give the mean of the vectors of their pieces. The methods block for
    milliseconds to seconds: coroutines use `run_in_thread`.
    """

    _defaults = RuntimeSettings(context=512, batch=512, embeds=True)

    def __init__(self, path: Path, settings: RuntimeSettings) -> None:
        super().__init__(path, settings)
        server = _start_server(path, settings, "comparing meanings")
        self._handle: Callable[[JsonObject], JsonObject] | None = server.handle_embeddings
        self._lock = threading.Lock()

    def similarity(self, text: str, other: str) -> float:
        """Return how similar two texts are in meaning, from 0 to 1; 0 if one of them is blank.

        It is the cosine of their vectors, and 0 where that is negative.
        """
        if not text.strip() or not other.strip():
            return 0.0
        first, second = self.embed((text, other))
        return min(1.0, max(0.0, round(cosine(first, second), _DIGITS)))

    def embed(self, texts: Iterable[str]) -> list[Vector]:
        """Return the unit vector of each text. Raises EvaluationError for a text too long."""
        return [self._vector(text) for text in texts]

    def close(self) -> None:
        """Free the model's memory once the current text is done."""
        super().close()
        if self._lock.acquire(timeout=_STOP_SECONDS):
            self._handle = None
            self._lock.release()

    def _vector(self, text: str) -> Vector:
        if len(text) > MAX_CHARACTERS:
            raise EvaluationError(
                f"a text of {len(text)} characters is too long to compare by meaning;"
                f" {MAX_CHARACTERS} is the most"
            )
        encodable = text.encode(errors="replace").decode()  # without halves of surrogate pairs
        return _mean([vector for piece in split_text(encodable) for vector in self._vectors(piece)])

    def _vectors(self, piece: str) -> list[tuple[int, Vector]]:
        """Return vectors with the lengths of their texts: several if a piece has many tokens."""
        vector = self._embed(piece)
        if vector is not None:
            return [(len(piece), vector)]
        middle = len(piece) // 2
        return [*self._vectors(piece[:middle]), *self._vectors(piece[middle:])]

    def _embed(self, piece: str) -> Vector | None:
        """Return the vector of a piece; None if it has more tokens than the model takes."""
        with self._lock:
            if self._handle is None:
                raise BackendSessionError(f"the local model {self.path.name} is closed")
            response = self._handle({"input": [piece]})
        if "error" not in response:
            return tuple(response["data"][0]["embedding"])
        message = response["error"].get("message", response["error"])
        if _TOO_LONG in message and len(piece) > 1:
            return None
        raise BackendSessionError(f"the local model failed: {message}")


def cosine(vector: Vector, other: Vector) -> float:
    """Return the cosine of the angle between two vectors of length 1."""
    return math.fsum(map(mul, vector, other))


def split_text(text: str, size: int = PIECE) -> Iterator[str]:
    """Yield the text in pieces of at most `size` characters, cut at white space if possible."""
    while len(text) > size:
        cut = max(text.rfind(space, 1, size) for space in (" ", "\n", "\t"))
        cut = size if cut < 0 else cut
        yield text[:cut]
        text = text[cut:]
    yield text


def _mean(vectors: Sequence[tuple[int, Vector]]) -> Vector:
    """Return the mean direction of vectors, weighted by the lengths of their texts."""
    if len(vectors) == 1:
        return vectors[0][1]
    weighted = ([weight * number for number in vector] for weight, vector in vectors)
    sums = [sum(numbers) for numbers in zip(*weighted, strict=True)]
    length = math.hypot(*sums)
    return tuple(number / length for number in sums)
