"""What holds for every run of the command, said once."""

import json
from pathlib import Path
from typing import Any

from support.cli import Ran


def assert_plain(ran: Ran) -> None:
    """Off a terminal: no traceback, no control characters, nothing that redraws."""
    written = ran.stdout + ran.stderr
    assert "Traceback" not in written
    assert not [c for c in written if c != "\n" and (c < " " or "\x7f" <= c <= "\x9f")]


def assert_one_error(ran: Ran, code: int, *said: str) -> None:
    """The command ended with that code and one clear line on stderr."""
    assert_plain(ran)
    assert (ran.code, ran.stderr.count("\n")) == (code, 1), ran.stderr
    for text in said:
        assert text in ran.stderr


def results_in(report: Path) -> dict[str, dict[str, Any]]:
    """The results of a JSON report by the names of their tests."""
    document = json.loads(report.read_text(encoding="utf-8"))
    return {result["test_name"]: result for result in document["results"]}
