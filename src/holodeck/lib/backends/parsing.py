"""Parsers for what agents return: responses, tool calls and their arguments."""

import json
import math
from collections.abc import Iterable, Mapping
from typing import Any, NoReturn

import pydantic

from holodeck.errors import BackendSessionError
from holodeck.lib.backends.base import ExecutionResult, ToolCall, ToolResult
from holodeck.lib.suggestions import did_you_mean
from holodeck.lib.text import one_line
from holodeck.lib.tools.base import MOST_DEPTH, is_deep, jsonable
from holodeck.models.token_usage import TokenUsage

ANSWER_KEYS = ("response", "output", "text")
RESULT_KEYS = (*ANSWER_KEYS, "tool_calls", "tool_results", "usage", "token_usage", "metadata")
"""What an agent may return in a mapping; `metadata` is its own and nothing reads it."""
_MISSING: Any = object()


def parse_result(value: Any) -> ExecutionResult:
    """The answer: text, an ExecutionResult, or something with `response`, `output` or `text`.

    A mapping and an object with attributes are read alike; `tool_calls`, `tool_results` and
    `usage` may stand beside the text. Without `tool_calls` the tool calls are unknown. Raises
    BackendSessionError, which says what to return; a mapping with other keys is one reason.
    """
    if isinstance(value, ExecutionResult):
        return value
    if isinstance(value, str):
        return ExecutionResult(response=value, source="adapter")
    text = _MISSING if value is None else first_present(value, ANSWER_KEYS)
    if text is _MISSING or text is None:
        raise BackendSessionError(
            f"the agent returned {_described(value)}; return the answer as text,"
            f" or a mapping with {', '.join(map(repr, ANSWER_KEYS))}"
        )
    if isinstance(value, Mapping):
        _refuse_unknown_keys(value)
    calls, results = parse_tool_calls(first_present(value, ("tool_calls",), None))
    results += _tool_results(first_present(value, ("tool_results",), None))
    if calls is None and results:
        raise BackendSessionError(
            "the agent returned 'tool_results' without 'tool_calls'; return both"
        )
    return ExecutionResult(
        response=as_text(text),
        structured_output=None if isinstance(text, str) else jsonable(text),
        tool_calls=calls,
        tool_results=results,
        token_usage=parse_usage(first_present(value, ("usage", "token_usage"), None)),
        source="adapter",
    )


def _refuse_unknown_keys(answer: Mapping[Any, Any]) -> None:
    """Raise BackendSessionError for a key that nothing reads: a misspelt 'tool_calls', say."""
    unknown = [key for key in answer if key not in RESULT_KEYS]
    if not unknown:
        return
    hint = did_you_mean(str(unknown[0]).lower(), RESULT_KEYS, ".", cutoff=0.5)
    raise BackendSessionError(
        f"the agent returned a mapping with unknown {'keys' if unknown[1:] else 'key'}"
        f" {', '.join(map(repr, unknown))}{hint} The keys are {', '.join(RESULT_KEYS)};"
        " anything else belongs in 'metadata'"
    )


def as_text(answer: Any) -> str:
    """The answer as text; whatever is not text as JSON."""
    plain = jsonable(answer)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def parse_tool_calls(calls: Any) -> tuple[list[ToolCall] | None, list[ToolResult]]:
    """Return the tool calls, each given as a name or with `name`, and the results in them.

    None for calls means that they are unknown.
    """
    if calls is None:
        return None, []
    made: list[ToolCall] = []
    results: list[ToolResult] = []
    for i, item in enumerate(_listed(calls, "tool_calls")):
        call = _tool_call(item, f"tool_calls[{i}]")
        result = first_present(item, ("result",), _MISSING)
        if result is not _MISSING:
            call.setdefault("call_id", f"call_{i}")
            results.append(
                {"name": call["name"], "result": jsonable(result), "call_id": call["call_id"]}
            )
        made.append(call)
    return made, results


def parse_usage(usage: Any) -> TokenUsage | None:
    """Return the token usage; None if the agent reports none, or only one half of it."""
    if usage is None or isinstance(usage, TokenUsage):
        return usage
    prompt = first_present(usage, ("prompt_tokens", "input_tokens"), None)
    completion = first_present(usage, ("completion_tokens", "output_tokens"), None)
    try:
        known = TokenUsage.of(prompt or 0, completion or 0)
        return None if prompt is None or completion is None else known
    except (pydantic.ValidationError, TypeError) as error:
        raise BackendSessionError(
            f"usage is {_described(usage)}; prompt_tokens and completion_tokens are counts"
        ) from error


def first_present(value: Any, keys: Iterable[str], default: Any = _MISSING) -> Any:
    """What stands under the first key that is there, as item of a mapping or as attribute."""
    for key in keys:
        if isinstance(value, Mapping):
            if key in value:
                return value[key]
        elif not isinstance(value, str) and hasattr(value, key):
            return getattr(value, key)
    return default


def _tool_call(item: Any, where: str) -> ToolCall:
    if isinstance(item, str):
        return {"name": item, "arguments": {}}
    name = first_present(item, ("name", "tool_name"), None)
    if not isinstance(name, str):
        raise BackendSessionError(f"{where} has no name: {_described(item)}")
    call: ToolCall = {"name": name}
    arguments, problem = _arguments(first_present(item, ("arguments", "args", "input"), None))
    call["arguments"] = arguments
    if problem is not None:
        call["error"] = problem
    call_id = first_present(item, ("call_id", "id", "tool_call_id"), None)
    if call_id is not None:
        call["call_id"] = str(call_id)
    return call


def _arguments(given: Any) -> tuple[dict[str, Any], str | None]:
    """The arguments, which may be written as JSON, and why they could not be read."""
    if given is None or given == "":
        return {}, None
    try:
        read = jsonable(json.loads(given) if isinstance(given, str) else given)
    except (ValueError, RecursionError):
        read = None
    if isinstance(read, dict):
        return read, None
    shown = given if isinstance(given, str) else as_text(given)
    return {}, f"the arguments are no JSON object: {one_line(shown, 200)}"


def _tool_results(results: Any) -> list[ToolResult]:
    return [
        _tool_result(item, f"tool_results[{i}]")
        for i, item in enumerate(_listed(results, "tool_results"))
    ]


def _tool_result(item: Any, where: str) -> ToolResult:
    name = first_present(item, ("name", "tool_name"), None)
    if not isinstance(name, str):
        raise BackendSessionError(f"{where} has no name: {_described(item)}")
    result: ToolResult = {
        "name": name,
        "result": jsonable(first_present(item, ("result", "output", "content"), None)),
    }
    call_id = first_present(item, ("call_id", "id", "tool_call_id"), None)
    if call_id is not None:
        result["call_id"] = str(call_id)
    if first_present(item, ("is_error",), False):
        result["is_error"] = True
    return result


def _listed(value: Any, where: str) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise BackendSessionError(f"{where} is to be a list, not {_described(value)}")
    return list(value)


def _described(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, Mapping):
        return f"a mapping with {', '.join(map(repr, value)) or 'nothing in it'}"
    return f"a {type(value).__name__} ({one_line(as_text(value), 100)})"


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
