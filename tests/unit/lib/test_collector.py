import subprocess
import sys

import pytest

PROGRAM = """
import gc
from holodeck.lib.processes import process_exit

{notes}
with process_exit.collector_paused():
    pass
print(gc.get_freeze_count() > 0)
"""


@pytest.mark.parametrize(
    ("notes", "is_frozen"),
    [
        pytest.param(["note_command"], "True", id="a command"),
        pytest.param(["note_command", "note_user_code"], "False", id="a command, after user code"),
        pytest.param([], "False", id="a program of the user"),
    ],
)
def test_only_our_own_objects_are_kept_from_the_garbage_collector(notes, is_frozen):
    calls = "\n".join(f"process_exit.{note}()" for note in notes)

    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(notes=calls)],
        capture_output=True,
        text=True,
        check=True,
    )

    assert ran.stdout.strip() == is_frozen
