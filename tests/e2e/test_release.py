"""`scripts/release` in its own repository, and what `scripts/install` says if it cannot work."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from fakes import clean_environment

ROOT = Path(__file__).parents[2]
CHANGELOG = "# Changelog\n\n## Unreleased\n\n### Added\n\n- A metric.\n\n## 0.1.0 – 2026-01-01\n"
SCRIPTS = {
    "check": "exit ${CHECK:-0}",
    "wheel": "echo dist/the.whl; exit ${WHEEL:-0}",
}
"""Stand-ins for what takes minutes, with their exit codes."""


class Repository:
    """A repository with the release script and stand-ins for what it calls."""

    def __init__(self, path):
        self.path = path
        for name, text in SCRIPTS.items():
            self.write(f"scripts/{name}", f"#!/bin/sh\n{text}\n").chmod(0o755)
        shutil.copy(ROOT / "scripts" / "release", path / "scripts" / "release")
        self.write("CHANGELOG.md", CHANGELOG)
        self.write("src/holodeck/__init__.py", '"""A package."""\n\n__version__ = "0.1.0"\n')
        self.git("init", "--quiet", "--initial-branch", "main")
        self.git("add", ".")
        self.git("commit", "--quiet", "--message", "Start")

    def write(self, name, text):
        file = self.path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
        return file

    def read(self, name):
        return (self.path / name).read_text()

    def git(self, *args):
        return self.run("git", "-c", "user.name=A", "-c", "user.email=a@b.c", *args).stdout.strip()

    def release(self, *args, **variables):
        return self.run(sys.executable, "scripts/release", *args, **variables)

    def run(self, *command, **variables):
        people = {
            f"GIT_{who}_{what}": "a@b.c"
            for who in ("AUTHOR", "COMMITTER")
            for what in ("NAME", "EMAIL")
        }
        environment = clean_environment(self.path, {**people, **variables})
        return subprocess.run(
            command, cwd=self.path, env=environment, capture_output=True, text=True, check=False
        )


@pytest.fixture
def repository(tmp_path):
    return Repository(tmp_path)


def test_a_release_dates_the_changelog_sets_the_version_commits_and_tags(repository):
    ran = repository.release("0.2.0")

    assert (ran.returncode, "v0.2.0" in ran.stdout) == (0, True), ran.stderr
    assert repository.git("tag", "--points-at", "HEAD") == "v0.2.0"
    assert repository.git("status", "--porcelain") == ""
    assert '__version__ = "0.2.0"' in repository.read("src/holodeck/__init__.py")
    sections = [line for line in repository.read("CHANGELOG.md").splitlines() if line[:3] == "## "]
    assert [section.split()[1] for section in sections] == ["Unreleased", "0.2.0", "0.1.0"]


@pytest.mark.parametrize("failing", ["CHECK", "WHEEL"])
def test_a_release_that_does_not_work_changes_nothing(repository, failing):
    ran = repository.release("0.2.0", **{failing: "1"})

    assert (ran.returncode, f"scripts/{failing.lower()}" in ran.stderr) == (1, True)
    assert repository.git("tag") == repository.git("status", "--porcelain") == ""


def test_a_release_needs_a_version_main_a_clean_checkout_and_changes(repository):
    said = [repository.release("next").stderr]
    repository.write("new.txt", "")
    said.append(repository.release("0.2.0").stderr)
    (repository.path / "new.txt").unlink()
    repository.git("checkout", "--quiet", "-b", "side")
    said.append(repository.release("0.2.0").stderr)
    repository.git("checkout", "--quiet", "main")
    repository.release("0.2.0")
    said += [repository.release(version).stderr for version in ("0.2.0", "0.3.0")]

    words = ["usage", "git status", "branch main", "exists", "nothing under Unreleased"]
    assert [word in text for word, text in zip(words, said, strict=True)] == [True] * 5, said


def test_the_installation_names_the_python_that_it_needs(tmp_path):
    script = tmp_path / "scripts" / "install"
    script.parent.mkdir()
    shutil.copy(ROOT / "scripts" / "install", script)
    environment = clean_environment(tmp_path, {"PYTHON": "python2.7"})

    ran = subprocess.run([script], env=environment, capture_output=True, text=True, check=False)

    assert (ran.returncode, "Python 3.11 or newer" in ran.stderr) == (1, True)
