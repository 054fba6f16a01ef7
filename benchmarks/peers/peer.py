"""What a peer is: an environment of its own, the command that does the work, its verdicts."""

import hashlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from peers.workload import write_cases

LOCKS = ("requirements.txt", "package.json", "package.lock")
"""Of Python; of node, where npm calls the last one `package-lock.json`."""
MARK = "installed.txt"


@dataclass(frozen=True)
class Job:
    """One run to come."""

    installed: Path
    """The peer's own environment."""
    folder: Path
    """Where the run works and leaves its report."""
    url: str
    """Of the fake server, `/v1` included."""
    cases: int
    parallel: int | None
    """None leaves it to the peer's default."""

    def python(self, script: Path) -> list[str]:
        """A script of ours under the peer's Python; it reads `cases.json` in the folder."""
        return [*self.bin("python"), str(script), *self.limit()]

    def bin(self, name: str) -> list[str]:
        windows = sys.platform == "win32"
        return [str(self.installed / ("Scripts" if windows else "bin") / name)]

    def limit(self, *flags: str) -> list[str]:
        """The parallel limit as arguments; nothing when the default is wanted."""
        return [] if self.parallel is None else [*flags, str(self.parallel)]


@dataclass(frozen=True)
class Prepared:
    """A command that does the work once, to be run in the folder it was prepared for."""

    command: list[str]
    env: dict[str, str]
    """The whole environment."""


@dataclass(frozen=True)
class Peer:
    """Another harness that does the same work."""

    name: str
    version: str
    place: Path
    """Its folder here: lock file and workload."""
    write_command: Callable[[Job], list[str]]
    read_passed: Callable[[Path, str], Iterable[str]]
    """The names of the passed cases, from the folder's report or the output."""
    reports: tuple[str, ...]
    """Patterns of what a run leaves in the folder."""
    env: Mapping[str, str] = field(default_factory=dict)
    is_parallel: bool = True
    """False when it asks one after the other, whatever the limit."""

    @property
    def is_node(self) -> bool:
        return (self.place / "package.json").is_file()

    def environment(self, home: Path) -> Path:
        return home / self.name

    def fingerprint(self) -> str:
        """Changes with the lock file and, for Python, with the interpreter."""
        locks = [lock for name in LOCKS if (lock := self.place / name).is_file()]
        digest = hashlib.sha256(b"".join(lock.read_bytes() for lock in locks)).hexdigest()
        return (
            digest
            if self.is_node
            else f"{digest} {sys.version_info.major}.{sys.version_info.minor}"
        )

    def is_installed(self, home: Path) -> bool:
        """Whether `install.py` finished with the lock file of today."""
        mark = self.environment(home) / MARK
        return mark.is_file() and mark.read_text("utf-8") == self.fingerprint()

    def prepare(
        self, home: Path, folder: Path, url: str, cases: int, parallel: int | None
    ) -> Prepared:
        """Write the cases, remove the reports of an earlier run; so call it before every run."""
        home, folder = home.absolute(), folder.absolute()
        folder.mkdir(parents=True, exist_ok=True)
        state = self.environment(home) / "state"
        state.mkdir(parents=True, exist_ok=True)
        for pattern in self.reports:
            for old in folder.glob(pattern):
                old.unlink()
        write_cases(folder, cases)
        job = Job(self.environment(home), folder, url, cases, parallel)
        return Prepared(self.write_command(job), plain_environment(state, url) | dict(self.env))

    def passed(self, folder: Path, output: str, cases: int) -> int:
        """How many of the cases the peer's own report calls passed; 0 when it left none."""
        if not any(True for pattern in self.reports for _ in folder.glob(pattern)):
            return 0
        wanted = {f"case-{index:05}" for index in range(cases)}
        return len(wanted.intersection(self.read_passed(folder, output)))


def plain_environment(home: Path, url: str) -> dict[str, str]:
    """A user's environment without keys, proxies and telemetry; `home` keeps the peer's state."""
    kept = {k: v for k, v in os.environ.items() if k in {"PATH", "TMPDIR", "SYSTEMROOT"}}
    own = {"HOME": str(home), "LANG": "C.UTF-8", "NO_PROXY": "127.0.0.1", "COLUMNS": "120"}
    quiet = {"DO_NOT_TRACK": "1", "OTEL_SDK_DISABLED": "true", "NO_COLOR": "1"}
    model = {"OPENAI_BASE_URL": url, "OPENAI_API_KEY": "x"}
    return kept | own | quiet | model
