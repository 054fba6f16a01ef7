"""A report is the old file or the whole new one, whatever becomes of disk and folder."""

import errno
import json
import os
import resource
import shutil

import pytest

from holodeck.errors import ReportError
from holodeck.lib.reports.formats import FORMATS, write_report_text
from support.checks import assert_plain
from support.disks import disk
from support.fleet import Fleet
from support.results import a_report, a_result


def write_report(report, path, report_format):
    write_report_text(FORMATS.load(report_format)(report), path)


SIZE = 8
OLD = '{"schema_version": 1, "agent_name": "the old report"}'
BIG = a_report(a_result(agent_response="x" * 200_000))


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    return Fleet.made(tmp_path_factory.mktemp("outputs") / "agent", SIZE)


@pytest.fixture
def fleet(made, tmp_path):
    shutil.copytree(made.path, tmp_path / "agent")
    return Fleet(tmp_path / "agent", SIZE)


def whole(path):
    return len(json.loads(path.read_text())["results"]) == SIZE


def test_where_no_report_can_be_made_the_run_does_not_begin(fleet):
    """A folder, a file in the way, a link to itself: all told before."""
    folder = fleet.path
    (folder / "folder.json").mkdir()
    (folder / "file").write_text("")
    (folder / "loop.json").symlink_to("loop.json")
    for name, said in (
        ("folder.json", "is a folder"),
        ("file/r.json", "is not a folder"),
        ("loop.json", "Too many levels of symbolic links"),
    ):
        ran = fleet.run("-o", name)
        assert_plain(ran)
        assert (ran.code, ran.stdout, ran.stderr.count("\n")) == (2, "", 1), ran.stderr
        assert said in ran.stderr
    assert fleet.calls().total() == 0


def test_a_read_only_folder_takes_no_report_and_keeps_the_old_one(fleet, tmp_path):
    reports = tmp_path / "reports"
    with disk(reports, "size=1m") as remount:
        (reports / "r.json").write_text(OLD)
        remount("ro")
        ran = fleet.run("-o", str(reports / "r.json"))
        left = {one.name: one.read_text() for one in reports.iterdir()}

    assert_plain(ran)
    assert ran.code == 2
    assert "Read-only file system" in ran.stderr or "permission denied" in ran.stderr
    assert left == {"r.json": OLD}
    assert fleet.calls().total() == 0


def test_a_disk_too_small_for_the_report_keeps_the_old_one_and_the_results(fleet, tmp_path):
    reports = tmp_path / "reports"
    answer = fleet.path / "bot.py"
    answer.write_text(answer.read_text().replace('return f"OK', 'return "x" * 9999 + f"OK'))
    with disk(reports, "size=64k"):
        (reports / "r.json").write_text(OLD)
        ran = fleet.run("-o", str(reports / "r.json"), "-o", "r.md")
        left = {one.name: one.read_text() for one in reports.iterdir()}
    again = fleet.holodeck("report", "last", "-o", "again.json")

    assert_plain(ran)
    assert ran.code == 3
    assert ran.stderr.count("the report cannot be written to ") == 1
    assert "No space left on device" in ran.stderr
    assert left == {"r.json": OLD}
    assert (fleet.path / "r.md").is_file()
    assert again.code == 0
    assert whole(fleet.path / "again.json")


def test_a_full_device_is_an_error_and_the_results_stay_in_the_record(fleet):
    (fleet.path / "full.json").symlink_to("/dev/full")
    ran = fleet.run("-o", "full.json", "-o", "r.json")
    again = fleet.holodeck("report", "last", "-o", "again.json")

    assert (ran.code, again.code) == (3, 0)
    assert ran.stderr.count("No space left on device") == 1
    assert whole(fleet.path / "r.json")
    assert (fleet.path / "again.json").read_bytes() == (fleet.path / "r.json").read_bytes()


def test_a_link_stays_a_link_and_its_target_gets_the_report(fleet, tmp_path):
    real = tmp_path / "real.json"
    real.write_text(OLD)
    (fleet.path / "r.json").symlink_to(real)

    ran = fleet.run("-o", "r.json")

    assert ran.code == 0
    assert (fleet.path / "r.json").is_symlink()
    assert whole(real)


def test_a_report_that_breaks_off_anywhere_leaves_the_old_file_and_nothing_else(tmp_path):
    """The size of files is limited to ever more bytes, so that every write is cut once."""
    target = tmp_path / "r.json"
    target.write_text(OLD)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    for limit in (0, 1, 4096, 8192, 65_536, 131_072):
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
        try:
            with pytest.raises(ReportError, match=os.strerror(errno.EFBIG)):
                write_report(BIG, target, "json")
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        assert [one.name for one in tmp_path.iterdir()] == ["r.json"]
        assert target.read_text() == OLD

    write_report(BIG, target, "json")

    assert len(json.loads(target.read_text())["results"][0]["agent_response"]) == 200_000


def test_a_file_that_cannot_take_the_name_leaves_nothing_behind(tmp_path):
    """The target turns into a folder that is not empty, so that the last step fails."""
    target = tmp_path / "r.json"
    (target / "inside").mkdir(parents=True)

    with pytest.raises(ReportError, match=r"cannot be written to .*r\.json: "):
        write_report(BIG, target, "json")

    assert [one.name for one in tmp_path.iterdir()] == ["r.json"]
    assert [one.name for one in target.iterdir()] == ["inside"]
