"""What all recorded runs say together: change points, flaky cases, and the runs."""

import random
from itertools import combinations

import pytest

from holodeck.errors import ConfigError
from holodeck.errors import FileNotFoundError as MissingFileError
from holodeck.lib.records.change_point import LEVEL, find_change_point, significant
from holodeck.lib.records.recorder import json_line
from holodeck.lib.records.run_store import RunStore
from holodeck.lib.records.trends import run_trends
from holodeck.models.records.record import CaseFinished, ComparedWith, PlannedCase, RunEnd, RunHead
from holodeck.models.results.outcome import Outcome
from support.results import a_report, a_result

PASSED, FAILED, ERROR = Outcome.PASSED, Outcome.FAILED, Outcome.AGENT_ERROR


def passes(text):
    """The series that letters stand for: p for passed."""
    return [letter == "p" for letter in text]


@pytest.mark.parametrize("count", [4, 7, 9])
def test_the_p_value_is_the_share_of_the_orders_that_can_be_split_as_well(count):
    for passed in range(1, count):
        orders = [
            [place in chosen for place in range(count)]
            for chosen in combinations(range(count), passed)
        ]
        values = [find_change_point(order).p_value for order in orders]

        for value in values:
            assert value == sum(other <= value + 1e-12 for other in values) / len(values)


@pytest.mark.parametrize(
    ("series", "at", "p_value"),
    [
        ("ppppffff", 4, 2 / 70),
        ("ffffffpppppp", 6, 2 / 924),
        ("pppppppppf", 9, 0.2),
    ],
)
def test_a_clean_break_is_found_at_its_first_result(series, at, p_value):
    point = find_change_point(passes(series))

    assert (point.at, point.p_value) == (at, pytest.approx(p_value))


def test_results_that_are_all_the_same_show_no_change():
    assert find_change_point(passes("pppp")) is None
    assert find_change_point([]) is None


def simulate(chance, breaks=()):
    """100 cases with steady rates over 30 runs, and cases that break at a run."""
    rates = [chance.choice([1, 1, 0.98, 0.95, 0.9, 0.7, 0.5]) for _ in range(100)]
    series = {at: [chance.random() < rate for _ in range(30)] for at, rate in enumerate(rates)}
    for name, at in breaks:
        series[name] = [chance.random() < (0.97 if run < at else 0.05) for run in range(30)]
    return significant({key: find_change_point(one) for key, one in series.items()})


def test_cases_with_a_steady_rate_rarely_show_a_change():
    chance = random.Random(7)

    folders_with_a_false_change = sum(bool(simulate(chance)) for _ in range(200))

    assert folders_with_a_false_change <= 200 * LEVEL


def test_a_planted_break_is_found_at_the_right_run():
    chance = random.Random(11)
    planted = [("early", 8), ("middle", 15), ("late", 24)]
    found = [simulate(chance, planted) for _ in range(50)]
    errors = [abs(one[name].at - at) for one in found for name, at in planted if name in one]
    false = sum(key not in dict(planted) for one in found for key in one)

    assert len(errors) >= 0.9 * 150
    assert sum(error == 0 for error in errors) >= 0.75 * len(errors)
    assert sum(error <= 1 for error in errors) >= 0.9 * len(errors)
    assert false <= 2 * LEVEL * len(errors)


@pytest.fixture
def write(tmp_path):
    """Writes the record of a run, later than those before it."""
    numbers = iter(range(1, 100))

    def write(*outcomes, hash="1", results=None, **fields):  # noqa: A002 - as in the record
        number = next(numbers)
        run = f"202601{number:02d}-000000-000000-aaaaaa"
        results = results or [
            a_result(
                outcome, test_name=f"case {at}", timestamp=f"2026-01-{number:02d}T00:00:0{at}Z"
            )
            for at, outcome in enumerate(outcomes)
        ]
        planned = [PlannedCase(name=one.test_name, hash="") for one in results]
        head = {"agent_name": "a", "agent_config_path": "agent.yaml", "cases": planned} | fields
        head = RunHead(id=run, started=f"2026-01-{number:02d}T00:00:00Z", **head)
        lines = [CaseFinished(index=at, hash=hash, result=one) for at, one in enumerate(results)]
        end = RunEnd(timestamp="", exit_code=0, summary=a_report(*results).summary)
        folder = tmp_path / ".holodeck" / "runs" / run
        folder.mkdir(parents=True)
        (folder / "run.jsonl").write_bytes(b"".join(map(json_line, [head, *lines, end])))
        return run, results

    return write


@pytest.fixture
def trends(tmp_path):
    return lambda: run_trends(RunStore(tmp_path))


def test_a_case_that_broke_says_since_when(write, trends):
    runs = [write(PASSED, PASSED if number < 8 else FAILED)[0] for number in range(14)]

    steady, broken = trends().cases

    assert (steady.change, steady.failing_since) == (None, None)
    change = broken.change
    assert (change.before, change.run, broken.failing_since) == (runs[7], runs[8], runs[8])
    assert (change.passed_before, change.ran_before) == (8, 8)
    assert (change.passed_since, change.ran_since) == (0, 6)
    assert change.p_value < 0.001
    assert not broken.is_flaky


def test_what_the_agent_could_not_answer_is_no_verdict(write, trends):
    for outcome in (PASSED, ERROR, ERROR, ERROR, ERROR, ERROR, PASSED):
        write(outcome)

    [case] = trends().cases

    assert (case.change, case.failing_since, case.is_flaky) == (None, None, False)


@pytest.mark.parametrize(
    ("results", "is_flaky"),
    [
        ([(PASSED, "1"), (FAILED, "1"), (PASSED, "1")], True),
        ([(PASSED, "1"), (FAILED, "2"), (PASSED, "3")], False),
        ([(PASSED, "1"), (FAILED, "1"), (FAILED, "1")], False),
        ([(PASSED, "1"), (Outcome.FLAKY, "1")], True),
    ],
)
def test_a_case_is_flaky_if_its_verdict_alternates_although_nothing_changed(
    write, trends, results, is_flaky
):
    for outcome, digest in results:
        write(outcome, hash=digest)

    assert trends().cases[0].is_flaky is is_flaky


def test_results_that_a_resumed_run_took_over_count_once(write, trends):
    first, results = write(FAILED)
    second, _ = write(results=[*results, a_result(PASSED, test_name="case 1")], resumes=first)

    resumed, new = trends().cases

    assert [past.run for past in resumed.past] == [first]
    assert list(resumed.outcomes) == [first, second]
    assert [past.run for past in new.past] == [second]


def test_each_agent_of_the_folder_has_its_own_cases(write, trends):
    write(PASSED)
    write(FAILED, agent_config_path="other.yaml")
    write(
        FAILED,
        agent_config_path="b/agent.yaml",
        compared_with=ComparedWith(run="x", is_second=True),
    )

    found = trends()

    agents = ["a (agent.yaml)", "a (other.yaml)", "a (b/agent.yaml)"]
    assert [run.agent for run in found.runs] == agents
    assert [(case.agent, [*case.outcomes.values()]) for case in found.cases] == [
        (agents[0], [PASSED]), (agents[1], [FAILED]), (agents[2], [FAILED]),
    ]  # fmt: skip


def test_what_cannot_be_read_is_named(write, trends, tmp_path):
    run, _ = write(PASSED)
    bad = tmp_path / ".holodeck" / "runs" / "20250101-000000-000000-aaaaaa"
    bad.mkdir()
    (bad / "run.jsonl").write_text("nothing")

    found = trends()

    assert [one.id for one in found.runs] == [run]
    assert "A run is left out: " in found.notes[0]


def test_a_folder_whose_runs_cannot_be_read_is_an_error(trends, tmp_path):
    bad = tmp_path / ".holodeck" / "runs" / "20250101-000000-000000-aaaaaa"
    bad.mkdir(parents=True)
    (bad / "run.jsonl").write_text("nothing")

    with pytest.raises(ConfigError, match="none of its runs can be read: A run is left out"):
        trends()


def test_a_folder_without_runs_says_what_to_do(trends):
    with pytest.raises(MissingFileError, match="`holodeck test` records one"):
        trends()
