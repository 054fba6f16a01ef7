"""Runs pytest as a child, with the plugin of this tree and no other that is not asked for."""

import subprocess
import sys
from pathlib import Path

from support.cli import clean_environment, readable
from support.nursery import PYTESTS

ROOT = Path(__file__).resolve().parents[2]


def run_pytest(folder: Path, *args: str) -> str:
    """Run it in a folder; what it wrote. `-n` brings the plugin for several processes."""
    arguments, env = arguments_for(args), environment_in(folder)
    _, *streams = PYTESTS.run(arguments, cwd=folder, env=env, stdin="", timeout=300)
    return "".join(map(readable, streams))


def run_pytest_from_nothing(folder: Path, *args: str) -> str:
    """The same in a Python of its own, for tests of what is imported."""
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *arguments_for(args)],
        cwd=folder, env=environment_in(folder), capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr


def arguments_for(args: tuple[str, ...]) -> list[str]:
    several = ["-p", "xdist"] if "-n" in args else []
    return ["-p", "holodeck.pytest_plugin", *several, "--strict-markers", *args]


def environment_in(folder: Path) -> dict[str, str]:
    ours = {"PYTHONPATH": str(ROOT / "src"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return clean_environment(folder) | ours
