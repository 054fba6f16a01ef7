"""What recorded runs tell of the present cases."""

import logging

import pytest

from holodeck.lib.records.history import HistoryQuery, case_history
from holodeck.lib.records.recorder import json_line
from holodeck.lib.records.run_store import RunStore
from holodeck.lib.selection.request import UNKNOWN_HISTORY
from holodeck.models.records.record import CaseFinished, PlannedCase, RunHead
from holodeck.models.results.origin import Selection
from holodeck.models.test_result import MetricResult, Outcome
from holodeck.models.token_usage import Cost, TokenUsage
from support.results import a_result

GREETS = PlannedCase(name="greets", hash="1")
REFUNDS = PlannedCase(name="refunds", id="r", suite="billing", hash="2")
NAMELESS = PlannedCase(hash="3")
HALF = Selection(total=2, selected=1, deselected=1, how="--shard 1/2", shard="1/2", plan="x")


@pytest.fixture
def write(tmp_path):
    """Writes the record of a run, later than those before it, and gives its file."""
    made = []

    def write(*outcomes, cases=(GREETS, REFUNDS, NAMELESS), took=1000, stamp=None, **fields):
        number = len(made) + 1
        folder = tmp_path / ".holodeck" / "runs" / f"2026010{number}-000000-000000-aaaaaa"
        folder.mkdir(parents=True)
        head = {"agent_name": "a", "agent_config_path": "agent.yaml"} | fields
        lines = [RunHead(id=folder.name, started="", cases=cases, **head)]
        for at, outcome in enumerate(outcomes):
            result = a_result(outcome, execution_time_ms=took, timestamp=stamp or f"2026-{number}")
            lines.append(CaseFinished(index=at, hash="", result=result))
        made.append(folder / "run.jsonl")
        made[-1].write_bytes(b"".join(map(json_line, lines)))
        return made[-1]

    return write


@pytest.fixture
def past(tmp_path):
    """What is known of these cases of the agent `a`."""

    def past(*planned, most=3, **fields):
        wanted = HistoryQuery("a", "agent.yaml", planned, **fields)
        return case_history(RunStore(tmp_path), wanted, most)

    return past


def test_the_latest_result_of_each_case_tells_whether_it_passed(write, past):
    write(Outcome.FAILED, Outcome.AGENT_ERROR, Outcome.PASSED)
    write(Outcome.PASSED, cases=[GREETS])

    known = past(GREETS, REFUNDS, NAMELESS, PlannedCase(name="new", hash="9"))

    assert [one.passed for one in known] == [True, False, True, None]


def test_a_case_is_known_by_its_id_else_its_name_else_its_content(write, past):
    write(Outcome.FAILED, Outcome.FAILED, Outcome.FAILED)

    known = past(
        GREETS.model_copy(update={"hash": "changed"}),
        PlannedCase(name="called otherwise", id="r", hash="changed"),
        PlannedCase(hash="changed"),
        GREETS.model_copy(update={"suite": "another"}),
    )

    assert [one.passed for one in known] == [False, False, None, None]


def test_times_are_medians_and_those_of_shards_do_not_move_shards(write, past):
    write(Outcome.PASSED, took=100)
    write(Outcome.PASSED, took=300)
    write(Outcome.PASSED, took=900, selection=HALF)

    [known] = past(GREETS)
    [short_memory] = past(GREETS, most=1)

    assert (known.duration_ms, known.whole_run_ms) == (300, 200)
    assert (short_memory.duration_ms, short_memory.whole_run_ms) == (900, None)


def test_shards_that_ran_since_do_not_push_out_the_runs_that_shards_are_dealt_out_by(write, past):
    for took in (100, 300, 200):
        write(Outcome.PASSED, took=took)
    before = past(GREETS, whole_runs=True)[0].whole_run_ms
    for _ in range(4):
        write(Outcome.FAILED, took=900, selection=HALF)

    [known] = past(GREETS, whole_runs=True)

    assert known.whole_run_ms == before == 200
    assert known.passed is False


def test_of_shards_that_tell_nothing_new_only_the_first_line_is_read(write, past, caplog):
    write(Outcome.PASSED, selection=HALF)
    older = write(Outcome.PASSED, selection=HALF)
    write(Outcome.FAILED, selection=HALF)
    head, *_ = older.read_text().splitlines()
    later = head.replace('"schema_version":1', '"schema_version":2')
    older.write_text(f"{head}\n{later}\n")

    [known] = past(GREETS, whole_runs=True)

    assert (known.passed, known.whole_run_ms) == (False, None)
    assert not caplog.text


def test_a_result_that_a_resumed_run_carries_over_counts_once(write, past):
    write(Outcome.PASSED, took=100)
    write(Outcome.PASSED, took=500, stamp="same")
    write(Outcome.PASSED, took=500, stamp="same")

    assert past(GREETS)[0].duration_ms == 300


@pytest.mark.parametrize(
    "outcomes",
    [(Outcome.PASSED, Outcome.FAILED), (Outcome.FAILED, Outcome.PASSED)],
    ids=["second", "first"],
)
def test_of_two_cases_that_are_the_same_none_hides_that_the_other_failed(write, past, outcomes):
    write(Outcome.PASSED, Outcome.PASSED, cases=[NAMELESS, NAMELESS])
    write(*outcomes, cases=[NAMELESS, NAMELESS])

    assert [one.passed for one in past(NAMELESS, NAMELESS, most=1)] == [False, False]
    assert past(NAMELESS)[0].passed is False


@pytest.mark.parametrize(
    "fields", [{"agent_name": "b"}, {"agent_config_path": "dir/other.yaml"}], ids=["name", "file"]
)
def test_runs_of_another_agent_tell_nothing(write, past, fields):
    write(Outcome.FAILED, **fields)

    assert past(GREETS) == [UNKNOWN_HISTORY]


def test_a_folder_means_the_agent_yaml_in_it(write, past):
    write(Outcome.FAILED, agent_config_path="some/folder")

    assert past(GREETS)[0].passed is False


def test_what_cannot_be_read_is_left_out(write, past, caplog):
    write(Outcome.FAILED)
    write(Outcome.PASSED).write_text("{")
    later = write(Outcome.PASSED)
    later.write_text(later.read_text().replace('"schema_version":1', '"schema_version":2'))

    with caplog.at_level(logging.WARNING):
        [known] = past(GREETS)

    assert known.passed is False
    assert "was written by a later version" in caplog.text


def test_tokens_judges_and_costs_are_known_as_far_as_they_were_told(write, past):
    path = write(Outcome.PASSED)
    row = MetricResult(metric_name="m", judge_calls=2, judge_tokens=TokenUsage.of(5, 5))
    cost = Cost(currency="EUR", total=0.5, agent=0.2, judges=0.3)
    told = a_result(token_usage=TokenUsage.of(10, 20), metric_results=[row], cost=cost)
    with path.open("ab") as file:
        file.write(json_line(CaseFinished(index=1, hash="", result=told)))

    silent, known = past(GREETS, REFUNDS, currency="EUR")

    assert (silent.agent_tokens, silent.judge_calls, silent.cost) == (None, 0, None)
    assert (known.agent_tokens, known.judge_calls, known.judge_tokens) == (30, 2, 10)
    assert known.cost == 0.5
    assert past(REFUNDS, currency="USD")[0].cost is None
