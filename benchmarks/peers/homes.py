"""Where the peers' environments are kept."""

import os
from pathlib import Path


def default_home() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME")
    return (Path(cache) if cache else Path.home() / ".cache") / "holodeck-benchmarks"
