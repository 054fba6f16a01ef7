"""Runs the command with a limit on its memory, and tells the most it held."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from support.cli import clean_environment, home_for

# The child's own child is the only one it waits for, so the figure is that one's.
_MEASURE = """
import json, resource, subprocess, sys
limit = int(sys.argv[1]) * 2**20
ran = subprocess.run(
    sys.argv[2:], capture_output=True, stdin=subprocess.DEVNULL,
    preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (limit, limit)),
)
most = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1024
out, err = (text.decode("utf-8", "backslashreplace") for text in (ran.stdout, ran.stderr))
print(json.dumps([ran.returncode, out, err, most]))
"""


@dataclass(frozen=True)
class Bounded:
    """How a run ended, and what it took."""

    code: int
    stdout: str
    stderr: str
    megabytes: float


def run_bounded(*args: str, cwd: Path, megabytes: int = 2000, timeout: float = 180) -> Bounded:
    """Run `holodeck args...` with no more address space than that."""
    ran = subprocess.run(
        [
            sys.executable,
            "-c",
            _MEASURE,
            str(megabytes),
            sys.executable,
            "-P",
            "-m",
            "holodeck",
            *args,
        ],
        cwd=cwd,
        env=clean_environment(home_for(cwd)),
        capture_output=True,
        timeout=timeout,
        check=True,
    )
    return Bounded(*json.loads(ran.stdout))
