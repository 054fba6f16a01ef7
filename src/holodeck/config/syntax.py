"""What is wrong with text that is not YAML, in words that say what to do."""

import re
from typing import Any

from holodeck.config.owners import encoding_of
from holodeck.config.secrets import names_a_secret
from holodeck.errors import ConfigError

_EXPLANATIONS = {
    "mapping values are not allowed": "a ':' stands where no key can be; put text that holds ': '"
    " in quotes, and check the indentation",
    "could not find expected ':'": "a key without its ':', or a line that is not indented enough",
    "did not find expected ',' or ']'": "a list opened with '[' is not closed",
    "did not find expected ',' or '}'": "a mapping opened with '{' is not closed; put text that"
    " begins with '{' in quotes",
    "did not find expected '-'": "this line does not continue the list above it; check the"
    " indentation",
    "did not find expected key": "this line does not continue the mapping above it; check the"
    " indentation and brackets",
    "did not find expected comment or line break": "text after '|' or '>' begins on the next line",
    "did not find expected node content": "a value is missing here",
    "found unexpected end of stream": "a quotation mark is not closed",
    "found unknown escape character": "a backslash in double quotes begins an escape that does not"
    " exist; use single quotes, or write \\\\",
    "found unexpected document indicator": "a '---' or '...' inside quoted text",
    "undefined tag handle": "tags ('!name') are not allowed; put text that begins with '!' in"
    " quotes",
    "unknown directive": "a line that begins with '%' is not allowed; put it in quotes",
    "incompatible YAML document": "only YAML 1.1 and 1.2 can be read",
    "found a tab character": "a tab in the indentation; use spaces",
    "alphabetic or numeric character": "'&' and '*' begin a name; put text that begins with one in"
    " quotes",
}
_MOST_SHOWN = 120
_HEADERS = ("authorization", "cookie")
_FORBIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ufffe\uffff]")


def explain(error: Any, text: str, name: str) -> ConfigError:
    """The parser's complaint with its place and line, in our words."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = str(getattr(error, "problem", None) or error).splitlines()[0]
    if mark is None:
        return ConfigError(name, f"cannot be read as YAML ({problem})")
    lines = re.split(r"\r\n|\r|\n", text)
    line = lines[mark.line] if mark.line < len(lines) else ""
    excerpt = line.strip()[:_MOST_SHOWN]
    shown = f"\n    {_printable(excerpt)}" if _may_be_shown(excerpt) else ""
    return ConfigError(
        f"{name}:{mark.line + 1}:{mark.column + 1}",
        f"{_in_our_words(problem, line, mark.column)}{_opened_at(error)}{shown}",
    )


def _in_our_words(problem: str, line: str, column: int) -> str:
    if "cannot start any token" in problem:
        return _about_character(line[column : column + 1])
    for known, words in _EXPLANATIONS.items():
        if known in problem:
            return words
    return f"cannot be read as YAML ({problem})"


def _about_character(character: str) -> str:
    if character == "\t":
        return "a tab in the indentation; use spaces"
    return f"a value cannot begin with {character!r}; put it in quotes"


def _opened_at(error: Any) -> str:
    """Where the unfinished thing began, if that is another line."""
    begun = getattr(error, "context_mark", None)
    if begun is None or begun.line == error.problem_mark.line:
        return ""
    return f" (begun on line {begun.line + 1})"


def _may_be_shown(line: str) -> bool:
    """Whether there is something to show, and no key in it that goes with a secret."""
    keys = re.findall(r"([\w-]+)['\"]?\s*:", line)
    hidden = any(names_a_secret(key) or key.lower() in _HEADERS for key in keys)
    return bool(line.strip()) and not hidden


def _printable(text: str) -> str:
    return "".join(c if c.isprintable() else " " for c in text)


def decode(data: bytes, name: str) -> str:
    """The text of a file in UTF-8, or in what its byte order mark says.

    Raises ConfigError for anything else, with its place.
    """
    encoding = encoding_of(data)
    if encoding is not None:
        try:
            data = data.decode(encoding).encode()
        except UnicodeError as error:
            raise ConfigError(
                f"{name}:1:1",
                f"the file begins with a byte order mark and is not {encoding.upper()}: {error};"
                " save it as UTF-8",
            ) from error
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        place = _place(data[: error.start].decode(errors="replace"), name)
        raise ConfigError(
            place, f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        ) from error
    control = _FORBIDDEN.search(text)
    if control is not None:
        raise ConfigError(
            _place(text[: control.start()], name),
            f"the control character U+{ord(control[0]):04X} is not allowed here; remove it",
        )
    return text


def _place(before: str, name: str) -> str:
    line = before.count("\n") + 1
    column = len(before) - before.rfind("\n")
    return f"{name}:{line}:{column}"
