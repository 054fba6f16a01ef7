"""What a run writes, only its user can read."""

import ast
import os
import stat
from pathlib import Path

import pytest

import holodeck
from holodeck.lib.support.files import create_file, make_folder, replace_file

SOURCE = Path(holodeck.__file__).parent
ELSEWHERE = {
    "cli/github_actions.py": "the summary of GitHub's own",
    "cli/commands/init.py": "files of a new project, which people share",
    "cli/main.py": "the null device",
    "cli/commands/schema.py": "the schema of the format, which is public",
    "cli/watch.py": "in a temporary folder of the user",
    "cli/commands/view.py": "a temporary folder of the user",
    "lib/backends/frameworks/claude/agents.py": "in a temporary folder of the user",
    "lib/local_models/store.py": "weights, which are public",
    "lib/local_models/weights.py": "weights, which are public",
    "lib/support/files.py": "the one place",
    "lib/records/recorder.py": "the folder of a run, with the mode of the one place",
    "lib/evaluators/grader_process.py": "a setting of the system",
    "lib/knowledge/stores/sqlite.py": "a database in a file of the one place",
}
"""Modules that create files or folders themselves, and why."""


@pytest.fixture
def usual_umask():
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def creates_files(call):
    """Whether a call can create a file or a folder."""
    name = getattr(call.func, "attr", getattr(call.func, "id", ""))
    if name in {"write_bytes", "mkdir", "makedirs", "mkstemp", "mkdtemp", "NamedTemporaryFile"}:
        return True
    if name == "write_text":  # also the name of our function that prints
        return isinstance(call.func, ast.Attribute)
    if name == "connect":
        return ast.unparse(call.func) == "sqlite3.connect"
    if name != "open":
        return False
    if "O_CREAT" in ast.unparse(call):
        return True
    texts = [one.value for one in ast.walk(call) if isinstance(one, ast.Constant)]
    return any(text in {"w", "a", "x", "wb", "ab", "xb", "w+", "a+b"} for text in texts)


def test_one_module_creates_the_files_of_a_run():
    found = {
        path.relative_to(SOURCE).as_posix()
        for path in SOURCE.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call) and creates_files(node)
    }

    assert found == set(ELSEWHERE)


def test_files_and_folders_are_the_users_own(tmp_path, usual_umask):
    make_folder(tmp_path / "a" / "b")
    create_file(tmp_path / "c" / "file")
    replace_file(tmp_path / "d" / "file", [b"x", b"y"])

    folders = [path for path in tmp_path.rglob("*") if path.is_dir()]
    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {mode(path) for path in folders} == {0o700}
    assert {mode(path) for path in files} == {0o600}
    assert (tmp_path / "d" / "file").read_bytes() == b"xy"


def test_what_exists_keeps_its_permissions_and_content(tmp_path, usual_umask):
    (tmp_path / "a").mkdir(0o755)
    (tmp_path / "a" / "file").write_text("before")
    (tmp_path / "a" / "file").chmod(0o644)

    make_folder(tmp_path / "a")
    create_file(tmp_path / "a" / "file")

    assert (tmp_path / "a" / "file").read_text() == "before"
    replace_file(tmp_path / "a" / "file", [b"after"])
    assert (mode(tmp_path / "a"), mode(tmp_path / "a" / "file")) == (0o755, 0o644)


def test_a_file_in_place_of_a_folder_is_an_error(tmp_path):
    (tmp_path / "a").touch()

    with pytest.raises(FileExistsError):
        make_folder(tmp_path / "a")


def test_a_file_that_cannot_be_written_leaves_the_old_one_alone(tmp_path):
    (tmp_path / "file").write_text("before")

    def broken():
        yield b"half"
        raise OSError("disk full")

    with pytest.raises(OSError, match="disk full"):
        replace_file(tmp_path / "file", broken())

    assert [path.name for path in tmp_path.iterdir()] == ["file"]
    assert (tmp_path / "file").read_text() == "before"
