"""What a docstring says: the function's purpose and its parameters, in the three usual styles."""

import inspect
import re
from collections.abc import Iterable

_GOOGLE_HEADING = re.compile(r"(Args|Arguments|Parameters|Params):\s*")
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(?P<text>.*)")
_NUMPY_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?::.*)?(?P<text>)")
_NUMPY_RULE = re.compile(r"-{3,}\s*")
_SPHINX_ENTRY = re.compile(r":param\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)")
_SPHINX_FIELD = re.compile(r":\w+[^:]*:")


def summary(docstring: str | None) -> str:
    """The first paragraph on one line; "" if there is none."""
    lines: list[str] = []
    for line in _lines(docstring):
        if not line.strip() or _SPHINX_FIELD.match(line) or _GOOGLE_HEADING.fullmatch(line):
            break
        lines.append(line.strip())
    return " ".join(lines)


def parameters(docstring: str | None) -> dict[str, str]:
    """What is said of each parameter."""
    lines = _lines(docstring)
    found = _sphinx(lines)
    for i, line in enumerate(lines):
        if _GOOGLE_HEADING.fullmatch(line):
            found |= _entries(_indented(lines[i + 1 :]), _GOOGLE_ENTRY)
        elif line.strip() == "Parameters" and _NUMPY_RULE.fullmatch("".join(lines[i + 1 : i + 2])):
            found |= _numpy(lines[i + 2 :])
    return found


def _lines(docstring: str | None) -> list[str]:
    return inspect.cleandoc(docstring).splitlines() if docstring else []


def _indented(lines: Iterable[str]) -> list[str]:
    """The lines up to the first that starts at the margin, without their common indent."""
    block: list[str] = []
    for line in lines:
        if line.strip() and not line.startswith((" ", "\t")):
            break
        block.append(line)
    return inspect.cleandoc("\n" + "\n".join(block)).splitlines()


def _entries(lines: Iterable[str], entry: re.Pattern[str]) -> dict[str, str]:
    """Entries at the margin, each with the indented lines that continue it."""
    texts: dict[str, list[str]] = {}
    current: list[str] = []
    for line in lines:
        if line.startswith((" ", "\t")):
            current.append(line.strip())
        elif match := entry.fullmatch(line.rstrip()):
            current = texts[match[1]] = [match["text"]]
    return {name: " ".join(filter(None, text)) for name, text in texts.items()}


def _numpy(lines: list[str]) -> dict[str, str]:
    """The entries before the next underlined heading."""
    rules = [i for i, line in enumerate(lines) if _NUMPY_RULE.fullmatch(line)]
    return _entries(lines[: rules[0] - 1] if rules else lines, _NUMPY_ENTRY)


def _sphinx(lines: Iterable[str]) -> dict[str, str]:
    texts: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in lines:
        if match := _SPHINX_ENTRY.match(line):
            current = texts[match[1]] = [match[2].strip()]
        elif not line.strip() or _SPHINX_FIELD.match(line):
            current = None
        elif current is not None:
            current.append(line.strip())
    return {name: " ".join(filter(None, text)) for name, text in texts.items()}
