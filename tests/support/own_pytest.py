"""Runs pytest as a child, with the plugin of this tree and no other that is not asked for."""

import subprocess
import sys
from pathlib import Path

from support.cli import clean_environment

ROOT = Path(__file__).resolve().parents[2]


def run_pytest(folder: Path, *args: str) -> str:
    """Run it in a folder; what it wrote. `-n` brings the plugin for several processes."""
    environment = clean_environment(folder)
    environment |= {"PYTHONPATH": str(ROOT / "src"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    plugins = ["-p", "holodeck.pytest_plugin", *(["-p", "xdist"] if "-n" in args else [])]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *plugins, "--strict-markers", *args],
        cwd=folder, env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return done.stdout + done.stderr
