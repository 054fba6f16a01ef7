"""Says at the end of a run how many faults were survived."""


def pytest_terminal_summary(terminalreporter):
    reports = [
        report
        for kind in ("passed", "failed")
        for report in terminalreporter.stats.get(kind, [])
        if "reliability/test_faults.py" in report.nodeid and report.when == "call"
    ]
    if reports:
        passed = sum(report.passed for report in reports)
        terminalreporter.write_line(f"faults survived: {passed}/{len(reports)}")
