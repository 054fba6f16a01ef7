"""Counts what was survived and which promises were kept, and says so at the end of a run."""

from support.faults import WAYS
from support.promises import verdicts

COUNTED = {
    "test_outputs.py": "outputs kept whole",
    "test_no_false_pass.py": "false passes refused",
    "test_record_disk.py": "broken disks survived",
    "test_record_versions.py": "old records read",
    "test_resume.py": "resumed and reported right",
    "test_retry_after.py": "waits kept",
}
"""What a file's tests have in common, where they do not count something themselves."""


def pytest_terminal_summary(terminalreporter):
    reports = [
        report
        for kind in ("passed", "failed")
        for report in terminalreporter.stats.get(kind, [])
        if report.when == "call" or report.failed
    ]
    faults = [report for report in reports if "reliability/test_faults.py" in report.nodeid]
    for way in WAYS:
        found = [report.passed for report in faults if f"[{way}: " in report.nodeid]
        if found:
            line = f"faults survived: {sum(found)}/{len(found)} ({way})"
            terminalreporter.write_line(line)
    for file, what in COUNTED.items():
        found = [one.passed for one in reports if f"reliability/{file}" in one.nodeid]
        if found:
            terminalreporter.write_line(f"{what}: {sum(found)}/{len(found)}")
    for report in reports:  # a test says `record_property("counted", …)`
        for name, line in report.user_properties:
            if name == "counted":
                terminalreporter.write_line(line)
    _tell_promises(terminalreporter, reports)


def _tell_promises(terminalreporter, reports):
    outcomes: dict[str, bool] = {}
    for report in reports:
        name = "::".join(report.nodeid.partition("[")[0].split("::")[:2])
        outcomes[name] = outcomes.get(name, True) and report.passed
    kept = list(verdicts(outcomes))
    if kept:
        terminalreporter.write_line(f"promises kept: {sum(kept)}/{len(kept)}")
