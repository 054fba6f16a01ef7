"""Processes that have imported the command, or pytest with our plugin, and fork for each run.

Starting Python and importing an agent library takes seconds, whatever the command then does, and
most tests are about what it does. A run here is a process of its own, with its own streams,
variables and folder; only the imports are done. Tests of how Python starts and ends start it from
nothing.

The processes of one run of the tests share them: the first one starts them, and they end with it.
"""

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path

from support import certificates

_READY = """
import atexit, gc, importlib, json, os, pkgutil, select, signal, socket, sys, threading, time
import holodeck, platformdirs
from pydantic import BaseModel

def ready(model):
    "Models are built when they are first used: here, not in each fork again."
    for one in model.__subclasses__():
        if one.__module__.startswith("holodeck."):
            one.model_rebuild()
        ready(one)

not_imported = {
    "holodeck.__main__", "holodeck.pytest_plugin",
    # few runs need the large library behind it, which would make each fork slower
    "holodeck.lib.backends.semantic_kernel.anthropic_chat",
}

def import_all(package):
    for module in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        if module.name not in not_imported:
            loaded = importlib.import_module(module.name)
            if module.ispkg:
                import_all(loaded)

import_all(holodeck)
ready(BaseModel)
read_once()
"""

_COMMAND = """
import types
import anyio._backends._asyncio, jsonschema, opentelemetry.sdk.trace, regex
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
links = {}

def become(streams, args, cwd, env, seconds):
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
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
    if sys.stdout.isatty():
        sys.stdout.reconfigure(line_buffering=True)
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

def born(streams, request):
    child = os.fork()
    if not child:
        code = 70
        try:
            code = become(streams, *request)
        except BaseException:
            import traceback
            traceback.print_exc()
        finally:
            leave(code)
    for file in streams:
        os.close(file)
    return child

def begin(link):
    data, streams, _, _ = socket.recv_fds(link, 65536, 3)
    if not data.endswith(b"\\n"):
        with link.makefile("rb") as rest:
            data += rest.readline()
    child = born(streams, json.loads(data))
    links[child] = link
    link.sendall(b"%d\\n" % child)

def say_what_ended():
    for child in list(links):
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            with links.pop(child) as link:
                try:
                    link.sendall(b"%d\\n" % os.waitstatus_to_exitcode(status))
                except BrokenPipeError:  # the one who asked has ended
                    pass

woken, wake = socket.socketpair()
wake.setblocking(False)
signal.set_wakeup_fd(wake.fileno(), warn_on_full_buffer=False)
signal.signal(signal.SIGCHLD, lambda *_: None)
listener = socket.socket(socket.AF_UNIX)
address = sys.argv[1]
listener.bind(address + "-new")
listener.listen(100)
os.rename(address + "-new", address)
while True:
    ready, _, _ = select.select([sys.stdin, listener, woken], [], [])
    if sys.stdin in ready:  # the one who started it has ended
        break
    if woken in ready:
        woken.recv(65536)
        say_what_ended()
    if listener in ready:
        begin(listener.accept()[0])
"""

_CLIENT = """#!{python} -IS
import json, os, socket, sys
request = json.dumps([sys.argv[1:], os.getcwd(), dict(os.environ), {seconds}]).encode() + b"\\n"
with socket.socket(socket.AF_UNIX) as link:
    link.connect({address!r})
    socket.send_fds(link, [request[:1]], [0, 1, 2])
    link.sendall(request[1:])
    answers = link.makefile()
    answers.readline()  # the id of the process
    code = int(answers.readline())
sys.exit(code if code >= 0 else 128 - code)
"""
"""A program for shells, which runs in a fork."""

RUN_LIMIT_S = 120
_START_LIMIT_S = 120.0
_SHARED = "HOLODECK_TEST_PROGRAMS"
"""The variable with the folder of programs that another process has started."""
_SHARED_FOLDER = os.environ.get(_SHARED)
"""That folder; read now, as tests change the environment."""


class Fork:
    """A run in a process of its own, which leads a process group."""

    def __init__(self, link: socket.socket) -> None:
        self._link = link
        self._code: int | None = None
        self.pid = self._read_number(None)

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code once it has ended. Raises TimeoutError."""
        if self._code is None:
            self._code = self._read_number(timeout)
        return self._code

    def kill(self) -> None:
        """End the process, and the others of its group."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self.wait()

    def _read_number(self, timeout: float | None) -> int:
        self._link.settimeout(timeout)
        line = b""
        while not line.endswith(b"\n"):
            read = self._link.recv(1)
            assert read, "the process that forks has ended"
            line += read
        return int(line)


class Nursery:
    """The process that forks for runs of a program; started at its first use."""

    def __init__(self, program: str, imports: str) -> None:
        self._program = program
        self._imports = imports
        self._process: subprocess.Popen[bytes] | None = None

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
        with (
            tempfile.TemporaryFile() as given,
            tempfile.TemporaryFile() as out,
            tempfile.TemporaryFile() as err,
        ):
            given.write((stdin or "").encode())
            given.seek(0)
            streams = given.fileno(), out.fileno(), err.fileno()
            with self.forked(args, cwd, env, streams, max(1, round(timeout))) as fork:
                code = fork.wait()
            out.seek(0)
            err.seek(0)
            return code, out.read(), err.read()

    @contextmanager
    def forked(
        self,
        args: Sequence[str],
        cwd: Path,
        env: Mapping[str, str],
        streams: tuple[int, int, int],
        seconds: int = 600,
    ) -> Iterator[Fork]:
        """A run with these files as its streams; leaving the block kills it."""
        request = json.dumps([list(args), str(cwd), dict(env), seconds]).encode() + b"\n"
        self.wait_until_ready()
        with socket.socket(socket.AF_UNIX) as link:
            link.connect(str(self._address))
            socket.send_fds(link, [request[:1]], streams)
            link.sendall(request[1:])
            fork = Fork(link)
            try:
                yield fork
            finally:
                fork.kill()

    def start(self) -> None:
        """Start the process, unless this was done, without waiting until it is ready."""
        if self._process is not None or _SHARED_FOLDER:
            return
        address = str(self._address)
        client = self._address.with_suffix("")
        client.write_text(
            _CLIENT.format(python=sys.executable, address=address, seconds=RUN_LIMIT_S)
        )
        client.chmod(0o755)
        program = [Path(certificates.__file__).read_text(), _READY, self._imports, _SERVER]
        # pipes, as Python would else look for the position in what a fork gets in their places
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-c", "".join(program), address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        atexit.register(self._process.communicate)

    @property
    def _address(self) -> Path:
        return _folder() / f"{self._program}.socket"

    def wait_until_ready(self) -> None:
        """Start the process, unless this was done, and wait until it takes requests."""
        self.start()
        deadline = time.monotonic() + _START_LIMIT_S
        while not self._address.exists():
            assert time.monotonic() < deadline, f"the forks of {self._program} did not start"
            if self._process is not None and self._process.poll() is not None:
                raise AssertionError(self._process.communicate())
            time.sleep(0.02)


NURSERY = Nursery("holodeck", _COMMAND)
"""Of the command."""

PYTESTS = Nursery("pytest", _PYTEST)
"""Of pytest."""

PROGRAMS = {"holodeck": NURSERY, "pytest": PYTESTS}


@cache
def _folder() -> Path:
    """The folder of the programs and of their sockets; its owner removes it."""
    if _SHARED_FOLDER:
        return Path(_SHARED_FOLDER)
    folder = tempfile.TemporaryDirectory(prefix="programs-")
    atexit.register(folder.cleanup)
    return Path(folder.name)


def programs_folder() -> Path:
    """A folder for PATH with `holodeck` and `pytest`, which run in forks; removed at the end."""
    for nursery in PROGRAMS.values():
        nursery.wait_until_ready()
    return _folder()


def share_programs() -> None:
    """Start the programs for all processes that this one starts."""
    for nursery in PROGRAMS.values():
        nursery.start()
    os.environ[_SHARED] = str(_folder())
