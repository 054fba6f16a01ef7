"""Counts what was survived, and says so at the end of a run."""


def pytest_terminal_summary(terminalreporter):
    reports = [
        report
        for kind in ("passed", "failed")
        for report in terminalreporter.stats.get(kind, [])
        if "reliability/" in report.nodeid and report.when == "call"
    ]
    faults = [report for report in reports if "test_faults.py" in report.nodeid]
    if faults:
        passed = sum(report.passed for report in faults)
        terminalreporter.write_line(f"faults survived: {passed}/{len(faults)}")
    for report in reports:  # a test says `record_property("counted", …)`
        for name, line in report.user_properties:
            if name == "counted":
                terminalreporter.write_line(line)
