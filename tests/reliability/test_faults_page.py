"""The page about faults has a row for each, in the words of the last run of `scripts/faults`.

That a row says what a run says is held where the fault is met, in `test_faults.py`.
"""

from support.fault_table import PAGE, cells_on_page, page


def test_the_page_about_faults_has_a_row_for_each():
    assert PAGE.read_text(encoding="utf-8") == page(cells_on_page())
