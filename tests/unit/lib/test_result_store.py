"""Results of a run are the same whether they are in memory or in a file."""

import copy
import gc
import pickle
import random
import warnings
from pathlib import Path

import pytest
from pydantic_core import PydanticSerializationError
from tests.support.results import a_report, a_result

from holodeck.lib.redact import Redactor
from holodeck.lib.reports.failure_groups import NOT_PASSED, group_failures
from holodeck.lib.reports.formats import FORMATS, generate_json_report, write_report
from holodeck.lib.reports.github import annotations, step_summary
from holodeck.lib.reports.locations import SourceLinks
from holodeck.lib.reports.recap import recap_failures
from holodeck.lib.result_store import ResultStore
from holodeck.models.test_result import MetricResult, Outcome, TestReport, TestResult

COUNT = 25


def some_results(count: int = COUNT) -> list[TestResult]:
    return [
        a_result(
            Outcome.PASSED if at % 3 else Outcome.FAILED,
            test_name=f"case {at}",
            test_input=f"line one\nline two «{at}» \U0001f600",
            metric_results=[
                MetricResult(metric_name="contains", kind="standard", score=at / COUNT)
            ],
        )
        for at in range(count)
    ]


def stored(
    results: list[TestResult], most_in_memory: int, *, is_indented: bool = False
) -> ResultStore:
    """Return a store to which the results were added in random order."""
    store = ResultStore(most_in_memory, is_indented=is_indented)
    for index in random.Random(1).sample(range(len(results)), len(results)):
        store.add(index, results[index])
    return store


@pytest.mark.parametrize("most_in_memory", [1, 2, 7, COUNT, 1000])
class TestResults:
    def test_they_are_what_was_added_in_the_order_of_the_cases(self, most_in_memory: int) -> None:
        results = some_results()
        store = stored(results, most_in_memory)
        assert len(store) == COUNT
        found = store.snapshot()
        assert list(found) == results
        assert found == results
        assert results == found
        assert found[3] == results[3]
        assert found[-1] == results[-1]
        assert found[2:5] == results[2:5]
        assert found != results[1:]
        assert found + results == results + found == [*results, *results]
        assert results[4] in found
        assert repr(found) == repr(results)

    @pytest.mark.parametrize("is_indented", [False, True])
    def test_the_report_is_the_same_as_with_a_list(
        self, most_in_memory: int, is_indented: bool
    ) -> None:
        results = some_results()
        plain = a_report(*results)
        found = stored(results, most_in_memory, is_indented=is_indented).snapshot()
        report = TestReport(**{**vars(plain), "results": found})
        assert report == plain
        assert generate_json_report(report) == generate_json_report(plain)
        assert report.model_dump() == plain.model_dump()
        assert report.model_dump_json() == plain.model_dump_json()
        assert report.to_markdown() == plain.to_markdown()
        assert TestReport.model_validate_json(report.to_json()) == plain

    def test_copies_do_not_need_the_file(self, most_in_memory: int) -> None:
        results = some_results()
        report = a_report(*results).model_copy(
            update={"results": stored(results, most_in_memory).snapshot()}
        )
        assert copy.deepcopy(report).results == results
        assert pickle.loads(pickle.dumps(report)).results == results

    @pytest.mark.parametrize("is_indented", [False, True])
    def test_a_later_result_replaces_an_earlier_one(
        self, most_in_memory: int, is_indented: bool
    ) -> None:
        results = some_results()
        store = stored(results, most_in_memory, is_indented=is_indented)
        before = store.snapshot()
        again = results[3].model_copy(update={"agent_response": "again"})
        store.add(3, again)
        for index in range(COUNT, 3 * COUNT):
            store.add(index, results[index % COUNT])
        assert store.get(3) == again
        assert store.json_of(3) == again.model_dump_json(indent=2)
        assert before[3] == again
        assert len(before) == COUNT
        assert len(store) == len(store.snapshot()) == 3 * COUNT

    def test_secrets_are_found_in_all_of_them(self, most_in_memory: int) -> None:
        results = some_results()
        results[0] = results[0].model_copy(update={"agent_response": "the key is hunter22"})
        report = a_report(*results).model_copy(
            update={"results": stored(results, most_in_memory).snapshot()}
        )
        shown = Redactor(["hunter22"]).redact_report(report)
        assert shown.results[0].agent_response == "the key is ***"
        assert shown.results[1:] == results[1:]


def test_what_was_not_added_is_missing() -> None:
    store = stored(some_results(), 2)
    assert COUNT not in store
    assert store.get(COUNT) is None
    assert 0 in store


@pytest.mark.parametrize("is_indented", [False, True])
def test_a_result_that_json_cannot_hold_is_kept_in_memory(is_indented: bool) -> None:
    results = some_results()
    results[0] = results[0].model_copy(update={"agent_response": "half \ud83d"})
    results[1] = results[1].model_copy(update={"messages": [{"key \ud83d": 1}]})
    found = stored(results, 2, is_indented=is_indented).snapshot()
    assert found[0].agent_response == "half \ud83d"
    assert found[1].messages == [{"key \ud83d": 1}]
    with pytest.raises(PydanticSerializationError):
        list(found.as_json())
    report = a_report(*some_results()).model_copy(update={"results": found})
    assert '"half \\ud83d"' in generate_json_report(report)


def test_results_that_the_disk_does_not_take_stay_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "missing"))
    results = some_results()
    assert stored(results, 2).snapshot() == results
    indented = stored(results, 2, is_indented=True).snapshot()
    assert indented == results
    assert list(indented.as_json()) == [one.model_dump_json(indent=2) for one in results]


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="needs /proc to see open files")
def test_the_file_is_closed_with_the_last_report() -> None:
    def open_files() -> int:
        return len(list(Path("/proc/self/fd").iterdir()))

    gc.collect()
    before = open_files()
    found = stored(some_results(), 2).snapshot()
    assert open_files() == before + 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        del found
        gc.collect()
    assert open_files() == before


class CountingStore(ResultStore):
    """A store that counts how many results are asked for."""

    asked = 0

    def get(self, index: int) -> TestResult | None:
        """Count, and return the result."""
        self.asked += 1
        return super().get(index)


def every_kind(count: int) -> list[TestResult]:
    """Return results of all outcomes, in several suites, with texts that each format escapes."""
    kinds = list(Outcome)
    return [
        a_result(
            kinds[at % len(kinds)],
            test_name=f"case {at} <b>&\"'\t\x00 é",
            suite=f"suite {at % 3}" if at % 4 else None,
            location=f"agent.yaml:{at + 1}:3" if at % 5 else None,
            test_input="one\r\n& <two> ]]> \x1b[0m",
            agent_response="" if at % 6 == 0 else "an <answer>\nof two lines",
            errors=[f"HTTP 503 after {at} s"] if kinds[at % len(kinds)] in NOT_PASSED else [],
            metric_results=[MetricResult(metric_name="contains", kind="standard", scale="1 to 5")],
        )
        for at in range(count)
    ]


def both_kinds(
    results: list[TestResult], *, is_indented: bool = False, **fields: object
) -> tuple[TestReport, TestReport]:
    """Return a report with a list of results, and the same one with stored results."""
    plain = a_report(*results, **fields)
    found = stored(results, 2, is_indented=is_indented).snapshot()
    return plain, plain.model_copy(update={"results": found})


@pytest.mark.parametrize("name", FORMATS.names())
@pytest.mark.parametrize("count", [0, 1, 150])
def test_a_report_of_stored_results_is_that_of_a_list_also_written_in_parts(
    tmp_path: Path, name: str, count: int
) -> None:
    results, fields = every_kind(count), {"interrupted": count == 1, "planned_tests": 200}
    plain, report = both_kinds(results, **fields)
    _, indented = both_kinds(results, is_indented=True, **fields)
    wanted = FORMATS.load(name)(plain)
    assert FORMATS.load(name)(report) == wanted
    for one in (plain, report, indented):
        write_report(name, one, tmp_path / "report")
        assert (tmp_path / "report").read_text("utf-8") == wanted


def test_what_github_and_the_terminal_show_of_stored_results_is_that_of_a_list() -> None:
    plain, report = both_kinds(every_kind(150))
    assert annotations(report, Path("/work")) == annotations(plain, Path("/work"))
    assert step_summary(report, SourceLinks()) == step_summary(plain, SourceLinks())
    for brief in (False, True):
        shown = recap_failures(report.results, brief=brief)
        assert shown == recap_failures(plain.results, brief=brief)
        assert "150" not in shown
        assert "case 1 " in shown


@pytest.mark.parametrize(
    ("name", "most"),
    [("html", 300 + 100), ("junit", 300), ("codequality", 215), ("markdown", 3 * 300)],
)
def test_a_report_reads_few_results_more_than_once(name: str, most: int) -> None:
    store = CountingStore(2)
    results = every_kind(300)
    for index, result in enumerate(results):
        store.add(index, result)
    FORMATS.load(name)(a_report(*results).model_copy(update={"results": store.snapshot()}))
    assert 0 < store.asked <= most


def test_groups_of_failures_read_each_case_once_and_keep_none() -> None:
    store = CountingStore(2)
    results = every_kind(210)
    for index, result in enumerate(results):
        store.add(index, result)
    groups = group_failures(store.snapshot())
    failed = [one for one in results if one.outcome in NOT_PASSED]
    assert store.asked == len(failed) == sum(len(one.numbers) for one in groups)
    [of_errors] = [one for one in groups if one.outcome is Outcome.AGENT_ERROR]
    assert list(of_errors.results) == [one for one in results if one.outcome is of_errors.outcome]
