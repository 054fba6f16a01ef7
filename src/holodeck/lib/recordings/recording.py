"""The recording of a run of a test case, which answers requests and takes new responses."""

import asyncio
import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from threading import Lock
from typing import Any, Literal

from holodeck.errors import ConfigError
from holodeck.lib.llm.request_handler import Send, StreamedResponse
from holodeck.lib.recordings.entries import AGAIN, RecordedExchange, read_entries, write_entries
from holodeck.lib.recordings.key import canonical, key_of
from holodeck.lib.recordings.miss import describe_miss
from holodeck.lib.recordings.responses import recorded_response, replayed_response
from holodeck.lib.secrets.redact import Redactor
from holodeck.lib.tap.exchange import NO_REPLY, error_response
from holodeck.models.recordings import IgnoreRule
from holodeck.models.results.outcome import RecordingUse

Json = Any
Mode = Literal["replay", "missing", "failed", "all"]
_REST_S = 2.0
"""How long the end of a response is waited for that the client has not read to its end."""


@dataclass(frozen=True)
class RecordingSettings:
    """What the recordings of a run have in common."""

    mode: Mode
    ignore: Sequence[IgnoreRule]
    max_age_days: int | None
    is_strict: bool
    """Whether outdated recordings are errors."""
    redactor: Redactor
    """Masks secrets in requests and responses."""


@dataclass(frozen=True)
class AskedRequest:
    """A request of a participant, and what is recorded of it."""

    participant: str
    request: Mapping[str, Json]
    key: str
    after: int
    entry: RecordedExchange | None
    """None if it is not recorded."""
    miss: str | None = None
    """Why it gets no answer; None if it has one, or is to be recorded."""


@dataclass
class Recording:
    """What was recorded of a run of a case, what is used of it, and what is new.

    Its methods may be called in any thread.

    Args:
        path: The file.
        about: What the file says about the case and the agent.
        settings: Those of the run.
        is_shared: Whether it holds requests outside of cases, which any process may send any number
            of times.
    """

    path: Path
    about: Mapping[str, Json]
    settings: RecordingSettings
    is_shared: bool = False
    recorded_on: str | None = None
    """The day of the recording, as `2026-11-27`; None if it is not known."""
    misses: list[str] = field(default_factory=list, init=False)
    """Why requests got no answer."""

    def __post_init__(self) -> None:
        self._lock = Lock()
        self.recorded_about: Mapping[str, Json] = {}
        self._recorded: list[RecordedExchange] = []
        self._is_broken = False
        if self.settings.mode != "all":
            try:
                self.recorded_about, recorded = read_entries(self.path)
                self._require_same_case()
                self._recorded = recorded
            except ConfigError as error:
                self._is_broken = True
                self.misses.append(str(error))
        self._by_key = defaultdict[tuple[str, str], list[RecordedExchange]](list)
        for entry in self._recorded:
            self._by_key[entry.participant, entry.key].append(entry)
        self._asked = Counter[tuple[str, str]]()
        self._answered = Counter[str]()
        self._replayed: list[RecordedExchange] = []
        self._live: list[RecordedExchange] = []

    def _require_same_case(self) -> None:
        """Raise ConfigError for the recording of another case."""
        for name in ("case", "repetition") if self.recorded_about else ():
            recorded = self.recorded_about.get(name)
            if recorded != self.about.get(name):
                raise ConfigError(str(self.path), f"is of the {name} {recorded!r}; {AGAIN}")

    @property
    def takes_new(self) -> bool:
        """Whether what is not recorded is asked for, and recorded."""
        match self.settings.mode:
            case "replay":
                return False
            case "failed":
                return bool(self._recorded)
            case _:
                return not self._is_broken

    @property
    def use(self) -> RecordingUse:
        """What was used of it."""
        with self._lock:
            replayed = len(self._replayed)
            return RecordingUse(
                replayed=replayed,
                live=len(self._live),
                unused=0 if self.is_shared else len(self._recorded) - replayed,
                recorded=self.recorded_on if replayed else None,
                model=self.recorded_about.get("model") if replayed else None,
            )

    def replayed_of(self, *participants: str) -> int:
        """Return how many responses to these participants were replayed."""
        with self._lock:
            return sum(entry.participant in participants for entry in self._replayed)

    def _identify(
        self, participant: str, request: Mapping[str, Json]
    ) -> tuple[Mapping[str, Json], str]:
        """Return a request in its canonical form, without secrets, and its hash."""
        settings = self.settings
        document = canonical(request, settings.ignore)
        key = key_of(document)
        if (participant, key) not in self._by_key:  # else it holds no secret
            masked = settings.redactor.redact_report(dict(request))
            document = canonical(masked, settings.ignore)
            key = key_of(document)
        return document, key

    def ask(self, participant: str, request: Mapping[str, Json]) -> AskedRequest:
        """Return what is recorded of a request of JSON values."""
        document, key = self._identify(participant, request)
        with self._lock:
            number = 0 if self.is_shared else self._asked[participant, key]
            self._asked[participant, key] += 1
            recorded = self._by_key.get((participant, key), ())
            after = 0 if self.is_shared else self._answered[participant]
            entry = recorded[number] if number < len(recorded) else None
            if entry is not None:
                self._replayed.append(replace(entry, after=after))
                self._answered[participant] += 1
                return AskedRequest(participant, document, key, after, entry)
            if self.takes_new:
                return AskedRequest(participant, document, key, after, None)
            same = [entry.request for entry in self._recorded if entry.participant == participant]
            asked = sum(count for (who, _), count in self._asked.items() if who == participant)
            miss = describe_miss(participant, asked, document, same, times=number + 1)
            if not self._is_broken:
                self.misses.append(miss)
            return AskedRequest(participant, document, key, after, None, miss)

    def add(self, question: AskedRequest, response: Mapping[str, Json]) -> None:
        """Record the response to a request."""
        masked = self.settings.redactor.redact_report(dict(response))
        entry = RecordedExchange(
            question.participant, question.key, question.request, masked, question.after
        )
        with self._lock:
            self._live.append(entry)
            self._answered[question.participant] += 1

    def note(
        self, participant: str, request: Mapping[str, Json], response: Mapping[str, Json]
    ) -> None:
        """Record a response in place of what is recorded of the request."""
        question = self.ask(participant, request)
        with self._lock:
            if question.entry is not None:
                self._replayed.pop()
        self.add(replace(question, entry=None), response)

    def save(self) -> bool:
        """Write what was used and what is new, if that is something else than what was recorded.

        Returns whether it was written. Raises SecretInRecording and OSError; the file is then as it
        was.
        """
        with self._lock:
            entries, is_new = [*self._replayed, *self._live], bool(self._live)
        is_same = not is_new and len(entries) == len(self._recorded)
        if self.settings.mode == "replay" or not entries or is_same:
            return False
        if self.is_shared:  # other processes of the run have written theirs
            with suppress(ConfigError):
                entries = [*read_entries(self.path)[1], *entries]
            entries = [*{(entry.participant, entry.key): entry for entry in entries}.values()]
        write_entries(self.path, self.about, entries, self.settings.redactor)
        return True

    def handlers(self, *participants: str) -> dict[str, "RecordedRequests"]:
        """Return what answers the requests of these participants to their models."""
        return {participant: RecordedRequests(self, participant) for participant in participants}


@dataclass(frozen=True)
class RecordedRequests:
    """Answers the requests of a participant with what is recorded, or records the responses.

    A request that is not recorded gets an error that clients do not retry.
    """

    recording: Recording
    participant: str

    @property
    def sends_on(self) -> bool:
        """Whether it may send a request on to the model."""
        return self.recording.takes_new

    @property
    def has_refused(self) -> bool:
        """Whether a request was not recorded."""
        return bool(self.recording.misses)

    @asynccontextmanager
    async def answer(
        self, method: str, path: str, body: bytes, send: Send
    ) -> AsyncIterator[StreamedResponse]:
        """Yield the response to a request; see `RequestHandler`."""
        request = {"path": f"{method} {path}", "body": _document(body)}
        question = self.recording.ask(self.participant, request)
        if question.entry is not None:
            yield replayed_response(question.entry.response)
        elif question.miss is not None:
            yield error_response(NO_REPLY, "not_recorded", question.miss)
        else:
            async with send(body) as response:
                copy = _Copy(response, self.recording, question)
                yield replace(response, body=copy.pieces())
                await copy.end()


@dataclass
class _Copy:
    """The copy of a response that passes, which is recorded before the client has all of it.

    Otherwise the case could be over before its last response is recorded.
    """

    response: StreamedResponse
    recording: Recording
    question: AskedRequest
    content: bytearray = field(default_factory=bytearray)
    is_recorded: bool = False

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the pieces of the body; each when the next has come, or the end."""
        held: bytes | None = None
        async for piece in self.response.body:
            self.content += piece
            if held is not None:
                yield held
            held = piece
        self._record(is_cut=False)
        if held is not None:
            yield held

    async def end(self) -> None:
        """Record the response, of which the client may have left the end unread."""
        if not self.is_recorded:
            with suppress(Exception):  # what is missing, the recording says
                async with asyncio.timeout(_REST_S):
                    async for _ in self.pieces():
                        pass
        if not self.is_recorded:
            self._record(is_cut=True)

    def _record(self, *, is_cut: bool) -> None:
        self.is_recorded = True
        response = recorded_response(self.response, bytes(self.content), is_cut=is_cut)
        self.recording.add(self.question, response)


def _document(body: bytes) -> Json:
    """Return the JSON in a body; for any other body, what identifies it."""
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        return {"sha256": hashlib.sha256(body).hexdigest()} if body else None
