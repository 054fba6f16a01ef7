"""How fast holodeck is against other harnesses on this machine, in ratios.

    python benchmarks/run.py [--check] [--only S3,S13] [--backend chat] [--peers none]

A server with a fixed latency answers. See benchmarks/README.md.
"""

import argparse
import os
import shlex
import signal
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from contest import Contest
from contestants import BareLoop, Contestant, Holodeck, Rival, environment, holodeck_command
from figures import Seen, tap_added
from lab import Lab
from loopback import server
from peers import PEERS
from peers.homes import default_home
from promises import PROMISES, Promise
from table import HEAD, Judge, Table, rows_of
from tap import measure_tap
from tasks import (
    BACKENDS,
    BURNING,
    CHAT,
    FUNCTION,
    KERNEL_OBJECT,
    LATENCY_MS,
    PROCESS,
    SEMANTIC_KERNEL,
    STANDARD,
    tasks,
)

SABOTAGED = {"httpx028": Path(__file__).with_name("sabotage") / "httpx028.py"}
PLACES = ("--peers-home", "--json", "--command")
"""Options that say where something is on this machine, and not what was measured."""
MISSED, UNDECIDED = 1, 3
"""Exit codes of --check."""


def main() -> int:
    given = options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the server ends, too
    promises, started = chosen_promises(given.only), time.monotonic()
    table = benchmark(given, promises)
    show(table, time.monotonic() - started)
    if given.json is not None:
        table.write(given.json)
    if not given.check:
        return 0
    if table.missed:
        return MISSED
    return UNDECIDED if table.undecided else 0


def options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add = parser.add_argument
    add("--n", default=",".join(map(str, STANDARD)), help="numbers of cases: few, many, most")
    add("--runs", type=int, default=3, help="of each, where they are short; the median counts")
    add("--peers", default="installed", help="names, 'installed' or 'none'")
    add("--peers-home", type=Path, default=default_home(), help="where peers/install.py put them")
    add("--backend", choices=[*BACKENDS, "both"], default="both")
    add("--only", default="", help="promises, such as S3,S13")
    add("--check", action="store_true", help="exit with 1 when a goal is missed")
    add("--slack", type=float, default=1.0, help="widen the goals by this factor")
    add("--most-others", type=float, default=0.25, help="cores others may take before a verdict")
    add("--json", type=Path, help="write the table to this file, too")
    add("--sabotage", choices=sorted(SABOTAGED), help="run `chat` with a fault to be found")
    add("--latency-ms", type=float, default=LATENCY_MS, help="of the fake server")
    add("--command", default=shlex.join(holodeck_command()), help="what runs as holodeck")
    return parser.parse_args()


def benchmark(given: argparse.Namespace, promises: Sequence[Promise]) -> Table:
    """Measure everything."""
    rivals = chosen_peers(given.peers, given.peers_home.expanduser())
    with TemporaryDirectory() as home, server(given.latency_ms) as url:
        ours = holodecks(given, Path(home))
        sizes = [int(one) for one in given.n.split(",")]
        what = tasks(sizes, given.latency_ms)
        lab = Lab(url, given.most_others)
        contest = Contest(lab, [*ours, *rivals], what, given.runs, say)
        wanted = frozenset(name for promise in promises for name in promise.needs)
        outcomes = contest.outcomes(wanted) if wanted else {}
    seen = Seen(what, outcomes, [rival.name for rival in rivals])
    if any(promise.measure is tap_added for promise in promises):
        say("tap")
        seen = replace(seen, tapped=measure_tap(100 * given.runs))
    judge = Judge(given.slack, given.most_others)
    return Table(
        command=spoken(sys.argv[1:]),
        python=".".join(map(str, sys.version_info[:3])),
        cores=os.cpu_count() or 1,
        slack=given.slack,
        versions={rival.name: rival.peer.version for rival in rivals},
        rows=list(rows_of(promises, seen, [one.name for one in ours], judge)),
    )


def chosen_promises(only: str) -> list[Promise]:
    known = {promise.id for promise in PROMISES}
    wanted = set(only.split(",")) if only else known
    if unknown := wanted - known:
        sys.exit(f"--only: {', '.join(sorted(unknown))} is not known; there are {', '.join(known)}")
    return [promise for promise in PROMISES if promise.id in wanted]


def chosen_peers(names: str, home: Path) -> list[Rival]:
    if names == "none":
        return []
    if names == "installed":
        return [Rival(peer, home) for peer in PEERS.values() if peer.is_installed(home)]
    wanted = names.split(",")
    if unknown := set(wanted) - PEERS.keys():
        sys.exit(f"--peers: {', '.join(unknown)} is not known; there are {', '.join(PEERS)}")
    if absent := [name for name in wanted if not PEERS[name].is_installed(home)]:
        sys.exit(f"not installed: run benchmarks/peers/install.py {' '.join(absent)}")
    return [Rival(PEERS[name], home) for name in wanted]


def holodecks(given: argparse.Namespace, home: Path) -> list[Contestant]:
    env, usual = environment(home), shlex.split(given.command)
    fault = given.sabotage and [sys.executable, "-P", str(SABOTAGED[given.sabotage])]
    chosen = [backend for backend in BACKENDS if given.backend in {backend, "both"}]
    of_kernel = [KERNEL_OBJECT] if SEMANTIC_KERNEL in chosen else []
    bare = [BareLoop(env)] if SEMANTIC_KERNEL in chosen else []
    return bare + [
        Holodeck(backend, fault if fault and backend == CHAT else usual, env)
        for backend in (*chosen, *of_kernel, FUNCTION, PROCESS, BURNING)
    ]


def spoken(arguments: Iterable[str]) -> str:
    """The command as others can give it, too."""
    kept, rest = ["python", "benchmarks/run.py"], iter(arguments)
    for argument in rest:
        if argument in PLACES:
            next(rest, None)
        elif not argument.startswith(tuple(f"{place}=" for place in PLACES)):
            kept.append(argument)
    return shlex.join(kept)


def say(what: str) -> None:
    """Progress, for whoever waits."""
    print(what, file=sys.stderr, flush=True)


def show(table: Table, seconds: float) -> None:
    peers = ", ".join(f"{name} {version}" for name, version in table.versions.items())
    print(f"Python {table.python}, {table.cores} cores; peers: {peers or 'none'}")
    print("others = cores that other processes took")
    print(HEAD)
    last = ""
    for row in table.rows:
        if row.id != last:
            print()
        last = row.id
        print(row.line())
    print(
        f"\n{len(table.missed)} missed, {len(table.undecided)} too disturbed for a verdict", end=""
    )
    print(f"; {seconds:.0f} s, goals × {table.slack:g}")


if __name__ == "__main__":
    sys.exit(main())
