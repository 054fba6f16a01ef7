"""Runs a command as a child and measures the whole process: wall, CPU, memory, disturbance."""

import os
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Measured:
    """One run of one command."""

    code: int
    started_at: float
    """On `time.monotonic`, which all processes of a machine share."""
    wall_s: float
    cpu_s: float
    """User and system time, children included."""
    peak_mb: float
    others: float
    """Cores taken by other processes meanwhile; above 0.25, distrust the wall time."""
    output: str


def busy_s() -> float:
    """CPU seconds that the whole machine spent working since it started; 0 where unknown."""
    stat = Path("/proc/stat")
    if not stat.exists():
        return 0.0
    user, nice, system, _idle, _wait, irq, softirq, steal = map(
        int, stat.read_text().split("\n", 1)[0].split()[1:9]
    )
    return (user + nice + system + irq + softirq + steal) / TICKS


def measure(
    command: Sequence[str],
    cwd: Path,
    env: Mapping[str, str],
    timeout: float = 600,
    meanwhile: Callable[[int], None] | None = None,
) -> Measured:
    """Run to the end; stdout and stderr go to a file, so that no pipe holds the child back.

    Args:
        meanwhile: Called with the child's process id as soon as it runs.
    """
    out = cwd / "output.txt"
    with out.open("wb") as sink:
        own, machine, started = time.process_time(), busy_s(), time.monotonic()
        child = subprocess.Popen(
            command, cwd=cwd, env=env, stdin=subprocess.DEVNULL, stdout=sink, stderr=sink
        )
        killer = threading.Timer(timeout, child.kill)
        killer.start()
        try:
            if meanwhile is not None:
                meanwhile(child.pid)
            _, status, usage = os.wait4(child.pid, 0)
        except BaseException:  # who is stopped leaves nothing running
            child.kill()
            raise
        finally:
            killer.cancel()
        wall = time.monotonic() - started
    child.returncode = os.waitstatus_to_exitcode(status)
    cpu = usage.ru_utime + usage.ru_stime
    others = max(0.0, busy_s() - machine - cpu - (time.process_time() - own)) / wall
    kilo = 1024 * 1024 if sys.platform == "darwin" else 1024
    text = out.read_text("utf-8", "replace")
    peak = usage.ru_maxrss / kilo
    return Measured(child.returncode, started, wall, cpu, peak, others, text)


def has_ended(pid: int) -> bool:
    """Whether a child has ended; leaves it to be waited for."""
    return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def wait_for_quiet(most: float, patience_s: float = 3.0) -> None:
    """Return when others take no more than so many cores, at the latest when patience ends."""
    until = time.monotonic() + patience_s
    while time.monotonic() < until:
        before, own = busy_s(), time.process_time()
        time.sleep(0.1)
        if (busy_s() - before - (time.process_time() - own)) / 0.1 <= most:
            return


def middle(runs: Sequence[Measured]) -> Measured:
    """The run whose wall time is the median one (the lower of two)."""
    return sorted(runs, key=lambda run: run.wall_s)[(len(runs) - 1) // 2]


def median_ratio(ours: Sequence[Measured], theirs: Sequence[Measured]) -> float:
    """Of neighbours' wall times, when the two were run in turn."""
    return statistics.median(a.wall_s / b.wall_s for a, b in zip(ours, theirs, strict=True))


def others_of(runs: Sequence[Measured]) -> float:
    """Cores taken by others over all runs: the clock is too coarse for one short run."""
    return sum(run.others * run.wall_s for run in runs) / sum(run.wall_s for run in runs)
