"""Whether agents of the suite run in worker processes: `HOLODECK_WORKERS=2 pytest …`."""

import os
from typing import BinaryIO

import pytest

from support.cli import RunningCli

HAS_WORKERS = os.environ.get("HOLODECK_WORKERS", "1") != "1"


def only_in_one_process(reason: str) -> pytest.MarkDecorator:
    """Skip a test that cannot apply to worker processes, for this reason."""
    return pytest.mark.skipif(HAS_WORKERS, reason=reason)


def agent_output(run: RunningCli) -> BinaryIO:
    """The stream of holodeck on which what an agent prints arrives: workers print on stderr."""
    return run.stderr if HAS_WORKERS else run.stdout
