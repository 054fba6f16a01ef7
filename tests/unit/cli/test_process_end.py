"""How the program ends: what other code registered for the end still happens."""

import pstats
import subprocess
import sys
from pathlib import Path

import pytest

from fakes import clean_environment, start_cli
from holodeck import __version__

WITNESS = """
import atexit, os, sys, threading

class Witness:
    def __del__(self, write=os.write):
        write(1, b"freed\\n")

sys.trace = Witness()

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
    if event == "import" and args[0] == "holodeck.lib.support.text":
        register()

sys.addaudithook(hook)
"""
REGISTERED = "thread\nlast registered\nfirst registered\n"


def run_mistake_with(site: str, folder: Path) -> tuple[str, int]:
    """Run `holodeck tset`, which looks for a similar command, with a sitecustomize module."""
    (folder / "sitecustomize.py").write_text(WITNESS + site)
    with start_cli("tset", cwd=folder, env={"PYTHONPATH": str(folder)}) as run:
        ran = run.finish()
    assert "did you mean 'test'?" in ran.stderr
    return ran.stdout, ran.code


def test_threads_and_exit_callbacks_finish_in_order_before_objects_are_freed(tmp_path):
    assert run_mistake_with(DURING_THE_COMMAND, tmp_path) == (REGISTERED + "freed\n", 2)


def test_an_exit_callback_that_was_registered_before_the_command_is_called(tmp_path):
    assert run_mistake_with("register()", tmp_path) == (REGISTERED + "freed\n", 2)


def test_what_a_class_of_the_user_wrote_to_a_file_that_it_left_open_is_there(tmp_path):
    (tmp_path / "bot.py").write_text(
        "class Bot:\n"
        "    log = open('log.txt', 'w')\n"
        "    def __call__(self, message):\n"
        "        self.log.write(message)\n"
        "        return 'hi'\n"
        "answer = Bot()\n"
    )
    (tmp_path / "agent.yaml").write_text(
        "name: a\nbackend: 'bot:answer'\n"
        "test_cases: [{input: x, evaluations: [{metric: contains, value: hi}]}]\n"
    )

    with start_cli("test", "agent.yaml", cwd=tmp_path, from_nothing=True) as run:
        assert run.finish().code == 0

    assert (tmp_path / "log.txt").read_text() == "x"


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

    assert ran.stdout.startswith(f"holodeck, version {__version__}\n")
    assert (tmp_path / "data").stat().st_size > 0
    if tool[0] == "cProfile":
        assert pstats.Stats(str(tmp_path / "data")).total_calls > 0
