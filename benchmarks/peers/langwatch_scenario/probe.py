"""What `benchmarks/scenario.py` has each do: `python probe.py MODULE TASK`; prints JSON.

The module is `holodeck.scenario` or `scenario`; not a line differs between the two.
"""

import asyncio
import json
import sys
import time
from importlib import import_module
from typing import Any

started, at_first = time.perf_counter(), time.process_time()
scenario: Any = import_module(sys.argv[1])
import_s = time.perf_counter() - started
for name in ("run", "JudgeAgent", "UserSimulatorAgent", "AgentAdapter"):
    getattr(scenario, name)
names_cpu_s = time.process_time() - at_first

CASES, AT_ONCE, TURNS, LATENCY_S = 100, 50, 5, 0.1
LONG = 100
PATIENCE_S, HANGS_S = 0.5, 3.0
HEAVY = {"openai", "litellm", "anthropic", "semantic_kernel", "httpx", "httpx2"}


class Party(scenario.AgentAdapter):  # type: ignore[misc]
    """Says the same again and again."""

    def __init__(self, role: Any, line: Any, seconds: float = 0.0) -> None:
        self.role, self._line, self._seconds = role, line, seconds

    async def call(self, input: Any) -> Any:  # noqa: A002, ARG002 - as both call it
        if self._seconds:
            await asyncio.sleep(self._seconds)
        return self._line


class Blocking(scenario.AgentAdapter):  # type: ignore[misc]
    """Holds up its event loop."""

    async def call(self, input: Any) -> Any:  # noqa: A002, ARG002 - as both call it
        time.sleep(HANGS_S)  # noqa: ASYNC251 - that is what blocks
        return "late"


def participants(seconds: float = 0.0) -> list[Any]:
    roles = scenario.AgentRole
    return [
        Party(roles.USER, "and then?"),
        Party(roles.AGENT, "then this.", seconds),
        Party(roles.JUDGE, []),
    ]


async def play(turns: int, seconds: float = 0.0, by: str = "run") -> None:
    """One conversation. Raises RuntimeError unless it went as it should."""
    result = await getattr(scenario, by)(
        name="case",
        description="somebody asks on and on",
        agents=participants(seconds),
        script=[scenario.proceed(turns=turns), scenario.succeed()],
        max_turns=turns + 1,
        verbose=False,
    )
    if not result.success or len(result.messages) != 2 * turns:
        raise RuntimeError(f"{result!r}, {len(result.messages)} messages")


async def one() -> dict[str, float]:
    """One instant scenario of one turn."""
    begun = time.perf_counter()
    await play(1)
    return {"s": time.perf_counter() - begun}


async def many(by: str) -> dict[str, float]:
    """Scenarios against an agent that takes its time."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def in_turn() -> None:
        async with slots:
            await play(TURNS, LATENCY_S, by)

    begun = time.perf_counter()
    await asyncio.gather(*(in_turn() for _ in range(CASES)))
    took = time.perf_counter() - begun
    return {"s": took, "ratio": took / (-(-CASES // AT_ONCE) * TURNS * LATENCY_S)}


async def long() -> dict[str, float]:
    """What each further turn of an instant scenario costs."""
    await play(1)
    begun, cpu = time.perf_counter(), time.process_time()
    await play(1)
    middle, middle_cpu = time.perf_counter(), time.process_time()
    await play(1 + LONG)
    wall = (time.perf_counter() - middle) - (middle - begun)
    spent = (time.process_time() - middle_cpu) - (middle_cpu - cpu)
    return {"ms_a_turn": wall * 1000 / LONG, "cpu_ms_a_turn": spent * 1000 / LONG}


async def cancelled(agent: Any) -> dict[str, float]:
    """How much later than it was given up a run comes back."""
    run = scenario.run(name="case", description="", agents=[agent], script=[scenario.agent()])
    begun = time.perf_counter()
    try:
        await asyncio.wait_for(run, PATIENCE_S)
    except TimeoutError:
        return {"late_ms": (time.perf_counter() - begun - PATIENCE_S) * 1000}
    raise RuntimeError("it was not given up")


async def imported() -> dict[str, Any]:
    return {
        "import_ms": import_s * 1000,
        "names_cpu_ms": names_cpu_s * 1000,
        "heavy": sorted(HEAVY & set(sys.modules)),
    }


TASKS = {
    "import": imported,
    "one": one,
    "run": lambda: many("run"),
    "arun": lambda: many("arun"),
    "long": long,
    "waiting": lambda: cancelled(Party(scenario.AgentRole.AGENT, "late", HANGS_S)),
    "blocking": lambda: cancelled(Blocking()),
}
print("\n" + json.dumps(asyncio.run(TASKS[sys.argv[2]]())))
