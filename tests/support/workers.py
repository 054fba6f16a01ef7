"""Whether agents of the suite run in worker processes: `HOLODECK_WORKERS=2 pytest …`."""

import os

import pytest

HAS_WORKERS = os.environ.get("HOLODECK_WORKERS", "1") != "1"


def only_in_one_process(reason: str) -> pytest.MarkDecorator:
    """Skip a test that cannot apply to worker processes, for this reason."""
    return pytest.mark.skipif(HAS_WORKERS, reason=reason)
