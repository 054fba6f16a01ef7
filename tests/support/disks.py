"""Disks in memory, which can be small or read-only."""

import os
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


@contextmanager
def disk(folder: Path, options: str) -> Iterator[Callable[[str], None]]:
    """A disk in memory at `folder`; gives what mounts it again with other options."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", options, "none", str(folder)]
    if os.geteuid() != 0 or subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("mounting needs more rights")

    def remount(options: str) -> None:
        subprocess.run(["mount", "-o", f"remount,{options}", str(folder)], check=True)

    try:
        yield remount
    finally:
        subprocess.run(["umount", str(folder)], check=True)
