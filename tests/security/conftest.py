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


def pytest_terminal_summary(terminalreporter):
    """One line for each thing looked for, such as `leaks: 0 of 1050`."""
    totals = defaultdict(lambda: [0, 0])
    for kind in ("passed", "failed"):
        for report in terminalreporter.stats.get(kind, []):
            if "tests/security/" not in report.nodeid or report.when != "call":
                continue
            for key, value in report.user_properties:
                if key == "tally":
                    what, found, looked = value
                    totals[what][0] += found
                    totals[what][1] += looked
    for what, (found, looked) in totals.items():
        terminalreporter.write_line(f"{what}: {found} of {looked}")
