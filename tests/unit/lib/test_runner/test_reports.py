"""Reports get into files whole or not at all."""

import json
import os
import stat
import threading
from pathlib import Path

import pytest

from holodeck.errors import ConfigError, ReportError
from holodeck.lib.reports.formats import (
    FORMATS,
    check_writable,
    format_for,
    generate_json_report,
    write_report,
)
from holodeck.models.results.outcome import Outcome
from holodeck.models.test_result import TestReport, ToolInvocation
from support.results import a_report, a_result


@pytest.mark.parametrize(
    ("name", "explicit", "wanted"),
    [
        ("r.md", None, "markdown"),
        ("r.MARKDOWN", None, "markdown"),
        ("r.json", None, "json"),
        ("r.html", None, "html"),
        ("r.HTM", "html", "html"),
        ("r.txt", "markdown", "markdown"),
        ("r", "json", "json"),
        ("r.md", "markdown", "markdown"),
        ("r.csv", "mine:render", "mine:render"),
    ],
)
def test_the_suffix_tells_the_format_or_the_option_does(name, explicit, wanted):
    assert format_for(Path(name), explicit) == wanted


@pytest.mark.parametrize(
    ("name", "explicit", "said"),
    [
        ("r.txt", None, r"--output: 'r.txt' has an unknown suffix; use one of .md"),
        ("r.md", "json", "--format: 'json' contradicts 'r.md', which is markdown by its name"),
        ("r.txt", "jsn", "--format: unknown report 'jsn'; did you mean 'json'"),
    ],
)
def test_a_format_that_cannot_be_told_is_refused(name, explicit, said):
    with pytest.raises(ConfigError, match=said):
        format_for(Path(name), explicit)


@pytest.mark.parametrize("name", FORMATS.names())
def test_every_format_can_be_loaded_and_makes_text(name):
    assert "greets" in FORMATS.load(name)(a_report(a_result(Outcome.FAILED)))


def test_json_holds_the_whole_report():
    report = a_report(a_result(agent_response="\x1b[31m\n|`<b>"))

    assert TestReport.model_validate_json(generate_json_report(report)) == report


def test_json_can_be_read_even_with_half_a_character():
    report = a_report(a_result(agent_response="\udc80", errors=["\ud83d"]))

    read = json.loads(generate_json_report(report))

    assert read["results"][0]["agent_response"] == "\udc80"


def test_json_with_half_a_character_has_no_constant_that_json_lacks():
    call = ToolInvocation(name="rate", args={"limit": float("inf")}, result=float("nan"))
    report = a_report(a_result(agent_response="\ud83d", tool_invocations=[call]))

    read = json.loads(generate_json_report(report), parse_constant=pytest.fail)

    [shown] = read["results"][0]["tool_invocations"]
    assert (shown["args"], shown["result"]) == ({"limit": None}, None)


@pytest.mark.parametrize("count", [0, 1, 3])
def test_json_written_result_by_result_is_the_json_of_the_whole_report(tmp_path, count):
    tricky = 'a "quote"\n  "results": [],\n  x'
    results = [a_result(test_name=f"{at} {tricky}", agent_response=tricky) for at in range(count)]
    report = a_report(*results)
    write_report("json", report, tmp_path / "r.json")

    written = (tmp_path / "r.json").read_text(encoding="utf-8")
    assert len(report.results) == count
    assert written == report.model_dump_json(indent=2) + "\n" == generate_json_report(report)


def test_a_json_file_can_be_read_even_if_only_the_last_result_has_half_a_character(tmp_path):
    report = a_report(a_result(), a_result(agent_response="\ud83d"))
    write_report("json", report, tmp_path / "r.json")

    assert (tmp_path / "r.json").read_text(encoding="utf-8") == generate_json_report(report)
    assert json.loads(generate_json_report(report))["results"][1]["agent_response"] == "\ud83d"
    assert [one.name for one in tmp_path.iterdir()] == ["r.json"]


def test_a_report_is_written_into_folders_that_do_not_exist_yet(tmp_path):
    path = tmp_path / "a" / "b" / "report.md"

    write_report("markdown", a_report(a_result()), path)

    assert path.read_text("utf-8").startswith("# Test Report: helper\n")
    assert [file.name for file in path.parent.iterdir()] == ["report.md"]


def test_only_the_user_reads_a_new_file_and_an_old_one_keeps_its_mode(tmp_path):
    new, old = tmp_path / "new.json", tmp_path / "old.json"
    old.write_text("before")
    old.chmod(0o640)
    before = os.umask(0o022)
    try:
        for path in (new, old):
            write_report("json", a_report(), path)
    finally:
        os.umask(before)

    assert stat.S_IMODE(new.stat().st_mode) == 0o600
    assert stat.S_IMODE(old.stat().st_mode) == 0o640
    assert old.read_text() != "before"


def test_a_link_stays_a_link(tmp_path):
    real, link = tmp_path / "real.json", tmp_path / "link.json"
    real.write_text("")
    link.symlink_to(real)

    write_report("json", a_report(), link)

    assert link.is_symlink()
    assert json.loads(real.read_text())["agent_name"] == "helper"


def test_a_report_can_go_into_a_pipe(tmp_path):
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)
    got = []
    reader = threading.Thread(target=lambda: got.append(pipe.read_text()))
    reader.start()

    write_report("json", a_report(), pipe)
    reader.join(10)

    assert json.loads(got[0])["agent_name"] == "helper"


def test_what_cannot_be_written_is_one_error_and_leaves_nothing_behind(tmp_path):
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "report.json"

    with pytest.raises(ReportError, match=r"cannot be written to .*report.json: "):
        write_report("json", a_report(), path)

    assert [file.name for file in tmp_path.iterdir()] == ["file"]


def test_places_that_cannot_work_are_refused_before_the_run(tmp_path):
    (tmp_path / "file").write_text("")

    check_writable(tmp_path / "new" / "report.md")
    with pytest.raises(ConfigError, match="is a folder; name a file"):
        check_writable(tmp_path)
    with pytest.raises(ConfigError, match="file is not a folder"):
        check_writable(tmp_path / "file" / "report.md")


@pytest.mark.parametrize(
    ("planned", "said"), [(2, "interrupted: 1 of 2 tests ran"), (None, "interrupted: 1 test ran")]
)
def test_an_interrupted_run_says_in_junit_how_many_tests_ran(planned, said):
    report = a_report(a_result(), interrupted=True, planned_tests=planned)

    assert said in FORMATS.load("junit")(report)
