"""Parsers for what agents and models return: responses, tool calls and their arguments."""

import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NoReturn

import pydantic

from holodeck.errors import BackendSessionError
from holodeck.lib.backends.base import ExecutionResult, RequestedCall, ToolResult
from holodeck.lib.support.signatures import ANSWER_KEYS, RESULT_KEYS
from holodeck.lib.support.synonyms import did_you_mean_key
from holodeck.lib.support.text import instance_of, one_line
from holodeck.lib.tools.base import MAX_DEPTH, is_too_deep, require_json, to_json_value
from holodeck.models.token_usage import TokenUsage

NAME_KEYS = ("name", "tool_name")
_ARGUMENTS_KEYS = ("arguments", "args", "input")
_CALL_ID_KEYS = ("call_id", "id", "tool_call_id")
_RESULT_KEYS = ("result", "output", "content")
_OUTCOME_KEYS = ("is_error", "error", "type", "metadata")
CALL_KEYS = (
    *NAME_KEYS,
    *_ARGUMENTS_KEYS,
    *_CALL_ID_KEYS,
    *("agent", "transfer_to", "result"),
    *_OUTCOME_KEYS,
)
"""Keys of a tool call in such a mapping; holodeck reads neither `type` nor `metadata`."""
RETURNED_KEYS = (
    *NAME_KEYS,
    *_RESULT_KEYS,
    *_CALL_ID_KEYS,
    *_OUTCOME_KEYS,
    *("refused", "blocked"),
)
"""Keys of the result of a tool call."""
TEXT_KEYS = ("text", "content", "page_content")
PASSAGE_KEYS = (*TEXT_KEYS, "source", "id", "score", "type", "metadata")
"""Keys of a retrieved passage, of which the text and the source are read."""
_MISSING: Any = object()


def parse_result(value: Any) -> ExecutionResult:
    """Return the result that an agent returned as text, mapping, object or ExecutionResult.

    A mapping and an object with attributes are read alike: `response`, `output` or `text`, and
    optionally `tool_calls`, `tool_results`, `retrieval_context`, `usage` and `agents`. What is left
    out is unknown. A mapping with an `error` says that the agent failed. Raises
    BackendSessionError, which says what to return.
    """
    if isinstance(value, ExecutionResult):
        return value
    if isinstance(value, str):
        return ExecutionResult(response=value, source="adapter")
    error = value.get("error") if isinstance(value, Mapping) else None
    if error:
        reason = first_present(error, ("message",), error)
        shown = None if reason is True else as_text(reason)
        return ExecutionResult("", is_error=True, error_reason=shown, source="adapter")
    text = _MISSING if value is None else first_present(value, ANSWER_KEYS)
    if text is _MISSING or text is None:
        raise BackendSessionError(
            f"the agent returned {_describe(value)}; return the answer as text,"
            f" or a mapping with {', '.join(map(repr, ANSWER_KEYS))}"
        )
    try:
        require_json(text)
    except (ValueError, TypeError, RecursionError) as error:
        raise BackendSessionError(
            f"the agent returned {_describe(value)}, whose answer is {_describe(text)}; return the"
            " answer as text, or as data that JSON holds"
        ) from error
    if isinstance(value, Mapping):
        _check_keys(value, (*RESULT_KEYS, "error"), "the agent returned")
    calls, results = _tools_used(value)
    problem = first_present(value, ("tool_calls_problem",), None)
    pending = first_present(value, ("pending_approvals",), None)
    return ExecutionResult(
        response=as_text(text),
        structured_output=None if isinstance(text, str) else to_json_value(text),
        tool_calls=calls,
        tool_results=results,
        pending_approvals=parse_tool_calls(pending)[0] or [],
        token_usage=parse_usage(first_present(value, ("usage", "token_usage"), None)),
        model=_model_name(value),
        agents=parse_agents(first_present(value, ("agents",), None)),
        retrieval_context=parse_passages(first_present(value, ("retrieval_context",), None)),
        tool_calls_problem=None if problem is None else str(problem),
        ends_with_calls=_ends_with_calls(value),
        left_out=frozenset(map(str, first_present(value, ("left_out",), ()))),
        source="adapter",
    )


def _model_name(value: Any) -> str | None:
    """Return the model that an agent says has answered; an object may have another `model`."""
    name = first_present(value, ("model",), None)
    if isinstance(value, Mapping) and not isinstance(name, str | None):
        raise BackendSessionError(f"'model' must be the name of a model, not {_describe(name)}")
    return name if isinstance(name, str) and name else None


def _ends_with_calls(value: Any) -> bool:
    """Whether an agent says that it stopped after its calls."""
    ends = first_present(value, ("ends_with_calls",), False)
    if isinstance(value, Mapping) and not isinstance(ends, bool):
        raise BackendSessionError(f"'ends_with_calls' is true or false, not {_describe(ends)}")
    return ends is True


def complete_result(
    result: ExecutionResult, tools: list[str] | None, reads_tool_errors: bool
) -> None:
    """Add to a turn what is known of its agent: the tools, and whether their errors are seen."""
    result.tools = tools
    if not reads_tool_errors:
        for returned in result.tool_results:
            returned["is_error_unknown"] = not returned.get("is_error")


def _tools_used(value: Any) -> tuple[list[RequestedCall] | None, list[ToolResult]]:
    """Return the tool calls and their results in what an agent returned; None if unknown."""
    requested = first_present(value, ("tool_calls",), None)
    returned = _list(first_present(value, ("tool_results",), None), "tool_results")
    if isinstance(value, Mapping):
        requested = None if requested is None else _list(requested, "tool_calls")
        for i, call in enumerate(requested or []):
            _check_keys(call, CALL_KEYS, f"tool_calls[{i}] is")
        for i, result in enumerate(returned):
            _check_keys(result, RETURNED_KEYS, f"tool_results[{i}] is")
    calls, results = parse_tool_calls(requested)
    results += [_tool_result(item, f"tool_results[{i}]") for i, item in enumerate(returned)]
    if calls is None and results:
        raise BackendSessionError(
            "the agent returned 'tool_results' without 'tool_calls'; return both"
        )
    return calls, results


def _check_keys(value: Any, known: Sequence[str], subject: str) -> None:
    """Raise BackendSessionError for an unknown key, such as a misspelt 'tool_calls'."""
    unknown = [key for key in value if key not in known] if isinstance(value, Mapping) else []
    if unknown:
        hint = did_you_mean_key(str(unknown[0]), known, ".")
        raise BackendSessionError(
            f"{subject} a mapping with unknown {'keys' if unknown[1:] else 'key'}"
            f" {', '.join(map(repr, unknown))}{hint} The keys are {', '.join(known)};"
            " anything else belongs in 'metadata'"
        )


def as_text(answer: Any) -> str:
    """Return a response as text; what is not text, as JSON."""
    plain = to_json_value(answer)
    return plain if isinstance(plain, str) else json.dumps(plain, ensure_ascii=False)


def parse_tool_calls(calls: Any) -> tuple[list[RequestedCall] | None, list[ToolResult]]:
    """Return the tool calls, each given as a name or with `name`, and the results in them.

    None for calls means that they are unknown.
    """
    if calls is None:
        return None, []
    tool_calls: list[RequestedCall] = []
    results: list[ToolResult] = []
    for i, item in enumerate(_list(calls, "tool_calls")):
        call = _tool_call(item, f"tool_calls[{i}]")
        result = _outcome(item, call["name"], ("result",), f"tool_calls[{i}]")
        if result is not None:
            result["call_id"] = call.setdefault("call_id", f"call_{i}")
            results.append(result)
        tool_calls.append(call)
    return tool_calls, results


def parse_agents(names: Any) -> list[str] | None:
    """Return the names of the agents that spoke, consecutive repeats collapsed; None: unknown."""
    if names is None:
        return None
    spoke: list[str] = []
    for i, name in enumerate(_list(names, "agents")):
        if not isinstance(name, str):
            raise BackendSessionError(f"agents[{i}] must be a name, not {_describe(name)}")
        if spoke[-1:] != [name]:
            spoke.append(name)
    return spoke


def parse_passages(passages: Any) -> list[str] | None:
    """Return the retrieved passages, each given as text or with `text` and `source`; None: unknown.

    The source stands before the text, so that metrics see it. Empty passages are left out.
    """
    if passages is None:
        return None
    texts: list[str] = []
    for i, item in enumerate(_list(passages, "retrieval_context")):
        location = f"retrieval_context[{i}]"
        _check_keys(item, PASSAGE_KEYS, f"{location} is")
        text = item if isinstance(item, str) else first_present(item, TEXT_KEYS)
        source = first_present(item, ("source",), None)
        if not isinstance(text, str) or not isinstance(source, str | None):
            raise BackendSessionError(
                f"{location} is {_describe(item)}; return a text, or a mapping with 'text' and"
                " 'source', which are texts"
            )
        if text.strip():
            texts.append(f"[{source}] {text}" if source else text)
    return texts


def passages_in(data: Any) -> list[str] | None:
    """Return the passages under `retrieval_context` in the data of an answer, or in one of several;
    None if they are unknown."""
    pieces = data if isinstance(data, list) else [data]
    keys = (piece.get("retrieval_context") for piece in pieces if isinstance(piece, Mapping))
    return parse_passages(next((passages for passages in keys if passages is not None), None))


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
            f"usage is {_describe(usage)}; prompt_tokens and completion_tokens are counts"
        ) from error


def first_present(value: Any, keys: Iterable[str], default: Any = _MISSING) -> Any:
    """Return the value of the first key that exists, as item of a mapping or as attribute."""
    for key in keys:
        if isinstance(value, Mapping):
            if key in value:
                return value[key]
        elif not isinstance(value, str) and hasattr(value, key):
            return getattr(value, key)
    return default


def _tool_call(item: Any, location: str) -> RequestedCall:
    if isinstance(item, str):
        return {"name": item}
    call: RequestedCall = {"name": _tool_name(item, location)}
    written = first_present(item, _ARGUMENTS_KEYS)
    if written is not _MISSING:
        call["arguments"], problem = _returned_arguments(written)
        if problem is not None:
            call["error"] = problem
    call_id = first_present(item, _CALL_ID_KEYS, None)
    if call_id is not None:
        call["call_id"] = str(call_id)
    agent = first_present(item, ("agent",), None)
    if agent is not None:
        call["agent"] = str(agent)
    transfer_to = first_present(item, ("transfer_to",), None)
    if transfer_to is not None:
        call["transfer_to"] = str(transfer_to)
    return call


def _tool_result(item: Any, location: str) -> ToolResult:
    name = _tool_name(item, location)
    result = _outcome(item, name, _RESULT_KEYS, location) or {"name": name, "result": None}
    call_id = first_present(item, _CALL_ID_KEYS, None)
    if call_id is not None:
        result["call_id"] = str(call_id)
    if first_present(item, ("refused",), False):
        result["is_error"] = result["refused"] = True
    if first_present(item, ("blocked",), False):
        result["blocked"] = True
    return result


def _outcome(item: Any, name: str, keys: Sequence[str], location: str) -> ToolResult | None:
    """Return the result of a call, which `error` and `is_error` say to be an error; None if the
    agent says nothing of it."""
    result = first_present(item, keys)
    error = first_present(item, ("error",), None)
    is_error = bool(error or first_present(item, ("is_error",), False))
    if result is _MISSING and not is_error:
        return None
    if error and result is not _MISSING and result is not None:
        raise BackendSessionError(
            f"{location} has a result and an 'error'; a call that failed has only 'error'"
        )
    value = error or (None if result is _MISSING else result)
    returned: ToolResult = {"name": name, "result": to_json_value(value)}
    if is_error:
        returned["is_error"] = True
    return returned


def _tool_name(item: Any, location: str) -> str:
    name = first_present(item, NAME_KEYS, None)
    if not isinstance(name, str):
        raise BackendSessionError(f"{location} has no name: {_describe(item)}")
    return name


def _returned_arguments(given: Any) -> tuple[dict[str, Any], str | None]:
    """Return the arguments, given as a mapping or as JSON, and why they could not be read."""
    if given is None or given == "":
        return {}, None
    try:
        arguments = to_json_value(json.loads(given) if isinstance(given, str) else given)
    except (ValueError, RecursionError):
        arguments = None
    if isinstance(arguments, dict):
        return arguments, None
    shown = given if isinstance(given, str) else as_text(given)
    return {}, f"the arguments are not a JSON object: {one_line(shown, 200)}"


def _list(value: Any, location: str) -> list[Any]:
    if value is None:
        return []
    if isinstance(value, str | Mapping) or not isinstance(value, Iterable):
        raise BackendSessionError(f"{location} must be a list, not {_describe(value)}")
    return list(value)


def _describe(value: Any) -> str:
    if value is None:
        return "None"
    if isinstance(value, Mapping):
        return f"a mapping with {', '.join(map(repr, value)) or 'nothing in it'}"
    return f"{instance_of(value)} ({one_line(as_text(value), 100)})"


MAX_DIGITS = 4_000
"""Of a number in a model's arguments; the time to read one grows with the square of its digits."""
_TOO_DEEP = f"arguments nested more than {MAX_DEPTH} levels deep, which are kept as text"


class _InvalidArguments(Exception):
    """JSON that cannot be the arguments of a tool."""


def parse_arguments(arguments: str | Mapping[str, Any] | None) -> tuple[dict[str, Any], str | None]:
    """Return the arguments that a model wrote as a mapping, and why they could not be parsed.

    Arguments that could not be parsed are returned as text under the key `raw`.
    """
    try:
        if isinstance(arguments, str):
            return _load_arguments(arguments), None
        plain = to_json_value(arguments or {})
        if isinstance(plain, dict):
            return plain, None
        reason = _TOO_DEEP
    except RecursionError:
        reason = _TOO_DEEP
    except _InvalidArguments as error:
        reason = str(error)
    except ValueError as error:
        reason = f"malformed arguments: {error}"
    raw = arguments if isinstance(arguments, str) else to_json_value(arguments)
    return {"raw": raw}, f"the model wrote {reason}"


def requested_call(
    name: str,
    arguments: str | Mapping[str, Any] | None,
    call_id: str | None = None,
    agent: str | None = None,
) -> RequestedCall:
    """Return a call with its arguments as the model wrote them."""
    call: RequestedCall = {"name": name}
    call["arguments"], error = parse_arguments(arguments)
    if error is not None:
        call["error"] = error
    if call_id is not None:
        call["call_id"] = call_id
    if agent is not None:
        call["agent"] = agent
    return call


def _load_arguments(text: str) -> dict[str, Any]:
    if not text.strip():
        return {}
    arguments = json.loads(
        text, parse_constant=_reject_constant, parse_int=_parse_int, parse_float=_parse_float
    )
    if arguments is None:  # some models write null for a tool without parameters
        return {}
    if not isinstance(arguments, dict):
        raise _InvalidArguments("arguments that are not a JSON object")
    if is_too_deep(arguments, text):
        raise _InvalidArguments(_TOO_DEEP)
    return arguments


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


def _parse_int(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"a number has {len(digits):,} digits; at most {MAX_DIGITS:,} are read")
    return int(digits)


def _parse_float(digits: str) -> float:
    number = float(digits)
    if not math.isfinite(number):
        raise ValueError(f"the number {one_line(digits, 20)} is too large")
    return number


def unique_call_id(call_id: str, known: Collection[str]) -> str:
    """Return the id, changed if it is empty or known already."""
    number, unique = len(known) + 1, call_id
    while not unique or unique in known:
        unique, number = f"{call_id or 'call'}_{number}", number + 1
    return unique
