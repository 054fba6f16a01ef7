"""Find the line of the user's code that raised an exception."""

import linecache
import traceback

from holodeck.errors import BackendError, EvaluationError, HoloDeckError
from holodeck.lib.support.source_files import display_code_path, is_our_file, is_users_file
from holodeck.lib.support.text import describe
from holodeck.models.results.outcome import RaisedError

_CODE_LIMIT = 1_000
_MAX_FRAMES = 30
_LINES_BEFORE, _LINES_AFTER = 3, 1
_LINE_LIMIT = 200


def raised_error(error: BaseException) -> RaisedError | None:
    """Return where the user's code raised the exception, or the cause that the error repeats.

    That is the innermost frame outside holodeck, installed packages and the standard library, or
    else the innermost frame. None if the exception does not come from the user's code.
    """
    elsewhere = error.raised if isinstance(error, BackendError | EvaluationError) else None
    if isinstance(elsewhere, RaisedError):
        return elsewhere
    cause = _cause_of(error)
    frames = traceback.extract_tb(_without_carrier(cause).__traceback__)
    users = [frame for frame in frames if is_users_file(frame.filename)]
    if not users:
        repeats_it = describe(error) == describe(cause)
        if not frames or not repeats_it or isinstance(cause, HoloDeckError):
            return None
        if is_our_file(frames[-1].filename):
            return None
    shown = users or frames[-1:]
    last = shown[-1]
    return RaisedError(
        error=describe(cause),
        file=display_code_path(last.filename),
        line=last.lineno or 0,
        function=last.name,
        code=_code(last),
        traceback=[_as_line(frame) for frame in shown[-_MAX_FRAMES:]],
        excerpt=source_excerpt(last.filename, last.lineno or 0),
    )


def with_location(error: BaseException) -> str:
    """Return `describe(error)`, with the location if the user's code raised it."""
    raised = raised_error(error)
    return describe(error) if raised is None else f"{describe(error)} ({raised.location})"


def _cause_of(error: BaseException) -> BaseException:
    """Return the cause whose message a holodeck error repeats, otherwise the error itself."""
    message = describe(error)
    while isinstance(error, HoloDeckError):
        cause = error.__cause__
        if cause is None or not message.endswith(describe(cause)):
            break
        error = cause
    return error


def _without_carrier(error: BaseException) -> BaseException:
    """Return the `sys.exit()` that a thread turned into a RuntimeError, otherwise the error."""
    cause = error.__cause__
    is_carried = isinstance(error, RuntimeError) and cause is not None
    return cause if is_carried and not isinstance(cause, Exception) else error  # type: ignore[return-value]


def _code(frame: traceback.FrameSummary) -> str | None:
    """Return the line; None if it is too long. Cutting it could leave half a secret."""
    lines = (frame.line or "").strip().splitlines()
    return lines[0] if lines and len(lines[0]) <= _CODE_LIMIT else None


def source_excerpt(file: str, line: int) -> list[str]:
    """Return the line of a file and those of its block around it; empty if it cannot be read.

    They are numbered and printable, and `>` marks the line. Lines that are too long are left out,
    not cut: see `_code`.
    """
    source = [text.expandtabs(4).rstrip() for text in linecache.getlines(file)]
    if not 1 <= line <= len(source):
        return []
    own_indent, first, end = _indent(source[line - 1]), line, line
    while first > 1 and line - first < _LINES_BEFORE:
        first -= 1
        if source[first - 1] and _indent(source[first - 1]) < own_indent:
            break  # the head of the block; what is above it has nothing to do with the error
    if line < len(source) and _indent(source[line]) >= own_indent:
        end += _LINES_AFTER
    rows = [(number, source[number - 1]) for number in range(first, end + 1)]
    while rows and not rows[0][1]:
        rows.pop(0)
    while rows and not rows[-1][1]:
        rows.pop()
    if not rows:
        return []
    digits = len(str(rows[-1][0]))
    indent = min(_indent(text) for _, text in rows if text)
    marks = {line: ">"}
    return [
        f"{marks.get(number, ' ')} {number:{digits}} | {_escaped(text[indent:])}".rstrip()
        for number, text in rows
    ]


def _indent(text: str) -> int:
    return len(text) - len(text.lstrip())


def _escaped(text: str) -> str:
    """Return a line as printable text; a note if it is too long."""
    if len(text) > _LINE_LIMIT:
        return "… (a long line)"
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _as_line(frame: traceback.FrameSummary) -> str:
    code = _code(frame)
    location = f"{display_code_path(frame.filename)}:{frame.lineno} in {frame.name}"
    return f"{location}: {code}" if code else location
