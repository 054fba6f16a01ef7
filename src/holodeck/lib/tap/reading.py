"""Read a request and its response while they pass: the format by the path, piece by piece."""

import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock
from urllib.parse import urlsplit

from holodeck.lib.llm.formats import (
    END,
    AnthropicMessage,
    ChatCompletion,
    Embeddings,
    EventLines,
    OllamaChat,
    OpenAIResponse,
    OtherRequest,
    Reader,
    ReturnedResult,
    UnreadableBody,
    json_object,
    returned_results,
)
from holodeck.lib.llm.http_body import Decoder, MalformedHttp, TooLarge
from holodeck.lib.llm.request_handler import Headers, StreamedResponse
from holodeck.lib.tap.exchange import Request, header
from holodeck.models.llm import ProviderEnum
from holodeck.models.results.outcome import ModelRequest

logger = logging.getLogger(__name__)

_EventOf = Callable[[bytes], bytes | None]

MAX_READ_BYTES = 16_000_000
"""Of a decoded response; more passes, but is not read."""
_UNREADABLE = (UnreadableBody, MalformedHttp, TooLarge)
"""Errors whose messages quote no value of the body."""

_READERS: tuple[tuple[str, type[Reader]], ...] = (
    ("/chat/completions", ChatCompletion),
    ("/completions", ChatCompletion),
    ("/responses", OpenAIResponse),
    ("/messages", AnthropicMessage),
    ("/api/chat", OllamaChat),
    ("/api/generate", OllamaChat),
    ("/embeddings", Embeddings),
    ("/api/embed", Embeddings),
)
"""The end of a path, and what reads the response of a POST to it."""
_NO_MODEL_ANSWER = (
    *("/count_tokens", "/input_tokens", "/moderations", "/files", "/uploads", "/api/show"),
    *("/images/generations", "/images/edits", "/audio/speech", "/audio/transcriptions"),
)
"""The ends of paths to which a POST requests no tool."""
_ANSWERS_ON_GET = ("/responses/", "/threads/", "/runs", "/batches/")
"""Parts of paths where a GET fetches what a model answered."""


def find_reader(method: str, path: str) -> type[Reader] | None:
    """Return what reads the response to such a request; None if nothing does."""
    path = urlsplit(path).path.rstrip("/")
    if method != "POST":
        holds_answer = method == "GET" and any(part in f"{path}/" for part in _ANSWERS_ON_GET)
        return None if holds_answer else OtherRequest
    if path.endswith(_NO_MODEL_ANSWER):
        return OtherRequest
    return next((reader for end, reader in _READERS if path.endswith(end)), None)


class TappedExchange:
    """A request that passes through the tap, its response, and what is known of both so far.

    Nothing in it raises. Its properties need the lock.

    Args:
        request: The request, read to its end.
        lock: Held while anything is noted.
    """

    def __init__(self, request: Request, lock: Lock) -> None:
        self._lock = lock
        self._started = time.perf_counter()
        self._name = f"{request.method} {urlsplit(request.path).path}"
        self._pieces: BodyReader | None = None
        """Reads the body of the response, until its end."""
        self.results: list[ReturnedResult] = []
        """The results of tools that the request tells the model."""
        self.model = ""
        """The model as prices name it: `openai/gpt-4o`; "" if the request names none."""
        self.status: int | None = None
        """The status of the response; None if none came."""
        self.elapsed_ms = 0
        self.is_over = False
        kind = find_reader(request.method, request.path)
        self.may_request_tools = kind not in {OtherRequest, Embeddings}
        """Whether a model answers it, for all that is known."""
        self.calls_model = kind is not OtherRequest
        """Whether it costs tokens, for all that is known."""
        self.reader = OtherRequest() if kind is None else kind()
        """What was read of the response."""
        self.problem = f"the tap cannot read {self._name}" if kind is None else None
        """Why the response cannot be read; None if it can."""
        if kind not in {None, OtherRequest}:
            with self._noting_problems():
                self._read_request(request)

    def begin(self, response: StreamedResponse) -> None:
        """Note the head of the response."""
        with self._lock:
            self.status = response.status
            if response.status >= 400:  # an error requests nothing
                self.reader, self.problem = OtherRequest(), None
            elif not isinstance(self.reader, OtherRequest):
                with self._noting_problems():
                    self._pieces = body_reader(self.reader, response.headers)

    def feed(self, piece: bytes, *, is_last: bool = False) -> None:
        """Read a piece of the body, before the agent gets it."""
        with self._lock:
            self.elapsed_ms = round((time.perf_counter() - self._started) * 1000)
            if self._pieces is None or self.problem is not None:
                return
            with self._noting_problems():
                self._pieces.feed(piece)
                if is_last:
                    self._pieces.end()

    def end(self) -> None:
        """Note that nothing more will come."""
        with self._lock:
            self.is_over = True

    @property
    def is_readable(self) -> bool:
        """Whether the tool calls of the response are known."""
        return self.problem is None and self.reader.has_all_calls

    @property
    def is_under_way(self) -> bool:
        """Whether something may come that is not known yet."""
        return not self.is_over and not self.is_readable

    @property
    def model_request(self) -> ModelRequest:
        """The request as reports show it."""
        return ModelRequest(
            model=self.model,
            status=self.status,
            elapsed_ms=self.elapsed_ms,
            token_usage=self.reader.usage,
        )

    def _read_request(self, request: Request) -> None:
        document = json_object(request.body)
        provider, model = request.upstream.route.provider, document.get("model")
        if not isinstance(model, str) and provider is ProviderEnum.AZURE_OPENAI:
            model = request.path.partition("/deployments/")[2].partition("/")[0]
        self.model = f"{provider.value}/{model}" if isinstance(model, str) and model else ""
        self.results = list(returned_results(document))

    @contextmanager
    def _noting_problems(self) -> Iterator[None]:
        """Let what goes wrong make the response unreadable, and nothing else."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 - whatever a server sends, it must pass
            reason = str(error) if isinstance(error, _UNREADABLE) else type(error).__name__
            self.problem = f"the tap cannot read the response to {self._name}: {reason}"
            logger.debug("%s", self.problem)


class BodyReader:
    """Puts the pieces of a body together to what a reader reads.

    Args:
        reader: What reads the document, or each event.
        decoder: What decodes the body; None if it is as it is.
        event_of: Returns the event that a line of the body ends, if it ends one; None if the body
            is a single document.
    """

    def __init__(self, reader: Reader, decoder: Decoder | None, event_of: _EventOf | None) -> None:
        self._reader = reader
        self._decoder = decoder
        self._event_of = event_of
        self._buffer = bytearray()
        self._size = 0

    def feed(self, piece: bytes) -> None:
        decoded = piece if self._decoder is None else self._decoder.feed(piece)
        self._size += len(decoded)
        if self._size > MAX_READ_BYTES:
            raise UnreadableBody(f"it is larger than {MAX_READ_BYTES / 1e6:g} MB")
        self._buffer += decoded
        if self._event_of is not None and b"\n" in self._buffer:
            *lines, self._buffer = self._buffer.split(b"\n")
            self._read_events(self._event_of, *lines)

    def end(self) -> None:
        if self._decoder is not None:
            self._decoder.end()
        if self._event_of is None:
            self._reader.read_document(json_object(self._buffer))
            return
        self._read_events(self._event_of, self._buffer, b"")  # an empty line ends the last event
        if not self._reader.has_all_calls:
            raise UnreadableBody("its stream ended early")

    def _read_events(self, event_of: _EventOf, *lines: bytes | bytearray) -> None:
        for event in filter(None, map(event_of, map(bytes, lines))):
            if event.strip() == END:
                self._reader.read_done()
            else:
                self._reader.read_event(json_object(event))


def body_reader(reader: Reader, headers: Headers) -> BodyReader:
    """Return what feeds the body of a response with these headers to a reader, piece by piece."""
    kind = (header(headers, b"content-type") or "").partition(";")[0].strip().lower()
    events: dict[str, _EventOf] = {
        "text/event-stream": EventLines().add,
        "application/x-ndjson": bytes.strip,
    }
    coding = header(headers, b"content-encoding") or "identity"
    decoder = None if coding in {"", "identity"} else Decoder(coding, MAX_READ_BYTES)
    return BodyReader(reader, decoder, events.get(kind))
