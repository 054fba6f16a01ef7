import subprocess
import sys

import pytest

PROGRAM = """
import gc
from holodeck.lib.processes import process_exit

{begin}
with process_exit.collector_paused():
    many = [[] for _ in range(20_000)]
print(gc.get_freeze_count() > 0)
"""
BOT = """
import gc

def answer(text):
    return str(gc.isenabled())
"""
GRADERS = """
import gc

def collects(case):
    assert gc.isenabled()
    assert case.response == "True"
"""


@pytest.mark.parametrize(
    ("begin", "is_frozen"),
    [
        pytest.param(["process_exit.note_command()"], "True", id="a command"),
        pytest.param(
            ["process_exit.note_command()", "process_exit.note_user_code()"],
            "False",
            id="a command, after user code",
        ),
        pytest.param([], "False", id="a program of the user"),
        pytest.param(["gc.freeze()"], "True", id="a program of the user that freezes its objects"),
    ],
)
def test_only_our_own_objects_are_kept_from_the_garbage_collector(begin, is_frozen):
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(begin="\n".join(begin))],
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stdout.strip() == is_frozen


@pytest.mark.parametrize("backend", ["bot:answer", {"type": "process", "target": "bot:answer"}])
def test_garbage_is_collected_in_every_process_of_a_run(agent_dir, backend):
    agent_dir.write("bot.py", BOT)
    agent_dir.write("graders.py", GRADERS)
    case = {"input": "hi", "evaluations": [{"type": "code", "grader": "graders:collects"}]}
    agent_dir.write_agent(
        model=None,
        instructions=None,
        backend=backend,
        test_cases=[case | {"name": name} for name in "ab"],
    )

    ran = agent_dir.run("test", "--workers", "2")

    assert ran.code == 0, ran.stdout
