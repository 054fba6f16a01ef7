"""Runs the command in forks of a process that imported it, so that a run costs what it does.

Starting Python, importing and building the models takes half a second and 50 MB, whatever the
command then does. A test of what a hostile file costs wants none of it.
"""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from support.cli import clean_environment, home_for

_SERVER = """
import gc, json, os, resource, signal, sys, tempfile
import holodeck.cli.commands.validate, holodeck.config.loader
from holodeck.__main__ import main
from holodeck.models.agent import Agent, SuiteFile
from holodeck.models.config import GlobalConfig

for model in (Agent, SuiteFile, GlobalConfig):
    model.model_rebuild()
gc.freeze()

def run(args, cwd, out, err):
    os.chdir(cwd)
    os.dup2(out, 1)
    os.dup2(err, 2)
    signal.alarm(180)
    resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))
    sys.argv[1:] = args
    try:
        code = main()
    except SystemExit as left:
        code = left.code
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
    return int(code or 0)

def answer(args, cwd):
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
        child = os.fork()
        if not child:
            os._exit(run(args, cwd, out.fileno(), err.fileno()))
        _, status, used = os.wait4(child, 0)
        said = [stream.seek(0) or stream.read().decode("utf-8", "backslashreplace")
                for stream in (out, err)]
    return [os.waitstatus_to_exitcode(status), *said, used.ru_maxrss / 1024]

*_, imports = answer(["--version"], ".")
for line in sys.stdin:
    *said, most = answer(*json.loads(line))
    print(json.dumps([*said, most - imports]), flush=True)
"""


@dataclass(frozen=True)
class Cost:
    """How a run ended (what hangs does with -14), and what it took beyond the imports."""

    code: int
    stdout: str
    stderr: str
    megabytes: float


class ForkedCli:
    """The process that forks; leaving the block ends it."""

    def __init__(self, cwd: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", _SERVER],
            cwd=cwd,
            env=clean_environment(home_for(cwd)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, *args: str, cwd: Path) -> Cost:
        """Run `holodeck args...` to its end."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps([args, str(cwd)]) + "\n")
        self._process.stdin.flush()
        return Cost(*json.loads(self._process.stdout.readline()))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._process.communicate()
