"""Check the spans of the agent against what a case or turn expects of them."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase

from holodeck.errors import EvaluationError
from holodeck.lib.checks.matching import describe_matcher, matches
from holodeck.lib.support.text import did_you_mean, nearest_word, one_line, plural
from holodeck.lib.support.tool_names import is_near, is_similar
from holodeck.models.cases.matchers import (
    DURATION,
    ArgMatcher,
    CountBounds,
    SpanCheck,
    SpanStatus,
    TraceChecks,
    ValueBounds,
)
from holodeck.models.results.evidence import RecordedSpan, Trace
from holodeck.models.test_result import ToolCheck

Decision = tuple[bool, str]
"""Whether a check passed, and what was seen."""
_GLOB = frozenset("*?[")
_MAX_NAMES = 10
_MAX_NAME = 80
_UNRECORDED = "the spans of the agent are unknown, because they were not recorded"
_AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {"sum": sum, "max": max, "min": min}


def check_trace(checks: TraceChecks, traces: Sequence[Trace | None]) -> list[ToolCheck]:
    """Return a row for each check of the spans of a case or turn.

    What is known decides as far as no further span could change it. Every other row is an error if
    there may be further spans; without any spans, every row is.

    Args:
        checks: The checks.
        traces: What was seen of each call of the agent; None if nothing was recorded.
    """
    known = [Trace(problem=_UNRECORDED) if trace is None else trace for trace in traces]
    spans = [span for trace in known for span in trace.spans]
    problem = next((trace.problem for trace in known if trace.problem), "")
    required = [
        SpanCheck(span=name, count=CountBounds(min=least)) for name, least in checks.require.items()
    ]
    return [_check_row(check, Spans(spans, problem)) for check in (*required, *checks.checks)]


@dataclass(frozen=True)
class Spans:
    """The spans that were seen."""

    seen: Sequence[RecordedSpan]
    problem: str
    """Why there may be further spans; empty if these are all."""

    def named(self, written: str) -> list[RecordedSpan]:
        """Return the spans of a name or operation."""
        return [span for span in self.seen if _is_named(span, written)]

    def meant(self, check: SpanCheck) -> list[RecordedSpan]:
        """Return the spans that a check is about. Raises EvaluationError."""
        matchers = check.matchers()
        return [
            span
            for span in self.named(check.span)
            if all(_has(span, name, matcher) for name, matcher in matchers.items())
        ]

    def require_all(self) -> None:
        """Raise EvaluationError if there may be further spans."""
        if self.problem:
            raise EvaluationError(self.problem)

    def missing(self, written: str, check: SpanCheck | None = None) -> str:
        """Return that no span is meant, and which there are."""
        if self.named(written):
            expected = "" if check is None else _describe_attributes(check)
            return f"no span {written!r} has{expected}; {self.list_names()}"
        names = {span.name for span in self.seen} | {span.operation or "" for span in self.seen}
        return f"no span is named {written!r}{did_you_mean(written, names)}; {self.list_names()}"

    def list_names(self) -> str:
        """Return the names of the spans with their numbers."""
        names = Counter(span.name for span in self.seen)
        shown = [
            one_line(name, _MAX_NAME) + (f" × {number}" if number > 1 else "")
            for name, number in [*names.items()][:_MAX_NAMES]
        ]
        more = [f"{len(names) - _MAX_NAMES} more"] if len(names) > _MAX_NAMES else []
        return f"spans seen: {', '.join([*shown, *more]) or 'none'}"


def _check_row(check: SpanCheck, spans: Spans) -> ToolCheck:
    expectation = describe_check(check)
    try:
        if not spans.seen:
            spans.require_all()
        passed, reason = _decide(check, spans)
    except EvaluationError as error:
        return ToolCheck(expectation=expectation, passed=False, error=str(error), kind="trace")
    shown = reason if passed else f"{expectation}: {reason}"
    return ToolCheck(expectation=expectation, passed=passed, reason=shown, kind="trace")


def _decide(check: SpanCheck, spans: Spans) -> Decision:
    meant = spans.meant(check)
    number = _count_bounds(check)
    if number is not None:
        return _check_count(check, number, meant, spans)
    if not meant:
        spans.require_all()
        return False, spans.missing(check.span, check)
    if check.status is not None:
        return _check_status(check.status, meant, spans)
    if check.after is not None:
        return _check_after(check.after, meant, spans)
    kind, bounds = _value_bounds(check)
    return _check_value(kind, bounds, meant, spans)


def _check_count(
    check: SpanCheck, bounds: CountBounds, meant: Sequence[RecordedSpan], spans: Spans
) -> Decision:
    number = len(meant)
    seen = plural(number, "span")
    if bounds.max is not None and number > bounds.max:
        return False, f"{seen} instead of {_range(bounds)}"
    if bounds.max is None and number >= (bounds.min or 0):
        return True, seen
    spans.require_all()
    if number < (bounds.min or 0):
        if not number:
            return False, spans.missing(check.span, check)
        return False, f"{seen} instead of {_range(bounds)}; {spans.list_names()}"
    if not number:
        require_unmistaken(check, spans.named(check.span), spans.seen)
    return True, seen


def _check_status(status: SpanStatus, meant: Sequence[RecordedSpan], spans: Spans) -> Decision:
    other = next((span for span in meant if span.status != status), None)
    if other is None:
        spans.require_all()
        return True, plural(len(meant), "span")
    why = f": {one_line(other.status_message, 200)}" if other.status_message else ""
    is_default = other.status == "unset" and status == "ok"
    hint = "; that is what spans without an error have by default" if is_default else ""
    return False, f"the status of {_shown(other)} is {other.status}{why}{hint}"


def _check_after(name: str, meant: Sequence[RecordedSpan], spans: Spans) -> Decision:
    before = spans.named(name)
    early = next((span for span in meant if not _follows(span, before)), None)
    spans.require_all()
    if early is None:
        return True, plural(len(meant), "span")
    if not before:
        return False, spans.missing(name)
    is_inside = any(other.started_ns <= early.started_ns < other.ended_ns for other in before)
    what = "while it was under way" if is_inside else "before it"
    return False, f"no span {name!r} had ended when {_shown(early)} began: it began {what}"


def _follows(span: RecordedSpan, before: Sequence[RecordedSpan]) -> bool:
    return any(other.ended_ns <= span.started_ns for other in before if other is not span)


def _check_value(
    kind: str, bounds: ValueBounds, meant: Sequence[RecordedSpan], spans: Spans
) -> Decision:
    values = [_number(span, bounds.of) for span in meant]
    value = _AGGREGATES[kind](values)
    is_low = bounds.min is not None and value < bounds.min
    is_high = bounds.max is not None and value > bounds.max
    is_certain = (kind == "max" and is_high) or (kind == "min" and is_low)
    if not is_certain:
        spans.require_all()
    return not (is_low or is_high), f"it is {value:g} ({plural(len(meant), 'span')})"


def _number(span: RecordedSpan, name: str) -> float:
    """Return a number of a span. Raises EvaluationError if it has none of that name."""
    if name == DURATION:
        if span.ended_ns < span.started_ns:
            raise EvaluationError(f"{_shown(span)} ends before it begins: the clock was set back")
        return span.duration_ms
    if name not in span.attributes:
        hint = did_you_mean(name, [DURATION, *span.attributes])
        raise EvaluationError(f"{_shown(span)} has no attribute {name!r}{hint}")
    value = span.attributes[name]
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise EvaluationError(f"{name!r} of {_shown(span)} is no number: {_short(value)}")
    return value


def _is_named(span: RecordedSpan, written: str) -> bool:
    if written in {span.name, span.operation}:
        return True
    return not _GLOB.isdisjoint(written) and fnmatchcase(span.name, written)


def _has(span: RecordedSpan, name: str, matcher: ArgMatcher) -> bool:
    if name not in span.attributes:
        return False
    if name in span.cut:
        raise EvaluationError(f"{name!r} of {_shown(span)} is too long to compare; it was cut")
    return matches(matcher, span.attributes[name])


def describe_check(check: SpanCheck) -> str:
    """Return what a check demands, as rows show it."""
    about = f"span {check.span}{_describe_attributes(check)}"
    number = _count_bounds(check)
    if number is not None:
        return f"{about}: {_range(number)}"
    if check.status is not None:
        return f"{about}: status {check.status}"
    if check.after is not None:
        return f"{about}: after {check.after}"
    kind, bounds = _value_bounds(check)
    return f"{about}: {kind} of {bounds.of} {_range(bounds)}"


def _count_bounds(check: SpanCheck) -> CountBounds | None:
    """Return how many spans there must be; None if that is not checked."""
    if isinstance(check.count, int):
        return CountBounds(min=check.count or None, max=check.count)
    return check.count


def _value_bounds(check: SpanCheck) -> tuple[str, ValueBounds]:
    """Return which value of the spans is checked, and its bounds."""
    values = (("sum", check.sum), ("max", check.max), ("min", check.min))
    return next((kind, bounds) for kind, bounds in values if bounds is not None)


def _describe_attributes(check: SpanCheck) -> str:
    matchers = check.matchers().items()
    return "".join(f" {name}={describe_matcher(matcher)}" for name, matcher in matchers)


def _range(bounds: CountBounds | ValueBounds) -> str:
    if bounds.min == bounds.max:
        return f"{bounds.min:g}"
    if bounds.min is None:
        return "none" if bounds.max == 0 else f"at most {bounds.max:g}"
    return f"at least {bounds.min:g}" + ("" if bounds.max is None else f", at most {bounds.max:g}")


def _shown(span: RecordedSpan) -> str:
    return repr(one_line(span.name, _MAX_NAME))


_OPERATIONS = frozenset(
    {"chat", "create_agent", "embeddings", "execute_tool", "generate_content"}
    | {"invoke_agent", "invoke_workflow", "retrieval", "text_completion"}
)
"""The operations of the conventions; nobody means a part of a name by them."""
_TOOL = "execute_tool "
_TOOL_NAME = "gen_ai.tool.name"
_SHORT_WORD = 8


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
        having = [span.attributes[key] for span in named if key in span.attributes]
        if not having:
            known = dict.fromkeys(name for span in named for name in span.attributes)
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
    names = [name for span in seen for name in (span.name, span.operation) if name]
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
    known = [operation for operation in _OPERATIONS if not rest or len(operation) > _SHORT_WORD]
    suggestion = nearest_word(first.casefold(), known, cutoff=0.8)
    prefixed = (
        operation
        for operation in _OPERATIONS
        if first.endswith((f".{operation}", f":{operation}", f"__{operation}"))
    )
    return suggestion or next(prefixed, None)


def _is_part(written: str, name: str) -> bool:
    """Whether either of two names has the other as a word or words, as `execute_tool` the tool."""
    if _OPERATIONS & {written, name}:
        return False
    return _contains(name, written) or _contains(written, name)


def _is_near_tool(written: str, name: str) -> bool:
    """Whether either of two spans is of a tool whose name is like that of the other."""
    if not any(text.startswith(_TOOL) for text in (written, name)):
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
    return one_line(repr(value), _MAX_NAME)
