"""Recognize suite files, and skip invalid ones; this module imports little."""

import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from holodeck.errors import ConfigError
from holodeck.lib.support.text import bom_encoding, nearest_word

DEFAULT_AGENT_FILE = "agent.yaml"
YAML_SUFFIXES = frozenset({".yaml", ".yml"})
_SUITE_SUFFIXES = (".suite.yaml", ".suite.yml")
_SUITE_KEYS = ("suite", "scenarios", "test_cases", "test_cases_file")
_MENTIONS_SUITE = re.compile(rb"\b(suite|scenarios|test_cases)", re.IGNORECASE)
_TOP_LEVEL = rb"(?:^|\A\s*\{\s*)[\"']?"
"""What precedes a top-level key: the beginning of a line, or the first brace."""
_SUITE_KEY = re.compile(
    _TOP_LEVEL + rb"(suite|scenarios|test_cases|test_cases_file)[\"']?\s*:", re.MULTILINE
)
_KEY = re.compile(_TOP_LEVEL + rb"([A-Za-z_-]{3,40})[\"']?\s*:", re.MULTILINE)
_MISSPELT_CUTOFF = 0.8
_AGENT_KEY = re.compile(_TOP_LEVEL + rb"(name|backend|model|instructions)[\"']?\s*:", re.MULTILINE)
_LIST = re.compile(rb"(?:\s*(?:#[^\n]*\n|---[ \t]*\n|%[^\n]*\n))*\s*(?:-\s|\[)")
_CASE_KEY = re.compile(rb"(?:^|[-\s{,])[\"']?(input|turns|script|simulate)[\"']?\s*:")


def is_yaml(path: str | Path) -> bool:
    """Whether the file name has a suffix of YAML, in upper or lower case."""
    return Path(path).suffix.lower() in YAML_SUFFIXES


def is_suite_file(path: str | Path) -> bool:
    """Whether a file holds a suite and no agent, by its name or its top-level keys."""
    file = Path(path)
    if not is_yaml(file) or file.name == DEFAULT_AGENT_FILE:
        return False
    with suppress(OSError, ValueError):  # reported where the file is read
        text = _to_utf8(file.read_bytes())
        if file.name.lower().endswith(_SUITE_SUFFIXES):
            return True  # even if its keys are misspelt
        return not _AGENT_KEY.search(text) and (
            bool(_SUITE_KEY.search(text)) or _has_misspelt_suite_key(text)
        )
    return False


def why_not_run(path: str | Path) -> str | None:
    """Return why no run includes the test cases of a YAML file, or None for other files."""
    file = Path(path)
    if file.name.lower() in ("agent.yaml", "agent.yml"):
        return f"holodeck only reads agents from {DEFAULT_AGENT_FILE}; rename it"
    if is_suite_file(file):
        return "no agent.yaml names it in 'suites'"
    with suppress(OSError, ValueError):
        text = _to_utf8(file.read_bytes()).strip()
        if not text:
            return "it is empty"
        if looks_like_case_list(text):
            return "it is a list without 'test_cases:' above it, and no 'test_cases_file' names it"
    return None


def looks_like_case_list(text: bytes) -> bool:
    """Whether text looks like a list of test cases; it need not be valid YAML."""
    return _LIST.match(text) is not None and _CASE_KEY.search(text) is not None


def may_be_suite(data: bytes) -> bool:
    """Whether a file that is not valid YAML is probably a suite.

    An empty file is too, because its cases may have been lost.
    """
    plain = _to_utf8(data).replace(b"\0", b"").strip()
    if not plain or _MENTIONS_SUITE.search(plain) or looks_like_case_list(plain):
        return True
    return _has_misspelt_suite_key(plain)


def _to_utf8(data: bytes) -> bytes:
    """Return the bytes as UTF-8 without a byte order mark; unchanged if they are invalid."""
    encoding = bom_encoding(data)
    if encoding is not None:
        with suppress(UnicodeError):
            return data.decode(encoding).encode()
    return data


def _has_misspelt_suite_key(text: bytes) -> bool:
    """Whether a top-level key is probably a misspelt key of a suite."""
    keys = {key.decode().lower() for key in _KEY.findall(text)}
    return any(nearest_word(key, _SUITE_KEYS, cutoff=_MISSPELT_CUTOFF) is not None for key in keys)


def find_agent_above(path: str | Path) -> str | None:
    """Return the nearest agent.yaml beside or above a file, or None if there is none."""
    for folder in folders_up(Path(os.path.realpath(path)).parent):
        if (folder / DEFAULT_AGENT_FILE).is_file():
            return os.path.relpath(folder / DEFAULT_AGENT_FILE)
    return None


def folders_up(folder: Path) -> Iterator[Path]:
    """Yield a folder, and those above it in which not every user can write.

    A file that is found in `/tmp` may be anyone's.
    """
    yield folder
    yield from (above for above in folder.parents if not above.stat().st_mode & stat.S_IWOTH)


_ERROR_LOCATION = re.compile(r"(?P<file>.*?)(:\d+:\d+(: .*)?)?", re.DOTALL)


@dataclass
class InvalidSuites:
    """The suite files that were read, and the invalid ones among them (`--skip-invalid`)."""

    read: set[str] = field(default_factory=set)
    errors: dict[str, ConfigError] = field(default_factory=dict)
    """Invalid file → its error."""

    def add(self, error: ConfigError) -> bool:
        """Skip the suite file that the error is about; return whether there is such a file."""
        match = _ERROR_LOCATION.fullmatch(error.field)
        file = match["file"] if match else error.field
        if file not in self.read or file in self.errors:
            return False
        self.errors[file] = error
        return True


_current: ContextVar[InvalidSuites | None] = ContextVar("holodeck_left_out", default=None)


@contextmanager
def skip_invalid_suites() -> Iterator[InvalidSuites]:
    """Skip invalid suite files within the block."""
    invalid_suites = InvalidSuites()
    token = _current.set(invalid_suites)
    try:
        yield invalid_suites
    finally:
        _current.reset(token)


def current_invalid_suites() -> InvalidSuites | None:
    """Return the suite files that are skipped, or None where an invalid file is an error."""
    return _current.get()
