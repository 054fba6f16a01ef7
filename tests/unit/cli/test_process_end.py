"""How the program ends: what other code registered for the end still happens."""

import pstats
import subprocess
import sys
from pathlib import Path

import pytest

from fakes import clean_environment, start_cli
from holodeck import __version__

VERSION = f"holodeck, version {__version__}\n"
WITNESS = """
import atexit, sys, threading

class Witness:
    def __del__(self):
        print("freed")

witness = Witness()

def thread():
    threading.main_thread().join()
    print("thread")

def register():
    for text in ("first registered", "last registered"):
        atexit.register(print, text)
    threading.Thread(target=thread).start()
"""
DURING_THE_COMMAND = """
def hook(event, args):
    if event == "import" and args[0] == "holodeck.lib.process_exit":
        register()

sys.addaudithook(hook)
"""
REGISTERED = "thread\nlast registered\nfirst registered\n"
AGENT = """
name: writer
backend: "agent:answer"
test_cases:
  - {input: hello, ground_truth: hello, evaluations: [{metric: contains}]}
"""
CODE = """
import atexit

log = open("log.txt", "w")
atexit.register(lambda: log.write("at exit\\n"))

def answer(message):
    log.write(f"asked: {message}\\n")
    return message
"""


def run_version_with(site: str, folder: Path, **variables: str) -> tuple[str, str, int]:
    """Run `holodeck --version` with a sitecustomize module."""
    (folder / "sitecustomize.py").write_text(WITNESS + site)
    env = {"PYTHONPATH": str(folder), **variables}
    with start_cli("--version", cwd=folder, env=env) as run:
        ran = run.finish()
    return ran.stdout, ran.stderr, ran.code


def test_threads_and_exit_callbacks_finish_in_order_and_nothing_is_freed(tmp_path):
    assert run_version_with(DURING_THE_COMMAND, tmp_path) == (VERSION + REGISTERED, "", 0)


def test_an_exit_callback_that_was_registered_before_the_command_is_called(tmp_path):
    out, err, code = run_version_with("register()", tmp_path)

    assert (out, err, code) == (VERSION + REGISTERED + "freed\n", "", 0)


def test_warnings_about_what_is_still_open_at_the_end_are_shown_if_they_are_asked_for(tmp_path):
    (tmp_path / "open.txt").touch()
    site = 'file = open("open.txt")'
    out, err, code = run_version_with(site, tmp_path, PYTHONWARNINGS="default")

    assert (out, code) == (VERSION + "freed\n", 0)
    assert "ResourceWarning: unclosed file" in err


def test_what_an_agent_wrote_to_a_file_that_it_left_open_is_in_the_file(tmp_path):
    (tmp_path / "agent.yaml").write_text(AGENT)
    (tmp_path / "agent.py").write_text(CODE)
    with start_cli("test", "agent.yaml", "--quiet", cwd=tmp_path) as run:
        ran = run.finish()

    assert ran.code == 0, ran.stderr
    assert (tmp_path / "log.txt").read_text() == "asked: hello\nat exit\n"


@pytest.mark.parametrize(
    "tool",
    [
        ["cProfile", "-o", "data"],
        ["coverage", "run", "--data-file=data", "--include=*/cli/main.py"],
    ],
    ids=["profiler", "coverage"],
)
def test_a_profiler_or_coverage_around_the_command_writes_its_data(tmp_path, tool):
    ran = subprocess.run(
        [sys.executable, "-m", *tool, "-m", "holodeck", "--version"],
        cwd=tmp_path, env=clean_environment(tmp_path), capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert ran.stdout.startswith(VERSION)
    assert (tmp_path / "data").stat().st_size > 0
    if tool[0] == "cProfile":
        assert pstats.Stats(str(tmp_path / "data")).total_calls > 0
