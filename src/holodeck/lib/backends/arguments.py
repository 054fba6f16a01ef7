"""The arguments of a tool call, as a model wrote them; nothing in them is trusted."""

import json
import math
from collections.abc import Mapping
from typing import Any, NoReturn

from holodeck.lib.text import one_line
from holodeck.lib.tools.base import MOST_DEPTH, is_deep, jsonable

MOST_DIGITS = 4_000
"""Of a number; the time it takes to read one grows with the square of its digits."""


def parse_arguments(written: str | Mapping[str, Any] | None) -> tuple[dict[str, Any], str | None]:
    """The arguments as a mapping, and why they could not be read if they could not.

    What could not be read stands under `raw`, as text.
    """
    try:
        return (_parsed(written) if isinstance(written, str) else _kept(written or {})), None
    except RecursionError:
        why = _DEEP
    except _Unusable as error:
        why = str(error)
    except ValueError as error:
        why = f"malformed arguments: {error}"
    raw = written if isinstance(written, str) else jsonable(written)
    return {"raw": raw}, f"the model wrote {why}"


_DEEP = f"arguments nested more than {MOST_DEPTH} levels deep, which are kept as text"


def unique_call_id(call_id: str, known: set[str]) -> str:
    """Return the id, changed if it is empty or known already, and add it to the known ids."""
    number, unique = len(known) + 1, call_id
    while not unique or unique in known:
        unique, number = f"{call_id or 'call'}_{number}", number + 1
    known.add(unique)
    return unique


class _Unusable(Exception):
    """JSON that is no arguments."""


def _parsed(written: str) -> dict[str, Any]:
    if not written.strip():
        return {}
    parsed = json.loads(written, parse_constant=_no_constant, parse_int=_whole, parse_float=_finite)
    if parsed is None:  # what some write for a tool without parameters
        return {}
    if not isinstance(parsed, dict):
        raise _Unusable("arguments that are not a JSON object")
    if is_deep(parsed, written):
        raise _Unusable(_DEEP)
    return parsed


def _kept(given: Mapping[str, Any]) -> dict[str, Any]:
    plain = jsonable(given)
    if not isinstance(plain, dict):
        raise _Unusable(_DEEP)
    return plain


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _whole(digits: str) -> int:
    if len(digits) > MOST_DIGITS:
        raise ValueError(f"a number has {len(digits):,} digits; at most {MOST_DIGITS:,} are read")
    return int(digits)


def _finite(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {one_line(digits, 20)} is too large")
    return number
