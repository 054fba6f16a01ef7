"""The file of a recording: its entries, as small as people want to review them, and a checksum."""

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holodeck.errors import ConfigError
from holodeck.lib.secrets.redact import Redactor
from holodeck.lib.support.files import replace_file

Json = Any
FORMAT = 1
AGAIN = "record it again with --record all"


@dataclass(frozen=True)
class RecordedExchange:
    """A request of a participant, and the response to it."""

    participant: str
    """Who asked: `agent`, `tool`, `judge`, `simulator` or `embeddings`."""
    key: str
    """The hash of the request."""
    request: Mapping[str, Json]
    """In its canonical form, without secrets."""
    response: Mapping[str, Json]
    """Without secrets."""
    after: int = 0
    """How many requests of the participant had been answered when it was sent."""

    @property
    def order(self) -> tuple[str, int, str]:
        """The order in files: that of time, but for requests that were sent at once."""
        return self.participant, self.after, self.key


class SecretInRecording(Exception):
    """A recording still contains a secret."""


def write_entries(
    path: Path, about: Mapping[str, Json], entries: Sequence[RecordedExchange], redactor: Redactor
) -> None:
    """Write the file of a recording; the same recording gives the same bytes.

    Raises SecretInRecording if it holds a secret, and OSError; then nothing is written.
    """
    content = {"about": {"format": FORMAT, **about}, "entries": list(_pack(entries))}
    text = json.dumps(
        {**content, "sha256": _checksum(content)}, ensure_ascii=False, indent=1, sort_keys=True
    )
    if redactor.holds_known(text):
        raise SecretInRecording(str(path))
    replace_file(path, [text.encode("utf-8", "surrogatepass"), b"\n"])


def read_entries(path: Path) -> tuple[Mapping[str, Json], list[RecordedExchange]]:
    """Return what a recording is about, and its entries; no entries if there is no file.

    Raises ConfigError for a file that is no recording, or was changed since it was recorded.
    """
    try:
        content = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {}, []
    except (OSError, ValueError, RecursionError) as error:
        raise ConfigError(str(path), f"is no recording: {error}; {AGAIN}") from error
    written = content.pop("sha256", None) if isinstance(content, dict) else None
    if written is None or written != _checksum(content):
        raise ConfigError(str(path), f"was changed since it was recorded; {AGAIN}")
    about = content["about"]
    if about.get("format") != FORMAT:
        raise ConfigError(str(path), f"has the format {about.get('format')!r}; {AGAIN}")
    return about, list(_unpack(content["entries"]))


def _checksum(content: Json) -> str:
    text = json.dumps(content, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _pack(entries: Sequence[RecordedExchange]) -> Iterator[Json]:
    """Yield the entries as JSON; a body that continues an earlier one has only what is new."""
    ordered = sorted(entries, key=lambda entry: entry.order)
    for at, entry in enumerate(ordered):
        request = dict(entry.request)
        for before in range(at - 1, -1, -1):
            rest = _rest(ordered[before].request.get("body"), request.get("body"))
            if rest is not None:
                request |= {"continues": before, "body": rest}
                break
        fields = {"participant": entry.participant, "key": entry.key, "after": entry.after}
        yield {**fields, "request": request, "response": entry.response}


def _rest(earlier: Json, body: Json) -> Json:
    """Return the keys of `body` that differ, and of lists what comes after the earlier items; None
    if it does not continue the earlier body."""
    if not isinstance(earlier, dict) or not isinstance(body, dict):
        return None
    if not earlier or not earlier.keys() <= body.keys():
        return None
    rest = {}
    for key, value in body.items():
        if key not in earlier:
            rest[key] = value
        elif value != earlier[key]:
            items = earlier[key]
            if not isinstance(value, list) or not isinstance(items, list):
                return None
            if value[: len(items)] != items:
                return None
            rest[key] = value[len(items) :]
    return rest


def _unpack(packed: Sequence[Json]) -> Iterator[RecordedExchange]:
    bodies: list[Json] = []
    for fields in packed:
        request = dict(fields["request"])
        if "continues" in request:
            earlier, rest = bodies[request.pop("continues")], request["body"]
            request["body"] = earlier | {
                key: earlier[key] + value if isinstance(earlier.get(key), list) else value
                for key, value in rest.items()
            }
        bodies.append(request.get("body"))
        yield RecordedExchange(**{**fields, "request": request})
