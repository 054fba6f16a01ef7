"""Which files a watcher waits for, and what a change of them means."""

import subprocess
import sys
from pathlib import Path

import pytest

from holodeck.cli.watch import (
    FileStates,
    affects_every_case,
    changed_files,
    file_state,
    load_read_files,
    write_read_files,
)
from support.folder import write_files

READING = """\
import os
import sys
from pathlib import Path
from holodeck.cli.watch import ReadTracker

here = Path.cwd()
trace = ReadTracker(here)
trace.start()
Path("agent.yaml").read_text()
Path("report.md").write_text("mine")
Path("report.md").read_text()
Path("gone.yaml").exists() or None
Path(".git/HEAD").read_text()
Path("suites").is_dir() and list(Path("suites").iterdir())
sys.path[:0] = [str(here), str(here.parent / "code")]
trace.stop_tracking()
Path("later.txt").read_text()
import helper, outer
print(sorted(os.path.relpath(path) for path in trace.states()))
"""


def test_what_is_read_before_the_first_case_counts_and_modules_always(tmp_path):
    here = tmp_path / "evals"
    names = ("agent.yaml", ".git/HEAD", "suites/a.yaml", "later.txt", "helper.py")
    write_files(here, {**dict.fromkeys(names, ""), "../code/outer.py": ""})

    ran = subprocess.run(
        [sys.executable, "-c", READING], cwd=here, capture_output=True, text=True, check=True
    )

    read = ["../code/outer.py", ".env", "agent.yaml", "config.yaml", "config.yml", "helper.py"]
    read.append("suites")
    assert ran.stdout.strip() == str(read)


@pytest.fixture
def states(tmp_path) -> FileStates:
    (tmp_path / "agent.yaml").write_text("name: a")
    (tmp_path / "suites").mkdir()
    paths = [str(tmp_path / name) for name in ("agent.yaml", "suites", "config.yaml")]
    return {path: file_state(path) for path in paths}


def test_what_was_told_is_heard_and_nothing_has_changed(tmp_path, states):
    write_read_files(tmp_path / "told", "run-1", states)

    run, known = load_read_files(tmp_path / "told")

    assert (run, changed_files(known)) == ("run-1", [])


def saved_by_rename(folder):
    (folder / "new").write_text("name: b")
    (folder / "new").replace(folder / "agent.yaml")


@pytest.mark.parametrize(
    ("edit", "name"),
    [
        (lambda folder: (folder / "agent.yaml").write_text("name: beta"), "agent.yaml"),
        (saved_by_rename, "agent.yaml"),
        (lambda folder: (folder / "agent.yaml").unlink(), "agent.yaml"),
        (lambda folder: (folder / "config.yaml").write_text(""), "config.yaml"),
        (lambda folder: (folder / "suites" / "new.yaml").write_text(""), "suites"),
    ],
    ids=["saved", "saved-by-rename", "deleted", "made", "made-in-a-folder"],
)
def test_an_edit_is_seen(tmp_path, states, edit, name):
    edit(tmp_path)

    assert [Path(path).name for path in changed_files(states)] == [name]


def test_a_report_in_a_folder_of_suites_is_no_edit(tmp_path, states):
    (tmp_path / "suites" / "report.md").write_text("")

    assert changed_files(states) == []


def test_a_run_that_could_not_tell_tells_nothing(tmp_path):
    assert load_read_files(tmp_path / "told") == (None, {})


@pytest.mark.parametrize(
    ("name", "everything"),
    [("agent.yaml", False), ("prompt.md", False), ("tools.py", True), ("config.yaml", True),
     (".env", True)],
)  # fmt: skip
def test_code_and_settings_concern_every_case_and_the_rest_is_told_by_hashes(name, everything):
    assert affects_every_case(["/folder/suite.yaml", f"/folder/{name}"]) is everything
