"""A process that has imported the command and forks for each run of it.

Starting Python and importing an agent library takes seconds, whatever the command then does, and
most tests are about what it does. A run here is a process of its own, with its own streams,
variables and folder; only the imports are done. Runs that are started to be interrupted, killed or
shown a terminal are started from nothing.
"""

import atexit
import json
import subprocess
import sys
import tempfile
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path

_SERVER = """
import atexit, json, os, signal, sys, threading, time
import holodeck.cli.judge, holodeck.cli.models, holodeck.cli.report, holodeck.cli.runs
import holodeck.cli.score, holodeck.cli.test, holodeck.cli.test_run, holodeck.cli.validate
import holodeck.config.check, holodeck.config.loader
import holodeck.lib.test_runner.chat_agent, holodeck.lib.test_runner.executor
from holodeck.lib.backends.semantic_kernel.lean import import_openai_connectors
import_openai_connectors()
import holodeck.lib.backends.semantic_kernel.agent
import holodeck.lib.backends.semantic_kernel.services
from holodeck.__main__ import main

def become(args, cwd, env, streams, seconds):
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.alarm(seconds)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    for number, name in enumerate(streams):
        flags = os.O_RDONLY if number == 0 else os.O_WRONLY | os.O_TRUNC
        file = os.open(name, flags)
        os.dup2(file, number)
        os.close(file)
    sys.argv[1:] = args
    try:
        code = main()
    except SystemExit as left:
        code = left.code
    threading._shutdown()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    return int(code or 0)

print("ready", flush=True)
for line in sys.stdin:
    child = os.fork()
    if not child:
        code = 70
        try:
            code = become(*json.loads(line))
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    print(os.waitstatus_to_exitcode(status), flush=True)
"""


class Nursery:
    """The process that forks; started at its first use, ended with the tests."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[str] | None = None
        self._one_at_a_time = threading.Lock()

    def run(
        self,
        args: Sequence[str],
        *,
        cwd: Path,
        env: Mapping[str, str],
        stdin: str | None,
        timeout: float,
    ) -> tuple[int, bytes, bytes]:
        """Run `holodeck args...` to its end: its code and what it wrote."""
        with tempfile.TemporaryDirectory() as name, self._one_at_a_time:
            streams = [Path(name, stream) for stream in ("in", "out", "err")]
            for stream in streams:
                stream.touch()
            streams[0].write_text(stdin or "", "utf-8")
            names = ["/dev/null" if stdin is None else str(streams[0]), *map(str, streams[1:])]
            code = self._ask([list(args), str(cwd), dict(env), names, max(1, round(timeout))])
            out, err = (stream.read_bytes() for stream in streams[1:])
            return code, out, err

    def _ask(self, request: object) -> int:
        process = self._process = self._process or self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(request) + "\n")
        process.stdin.flush()
        return int(process.stdout.readline())

    def _started(self) -> "subprocess.Popen[str]":
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", _SERVER],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(process.communicate)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process


NURSERY = Nursery()
