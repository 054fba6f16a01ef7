"""Makes a peer's own environment from its lock file."""

import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from peers.peer import MARK, Peer


class NotInstalled(Exception):
    """A peer whose environment could not be made, and why."""


def install(peer: Peer, home: Path) -> None:
    """Make the environment anew unless it is there as locked; raises NotInstalled."""
    if peer.is_installed(home):
        return
    place = peer.environment(home)
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    if peer.is_node:
        install_node(peer, place)
    else:
        install_python(peer, place)
    (place / MARK).write_text(peer.fingerprint(), "utf-8")


def install_python(peer: Peer, place: Path) -> None:
    """Exactly what is locked, byte-compiled: a lock may hold what a resolver would refuse."""
    lock = ["--no-deps", "--quiet", "--requirement", str(peer.place / "requirements.txt")]
    python = str(place / ("Scripts" if sys.platform == "win32" else "bin") / "python")
    if uv := shutil.which("uv"):
        run([uv, "venv", "--quiet", "--allow-existing", "--python", sys.executable, str(place)])
        run([uv, "pip", "install", "--python", python, "--compile-bytecode", *lock])
        return
    run([sys.executable, "-m", "venv", str(place)])
    run([python, "-m", "pip", "install", "--disable-pip-version-check", "--compile", *lock])


def install_node(peer: Peer, place: Path) -> None:
    """Exactly what is locked; no scripts of packages are run."""
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise NotInstalled("needs node and npm, of which one is not there")
    shutil.copy(peer.place / "package.json", place)
    shutil.copy(peer.place / "package.lock", place / "package-lock.json")
    quiet = ["--no-audit", "--no-fund", "--ignore-scripts", "--omit=dev", "--loglevel=error"]
    run([npm, "ci", *quiet], place)


def run(command: Sequence[str], cwd: Path | None = None) -> None:
    done = subprocess.run(
        command, cwd=cwd, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        told = lines if len(lines) <= 12 else [*lines[:6], "…", *lines[-6:]]
        what = " ".join(Path(word).name for word in command[:3])
        raise NotInstalled("\n  ".join([f"{what} … exited with {done.returncode}", *told]))
