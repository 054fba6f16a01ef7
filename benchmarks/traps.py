"""Sets traps for holodeck and other harnesses: an agent or a user that is wrong must not pass.

    python benchmarks/traps.py [NAME …]

uv and npx fetch the releases (uv is in `.venv`; promptfoo needs Node 22.22 or newer). Each trap
runs without a key in a copy of `traps/NAME`. The table shows the exit codes: 0 has not noticed it.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from holodeck import __version__

TRAPS = {
    "right": "no trap: all is right",
    "wrong": "the answer is wrong",
    "misspelt": "the key of what is expected is misspelt",
    "nothing": "no case is selected",
    "raises": "the agent raises an exception in every case",
}
FILES = Path(__file__).with_name("traps")
QUIET = {
    "DEEPEVAL_TELEMETRY_OPT_OUT": "1",
    "PROMPTFOO_DISABLE_TELEMETRY": "1",
    "PROMPTFOO_DISABLE_UPDATE": "1",
    "OPENAI_API_KEY": "none",
}
SECONDS = 300


@dataclass(frozen=True)
class Harness:
    """A release, and how it is called."""

    name: str
    version: str
    command: Sequence[str]
    """The arguments before those of a trap."""
    arguments: str = "{trap}"
    """Of each trap but `nothing`."""
    nothing: str = "nothing"

    def exit_code(self, trap: str) -> int:
        """Run a trap and return the exit code."""
        arguments = self.nothing if trap == "nothing" else self.arguments.format(trap=trap)
        with tempfile.TemporaryDirectory() as home:
            folder = Path(home) / "traps"
            shutil.copytree(FILES / self.name.replace("-", "_"), folder)
            return subprocess.run(
                [*self.command, *arguments.split()],
                cwd=folder,
                env={**os.environ, **QUIET},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                timeout=SECONDS,
                check=False,
            ).returncode


def released(name: str, version: str, *command: str, **options: object) -> Harness:
    """A release of the Python package index."""
    fetch = ("uv", "run", "--quiet", "--no-project", "--with", f"{name}=={version}")
    return Harness(name, version, [*fetch, *command], **options)


def harnesses() -> list[Harness]:
    promptfoo = ("npx", "--yes", "promptfoo@0.123.1", "eval", "--no-cache", "--config")
    inspect = ("inspect", "eval", "--model", "mockllm/model", "--display", "plain")
    return [
        Harness(
            "holodeck",
            __version__,
            [sys.executable, "-m", "holodeck", "test"],
            "{trap}.yaml",
            "wrong.yaml -k nothing",
        ),
        Harness(
            "promptfoo",
            "0.123.1",
            promptfoo,
            "{trap}.yaml",
            "wrong.yaml --filter-pattern nothing",
        ),
        released(
            "deepeval",
            "4.3.1",
            *("deepeval", "test", "run", "test_shop.py", "-k"),
        ),
        released(
            "inspect_ai",
            "0.3.285",
            *inspect,
            arguments="shop.py@{trap}",
            nothing="shop.py@wrong --sample-id nothing",
        ),
        released("pydantic-evals", "2.62.0", "python", "shop.py"),
        released("azure-ai-evaluation", "1.18.10", "python", "shop.py"),
        released("agentops-accelerator", "0.16.0", "python", "shop.py"),
    ]


def main() -> None:
    chosen = [one for one in harnesses() if not sys.argv[1:] or one.name in sys.argv[1:]]
    print("| trap |", *(f"{harness.name} {harness.version} |" for harness in chosen))
    print("| --- |", *("--- |" for _ in chosen))
    for trap, title in TRAPS.items():
        codes = (harness.exit_code(trap) for harness in chosen)
        print(f"| {title} |", *(f"{code} |" for code in codes), flush=True)


if __name__ == "__main__":
    main()
