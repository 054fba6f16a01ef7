"""The page about faults says what a run says."""

from pathlib import Path

from support.fault_table import table

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "faults.md"


def test_the_page_about_faults_equals_a_run():
    assert PAGE.read_text(encoding="utf-8") == table()
