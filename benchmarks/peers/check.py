"""Runs the work once with each peer and says whether the run would count.

    python benchmarks/peers/check.py [--home FOLDER] [--n 3] [--parallel C] [NAME …]

A run counts when the server was asked exactly N times, no request mixed up two cases, and the
peer's own report calls all N cases passed. Exits with 1 when a peer is missing or does not count.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

from peers import PEERS, Peer
from peers.homes import default_home

SERVER = Path(__file__).parents[1] / "fake_llm.py"


@dataclass(frozen=True)
class Check:
    """What one run came to."""

    cases: int
    code: int
    seconds: float
    passed: int
    requests: int
    bleed: int
    peak: int
    output: str

    @property
    def counts(self) -> bool:
        return self.code == 0 and self.bleed == 0 and self.passed == self.requests == self.cases

    def line(self) -> str:
        return (
            f"{'ok' if self.counts else 'WRONG'}  exit {self.code}, {self.seconds:.2f} s,"
            f" {self.requests} requests, {self.passed} of {self.cases} passed,"
            f" {self.bleed} mixed up, {self.peak} at once"
        )


@contextmanager
def server() -> Iterator[str]:
    """The fake server's address, while it runs."""
    command = [sys.executable, str(SERVER), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            port = process.stdout.readline().removeprefix("READY ").strip()
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()


def ask(address: str, path: str) -> dict[str, Any]:
    with urllib.request.urlopen(f"{address}/{path}", timeout=10) as answer:
        return dict(json.load(answer))


def check(peer: Peer, given: argparse.Namespace, address: str, folder: Path) -> Check:
    prepared = peer.prepare(given.home, folder, f"{address}/v1", given.n, given.parallel)
    ask(address, "_reset")
    started = time.monotonic()
    done = subprocess.run(
        prepared.command,
        cwd=folder,
        env=prepared.env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    seconds, seen = time.monotonic() - started, ask(address, "_stats")
    passed = peer.passed(folder, done.stdout, given.n)
    counted = (seen["requests"], seen["bleed"], seen["peak"])
    return Check(given.n, done.returncode, seconds, passed, *counted, done.stdout)


def report(peer: Peer, given: argparse.Namespace, address: str, folder: Path) -> bool:
    """Print one peer's line; whether its run counts."""
    label = f"{peer.name} {peer.version}"
    if not peer.is_installed(given.home):
        print(f"{label:26} MISSING  install it: python benchmarks/peers/install.py {peer.name}")
        return False
    result = check(peer, given, address, folder)
    print(f"{label:26} {result.line()}", flush=True)
    if not result.counts:
        print(result.output[-3000:], file=sys.stderr)
    return result.counts


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Run the work once with each peer.")
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of: {', '.join(PEERS)}")
    parser.add_argument("--home", type=Path, default=default_home())
    parser.add_argument("--n", type=int, default=3, help="number of cases")
    parser.add_argument("--parallel", type=int, help="most at once; the peer's default if left out")
    given = parser.parse_args()
    if unknown := sorted(set(given.names) - PEERS.keys()):
        parser.error(f"{', '.join(unknown)}: no such peer; there are {', '.join(PEERS)}")
    return given


def main() -> int:
    given = options()
    peers = [PEERS[name] for name in given.names or PEERS]
    with server() as address, tempfile.TemporaryDirectory() as name:
        counted = [report(peer, given, address, Path(name, peer.name)) for peer in peers]
    return 0 if all(counted) else 1


if __name__ == "__main__":
    sys.exit(main())
