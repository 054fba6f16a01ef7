import subprocess
import sys

import pytest

PROGRAM = """
import gc
from holodeck.lib.processes import process_exit

{begin}
with process_exit.collector_paused():
    pass
print(gc.get_freeze_count() > 0)
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
