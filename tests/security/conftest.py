"""The agents of the end-to-end tests, here too; and how much was tried, how much got through."""

from collections import defaultdict

import pytest

from e2e.conftest import bot_dir, write_bot
from support.forked import ForkedCli

__all__ = ["bot_dir", "write_bot"]


@pytest.fixture(scope="session")
def cli(tmp_path_factory):
    """The command, imported once and forked for each run."""
    home = tmp_path_factory.mktemp("forked") / "agent"
    home.mkdir()
    with ForkedCli(home) as running:
        yield running


@pytest.fixture
def tally(record_property):
    """Counts for the line at the end: `tally("leaks", found, looked)`; nothing may be found."""

    def count(what, found, looked):
        record_property("tally", (what, len(found), looked))
        assert found == []

    return count


HELD = {
    "test_answers.py": "hostile answers survived",
    "test_patterns.py": "patterns and long texts that end",
    "test_paths.py": "paths kept inside or let out as asked",
}
"""What the tests of a file have in common that has no count of its own."""


def pytest_terminal_summary(terminalreporter):
    """One line for each thing looked for, such as `leaks: 0 of 1050`."""
    reports = [
        report
        for kind in ("passed", "failed")
        for report in terminalreporter.stats.get(kind, [])
        if "tests/security/" in report.nodeid and report.when == "call"
    ]
    totals = defaultdict(lambda: [0, 0])
    for what, found, looked in tallies(reports):
        totals[what][0] += found
        totals[what][1] += looked
    for what, (found, looked) in totals.items():
        terminalreporter.write_line(f"{what}: {found} of {looked}")
    for file, what in HELD.items():
        held = [report.passed for report in reports if f"/{file}::" in report.nodeid]
        if held:
            terminalreporter.write_line(f"{what}: {sum(held)}/{len(held)}")


def tallies(reports):
    for report in reports:
        yield from (value for key, value in report.user_properties if key == "tally")
