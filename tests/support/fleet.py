"""An agent with many cases that writes down every call, for runs that are broken off."""

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from holodeck.lib.records.run_store import Run, RunStore
from support.cli import (
    Environment,
    Ran,
    RunningCli,
    run_cli,
    start_cli,
)

PARALLEL = 20
BOT = """
import asyncio, os

CALLS = os.open(os.path.join(os.path.dirname(__file__), "calls.txt"),
                os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

async def answer(message):
    os.write(CALLS, message.encode() + b"\\n")
    hangs = os.environ.get("BOT_HANGS", "nothing") in message
    await asyncio.sleep(600 if hangs else 0.02)
    if os.environ.get("BOT_FAILS", "nothing") in message:
        raise RuntimeError("no answer today")
    return f"OK: {message}"
"""
_TIMES = {
    "execution_time_ms", "agent_time_ms", "evaluation_time_ms", "timestamp", "total_duration_ms",
    "wall_time_ms", "run", "folder",
}  # fmt: skip


@dataclass(frozen=True)
class Fleet:
    """A folder with an agent of so many cases."""

    path: Path
    size: int

    @classmethod
    def made(cls, path: Path, size: int, **overrides: Any) -> "Fleet":
        path.mkdir(parents=True, exist_ok=True)
        fleet = cls(path, size)
        (path / "bot.py").write_text(BOT)
        fleet.write(**overrides)
        return fleet

    def write(self, **overrides: Any) -> None:
        """Write agent.yaml, with top-level keys replaced."""
        agent = {
            "name": "fleet",
            "backend": "bot:answer",
            "evaluations": {"metrics": [{"metric": "contains", "value": "OK: case-"}]},
            "test_cases": [
                {"name": f"case-{n:05}", "input": f"case-{n:05} please"} for n in range(self.size)
            ],
        }
        (self.path / "agent.yaml").write_text(yaml.safe_dump(agent | overrides, sort_keys=False))

    def start(self, *args: str, env: Environment | None = None) -> RunningCli:
        return start_cli("test", "-j", str(PARALLEL), *args, cwd=self.path, env=env)

    def run(self, *args: str, env: Environment | None = None) -> Ran:
        """Run the tests to the end."""
        return run_cli("test", "-j", str(PARALLEL), *args, cwd=self.path, env=env)

    def holodeck(self, *args: str) -> Ran:
        """Run any command."""
        return run_cli(*args, cwd=self.path)

    def calls(self) -> Counter[str]:
        """How often the agent was asked what."""
        file = self.path / "calls.txt"
        lines = file.read_text().splitlines() if file.exists() else []
        return Counter(line.removesuffix(" please") for line in lines)

    def records(self) -> list[Run]:
        """The recorded runs, the newest first."""
        run_store = RunStore(self.path)
        return [run_store.read(one) for one in run_store.ids()]

    def report(self, name: str = "r.json") -> Any:
        """A JSON report without its times."""
        return without_times(json.loads((self.path / name).read_text()))


def announced(output: str) -> set[str]:
    """The names of the cases that a run said were done."""
    lines = [line.split() for line in output.splitlines() if line.startswith("[Test ")]
    return {words[3] for words in lines if len(words) > 3}


def without_times(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_times(item) for key, item in value.items() if key not in _TIMES}
    return [without_times(item) for item in value] if isinstance(value, list) else value
