"""Which files hold suites, and whose they are; it imports next to nothing."""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path

from holodeck.errors import ConfigError
from holodeck.lib.suggestions import nearest_word
from holodeck.lib.text import bom_encoding

DEFAULT_AGENT_FILE = "agent.yaml"
YAML_SUFFIXES = frozenset({".yaml", ".yml"})
_CALLED_A_SUITE = (".suite.yaml", ".suite.yml")
_WORDS = ("suite", "scenarios", "test_cases", "test_cases_file")
_SPEAKS_OF_ONE = re.compile(rb"\b(suite|scenarios|test_cases)", re.IGNORECASE)
_AT_THE_TOP = rb"(?:^|\A\s*\{\s*)[\"']?"
"""Where a key of the whole file stands: at the beginning of a line, or behind the first brace."""
_OF_A_SUITE = re.compile(
    _AT_THE_TOP + rb"(suite|scenarios|test_cases|test_cases_file)[\"']?\s*:", re.MULTILINE
)
_KEY = re.compile(_AT_THE_TOP + rb"([A-Za-z_-]{3,40})[\"']?\s*:", re.MULTILINE)
_ALIKE = 0.8
_OF_AN_AGENT = re.compile(
    _AT_THE_TOP + rb"(name|backend|model|instructions)[\"']?\s*:", re.MULTILINE
)
_LIST = re.compile(rb"(?:\s*(?:#[^\n]*\n|---[ \t]*\n|%[^\n]*\n))*\s*(?:-\s|\[)")
_OF_A_CASE = re.compile(rb"(?:^|[-\s{,])[\"']?(input|turns|script|simulate)[\"']?\s*:")


def is_yaml(path: str | Path) -> bool:
    """Whether a file is called like one of YAML, in whatever letters."""
    return Path(path).suffix.lower() in YAML_SUFFIXES


def is_suite_file(path: str | Path) -> bool:
    """Whether a file holds a suite and no agent, by its name or the keys its lines begin with."""
    file = Path(path)
    if not is_yaml(file) or file.name == DEFAULT_AGENT_FILE:
        return False
    with suppress(OSError, ValueError):  # told where the file is read
        text = _to_utf8(file.read_bytes())
        if file.name.lower().endswith(_CALLED_A_SUITE):
            return True  # whatever is misspelt in it
        return not _OF_AN_AGENT.search(text) and (
            bool(_OF_A_SUITE.search(text)) or _has_misspelt_suite_key(text)
        )
    return False


def why_not_run(path: str | Path) -> str | None:
    """Why a YAML file that no agent.yaml names may hold test cases that nobody runs; None for
    files of other tools."""
    file = Path(path)
    if file.name.lower() in ("agent.yaml", "agent.yml"):
        return f"an agent is looked for in {DEFAULT_AGENT_FILE}; rename it"
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
    """Whether text may be a list of test cases, be it no YAML."""
    return _LIST.match(text) is not None and _OF_A_CASE.search(text) is not None


def may_be_suite(data: bytes) -> bool:
    """Whether what cannot be read as YAML may be meant for a suite, whatever its encoding.

    So may an empty file, whose cases may be lost.
    """
    plain = _to_utf8(data).replace(b"\0", b"").strip()
    if not plain or _SPEAKS_OF_ONE.search(plain) or looks_like_case_list(plain):
        return True
    return _has_misspelt_suite_key(plain)


def _to_utf8(data: bytes) -> bytes:
    """The bytes as UTF-8 without a byte order mark; as they are if they keep no encoding."""
    encoding = bom_encoding(data)
    if encoding is not None:
        with suppress(UnicodeError):
            return data.decode(encoding).encode()
    return data


def _has_misspelt_suite_key(text: bytes) -> bool:
    """Whether a key at the beginning of a line is that of a suite, misspelt: to be told of."""
    keys = {key.decode().lower() for key in _KEY.findall(text)}
    return any(nearest_word(key, _WORDS, cutoff=_ALIKE) is not None for key in keys)


def find_agent_above(path: str | Path) -> str | None:
    """The nearest agent.yaml beside a file or above it; None if there is none."""
    for folder in Path(os.path.realpath(path)).parents:
        if (folder / DEFAULT_AGENT_FILE).is_file():
            return os.path.relpath(folder / DEFAULT_AGENT_FILE)
    return None


_ERROR_LOCATION = re.compile(r"(?P<file>.*?)(:\d+:\d+(: .*)?)?", re.DOTALL)


@dataclass
class InvalidSuites:
    """The suite files that were read, and the wrong ones among them."""

    read: set[str] = field(default_factory=set)
    errors: dict[str, ConfigError] = field(default_factory=dict)
    """File → what is wrong with it."""

    def take(self, error: ConfigError) -> bool:
        """Whether the error is about a suite file, which is left out from now on."""
        match = _ERROR_LOCATION.fullmatch(error.field)
        file = match["file"] if match else error.field
        if file not in self.read or file in self.errors:
            return False
        self.errors[file] = error
        return True


_current: ContextVar[InvalidSuites | None] = ContextVar("holodeck_left_out", default=None)


@contextmanager
def skip_invalid_suites() -> Iterator[InvalidSuites]:
    """Leave out suite files that are wrong within the block."""
    left_out = InvalidSuites()
    token = _current.set(left_out)
    try:
        yield left_out
    finally:
        _current.reset(token)


def current_invalid_suites() -> InvalidSuites | None:
    """What is left out; None where a wrong file ends all."""
    return _current.get()
