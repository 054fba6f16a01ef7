"""The agents of the end-to-end tests, here too; and how many leaks were looked for."""

from e2e.conftest import bot_dir, write_bot

__all__ = ["bot_dir", "write_bot"]


def pytest_terminal_summary(terminalreporter):
    found = [
        dict(report.user_properties)
        for kind in ("passed", "failed")
        for report in terminalreporter.stats.get(kind, [])
        if "security/test_leaks.py" in report.nodeid and report.when == "call"
    ]
    if found:
        leaks, looked = (sum(one.get(key, 0) for one in found) for key in ("leaks", "looked for"))
        terminalreporter.write_line(f"leaks: {leaks} of {looked}")
