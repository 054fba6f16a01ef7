"""Recorded responses: a JSON file for each call."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from holodeck.errors import ConfigError
from holodeck.lib.conversation.types import EndConversation
from holodeck.lib.support.files import claim, make_folder, release, replace_file
from holodeck.lib.support.text import one_line

RECORDING_FORMAT = 1
_MAX_SHOWN = 80
_NOT_IN_NAMES = re.compile(r"[^\w.-]+")
_HOW_TO_RECORD = "run once with cache_mode='record' (or HOLODECK_CACHE_MODE=record)"

_claimed: ContextVar[frozenset[Path]] = ContextVar("holodeck_claimed_calls", default=frozenset())
"""The locks that the calls around the current one hold."""


class NotRecorded(ConfigError):
    """There is no recorded response to replay."""


class UnreadableRecording(ConfigError):
    """A recorded response that cannot be replayed."""


class Recordings:
    """The recorded responses of one cache key.

    Args:
        folder: Contains the files of all cache keys.
        cache_key: The key that they belong to.
        clean: Hides secrets in what is written and shown.
    """

    def __init__(
        self,
        folder: Path,
        cache_key: str,
        clean: Callable[[dict[str, Any]], dict[str, Any]] = lambda value: value,
    ) -> None:
        self.folder = folder / (_file_name(cache_key) or "default")
        self._cache_key = cache_key
        self._clean = clean

    def key(self, function: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return what identifies a call."""
        return {"cache_key": self._cache_key, "function": function, "arguments": dict(arguments)}

    def find(self, key: Mapping[str, Any]) -> list[Any]:
        """Return a list of the recorded response; empty if there is none.

        Raises UnreadableRecording for a file that cannot be used.
        """
        path = self._path(key)
        if not path.exists():
            return []
        try:
            return [unpack(_read(path)["value"])]
        except (ValueError, KeyError, TypeError, OSError) as error:
            message = f"cannot be replayed: {error}; delete it to make the call again"
            raise UnreadableRecording(str(path), message) from error

    def save(self, key: Mapping[str, Any], response: Any) -> None:
        """Write a response atomically. Raises ConfigError if it cannot be written."""
        path = self._path(key)
        value = pack(response, key["function"])
        cleaned = self._clean({"key": dict(key), "value": value})
        text = json.dumps({"format": RECORDING_FORMAT, **cleaned}, indent=1)
        try:
            replace_file(path, [text.encode()])
        except OSError as error:
            raise ConfigError(str(path), f"the response cannot be written: {error}") from error

    @contextmanager
    def try_claim(self, key: Mapping[str, Any]) -> Iterator[bool]:
        """Try to be the only one who makes a call; yield whether no other makes it now.

        Others are in this process or in another one. Raises ConfigError if nothing can be written.
        """
        path = self._path(key)
        lock = path.with_name(f".{path.stem}.lock")
        if lock in _claimed.get():  # a cached function that calls itself
            yield True
            return
        try:
            make_folder(self.folder)
            handle = claim(lock)
        except OSError as error:
            raise ConfigError(str(path), f"the response cannot be written: {error}") from error
        if handle is None:
            yield False
            return
        token = _claimed.set(_claimed.get() | {lock})
        try:
            yield True
        finally:
            _claimed.reset(token)
            release(lock, handle)

    def not_recorded_error(self, key: Mapping[str, Any]) -> NotRecorded:
        """Return the error for a missing response; it shows where the nearest call differs."""
        function = key["function"]
        now = dict(_leaves(self._clean(dict(key))))
        others = [(path, dict(_leaves(recorded))) for path, recorded in self._calls_of(function)]
        if not others:
            message = f"nothing is recorded for it in {self.folder}; {_HOW_TO_RECORD}"
            return NotRecorded(function, message)
        path, nearest = max(others, key=lambda other: len(other[1].items() & now.items()))
        return NotRecorded(
            function,
            f"no response to this call is recorded; the nearest is {path}, which differs at"
            f" {_difference(nearest, now)}; {_HOW_TO_RECORD}",
        )

    def _path(self, key: Mapping[str, Any]) -> Path:
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
        return self.folder / f"{_file_name(key['function'])[-80:]}-{digest}.json"

    def _calls_of(self, function: str) -> Iterator[tuple[Path, Any]]:
        for path in sorted(self.folder.glob("*.json")):
            try:
                key = _read(path)["key"]
            except (ValueError, KeyError, TypeError, OSError):
                continue  # a file that cannot be read is no help here
            if key.get("function") == function:
                yield path, key


def _read(path: Path) -> Any:
    recorded = json.loads(path.read_text(encoding="utf-8"))
    if recorded["format"] != RECORDING_FORMAT:
        raise ValueError(f"it has format {recorded['format']!r}, not {RECORDING_FORMAT}")
    return recorded


def _file_name(name: str) -> str:
    return _NOT_IN_NAMES.sub("-", name).strip("-.")[:80]


def _leaves(value: Any, location: str = "") -> Iterator[tuple[str, str]]:
    """Yield every value that is neither a list nor a mapping, as JSON, by its location."""
    if isinstance(value, dict | list):
        items = value.items() if isinstance(value, dict) else enumerate(value)
        for name, item in items:
            yield from _leaves(item, f"{location}.{name}" if location else str(name))
    else:
        yield location, json.dumps(value, ensure_ascii=False)


def _difference(recorded: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Return the first location where two calls differ, and both values."""
    locations = dict.fromkeys([*now, *recorded])
    location = next((path for path in locations if recorded.get(path) != now.get(path)), None)
    if location is None:
        return "a secret, which is not shown"
    before, after = recorded.get(location, "nothing"), now.get(location, "nothing")
    pairs = enumerate(zip(before, after, strict=False))
    first = next((index for index, (char, other) in pairs if char != other), 0)
    start = max(0, first - _MAX_SHOWN // 2)
    return f"{location}: recorded {_excerpt(before, start)}, now {_excerpt(after, start)}"


def _excerpt(text: str, start: int) -> str:
    return ("…" if start else "") + one_line(text[start:], _MAX_SHOWN)


_COLLECTIONS: dict[str, Callable[[list[Any]], Any]] = {
    "list": list,
    "tuple": tuple,
    "set": set,
    "frozenset": frozenset,
}


def pack(value: Any, function: str) -> dict[str, Any]:
    """Return a response as JSON. Raises ConfigError if it cannot be recorded.

    Args:
        value: The response.
        function: The function that returned it, for the error.
    """
    if isinstance(value, EndConversation):
        return {"end": {"farewell": value.farewell, "reason": value.reason}}
    if isinstance(value, BaseModel):
        model = f"{type(value).__module__}:{type(value).__qualname__}"
        return {"model": model, "value": value.model_dump(mode="json")}
    if not isinstance(value, list) and _is_json(value):
        return {"value": value}
    if type(value) is bytes:
        return {"bytes": base64.b64encode(value).decode()}
    return _pack_collection(value, function)


def _pack_collection(value: Any, function: str) -> dict[str, Any]:
    kind = "list" if isinstance(value, list) else type(value).__name__
    if kind == "list" or _COLLECTIONS.get(kind) is type(value):
        return {kind: [pack(item, function) for item in value]}
    if type(value) is dict:
        return {"items": [[pack(part, function) for part in item] for item in value.items()]}
    raise ConfigError(
        function,
        f"returns a {type(value).__name__}, which @scenario.cache cannot record; return a text, a"
        " number, a message, a pydantic model, bytes or a collection of these",
    )


def unpack(packed: dict[str, Any]) -> Any:
    """Return the response.

    Raises ValueError if its class is missing or has changed, or for what earlier versions wrote.
    """
    if "value" in packed and "model" not in packed:
        return packed["value"]
    if "model" in packed:
        return _unpack_model(packed["model"], packed["value"])
    if "end" in packed:
        return EndConversation(**packed["end"])
    if "bytes" in packed:
        return base64.b64decode(packed["bytes"], validate=True)
    if "pickle" in packed:
        raise ValueError("it is a pickle of an earlier version, which is no longer loaded")
    return _unpack_collection(packed)


def _unpack_collection(packed: dict[str, Any]) -> Any:
    if "items" in packed:
        return dict([unpack(part) for part in item] for item in packed["items"])
    [(kind, values)] = packed.items()
    return _COLLECTIONS[kind]([unpack(value) for value in values])


def _unpack_model(name: str, value: Any) -> Any:
    module, _, path = name.partition(":")
    # Only from modules that are imported already: reading a file must not run code.
    model: Any = sys.modules.get(module)
    for part in path.split("."):
        model = getattr(model, part, None)
    if not (isinstance(model, type) and issubclass(model, BaseModel)):
        raise ValueError(f"it needs {name}, which is not imported")  # noqa: TRY004 - of a file
    try:
        return model.model_validate(value)
    except ValidationError as error:
        raise ValueError(f"it no longer fits {name}: {error.errors()[0]['msg']}") from error


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(type(key) is str and _is_json(item) for key, item in value.items())
    if isinstance(value, list):
        return all(map(_is_json, value))
    return value is None or type(value) in (str, int, float, bool)
