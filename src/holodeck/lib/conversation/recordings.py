"""Answers kept in files, to be given again instead of being asked for."""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from holodeck.errors import ConfigError
from holodeck.lib.conversation.types import EndConversation
from holodeck.lib.text import one_line

_MODEL = "model"
_END = "end"


def pack_value(value: Any, function: str) -> dict[str, Any]:
    """The JSON of an answer. Raises ConfigError for one that JSON cannot hold."""
    if isinstance(value, EndConversation):
        return {_END: {"farewell": value.farewell, "reason": value.reason}}
    if isinstance(value, BaseModel):
        home = f"{type(value).__module__}:{type(value).__qualname__}"
        return {_MODEL: home, "value": value.model_dump(mode="json")}
    if isinstance(value, list):
        return {"list": [pack_value(one, function) for one in value]}
    if not _is_json(value):
        raise ConfigError(
            function,
            f"returns a {type(value).__name__}, which @scenario.cache cannot keep; return a text, a"
            " message, a list of messages, a pydantic model, or other values that JSON has",
        )
    return {"value": value}


def unpack_value(kept: dict[str, Any]) -> Any:
    """The answer. Raises ValueError if its class is not there or does not take it any more."""
    if _END in kept:
        return EndConversation(**kept[_END])
    if _MODEL in kept:
        return _model(kept[_MODEL], kept["value"])
    if "list" in kept:
        return [unpack_value(one) for one in kept["list"]]
    return kept["value"]


def _model(home: str, value: Any) -> BaseModel:
    """The model; its module must be there already, for a file imports nothing."""
    module, _, path = home.partition(":")
    found: Any = sys.modules.get(module)
    for name in path.split("."):
        found = getattr(found, name, None)
    if not (isinstance(found, type) and issubclass(found, BaseModel)):
        raise ValueError(f"it needs {home}, which is not imported")  # noqa: TRY004 - of a file
    try:
        return found.model_validate(value)
    except ValidationError as error:
        raise ValueError(f"{home} does not take it any more: {error.errors()[0]['msg']}") from error


def _is_json(value: Any) -> bool:
    if isinstance(value, dict):
        return all(type(key) is str and _is_json(one) for key, one in value.items())
    if isinstance(value, list):
        return all(_is_json(one) for one in value)
    return value is None or type(value) in (str, int, float, bool)


Clean = Callable[[dict[str, Any]], dict[str, Any]]
FORMAT = 1
MOST_SHOWN = 80
_NO_NAME = re.compile(r"[^\w.-]+")


class NotRecorded(ConfigError):
    """There is no answer to replay."""


class Recordings:
    """The answers of one cache key, a JSON file for each call.

    Args:
        folder: Where the files of all cache keys lie.
        cache_key: Whose answers these are.
        clean: What hides secrets in what is written and shown.
    """

    def __init__(self, folder: Path, cache_key: str, clean: Clean | None = None) -> None:
        self.folder = folder / (_plain(cache_key) or "default")
        self._cache_key = cache_key
        self._clean = _as_it_is if clean is None else clean

    def key(self, function: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """What a call is found by."""
        return {"cache_key": self._cache_key, "function": function, "arguments": dict(arguments)}

    def find(self, key: Mapping[str, Any]) -> list[Any]:
        """The answer kept for a call, as the only one of a list; an empty list if there is none.

        Raises ConfigError for a file that cannot be used.
        """
        path = self._path(key)
        if not path.exists():
            return []
        try:
            return [unpack_value(_read(path)["value"])]
        except (ValueError, KeyError, TypeError, OSError) as error:
            message = f"cannot be replayed: {error}; delete it, and the call is made anew"
            raise ConfigError(str(path), message) from error

    def keep(self, key: Mapping[str, Any], answer: Any) -> None:
        """Write an answer, whole or not at all. Raises ConfigError if it cannot be written."""
        value = pack_value(answer, key["function"])
        path = self._path(key)
        known = self._clean({"key": dict(key), "value": value})
        text = json.dumps({"format": FORMAT, **known}, indent=1)
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            draft.write_text(text, encoding="utf-8")
            os.replace(draft, path)  # noqa: PTH105 - the one that replaces on every system
        except OSError as error:
            draft.unlink(missing_ok=True)
            raise ConfigError(str(path), f"the answer cannot be kept: {error}") from error

    def miss(self, key: Mapping[str, Any]) -> NotRecorded:
        """The error for a call without an answer; it shows what the nearest one differs in."""
        now = dict(_leaves(self._clean(dict(key))))
        others = [(path, dict(_leaves(kept))) for path, kept in self._of_function(key)]
        if not others:
            told = f"nothing of it is recorded in {self.folder}"
            return NotRecorded(key["function"], f"{told}; {_RECORD}")
        path, near = max(others, key=lambda one: len(one[1].items() & now.items()))
        return NotRecorded(
            key["function"],
            f"no answer to this call is recorded; nearest is {path}, which differs at"
            f" {_difference(near, now)}; {_RECORD}",
        )

    def _path(self, key: Mapping[str, Any]) -> Path:
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
        return self.folder / f"{_plain(key['function'])[-80:]}-{digest}.json"

    def _of_function(self, key: Mapping[str, Any]) -> Iterator[tuple[Path, Any]]:
        for path in sorted(self.folder.glob("*.json")):
            try:
                kept = _read(path)["key"]
            except (ValueError, KeyError, TypeError, OSError):
                continue  # what cannot be read is near to nothing
            if kept.get("function") == key["function"]:
                yield path, kept


_RECORD = "run once with cache_mode='record' (or HOLODECK_CACHE_MODE=record)"


def _read(path: Path) -> Any:
    kept = json.loads(path.read_text(encoding="utf-8"))
    if kept["format"] != FORMAT:
        raise ValueError(f"it has format {kept['format']!r}, not {FORMAT}")
    return kept


def _as_it_is(value: dict[str, Any]) -> dict[str, Any]:
    return value


def _plain(name: str) -> str:
    return _NO_NAME.sub("-", name).strip("-.")[:80]


def _leaves(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Every value that is no list and no mapping, as JSON, by its place."""
    inside: Iterator[tuple[Any, Any]] | None = None
    if isinstance(value, dict):
        inside = iter(value.items())
    elif isinstance(value, list):
        inside = iter(enumerate(value))
    if inside is None:
        yield place, json.dumps(value, ensure_ascii=False)
        return
    for name, one in inside:
        yield from _leaves(one, f"{place}.{name}" if place else str(name))


def _difference(kept: Mapping[str, str], now: Mapping[str, str]) -> str:
    """The first place where two calls differ, and both values."""
    places = dict.fromkeys([*now, *kept])
    place = next((one for one in places if kept.get(one) != now.get(one)), None)
    if place is None:
        return "a secret, which is not shown"
    before, after = kept.get(place, "nothing"), now.get(place, "nothing")
    pairs = enumerate(zip(before, after, strict=False))
    same = next((at for at, (one, other) in pairs if one != other), 0)
    start = max(0, same - MOST_SHOWN // 2)
    return f"{place}: recorded {_shown(before, start)}, now {_shown(after, start)}"


def _shown(text: str, start: int) -> str:
    return ("…" if start else "") + one_line(text[start:], MOST_SHOWN)
