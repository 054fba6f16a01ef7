"""The benchmark of report formats."""

import pytest
import report


@pytest.mark.skipif(not report.Path("/proc/self/clear_refs").exists(), reason="needs Linux")
def test_a_format_is_measured_in_a_process_of_its_own():
    rows = list(report.measured(["junit"], [10, 40], failing=2))

    assert [row.cases for row in rows] == [10, 40]
    assert 3 < rows[1].bytes / rows[0].bytes < 5
    lines = report.table(rows).splitlines()
    assert lines[2].startswith("| junit | 10 | ")
    assert [line.count("×") for line in lines[2:]] == [0, 1]
