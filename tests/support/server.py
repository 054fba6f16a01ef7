"""A real HTTP server on loopback that speaks like OpenAI, Azure OpenAI, Anthropic and Ollama."""

import asyncio
import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Self

from support.connection import Answer, Connection, Message, forever
from support.dialects import CREATED, WRITERS
from support.embeddings import embeddings_reply
from support.wire_types import Reply, Request, messages_of_input

LONGEST_S = 600.0
"""Seconds after which a test has hung; a busy machine takes far less."""

Answering = Reply | str | Callable[[Request], Reply | str]
"""A reply, the text of one, or what makes one from a request."""

Condition = str | Callable[[Request], bool]
"""Which requests: those whose last user message holds the text, or those the function takes."""


@dataclass
class Rule:
    condition: Condition
    answering: Answering
    left: int | None

    def applies(self, request: Request) -> bool:
        if self.left == 0:
            return False
        if isinstance(self.condition, str):
            return self.condition in request.prompt
        return self.condition(request)


def echo(request: Request) -> Reply:
    """What a server without a script says: `OK: ` and the prompt; 404 off the model routes."""
    if request.dialect == "plain":
        return Reply(status=404, content=f"nothing is served at {request.path}")
    return Reply(f"OK: {request.prompt}")


def unscripted(request: Request) -> Reply:
    """An error that clients do not retry, so that a hole in a script shows at once."""
    return Reply(
        status=400,
        content=f"the fake server's script has no answer for request {request.number}"
        f" ({request.method} {request.path}, prompt {request.prompt!r})",
    )


def made(answering: Answering, request: Request) -> Reply:
    given = answering(request) if callable(answering) else answering
    return Reply(given) if isinstance(given, str) else given


def completed(answering: Answering | None, fields: dict[str, Any]) -> Callable[[Request], Reply]:
    """The answering (None is an empty reply) with the given fields of its reply set."""
    base = Reply() if answering is None else answering
    return lambda request: replace(made(base, request), **fields)


PATIENT_S = 600
"""`timeout` for clients of OpenAI, which otherwise give up connecting after 5 s, if it is busy."""


class FakeOpenAI:
    """The server; a context manager that serves from a thread of its own.

    What it answers, first match wins: rules (`when`), then the queue (`reply`), then
    `otherwise`. Without any script it echoes the prompt; a script without an answer is a 400.
    Requests for embeddings get vectors of their words, unless a rule answers them.
    """

    def __init__(self, otherwise: Answering | None = None, *, latency_s: float = 0.0) -> None:
        self._otherwise = otherwise
        self._latency_s = latency_s
        self._rules: list[Rule] = []
        self._queue: deque[Answering] = deque()
        self._scripted = False
        self._changed = threading.Condition()
        self._requests: list[Request] = []
        self._in_flight = 0
        self._peak = 0
        self._abandoned = 0
        self._kept: dict[str, list[dict[str, Any]]] = {}
        """By the id of a response: the conversation until then, for requests that continue it."""
        self._errors: list[BaseException] = []
        self._connections: set[Connection] = set()
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._main, name="fake-openai", daemon=True)
        self._port = 0

    def reply(self, answering: Answering | None = None, **fields: Any) -> Self:
        """Queue one answer: text, a Reply, a callable, or the fields of a Reply."""
        self._scripted = True
        self._queue.append(completed(answering, fields))
        return self

    def when(
        self,
        condition: Condition,
        answering: Answering | None = None,
        *,
        times: int | None = None,
        **fields: Any,
    ) -> Self:
        """Answer every request that fits (or the first `times` of them) this way."""
        self._scripted = True
        self._rules.append(Rule(condition, completed(answering, fields), times))
        return self

    def otherwise(self, answering: Answering | None = None, **fields: Any) -> Self:
        """Answer this way whatever no rule and no queued reply answers."""
        self._otherwise = completed(answering, fields)
        return self

    @contextmanager
    def held(self) -> Iterator[None]:
        """Take requests but answer none of them until the block is left."""
        self._loop.call_soon_threadsafe(self._gate.clear)
        try:
            yield
        finally:
            self._loop.call_soon_threadsafe(self._gate.set)

    async def ask(self, body: dict[str, Any]) -> tuple[Request, Reply]:
        """The model's answer to a chat completion that a service asks for, on no connection."""
        raw = json.dumps(body).encode()
        request = self._arrived(Message("POST", "/v1/chat/completions", {}, {}, raw))
        abandoned = True
        try:
            reply = await self._when_due(request)
            if reply.fault == "hang":
                await forever()
            abandoned = False
            return request, reply
        finally:
            self._left(abandoned=abandoned)

    @property
    def root(self) -> str:
        """Where it listens, for the Anthropic, Azure and Ollama clients."""
        return f"http://127.0.0.1:{self._port}"

    @property
    def url(self) -> str:
        """The base URL for OpenAI clients."""
        return f"{self.root}/v1"

    @property
    def requests(self) -> list[Request]:
        """Every request so far, in order of arrival."""
        with self._changed:
            return list(self._requests)

    @property
    def in_flight(self) -> int:
        return self._in_flight

    @property
    def peak_in_flight(self) -> int:
        return self._peak

    @property
    def abandoned(self) -> int:
        """Requests whose client left before the answer was sent."""
        return self._abandoned

    def wait_for_requests(self, count: int, timeout: float = LONGEST_S) -> list[Request]:
        """The requests once there are `count` of them; TimeoutError says how many there were."""
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._requests) >= count, timeout):
                raise TimeoutError(f"{len(self._requests)} of {count} requests in {timeout} s")
            return list(self._requests)

    def wait_until_idle(self, timeout: float = LONGEST_S) -> None:
        """Return once nothing is in flight."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._in_flight == 0, timeout):
                raise TimeoutError(f"{self._in_flight} requests still in flight")

    async def saw(self, count: int) -> list[Request]:
        """As `wait_for_requests`, for tests inside a loop."""
        return await asyncio.to_thread(self.wait_for_requests, count)

    def __enter__(self) -> Self:
        self._thread.start()
        self._started.wait()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        if self._errors and kind is None:
            raise ExceptionGroup("in the fake server's script", [_plain(e) for e in self._errors])

    def _main(self) -> None:
        asyncio.run(self._listen())

    async def _listen(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._stopping, self._gate = asyncio.Event(), asyncio.Event()
        self._gate.set()
        listener = await self._loop.create_server(
            lambda: Connection(self._serve, self._connections), "127.0.0.1", 0, backlog=1024
        )
        self._port = listener.sockets[0].getsockname()[1]
        self._started.set()
        await self._stopping.wait()
        # A listener that is closed drops, unclosed, what it has accepted and not yet handed over.
        self._loop.remove_reader(listener.sockets[0].fileno())
        await self._all_gone()
        listener.close()

    async def _all_gone(self) -> None:
        """Close every connection, also those that were accepted a moment ago and are not made."""
        own = asyncio.current_task()
        while self._connections or asyncio.all_tasks() - {own}:
            for connection in list(self._connections):
                connection.transport.abort()
            await asyncio.sleep(0)

    async def _serve(self, connection: Connection, message: Message) -> None:
        request = self._arrived(message)
        abandoned = False
        try:
            await self._respond(connection, request)
        except asyncio.CancelledError:
            abandoned = True
            raise
        finally:
            self._left(abandoned=abandoned)

    async def _respond(self, connection: Connection, request: Request) -> None:
        reply = await self._when_due(request)
        await connection.send(answer_to(request, reply))

    async def _when_due(self, request: Request) -> Reply:
        reply = self._reply_to(request)
        self._keep(request, reply)
        await self._gate.wait()
        if delay := reply.latency_s or self._latency_s:
            await asyncio.sleep(delay)
        return reply

    def _arrived(self, message: Message) -> Request:
        try:
            body = json.loads(message.body) if message.body else None
        except ValueError:
            body = None
        with self._changed:
            self._in_flight += 1
            self._peak = max(self._peak, self._in_flight)
            request = Request(
                number=len(self._requests) + 1,
                method=message.method,
                path=message.path,
                query=message.query,
                headers=message.headers,
                raw=message.body,
                body=body,
                received_at=time.monotonic(),
                in_flight=self._in_flight,
                earlier=self._kept_for(body),
            )
            self._requests.append(request)
            self._changed.notify_all()
        return request

    def _kept_for(self, body: Any) -> list[dict[str, Any]]:
        id_before = body.get("previous_response_id") if isinstance(body, dict) else None
        return self._kept.get(id_before, []) if isinstance(id_before, str) else []

    def _keep(self, request: Request, reply: Reply) -> None:
        """Remember the conversation of a response, as the Responses API does unless told not to."""
        if request.dialect == "responses" and request.body.get("store") is not False:
            output = WRITERS["responses"].document(request, reply)
            said = messages_of_input(output["output"])
            self._kept[output["id"]] = [*request.messages, *said]

    def _left(self, *, abandoned: bool) -> None:
        with self._changed:
            self._in_flight -= 1
            self._abandoned += abandoned
            self._changed.notify_all()

    def _reply_to(self, request: Request) -> Reply:
        """The scripted reply; a fault in the script itself is kept for the test to see."""
        if request.path.endswith("/models") and request.method == "GET":
            return models_reply()
        try:
            return made(self._answering(request), request)
        except Exception as error:  # noqa: BLE001 - __exit__ raises it in the test
            self._errors.append(error)
            return Reply(status=400, content=f"the fake server's script raised {error!r}")

    def _answering(self, request: Request) -> Answering:
        for rule in self._rules:
            if rule.applies(request):
                rule.left = None if rule.left is None else rule.left - 1
                return rule.answering
        if request.wants_embeddings:
            return embeddings_reply
        if self._queue:
            return self._queue.popleft()
        if self._otherwise is not None:
            return self._otherwise
        return unscripted if self._scripted else echo


def _plain(error: BaseException) -> Exception:
    return error if isinstance(error, Exception) else RuntimeError(repr(error))


def models_reply() -> Reply:
    model = {"id": "fake", "object": "model", "created": CREATED, "owned_by": "tests"}
    return Reply(json={"object": "list", "data": [model]})


def answer_to(request: Request, reply: Reply) -> Answer:
    """The reply in the words of the request's dialect."""
    if (fixed := reply.fixed_body) is not None:
        return Answer(reply, "application/json", [fixed])
    writer = WRITERS.get(request.dialect)
    if writer is None:
        return Answer(reply, "text/plain; charset=utf-8", [(reply.content or "").encode()])
    if reply.status >= 400:
        document = writer.error(reply.status, reply.content or f"fake error {reply.status}")
        return Answer(reply, "application/json", [json.dumps(document).encode()])
    if request.streams:
        return Answer(reply, writer.stream_type, writer.stream(request, reply), streams=True)
    return Answer(reply, "application/json", [json.dumps(writer.document(request, reply)).encode()])
