"""Processes that have imported the command, or pytest with our plugin, and fork for each run.

Starting Python and importing an agent library takes seconds, whatever the command then does, and
most tests are about what it does. A run here is a process of its own, with its own streams,
variables and folder; only the imports are done. Runs that are started to be interrupted or shown a
terminal are started from nothing.
"""

import atexit
import json
import os
import signal
import socketserver
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import BinaryIO

from support import certificates

_READY = """
import atexit, gc, importlib, json, os, pkgutil, signal, sys, threading, time
import holodeck, platformdirs
from pydantic import BaseModel

def ready(model):
    "Models are built when they are first used: here, not in each fork again."
    for one in model.__subclasses__():
        if one.__module__.startswith("holodeck."):
            one.model_rebuild()
        ready(one)

def import_all(package):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        if module.name not in {"holodeck.__main__", "holodeck.pytest_plugin"}:
            loaded = importlib.import_module(module.name)
            if module.ispkg:
                import_all(loaded)

import_all(holodeck)
ready(BaseModel)
read_once()
"""

_COMMAND = """
import types
import holodeck.lib.backends.semantic_kernel.agent
import semantic_kernel.connectors.ai.open_ai
from holodeck.__main__ import main as command

def main():
    if sys.argv[1:2] != ["-c"]:
        return command()
    module = sys.modules["__main__"] = types.ModuleType("__main__")
    sys.path.insert(0, "")
    exec(compile(sys.argv[2], "<string>", "exec"), vars(module))
"""
"""Runs `holodeck`; with `-c`, its argument as `python -c` does."""

_PYTEST = """
import _pytest.cacheprovider, _pytest.junitxml, _pytest.legacypath, _pytest.logging
import _pytest.skipping, difflib, faulthandler, pdb, unittest
from pytest import main
"""

_SERVER = """
leave = os._exit  # which the command replaces
gc.collect()
gc.freeze()

def become(args, cwd, env, streams, seconds):
    os.setsid()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.alarm(seconds)
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    time.tzset()
    for number, file in enumerate(streams):
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

def born(args, cwd, env, streams, seconds):
    files = [os.open(streams[0], os.O_RDONLY)]
    files += [os.open(name, os.O_WRONLY | os.O_TRUNC) for name in streams[1:]]
    child = os.fork()
    if not child:
        code = 70
        try:
            code = become(args, cwd, env, files, seconds)
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            leave(code)
    for file in files:
        os.close(file)
    return child

def ended(child):
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])

print("ready", flush=True)
for line in sys.stdin:
    what, *given = json.loads(line)
    answer = ended(*given) if what == "wait" else born(*given)
    print(ended(answer) if what == "run" else answer, flush=True)
"""


class Nursery:
    """The process that forks; started at its first use, ended with the tests."""

    def __init__(self, imports: str) -> None:
        self._imports = imports
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
        """Run the program with these arguments to its end: its code and what it wrote."""
        with tempfile.TemporaryDirectory() as name:
            streams = [Path(name, stream) for stream in ("in", "out", "err")]
            for stream in streams:
                stream.touch()
            streams[0].write_text(stdin or "", "utf-8")
            names = ["/dev/null" if stdin is None else str(streams[0]), *map(str, streams[1:])]
            seconds = max(1, round(timeout))
            code = self._ask("run", list(args), str(cwd), dict(env), names, seconds)
            out, err = (stream.read_bytes() for stream in streams[1:])
            return code, out, err

    @contextmanager
    def started(
        self, args: Sequence[str], *, cwd: Path, env: Mapping[str, str]
    ) -> Iterator[tuple[int, BinaryIO]]:
        """A run by its id, and what it writes; leaving the block kills it."""
        with tempfile.TemporaryDirectory() as name:
            pipe = Path(name, "out")
            os.mkfifo(pipe)
            with os.fdopen(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK), "rb") as said:
                names = ["/dev/null", str(pipe), "/dev/null"]
                child = self._ask("start", list(args), str(cwd), dict(env), names, 600)
                os.set_blocking(said.fileno(), True)
                try:
                    yield child, said
                finally:
                    os.kill(child, signal.SIGKILL)
                    self._ask("wait", child)

    def _ask(self, *request: object) -> int:
        with self._one_at_a_time:
            process = self._process = self._process or self._started()
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps(request) + "\n")
            process.stdin.flush()
            return int(process.stdout.readline())

    def _started(self) -> "subprocess.Popen[str]":
        program = [Path(certificates.__file__).read_text(), _READY, self._imports, _SERVER]
        process = subprocess.Popen(
            [sys.executable, "-P", "-c", "".join(program)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        atexit.register(process.communicate)
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        return process


NURSERY = Nursery(_COMMAND)
"""Of the command."""

PYTESTS = Nursery(_PYTEST)
"""Of pytest."""

PROGRAMS = {"holodeck": NURSERY, "pytest": PYTESTS}
RUN_LIMIT_S = 120.0

_CLIENT = """#!{python} -IS
import json, os, socket, sys
with socket.socket(socket.AF_UNIX) as link:
    link.connect({address!r})
    request = [{program!r}, sys.argv[1:], os.getcwd(), dict(os.environ), sys.stdin.read()]
    link.sendall(json.dumps(request).encode() + b"\\n")
    code, *texts = json.loads(link.makefile().read())
for stream, text in zip((sys.stdout, sys.stderr), texts):
    stream.buffer.write(text.encode("latin-1"))
sys.exit(code if code >= 0 else 128 - code)
"""
"""A program for shells: runs in a fork; what it writes appears at its end."""


class _Request(socketserver.StreamRequestHandler):
    def handle(self) -> None:
        program, args, cwd, env, stdin = json.loads(self.rfile.readline())
        code, *texts = PROGRAMS[program].run(
            args, cwd=Path(cwd), env=env, stdin=stdin, timeout=RUN_LIMIT_S
        )
        answer = [code, *(text.decode("latin-1") for text in texts)]
        self.wfile.write(json.dumps(answer).encode())


@cache
def programs_folder() -> Path:
    """A folder for PATH with `holodeck` and `pytest`, which run in forks; removed at the end."""
    folder = tempfile.TemporaryDirectory(prefix="programs-")
    atexit.register(folder.cleanup)
    address = f"{folder.name}/socket"
    server = socketserver.ThreadingUnixStreamServer(address, _Request)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for program in PROGRAMS:
        path = Path(folder.name, program)
        path.write_text(_CLIENT.format(python=sys.executable, address=address, program=program))
        path.chmod(0o755)
    return Path(folder.name)
