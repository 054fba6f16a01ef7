"""Which files hold suites, and whose they are; it imports next to nothing."""

import os
import re
from contextlib import suppress
from pathlib import Path

DEFAULT_AGENT_FILE = "agent.yaml"
YAML = frozenset({".yaml", ".yml"})
_CALLED_A_SUITE = (".suite.yaml", ".suite.yml")
_WORDS = ("suite", "scenarios", "test_cases", "test_cases_file")
_OF_A_SUITE = re.compile(rb"^(suite|scenarios|test_cases|test_cases_file)\s*:", re.MULTILINE)
_SPEAKS_OF_ONE = re.compile(rb"\b(suite|scenarios|test_cases)", re.IGNORECASE)
_KEY = re.compile(rb"^([A-Za-z_-]{3,40})\s*:", re.MULTILINE)
_ALIKE = 0.8
_OF_AN_AGENT = re.compile(rb"^(name|backend|model|instructions)\s*:", re.MULTILINE)


def holds_a_suite(path: str | Path) -> bool:
    """Whether a file holds a suite and no agent, by its name or the keys its lines begin with."""
    file = Path(path)
    if file.suffix not in YAML or file.name == DEFAULT_AGENT_FILE:
        return False
    with suppress(OSError, ValueError):  # told where the file is read
        text = file.read_bytes()
        if file.name.endswith(_CALLED_A_SUITE):
            return True  # whatever is misspelt in it
        return not _OF_AN_AGENT.search(text) and (
            bool(_OF_A_SUITE.search(text)) or _is_nearly_one(text)
        )
    return False


def may_hold_a_suite(text: bytes) -> bool:
    """Whether what cannot be read as YAML may be meant for a suite, whatever its encoding.

    So may an empty file, whose cases may be lost.
    """
    plain = text.replace(b"\0", b"").strip()
    return not plain or bool(_SPEAKS_OF_ONE.search(plain)) or _is_nearly_one(plain)


def _is_nearly_one(text: bytes) -> bool:
    """Whether a key at the beginning of a line is that of a suite, misspelt: to be told of."""
    keys = {key.decode().lower() for key in _KEY.findall(text)}
    if not keys:
        return False
    from difflib import get_close_matches  # noqa: PLC0415 - few files are not what they seem

    return any(get_close_matches(key, _WORDS, n=1, cutoff=_ALIKE) for key in keys)


def agent_above(path: str | Path) -> str | None:
    """The nearest agent.yaml beside a file or above it; None if there is none."""
    for folder in Path(os.path.realpath(path)).parents:
        if (folder / DEFAULT_AGENT_FILE).is_file():
            return os.path.relpath(folder / DEFAULT_AGENT_FILE)
    return None
