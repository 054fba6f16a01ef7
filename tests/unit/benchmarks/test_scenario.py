"""The benchmark of scenarios: what is read from runs, and what is written into the page."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import scenario as benchmark
from measure import Measured

from fakes import clean_environment

ROOT = Path(__file__).parents[3]
FIGURE = benchmark.Figure("long", "a turn", "ms", lambda ran: ran.told["ms"], 5)


def ran(value, others=0.0):
    return benchmark.Ran(Measured(0, 0.0, 1.0, 1.0, 30.0, others, ""), {"ms": value})


@pytest.mark.parametrize(("ours", "verdict"), [((4, 9, 5), "ok"), ((6, 1, 9), "MISSED")])
def test_the_median_decides(ours, verdict):
    row = benchmark.row_of(FIGURE, [ran(one) for one in ours], [ran(10)] * 3)

    assert row.verdict == verdict


def test_the_ratio_is_that_of_neighbours():
    row = benchmark.row_of(FIGURE, [ran(1), ran(10), ran(2)], [ran(2), ran(20), ran(8)])

    assert (row.ours, row.theirs, row.ratio) == (2, 8, 2)


def test_the_table_replaces_what_stood_between_the_marks():
    row = benchmark.row_of(FIGURE, [ran(6, 0.5)], [ran(12, 0.5)])
    page = "# Page\n\n<!-- scenarios -->\nold\n<!-- /scenarios -->\n\nend\n"

    text = benchmark.pasted(page, [row])

    assert "| a turn | 6 ms (≤ 5) **missed** | 12 ms | 2 × | 0.50 |" in text
    assert text.startswith("# Page\n\n<!-- scenarios -->\n\n| ")
    assert text.endswith("|\n\n<!-- /scenarios -->\n\nend\n")
    assert "old" not in text


def test_the_program_that_both_run_runs(tmp_path):
    environment = clean_environment(tmp_path) | {"PYTHONPATH": str(ROOT / "src")}
    done = subprocess.run(
        [sys.executable, "-P", str(benchmark.PROBE), benchmark.OURS, "one"],
        cwd=tmp_path, env=environment, capture_output=True, text=True, check=True, timeout=180,
    )  # fmt: skip

    assert json.loads(done.stdout)["s"] > 0
