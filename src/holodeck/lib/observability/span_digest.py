"""Spans as text that a judge can read: a tree, the details of some spans, and passages.

Everything that a span contains is on lines of its own, indented, and without line ends, so that it
cannot look like the text around it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from holodeck.lib.observability.span_log import (
    ROLE,
    THREAD_ID,
    attributes_of,
    is_ours,
    parent_id,
    sort_spans,
    span_id,
)
from holodeck.lib.support.text import one_line, plural, printable

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import ReadableSpan

LOOKUP_LIMIT = 16_000
"""Most characters of one answer to `expand` or `grep`."""
MAX_MATCHES = 20
_VALUE = 1_000
_EXPANDED_VALUE = 8_000
_REPEATED = 100
"""From so many characters, a text that was shown before is not shown again."""
_MAX_ERRORS = 20
_NAME = 200
_TOKENS = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens")
_OUR_ATTRIBUTES = ("scenario.", "langwatch.origin")


@dataclass(frozen=True)
class Digest:
    """Spans as text."""

    text: str
    is_cut: bool
    """Whether something is missing from the text."""


def digest_of(spans: Sequence[ReadableSpan], budget: int) -> Digest:
    """Return the tree of spans within so many characters.

    With attributes and events if they fit, else without; then spans are left out as well, but
    those that failed.
    """
    full = _FullText()
    text = _joined(spans, [line for span, depth in _tree(spans) for line in full.of(span, depth)])
    if len(text) <= budget:
        return Digest(text, full.is_cut)
    lines = [_head_line(span, depth) for span, depth in _tree(spans)]
    text = _joined(spans, [*lines, "", "Attributes and events are left out: look them up."])
    if len(text) <= budget:
        return Digest(text, is_cut=True)
    return Digest(_joined(spans, _within(spans, budget)), is_cut=True)


def expand(spans: Sequence[ReadableSpan], ids: Iterable[str]) -> str:
    """Return the attributes and events of the spans whose ids begin so."""
    wanted = [one.strip().strip("[]").lower() for one in ids]
    wanted = [one for one in wanted if one]
    ordered = sort_spans(spans)
    unknown = [one for one in wanted if not any(_hex(span).startswith(one) for span in ordered)]
    found = [span for span in ordered if _hex(span).startswith(tuple(wanted))] if wanted else []
    full = _FullText(_EXPANDED_VALUE)
    lines = [line for span in found for line in full.of(span, 0)]
    lines += [f"[{one_line(one, 40)}]: there is no such span" for one in unknown]
    return limited("\n".join(lines) or "no id was given")


def grep(spans: Sequence[ReadableSpan], pattern: str) -> str:
    """Return the lines of spans that contain a text, ignoring case."""
    wanted, matches = pattern.strip().lower(), 0
    lines: list[str] = []
    for span in sort_spans(spans):
        head, *details = _FullText(_EXPANDED_VALUE).of(span, 0)
        hits = [line for line in details if wanted in line.lower()]
        if not hits and wanted not in head.lower():
            continue
        matches += 1
        if matches <= MAX_MATCHES:
            lines += [head, *hits]
    if not matches:
        names = dict.fromkeys(_name(span) for span in spans)
        shown = ", ".join([*names][:MAX_MATCHES])
        return f"{one_line(pattern, 80)!r}: nowhere; the names of the spans are {shown}"
    if matches > MAX_MATCHES:
        lines.append(
            f"… and {plural(matches - MAX_MATCHES, 'more span')}; look for something rarer"
        )
    return limited("\n".join([f"{one_line(pattern, 80)!r}:", *lines]))


class _FullText:
    """The lines of spans with all that they hold; long texts are shown once and shortened."""

    def __init__(self, value_limit: int = _VALUE) -> None:
        self._limit = value_limit
        self._shown: dict[str, str] = {}
        self.is_cut = False

    def of(self, span: ReadableSpan, depth: int) -> Iterator[str]:
        """Return the lines of one span."""
        yield _head_line(span, depth)
        indent = "  " * depth + "    "
        for key, value in attributes_of(span).items():
            if not _is_hidden(span, key):
                yield f"{indent}{_printable(key)}: {self._value(span, value)}"
        for event in span.events:
            yield f"{indent}event {_printable(event.name)}"
            for key, value in (event.attributes or {}).items():
                yield f"{indent}  {_printable(key)}: {self._value(span, value)}"

    def _value(self, span: ReadableSpan, value: Any) -> str:
        text = value if isinstance(value, str) else json.dumps(value, default=str)
        if len(text) >= _REPEATED:
            if text in self._shown:
                return f"(the same text as in [{self._shown[text]}])"
            self._shown[text] = _short_id(span)
        if len(text) > self._limit:
            self.is_cut = True
            return f"{_printable(text[: self._limit])}… ({len(text):,} characters)"
        return _printable(text)


def _joined(spans: Sequence[ReadableSpan], lines: Sequence[str]) -> str:
    started = min((span.start_time or 0 for span in spans), default=0)
    ended = max((span.end_time or span.start_time or 0 for span in spans), default=0)
    errors = [
        f"- [{_short_id(span)}] {_name(span)}: {_error(span)}" for span in spans if _is_error(span)
    ]
    more = [f"- and {len(errors) - _MAX_ERRORS} more"] if len(errors) > _MAX_ERRORS else []
    failed = ["", "Failed spans:", *errors[:_MAX_ERRORS], *more] if errors else []
    head = f"{plural(len(spans), 'span')}, {_duration(ended - started)}"
    return "\n".join([head, "", *lines, *failed])


def _within(spans: Sequence[ReadableSpan], budget: int) -> list[str]:
    """Return the lines of the first spans, of the last ones and of those that failed."""
    tree = _tree(spans)
    kept: set[int] = set()
    left = budget - 200 * (_MAX_ERRORS + 2)
    failed = [at for at, (span, _) in enumerate(tree) if _is_error(span)]
    edges = sorted(range(len(tree)), key=lambda at: min(at, len(tree) - 1 - at))
    for at in [*failed, *edges]:
        line = _head_line(*tree[at])
        if at in kept or len(line) >= left:
            continue
        left -= len(line) + 1
        kept.add(at)
    lines, omitted = [], 0
    for at, (span, depth) in enumerate(tree):
        if at in kept:
            if omitted:
                lines.append(f"… {plural(omitted, 'span')} left out")
            lines.append(_head_line(span, depth))
            omitted = 0
        else:
            omitted += 1
    if omitted:
        lines.append(f"… {plural(omitted, 'span')} left out")
    return [*lines, "", "Spans, attributes and events are left out: look them up."]


def _tree(spans: Sequence[ReadableSpan]) -> list[tuple[ReadableSpan, int]]:
    """Return the spans, each after the one around it, with their depths."""
    ids = {span_id(span) for span in spans}
    inner: dict[int | None, list[ReadableSpan]] = {}
    for span in sort_spans(spans):
        outer = parent_id(span)
        inner.setdefault(outer if outer in ids and outer != span_id(span) else None, []).append(
            span
        )
    ordered: list[tuple[ReadableSpan, int]] = []
    waiting = [(span, 0) for span in reversed(inner.get(None, []))]
    while waiting:
        span, depth = waiting.pop()
        ordered.append((span, depth))
        waiting += [(one, depth + 1) for one in reversed(inner.pop(span_id(span), []))]
    return ordered


def _head_line(span: ReadableSpan, depth: int) -> str:
    parts = [_name(span)]
    turn = attributes_of(span).get("scenario.turn") if is_ours(span) else None
    if turn is not None:
        parts.append(f"turn {turn}")
    if span.end_time is None:
        parts.append("not ended")
    else:
        parts.append(_duration(span.end_time - (span.start_time or span.end_time)))
    tokens = [attributes_of(span).get(key) for key in _TOKENS]
    if any(isinstance(one, int) for one in tokens):
        parts.append(f"{sum(one for one in tokens if isinstance(one, int))} tokens")
    if _is_error(span):
        parts.append(f"ERROR: {_error(span)}")
    return f"{'  ' * depth}[{_short_id(span)}] {', '.join(parts)}"


def _is_hidden(span: ReadableSpan, key: str) -> bool:
    return key == THREAD_ID or (is_ours(span) and (key == ROLE or key.startswith(_OUR_ATTRIBUTES)))


def _is_error(span: ReadableSpan) -> bool:
    return span.status.status_code.name == "ERROR"


def _error(span: ReadableSpan) -> str:
    return one_line(span.status.description or "no description", _NAME)


def _name(span: ReadableSpan) -> str:
    return one_line(span.name, _NAME) or "(no name)"


def _hex(span: ReadableSpan) -> str:
    return format(span_id(span), "016x")


def _short_id(span: ReadableSpan) -> str:
    return _hex(span)[:8]


def _duration(nanoseconds: int) -> str:
    ms = nanoseconds / 1_000_000
    if ms < 1000:
        return f"{ms:.1f} ms" if ms < 10 else f"{ms:.0f} ms"
    return f"{ms / 1000:.2f} s"


def _printable(text: str) -> str:
    return printable(text, keep_newlines=False)


def limited(text: str) -> str:
    """Return the text, cut at the limit of one answer, which it then says."""
    if len(text) <= LOOKUP_LIMIT:
        return text
    return f"{text[:LOOKUP_LIMIT]}…\n(cut: {len(text):,} characters; ask for less)"
