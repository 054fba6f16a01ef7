"""Why a request is not in a recording: the nearest one that is, and where it differs."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from holodeck.lib.support.text import one_line, plural

Json = Any
_VOLATILE = {
    "date": r"\d{4}-\d\d-\d\d",
    "time": r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(:\d\d(\.\d+)?)?(Z|[+-]\d\d:?\d\d)?",
    "clock": r"\d\d:\d\d(:\d\d(\.\d+)?)?",
    "uuid": r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}",
    "path": r"(/[\w.-]+){2,}",
}
"""Parts of texts that differ from run to run, by the name that a rule gets for them."""
_BEFORE, _SHOWN = 20, 80
_ABSENT = object()


def describe_miss(
    participant: str,
    number: int,
    request: Mapping[str, Json],
    recorded: Sequence[Mapping[str, Json]],
    times: int = 1,
) -> str:
    """Return why the request of that number has no response.

    Args:
        participant: Who asked.
        number: The how manieth request of the participant it is.
        request: The request, in its canonical form and without secrets.
        recorded: The requests of the participant that are recorded.
        times: How often it was asked, this time included.
    """
    subject = f"request {number} of the {participant} ({request['path']}) is not recorded"
    if not recorded:
        return f"{subject}; nothing of the {participant} is: record it with --record"
    if request in recorded:
        count = plural(sum(request == other for other in recorded), "time")
        return f"{subject} so often: it was sent {count}, and now {plural(times, 'time')}"
    leaves = dict(_leaves(request))
    nearest = min(recorded, key=lambda other: _distance(leaves, dict(_leaves(other))))
    before = dict(_leaves(nearest))
    path = next(
        path
        for path in (*leaves, *before)
        if leaves.get(path, _ABSENT) != before.get(path, _ABSENT)
    )
    old, new = before.get(path, _ABSENT), leaves.get(path, _ABSENT)
    shown = f"recorded {_show(old, new)}, now {_show(new, old)}"
    return f"{subject}; the nearest differs at {path}: {shown}{_advice(old, new)}"


def _leaves(value: Json, path: str = "$") -> Iterator[tuple[str, Json]]:
    """Yield the path and the value of each part that has no parts; the body is the root."""
    if path == "$" and isinstance(value, dict) and "path" in value:
        yield "path", value["path"]
        value = value.get("body")
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, f"{path}.{key}")
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]")
    else:
        yield path, value


def _distance(leaves: Mapping[str, Json], others: Mapping[str, Json]) -> tuple[bool, int]:
    different = sum(others.get(path, _ABSENT) != value for path, value in leaves.items())
    missing = len(others.keys() - leaves.keys())
    return leaves.get("path") != others.get("path"), different + missing


def _show(value: Json, other: Json) -> str:
    """Return a value as JSON; of a long text, the part around the first difference."""
    if value is _ABSENT:
        return "nothing"
    if isinstance(value, str) and isinstance(other, str) and len(value) > _SHOWN:
        pairs = enumerate(zip(value, other, strict=False))
        at = next((at for at, (ours, theirs) in pairs if ours != theirs), 0)
        value = ("…" if at > _BEFORE else "") + value[max(0, at - _BEFORE) :]
    return one_line(json.dumps(value, ensure_ascii=False), _SHOWN)


def _advice(old: Json, new: Json) -> str:
    """Return what to write if the values differ only in what differs from run to run."""
    if not isinstance(old, str) or not isinstance(new, str):
        return ""
    for name, pattern in _VOLATILE.items():
        if re.sub(pattern, "", old) == re.sub(pattern, "", new):
            rule = f"{{name: {name}, pattern: '{pattern}'}}"
            return f"; if it differs each time, write recordings: {{ignore: [{rule}]}}"
    return ""
