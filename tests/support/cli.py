"""Runs the real `holodeck` command as a child: to its end, to be interrupted, or on a terminal."""

import errno
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import AbstractContextManager, ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Protocol, Self

import platformdirs

from support.nursery import NURSERY, Nursery
from support.screen import render

Environment = Mapping[str, str | None]
"""Variables to set for the child; None removes one."""

COMMAND = (sys.executable, "-P", "-m", "holodeck")
"""As the console script does, this keeps the working folder off the import path (`-P`)."""

BEFORE_PYTHON = re.compile(r"PYTHON\w|LANG|LC_|LD_")
"""Variables that are read before any code of ours runs."""

KEPT = {
    "PATH", "TMPDIR", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE",
    "HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy", "HOLODECK_WORKERS",
}  # fmt: skip


@dataclass(frozen=True)
class Ran:
    """How a run of the command ended."""

    code: int
    stdout: str
    stderr: str


@dataclass(frozen=True)
class RanInTerminal:
    """How a run on a terminal ended: what was written, and what is to be seen at the end."""

    code: int
    raw: bytes
    screen: str


def clean_environment(home: Path, changes: Environment | None = None) -> dict[str, str]:
    """Nothing of the user's own but the path, the certificates, pip's configuration and the cache.

    The cache of models stays the user's, so that no test downloads one again.
    """
    env = {k: v for k, v in os.environ.items() if k in KEPT or k.startswith("PIP_")}
    env |= {"HOME": str(home), "LANG": "C.UTF-8", "NO_PROXY": "127.0.0.1,localhost"}
    env["HOLODECK_CACHE_DIR"] = os.environ.get("HOLODECK_CACHE_DIR") or cache_dir()
    env |= pip_configuration()
    for name, value in (changes or {}).items():
        env.pop(name, None)
        if value is not None:
            env[name] = value
    return env


def cache_dir() -> str:
    return platformdirs.user_cache_dir("holodeck", appauthor=False)


def pip_configuration() -> dict[str, str]:
    """Leads pip to the user's configuration, which it would not find in another home."""
    known = [Path.home() / ".config/pip/pip.conf", Path.home() / ".pip/pip.conf"]
    found = [str(path) for path in known if path.is_file()]
    return {"PIP_CONFIG_FILE": found[0]} if found and "PIP_CONFIG_FILE" not in os.environ else {}


def home_for(cwd: Path) -> Path:
    """An empty home beside the working folder, so that it does not show up in it."""
    home = cwd.parent / f"{cwd.name}-home"
    home.mkdir(exist_ok=True)
    return home


@contextmanager
def interruptible() -> Iterator[None]:
    """A child started here can be interrupted even when this process ignores SIGINT.

    Background jobs of a shell do, and children inherit it; a caught signal is not inherited.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


class Started(Protocol):
    """A process that was started."""

    pid: int

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code; fails with an error where the process does not end in time."""


Streams = tuple[int, int, int]
Start = Callable[[Streams], AbstractContextManager[Started]]
"""Starts a process with these files as its streams; leaving the block ends its group."""


class RunningCli:
    """A started command in a process group of its own; leaving the block ends the group."""

    def __init__(self, start: Start, stdin: str | None) -> None:
        with ExitStack() as left:
            given = left.enter_context(_file_with(stdin or ""))
            self.stdout, out = left.enter_context(_pipe())
            self.stderr, err = left.enter_context(_pipe())
            process = left.enter_context(start((given.fileno(), out, err)))
            os.close(out)
            os.close(err)
            self.pid, self.wait = process.pid, process.wait
            self._left = left.pop_all()

    def interrupt(self) -> None:
        """Ctrl-C: SIGINT to the command and its children."""
        os.killpg(self.pid, signal.SIGINT)

    def finish(self, timeout: float = 180.0) -> Ran:
        """Wait for the end; a command that does not end in time fails the test with its output."""
        with ThreadPoolExecutor() as readers:
            reads = [readers.submit(stream.read) for stream in (self.stdout, self.stderr)]
            is_late = wait(reads, timeout).not_done
            if is_late:
                self._left.close()
            out, err = (readable(read.result()) for read in reads)
        if is_late:
            raise AssertionError(f"still running after {timeout} s\n{out}\n{err}")
        return Ran(self.wait(timeout), out, err)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._left.close()


def without_durations(shown: str) -> str:
    """Remove the durations of slow test cases, which depend on the machine."""
    return re.sub(r"(?m)^(\[Test \d+/\d+\] .*?) \([\d.]+s\)$", r"\1", shown)


def readable(output: bytes) -> str:
    return output.decode("utf-8", "backslashreplace")


def start_cli(
    *args: str | Path,
    cwd: Path,
    env: Environment | None = None,
    stdin: str | None = None,
    from_nothing: bool = False,
) -> RunningCli:
    """Start `holodeck args...`; use as `with start_cli(...) as run: ... run.finish()`.

    Args:
        args: Those of the command.
        cwd: Its working folder.
        env: Variables to set for it.
        stdin: What it reads from standard input.
        from_nothing: Whether to start Python, where a fork would hide what the test is about.
    """
    variables = clean_environment(home_for(cwd), env)
    program = None if from_nothing or _is_about_python(env) else NURSERY
    return RunningCli(_starter(program, args, cwd, variables), stdin)


def _is_about_python(env: Environment | None) -> bool:
    return any(BEFORE_PYTHON.match(name) for name in env or ())


def _starter(
    program: Nursery | None, args: Sequence[str | Path], cwd: Path, env: Mapping[str, str]
) -> Start:
    """What starts the command, or pytest: in a fork of the program, if there is one."""
    arguments = [str(argument) for argument in args]
    if program is None:
        return lambda streams: _from_nothing((*COMMAND, *arguments), cwd, env, streams)
    return lambda streams: program.forked(arguments, cwd, env, streams)


@contextmanager
def _file_with(text: str) -> Iterator[BinaryIO]:
    with tempfile.TemporaryFile() as file:
        file.write(text.encode())
        file.seek(0)
        yield file


@contextmanager
def _pipe() -> Iterator[tuple[BinaryIO, int]]:
    """A pipe: the file to read from, and the descriptor to write to, which the block closes."""
    reading, writing = os.pipe()
    with os.fdopen(reading, "rb") as stream:
        yield stream, writing


def run_cli(
    *args: str | Path,
    cwd: Path,
    env: Environment | None = None,
    stdin: str | None = None,
    timeout: float = 180.0,
) -> Ran:
    """Run `holodeck args...` to its end, without a terminal.

    Where nothing about Python itself is to be set, in a fork of a process that has imported it.
    """
    if _is_about_python(env):
        with start_cli(*args, cwd=cwd, env=env, stdin=stdin) as run:
            return run.finish(timeout)
    variables = clean_environment(home_for(cwd), env)
    code, out, err = NURSERY.run(
        tuple(map(str, args)), cwd=cwd, env=variables, stdin=stdin, timeout=timeout
    )
    if code == -signal.SIGALRM:
        raise AssertionError(f"still running after {timeout} s\n{readable(out)}\n{readable(err)}")
    return Ran(code, readable(out), readable(err))


class RunningInTerminal:
    """A started command whose three streams are a terminal; leaving the block ends it."""

    def __init__(self, start: Start, columns: int, rows: int) -> None:
        self.raw = bytearray()
        self._size = (columns, rows)
        self._left = ExitStack()
        self._master, slave = pty.openpty()
        self._left.callback(os.close, self._master)
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.process = self._left.enter_context(start((slave, slave, slave)))
        os.close(slave)

    def interrupt(self) -> None:
        os.killpg(self.process.pid, signal.SIGINT)

    def enter(self, text: str) -> None:
        """What a person types; `\\x04` is Ctrl-D."""
        os.write(self._master, text.encode())

    def read_until(self, text: str, timeout: float = 180.0, times: int = 1) -> None:
        """Return once the terminal got the text; AssertionError shows what it got instead."""
        wanted = text.encode()
        deadline = time.monotonic() + timeout
        while self.raw.count(wanted) < times:
            if not self._read(deadline):
                raise AssertionError(f"{text!r} never came:\n{readable(bytes(self.raw))}")

    def finish(self, timeout: float = 180.0) -> RanInTerminal:
        """Read to the end; a command that does not end in time fails the test with its output."""
        deadline = time.monotonic() + timeout
        while self._read(deadline):
            pass
        try:
            code = self.process.wait(max(0.1, deadline - time.monotonic()))
        except (subprocess.TimeoutExpired, TimeoutError) as error:
            shown = readable(bytes(self.raw))
            raise AssertionError(f"still running after {timeout} s\n{shown}") from error
        return RanInTerminal(code, bytes(self.raw), render(bytes(self.raw), *self._size))

    def _read(self, deadline: float) -> bool:
        """Take what the terminal got; False once the command closed it or time is up."""
        left = deadline - time.monotonic()
        ready, _, _ = select.select([self._master], [], [], max(0.0, left))
        if not ready:
            return False
        try:
            data = os.read(self._master, 65536)
        except OSError as error:
            if error.errno == errno.EIO:  # Linux says so when the other side is closed
                return False
            raise
        self.raw += data
        return bool(data)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._left.close()


def start_in_pty(
    *args: str | Path,
    cwd: Path,
    env: Environment | None = None,
    cols: int = 80,
    rows: int = 24,
    program: Nursery = NURSERY,
) -> RunningInTerminal:
    """Start `holodeck args...`, or pytest, on a terminal of that size."""
    variables = _in_terminal(cwd, env)
    start = _starter(None if _is_about_python(env) else program, args, cwd, variables)
    return RunningInTerminal(start, cols, rows)


def start_python_in_pty(*args: str | Path, cwd: Path, cols: int = 80) -> RunningInTerminal:
    """Start `python args...`, with the package that is tested, on a terminal."""
    source = str(Path(__file__).resolve().parents[2] / "src")
    command = (sys.executable, "-P", *map(str, args))
    variables = _in_terminal(cwd, {"PYTHONPATH": source})
    return RunningInTerminal(
        lambda streams: _from_nothing(command, cwd, variables, streams), cols, 24
    )


def _in_terminal(cwd: Path, env: Environment | None) -> dict[str, str]:
    return clean_environment(home_for(cwd), {"TERM": "xterm-256color", **(env or {})})


@contextmanager
def _from_nothing(
    command: Sequence[str], cwd: Path, env: Mapping[str, str], streams: Streams
) -> Iterator[Started]:
    stdin, stdout, stderr = streams
    with interruptible():
        process = subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=stdin,
            stdout=stdout,
            stderr=stderr,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def run_in_pty(
    *args: str | Path,
    cwd: Path,
    env: Environment | None = None,
    cols: int = 80,
    rows: int = 24,
    timeout: float = 180.0,
) -> RanInTerminal:
    """Run `holodeck args...` to its end on a terminal of that size."""
    with start_in_pty(*args, cwd=cwd, env=env, cols=cols, rows=rows) as run:
        return run.finish(timeout)
