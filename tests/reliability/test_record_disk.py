"""Full, unwritable and vanishing disks: one clear error, and no result is thrown away."""

import json
import subprocess

import pytest

from fakes import clean_environment
from support.cli import COMMAND, home_for
from support.disks import disk
from support.fleet import Fleet

SIZE = 40


@pytest.fixture
def fleet(tmp_path):
    return Fleet.made(tmp_path / "agent", SIZE)


def run_limited(fleet, blocks, *args):
    """A run none of whose files grows beyond so many blocks of 512 bytes.

    Bytecode would be cut off as well, and break every later import of the module.
    """
    env = clean_environment(home_for(fleet.path), {"PYTHONDONTWRITEBYTECODE": "1"})
    return subprocess.run(
        ["sh", "-c", f'ulimit -f {blocks}; exec "$@"', "sh", *COMMAND, "test", "-j", "20", *args],
        cwd=fleet.path, env=env, timeout=180,
        capture_output=True, text=True, check=False,
    )  # fmt: skip


def test_a_disk_that_fills_up_ends_in_3_with_a_whole_report_elsewhere(fleet):
    with disk(fleet.path / ".holodeck", "size=16k"):
        ran = fleet.run("-o", "r.json")
        [record] = fleet.records()

    assert ran.code == 3
    assert ran.stderr.count("the run record cannot be written: ") == 1
    assert "No space left on device" in ran.stderr
    assert f"Execution Error: the run record is incomplete: {record.path}" in ran.stderr
    assert f"Test Results: {SIZE}/{SIZE} passed" in ran.stdout
    assert len(fleet.report()["results"]) == SIZE
    assert 0 < len(record.finished) < SIZE
    assert record.warnings == ()
    assert "report as JSON" not in ran.stderr


@pytest.mark.parametrize("args", [[], ["-o", "r.json"]], ids=["no report", "report"])
def test_results_that_no_file_takes_go_to_stderr(fleet, args):
    ran = run_limited(fleet, 20, *args)

    report = next(line for line in ran.stderr.splitlines() if line.startswith("{"))
    assert ran.returncode == 3
    assert len(json.loads(report)["results"]) == SIZE
    assert "File too large" in ran.stderr
    assert "Traceback" not in ran.stderr
    assert not (fleet.path / "r.json").exists()
    assert sorted(one.name for one in fleet.path.iterdir() if one.name.startswith(".")) == [
        ".holodeck"
    ]


def test_what_was_recorded_before_the_disk_was_full_can_be_resumed(fleet):
    run_limited(fleet, 20)
    kept = len(fleet.records()[0].finished)

    ran = fleet.run("--resume")

    assert ran.code == 0
    assert fleet.calls().total() == 2 * SIZE - kept


def test_a_folder_that_takes_no_record_is_an_error_before_the_first_question(fleet):
    (fleet.path / ".holodeck").write_text("a file")

    refused = fleet.run()
    without = fleet.run("--no-record")

    assert (refused.code, refused.stdout) == (3, "")
    assert refused.stderr.startswith("Execution Error: the run cannot be recorded in ")
    assert refused.stderr.count("\n") == 1
    assert "--no-record" in refused.stderr
    assert without.code == 0
    assert fleet.calls().total() == SIZE


def test_a_read_only_disk_is_an_error_before_the_first_question(fleet):
    with disk(fleet.path / ".holodeck", "ro"):
        ran = fleet.run()

    assert (ran.code, ran.stdout) == (3, "")
    assert "Read-only file system; make the folder writable" in ran.stderr
    assert fleet.calls().total() == 0


def test_a_record_that_is_removed_meanwhile_does_not_end_the_run(fleet):
    bot = fleet.path / "bot.py"
    remove = "if '00010' in message: shutil.rmtree('.holodeck')\n    "
    bot.write_text(
        bot.read_text()
        .replace("import asyncio, os", "import asyncio, os, shutil")
        .replace("await asyncio", f"{remove}await asyncio")
    )

    ran = fleet.run("-o", "r.json")

    assert ran.code == 3
    assert "it was removed during the run" in ran.stderr
    assert len(fleet.report()["results"]) == SIZE
