"""Find checks that pass because no span is meant, but only by a slip in a name or value.

`count: 0` passes without a span of that name. So would the check with a misspelt name or attribute,
although the forbidden span is there.
"""

import re
from collections.abc import Sequence

from holodeck.errors import EvaluationError
from holodeck.lib.suggestions import did_you_mean, nearest_word
from holodeck.lib.text import one_line
from holodeck.lib.tool_names import is_near, is_similar
from holodeck.models.spans import RecordedSpan
from holodeck.models.trace_checks import SpanCheck

_OPERATIONS = frozenset(
    {"chat", "create_agent", "embeddings", "execute_tool", "generate_content"}
    | {"invoke_agent", "invoke_workflow", "retrieval", "text_completion"}
)
"""The operations of the conventions; nobody means a part of a name by them."""
_TOOL = "execute_tool "
_TOOL_NAME = "gen_ai.tool.name"
_SHORT_WORD = 8
_MAX_SHOWN = 80


def require_unmistaken(
    check: SpanCheck, named: Sequence[RecordedSpan], seen: Sequence[RecordedSpan]
) -> None:
    """Raise EvaluationError if it is probably a mistake that the check is about none of the spans.

    Args:
        check: A check that no span may be, or only a few.
        named: The spans of its name.
        seen: All spans.
    """
    if not named:
        _require_right_name(check.span, seen)
    for key, value in check.attributes.items() if named else ():
        having = [one.attributes[key] for one in named if key in one.attributes]
        if not having:
            known = dict.fromkeys(name for one in named for name in one.attributes)
            raise EvaluationError(
                f"no span {check.span!r} has an attribute {key!r}, so that nothing can be said"
                f" about it{did_you_mean(key, known)}"
            )
        if not isinstance(value, dict):
            _require_right_value(key, value, having)


def _require_right_name(written: str, seen: Sequence[RecordedSpan]) -> None:
    operation = _operation_meant(written)
    if operation is not None:
        raise EvaluationError(
            f"no span is named {written!r}; did you mean {operation!r}? If not, write a glob"
        )
    names = [name for one in seen for name in (one.name, one.operation) if name]
    for name in dict.fromkeys(names):
        if name in _OPERATIONS:
            continue
        if is_similar(written, name) or _is_part(written, name) or _is_near_tool(written, name):
            raise EvaluationError(
                f"no span is named {written!r}, but one is named {_short(name)}; write that name,"
                " or a glob, to say which is meant"
            )


def _operation_meant(written: str) -> str | None:
    """Return the operation in which a name is a slip: `Chat`, `functions.chat`, `chat, tools`."""
    first, *rest = written.split()
    if first in _OPERATIONS:
        return None
    # `chart data` is no slip, `execute_tol data` is.
    known = [one for one in _OPERATIONS if not rest or len(one) > _SHORT_WORD]
    suggestion = nearest_word(first.casefold(), known, cutoff=0.8)
    prefixed = (one for one in _OPERATIONS if first.endswith((f".{one}", f":{one}", f"__{one}")))
    return suggestion or next(prefixed, None)


def _is_part(written: str, name: str) -> bool:
    """Whether one of two names has the other as a word or words, as `execute_tool` the tool."""
    if _OPERATIONS & {written, name}:
        return False
    return _contains(name, written) or _contains(written, name)


def _is_near_tool(written: str, name: str) -> bool:
    """Whether one of two spans is of a tool whose name is like that of the other."""
    if not any(one.startswith(_TOOL) for one in (written, name)):
        return False
    return is_near(written.removeprefix(_TOOL), name.removeprefix(_TOOL))


def _contains(text: str, words: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(words)}(?!\w)", text) is not None


def _require_right_value(key: str, written: object, having: Sequence[object]) -> None:
    if not any(_kind(value) == _kind(written) for value in having):
        raise EvaluationError(
            f"{key!r} is {_kind(having[0])} in the spans, {_short(having[0])}, and not"
            f" {_kind(written)}; write '{{equals: {written}}}' if that is meant"
        )
    is_like = is_near if key == _TOOL_NAME else is_similar
    for value in having:
        if isinstance(written, str) and isinstance(value, str) and is_like(written, value):
            raise EvaluationError(
                f"no span has {key!r} {written!r}, but one has {_short(value)}; write that value,"
                f" or '{{equals: {written}}}' if another is meant"
            )


def _kind(value: object) -> str:
    """Return what kind of value it is, as JSON has them."""
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    return "text" if isinstance(value, str) else "a list"


def _short(value: object) -> str:
    return one_line(repr(value), _MAX_SHOWN)
