"""What the benchmark makes of numbers: verdicts, the quietest runs, the page."""

import pytest
from figures import Seen
from lab import Outcome, Run, settled
from page import block, pasted, unexplained
from promises import PROMISES
from table import DISTURBED, MISSED, OK, Judge, Table, rows_of
from tasks import GROUPS, STANDARD, tasks


def a_run(wall_s=2.2, others=0.0, **more):
    usual = {"cpu_s": 0.5, "peak_mb": 50.0, "requests": 1000, "passed": 1000, "at_once": 100}
    return Run(wall_s=wall_s, others=others, after_answer_s=0.02, **(usual | more))


def rows(only, outcomes, slack=1.0, sizes=STANDARD, peers=()):
    chosen = [promise for promise in PROMISES if promise.id == only]
    seen = Seen(tasks(sizes), outcomes, [], 0.05, peers)
    return list(rows_of(chosen, seen, ["chat"], Judge(slack, 0.25)))


@pytest.mark.parametrize(
    ("wall_s", "others", "slack", "verdict"),
    [
        (2.2, 0.0, 1, OK),
        (2.6, 0.0, 1, MISSED),
        (2.6, 0.0, 1.5, OK),
        (2.2, 0.3, 1, DISTURBED),
        (9.9, 0.3, 1, DISTURBED),
    ],
)
def test_a_verdict_needs_a_quiet_machine(wall_s, others, slack, verdict):
    outcomes = {("chat", "many"): Outcome((a_run(wall_s, others),))}

    assert rows("S3", outcomes, slack)[0].verdict == verdict


def test_a_goal_holds_only_at_the_size_it_was_set_for():
    row = rows("S3", {("chat", "many"): Outcome((a_run(),))}, sizes=(1, 100))[0]

    assert (row.what, row.goal, row.verdict) == ("100 cases, 100 at once / P", None, "")


def test_ours_is_held_against_the_fastest_peer_that_did_the_work():
    outcomes = {
        ("chat", "many"): Outcome((a_run(2.0),)),
        ("fast but wrong", "many"): Outcome((a_run(0.1, trouble="0/1000 right"),)),
        ("slow", "many"): Outcome(note="not run: about 200 s"),
        ("steady", "many"): Outcome((a_run(4.0),)),
    }

    shown = rows("S3", outcomes, peers=["fast but wrong", "slow", "steady"])

    ratio = next(row for row in shown if "fastest" in row.what)
    assert (ratio.value, ratio.verdict) == (0.5, OK)
    assert "steady's 4.00 s" in ratio.raw
    said = {row.who: row.raw for row in shown if row.is_peer}
    assert said["slow"] == "not run: about 200 s"
    assert said["fast but wrong"] == "not counted: 0/1000 right"


def test_a_disturbed_measurement_is_made_up_to_two_more_times_and_the_quiet_ones_kept():
    more = iter([a_run(others=0.9), a_run(others=0.1), a_run(others=0.0)])

    kept = settled([a_run(others=1.5)], 0.25, lambda: next(more))

    assert [run.others for run in kept] == [0.1]
    assert len(list(more)) == 1


def test_every_promise_is_measured_by_tasks_that_are_run():
    known = set(tasks())

    assert {name for promise in PROMISES for name in promise.needs} <= known
    assert {name for group in GROUPS for name in group} == known


def a_table(*shown):
    versions = {"steady": "1.0"}
    return Table("python benchmarks/run.py", "3.11", 2, 0.05, 1.0, versions, list(shown))


def test_the_page_has_a_line_for_each_promise_and_a_column_for_each_contestant():
    outcomes = {("chat", "many"): Outcome((a_run(),)), ("steady", "many"): Outcome((a_run(4.1),))}
    table = a_table(*rows("S3", outcomes, peers=["steady"]))

    lines = block(table).splitlines()

    head = next(line for line in lines if line.startswith("| promise"))
    assert [cell.strip() for cell in head.strip("|").split("|")][-1] == "steady 1.0"
    line = next(line for line in lines if "100 at once / P" in line)
    assert "1.07 ×" in line
    assert "2 ×" in line
    assert "≤ 1.2" in line


def test_a_missed_goal_has_to_be_explained_on_the_page():
    table = a_table(*rows("S3", {("chat", "many"): Outcome((a_run(3.0),))}))
    text = pasted("# Page\n<!-- measured -->\nold\n<!-- /measured -->\nmore\n", table)

    assert "old" not in text
    assert text.endswith("<!-- /measured -->\nmore\n")
    assert unexplained(text, table) == ["S3 chat"]
    assert unexplained(text + "\n- **S3 chat**: because\n", table) == []
