"""Which files hold suites, and whose they are; it imports next to nothing."""

import os
import re
from contextlib import suppress
from pathlib import Path

DEFAULT_AGENT_FILE = "agent.yaml"
YAML = frozenset({".yaml", ".yml"})
_CALLED_A_SUITE = (".suite.yaml", ".suite.yml")
_OF_A_SUITE = re.compile(rb"^(suite|scenarios|test_cases|test_cases_file)\s*:", re.MULTILINE)
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
        return bool(_OF_A_SUITE.search(text)) and not _OF_AN_AGENT.search(text)
    return False


def agent_above(path: str | Path) -> str | None:
    """The nearest agent.yaml beside a file or above it; None if there is none."""
    for folder in Path(os.path.realpath(path)).parents:
        if (folder / DEFAULT_AGENT_FILE).is_file():
            return os.path.relpath(folder / DEFAULT_AGENT_FILE)
    return None
