"""The response cache: recorded responses, a JSON file each, and what identifies a call."""

from __future__ import annotations

import asyncio
import hashlib
import json
import logging
import re
import sys
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, fields, is_dataclass
from datetime import date, timedelta
from datetime import time as time_of_day
from decimal import Decimal
from enum import Enum
from fractions import Fraction
from inspect import isclass
from pathlib import Path, PurePath
from typing import Any, Protocol, runtime_checkable
from uuid import UUID

from pydantic import BaseModel, SecretStr, ValidationError

from holodeck.errors import ConfigError
from holodeck.lib.conversation.messages import AgentRole
from holodeck.lib.conversation.state import ScenarioState
from holodeck.lib.conversation.types import AgentInput, EndConversation
from holodeck.lib.llm.model import record_cache_hit
from holodeck.lib.support.files import claim, make_folder, release, replace_file
from holodeck.lib.support.text import instance_of, one_line
from holodeck.models.llm import LLMProvider

logger = logging.getLogger(__name__)

Json = Any
RECORDING_FORMAT = 1
_POLL_S = 0.05
"""How often a call checks whether another process has recorded the same response."""
SHARE_S = 300.0
"""How long it waits for that; then it is made, too."""
_MAX_SHOWN = 80
_NOT_IN_NAMES = re.compile(r"[^\w.-]+")
_HOW_TO_RECORD = "run once with cache_mode='record' (or HOLODECK_CACHE_MODE=record)"
_SECRET = re.compile(r"(api_?key|token|secret|password|authorization)$", re.IGNORECASE)
_AS_TEXT = (date, time_of_day, timedelta, Decimal, Fraction, UUID, PurePath)
"""Types whose text identifies their values."""
_AGENT_ROLE = "holodeck.lib.conversation.roles.AgentRole"
"""The name of AgentRole in recordings: where it was before it moved, as keys must not change."""
_claimed: ContextVar[frozenset[Path]] = ContextVar("holodeck_claimed_calls", default=frozenset())
"""The locks that the surrounding calls hold."""


class NotRecorded(ConfigError):
    """There is no recorded response to replay."""


@runtime_checkable
class HasCacheFacts(Protocol):
    """An object that says what its responses depend on."""

    def cache_facts(self) -> Mapping[str, Any]:
        """Return these values by name."""
        ...


class UncacheableValue(ConfigError):
    """A value that cannot be recognized in another run."""


class CacheKey:
    """Converts the values of a call to JSON that is the same in every process.

    Args:
        ids: Ids that are new in every run, with what replaces them.
        ignored: Locations that are left out, such as `client` or `self.calls`.
    """

    def __init__(self, ids: Mapping[str, str], ignored: Iterable[str] = ()) -> None:
        self._ids = dict(ids)
        self._ignored = frozenset(ignored)
        self._tool_calls: dict[str, str] = {}

    def of_values(self, values: Mapping[str, Any], location: str = "") -> dict[str, Json]:
        """Return the JSON of values by name, without secrets and what is ignored."""
        return {
            name: self.of(value, at) for name, at, value in self._cacheable_items(values, location)
        }

    def of_owner(self, owner: Any, location: str) -> Json:
        """Return the JSON of the object that a method belongs to: class and plain attributes."""
        known = {"class": _name(type(owner))}
        if isinstance(owner, HasCacheFacts):
            return {**known, **self.of_values(owner.cache_facts(), location)}
        for name, at, value in self._cacheable_items(getattr(owner, "__dict__", {}), location):
            try:
                known[name] = self.of(value, at)
            except UncacheableValue:
                known[name] = _name(type(value))
        return known

    def of(self, value: Any, location: str) -> Json:  # noqa: PLR0911 - one line for each kind
        """Return the JSON of a value. Raises UncacheableValue if there is none."""
        if isinstance(value, Enum):
            return f"{_name(type(value))}.{value.name}"
        if value is None or isinstance(value, bool | int | float):
            return value
        if isinstance(value, str):
            return self._ids.get(value, value)
        if isinstance(value, Mapping):
            # With its type, so that 1 is not "1".
            items = {
                key if isinstance(key, str) else f"{type(key).__name__} {key!r}": item
                for key, item in value.items()
            }
            is_message = isinstance(value.get("role"), str)
            return self.of_values(self._without_ids(items) if is_message else items, location)
        if isinstance(value, list | tuple):
            return [self.of(item, f"{location}.{index}") for index, item in enumerate(value)]
        if isinstance(value, AbstractSet):
            return sorted((self.of(item, location) for item in value), key=json.dumps)
        if isinstance(value, SecretStr):
            return "(secret)"
        return self._of_object(value, location)

    def _of_object(self, value: Any, location: str) -> Json:
        if isinstance(value, HasCacheFacts):
            return {"class": _name(type(value)), **self.of_values(value.cache_facts(), location)}
        if isinstance(value, bytes | bytearray):
            return f"sha256 {hashlib.sha256(value).hexdigest()}"
        if isinstance(value, _AS_TEXT):
            return f"{type(value).__name__} {value}"
        if isclass(value) or "<" not in getattr(value, "__qualname__", "<"):
            return _name(value)
        parts = _parts(value)
        if parts is None:
            raise UncacheableValue(
                location,
                f"a {_name(type(value))} cannot be recognized in the next run; leave it out:"
                f" @scenario.cache(ignore=[{location!r}]), or give it a method cache_facts()",
            )
        return {"class": _name(type(value)), **self.of_values(parts, location)}

    def _without_ids(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Return a message without its id, with its tool calls numbered."""
        plain = {key: item for key, item in message.items() if key != "id"}
        answered_call = plain.get("tool_call_id")
        if isinstance(answered_call, str):
            plain["tool_call_id"] = self._number(answered_call)
        calls = plain.get("tool_calls")
        if isinstance(calls, list):
            plain["tool_calls"] = [
                {**call, "id": self._number(call["id"])}
                if isinstance(call, Mapping) and isinstance(call.get("id"), str)
                else call
                for call in calls
            ]
        return plain

    def _number(self, call_id: str) -> str:
        return self._tool_calls.setdefault(call_id, f"call {len(self._tool_calls) + 1}")

    def _cacheable_items(
        self, values: Mapping[str, Any], location: str
    ) -> Iterator[tuple[str, str, Any]]:
        for name, value in values.items():
            at = f"{location}.{name}" if location else name
            if at not in self._ignored and not (location and _SECRET.search(name)):
                yield name, at, value


def _parts(value: Any) -> dict[str, Any] | None:
    """Return what an object is made of; None if that is unknown."""
    if isinstance(value, AgentInput):
        state = value.scenario_state
        parts = {name: getattr(value, name) for name in type(value).model_fields}
        del parts["thread_id"], parts["scenario_state"], parts["propagation_headers"]
        # In this form since the first recordings, whose keys must not change.
        parts["judgment_request"] = value.judgment_request is not None
        parts["judgment_criteria"] = value.judgment_criteria
        if value.judgment_request is not None and value.judgment_request.additional_context:
            parts["additional_context"] = value.judgment_request.additional_context
        return {**parts, "description": state.description} if state is not None else parts
    if isinstance(value, ScenarioState):
        return {
            "description": value.description,
            "current_turn": value.current_turn,
            "messages": value.messages,
        }
    if isinstance(value, BaseModel):
        return dict(value)
    if is_dataclass(value):
        return {column.name: getattr(value, column.name) for column in fields(value)}
    return None


def _name(value: Any) -> str:
    return _AGENT_ROLE if value is AgentRole else f"{value.__module__}.{value.__qualname__}"


def model_cache_facts(llm: LLMProvider) -> dict[str, object]:
    """Return what the responses of a model depend on."""
    names = ("provider", "name", "endpoint", "temperature", "max_tokens", "top_p")
    return {name: getattr(llm, name) for name in names}


class ResponseCache:
    """Replays the recorded responses of a cache key, and records new ones.

    Args:
        folder: Contains the files of all cache keys.
        cache_key: The key that the responses belong to.
        mode: `auto` calls for what is not recorded, `record` for everything, `replay` for nothing.
        clean: Hides secrets in what is written and shown.
    """

    def __init__(
        self,
        folder: Path,
        cache_key: str,
        mode: str,
        *,
        clean: Callable[[dict[str, Any]], dict[str, Any]] = lambda value: value,
    ) -> None:
        self._folder = folder / (_file_name(cache_key) or "default")
        self._cache_key = cache_key
        self._mode = mode
        self._clean = clean

    async def get(
        self, function: str, arguments: Mapping[str, Any], call: Callable[[], Awaitable[Any]]
    ) -> Any:
        """Return the recorded response, or that of `call`. Raises NotRecorded when replaying.

        Of several that miss the same response at once, one calls and the others wait for it, for
        SHARE_S seconds at most.
        """
        key, ends = self.key(function, arguments), time.monotonic() + SHARE_S
        recorded = self._find(key)
        while not recorded:
            with self.try_claim(key) as is_claimed:
                recorded = self._find(key, is_again=True)
                if not recorded and (is_claimed or time.monotonic() > ends):
                    return self._save(key, await call())
            if not recorded:
                await asyncio.sleep(_POLL_S)
        record_cache_hit()
        return recorded[0]

    def get_blocking(
        self, function: str, arguments: Mapping[str, Any], call: Callable[[], Any]
    ) -> Any:
        """Do the same as `get` for a function that is not async."""
        key, ends = self.key(function, arguments), time.monotonic() + SHARE_S
        recorded = self._find(key)
        while not recorded:
            with self.try_claim(key) as is_claimed:
                recorded = self._find(key, is_again=True)
                if not recorded and (is_claimed or time.monotonic() > ends):
                    return self._save(key, call())
            if not recorded:
                time.sleep(_POLL_S)
        record_cache_hit()
        return recorded[0]

    def key(self, function: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return what identifies a call."""
        return {"cache_key": self._cache_key, "function": function, "arguments": dict(arguments)}

    @contextmanager
    def try_claim(self, key: Mapping[str, Any]) -> Iterator[bool]:
        """Try to make a call alone; yield whether nobody else makes it now.

        Others are in any process. When recording, every caller may make it.
        Raises ConfigError if nothing can be written.
        """
        path = self._path(key)
        lock = path.with_name(f".{path.stem}.lock")
        # A cached function may call itself.
        if self._mode == "record" or lock in _claimed.get():
            yield True
            return
        try:
            make_folder(self._folder)
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

    def _find(self, key: Mapping[str, Any], *, is_again: bool = False) -> list[Any]:
        """Return a list of the recorded response; empty if the call has to be made.

        Raises ConfigError when replaying what is missing or cannot be read.
        """
        path = self._path(key)
        if self._mode == "record":
            return []
        if path.exists():
            try:
                return [_unpack(_read(path)["value"])]
            except (ValueError, KeyError, TypeError, OSError) as error:
                problem = f"cannot be replayed: {error}; delete it to make the call again"
                if self._mode == "replay":
                    raise ConfigError(str(path), problem) from error
                if not is_again:
                    logger.warning("%s: %s; the call is made again", path, problem)
        if self._mode == "replay":
            raise self._not_recorded_error(key)
        return []

    def _save(self, key: Mapping[str, Any], response: Any) -> Any:
        """Write a response atomically, and return it. Raises ConfigError."""
        path = self._path(key)
        value = _pack(response, key["function"])
        cleaned = self._clean({"key": dict(key), "value": value})
        text = json.dumps({"format": RECORDING_FORMAT, **cleaned}, indent=1)
        try:
            replace_file(path, [text.encode()])
        except OSError as error:
            raise ConfigError(str(path), f"the response cannot be written: {error}") from error
        return response

    def _not_recorded_error(self, key: Mapping[str, Any]) -> NotRecorded:
        """Return the error for a missing response; it shows where the nearest call differs."""
        function = key["function"]
        now = dict(_leaves(self._clean(dict(key))))
        recorded_calls: dict[Path, dict[str, str]] = {}
        for path in sorted(self._folder.glob("*.json")):
            try:
                recorded = _read(path)["key"]
            except (ValueError, KeyError, TypeError, OSError):
                continue  # a file that cannot be read is no help here
            if recorded.get("function") == function:
                recorded_calls[path] = dict(_leaves(recorded))
        if not recorded_calls:
            message = f"nothing is recorded for it in {self._folder}; {_HOW_TO_RECORD}"
            return NotRecorded(function, message)
        path, nearest = max(
            recorded_calls.items(), key=lambda call: len(call[1].items() & now.items())
        )
        return NotRecorded(
            function,
            f"no response to this call is recorded; the nearest is {path}, which differs at"
            f" {_difference(nearest, now)}; {_HOW_TO_RECORD}",
        )

    def _path(self, key: Mapping[str, Any]) -> Path:
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()[:32]
        return self._folder / f"{_file_name(key['function'])[-80:]}-{digest}.json"


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
    dots = "…" if start else ""
    before, after = (one_line(text[start:], _MAX_SHOWN) for text in (before, after))
    return f"{location}: recorded {dots}{before}, now {dots}{after}"


def _pack(value: Any, function: str) -> dict[str, Any]:
    """Return a response of the function as JSON. Raises ConfigError if it cannot be recorded."""
    if isinstance(value, EndConversation):
        return {"end": asdict(value)}
    if isinstance(value, BaseModel):
        model = f"{type(value).__module__}:{type(value).__qualname__}"
        return {"model": model, "value": value.model_dump(mode="json")}
    if isinstance(value, list):
        return {"list": [_pack(item, function) for item in value]}
    if _is_json(value):
        return {"value": value}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"mapping": {key: _pack(item, function) for key, item in value.items()}}
    raise ConfigError(
        function,
        f"returns {instance_of(value)}, which @scenario.cache cannot record; return a text, a"
        " number, a message, a pydantic model, or a list or mapping of these",
    )


def _is_json(value: Any) -> bool:
    """Whether a value comes back from JSON as it was; a tuple, for example, does not."""
    try:
        return bool(json.loads(json.dumps(value)) == value)
    except (TypeError, ValueError, RecursionError):
        return False


def _unpack(packed: dict[str, Any]) -> Any:
    """Return the response.

    Raises ValueError if its class is missing or has changed, or for what only earlier versions
    wrote.
    """
    match packed:
        case {"model": name, "value": value}:
            return _unpack_model(name, value)
        case {"value": value}:
            return value
        case {"end": ending}:
            return EndConversation(**ending)
        case {"list": items}:
            return [_unpack(item) for item in items]
        case {"mapping": items}:
            return {key: _unpack(item) for key, item in items.items()}
    raise ValueError(f"it is a {next(iter(packed), None)} of an earlier version")


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
