"""Many cases in one process, with faults: memory stays flat, nothing is lost, nothing is left.

    python benchmarks/soak.py [--cases 20000] [--backend semantic_kernel]

Exits with 1 if a case is not accounted for, something outlives the run, or memory grows.
"""

import argparse
import asyncio
import os
import sys
import threading
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from loopback import server

from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.test_result import TestReport

PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 1e6
MOST_GROWTH_MB = 150


def memory_mb() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_MB


def sockets() -> int:
    """Sockets that this process holds open."""
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            links.append(entry.readlink())
        except OSError:  # the descriptor of the listing itself
            continue
    return sum(str(link).startswith("socket:") for link in links)


def an_agent(url: str, cases: int, backend: str) -> Agent:
    raw = {
        "name": "soak",
        "backend": None if backend == "semantic_kernel" else backend,
        "model": {"provider": "openai", "name": "fake", "endpoint": url, "api_key": "x"},
        "instructions": {"inline": "Answer."},
        "test_cases": [
            {
                "input": f"Say case-{number:05d} please",
                "evaluations": [{"metric": "contains", "value": f"case-{number:05d}"}],
            }
            for number in range(cases)
        ],
    }
    return Agent.model_validate(raw)


async def soak(agent: Agent, folder: Path) -> tuple[TestReport, list[float], int]:
    """The report, the memory after each thousand cases, and the tasks that outlive the run."""
    settings = ExecutionConfig(
        llm_timeout=60, max_retries=5, retry_delay=0.1, parallel_test_cases=100
    )
    executor = TestExecutor(
        str(folder / "agent.yaml"), agent_config=agent, resolved_execution_config=settings
    )
    seen: list[float] = []
    done = 0

    def count(_: object) -> None:
        nonlocal done
        done += 1
        if done % 1000 == 0:
            seen.append(memory_mb())

    executor.progress_callback = count
    report = await executor.execute_tests()
    await executor.shutdown()
    await asyncio.sleep(0.2)
    return report, seen, len(asyncio.all_tasks()) - 1


def run(url: str, cases: int, backend: str, folder: Path) -> bool:
    agent = an_agent(url, cases, backend)
    before = {"threads": threading.active_count(), "sockets": sockets()}
    started = time.monotonic()
    report, memory, tasks = asyncio.run(soak(agent, folder))
    seconds = time.monotonic() - started
    after = {"threads": threading.active_count(), "sockets": sockets()}
    left = [
        f"{after[what] - count} {what}" for what, count in before.items() if after[what] > count
    ]
    left += [f"{tasks} tasks"] if tasks else []
    growth = memory[-1] - memory[0] if memory else 0.0
    retried = sum(bool(result.attempts) for result in report.results)
    print(f"accounted for: {len(report.results)}/{cases}, passed {report.summary.passed}")
    print(f"cases with a fault: {retried}; {seconds:.0f} s, {cases / seconds:.0f} cases/s")
    print(f"memory after each thousand, MB: {' '.join(f'{one:.0f}' for one in memory)}")
    print(f"growth after the first thousand: {growth:.0f} MB (goal <= {MOST_GROWTH_MB})")
    print(f"left over: {', '.join(left) or 'nothing'}")
    complete = report.summary.passed == len(report.results) == cases
    return complete and not left and growth <= MOST_GROWTH_MB


def main() -> int:
    parser = argparse.ArgumentParser(description="Soak the runner.")
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--backend", default="semantic_kernel")
    options = parser.parse_args()
    with server(5, fault_percent=2) as url, TemporaryDirectory() as folder:
        fine = run(url, options.cases, options.backend, Path(folder))
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
