"""The fake server as a child of ours, and what to ask of it."""

import json
import signal
import subprocess
import sys
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SCRIPT = Path(__file__).with_name("fake_llm.py")


@contextmanager
def server(latency_ms: float, fault_percent: float = 0) -> Iterator[str]:
    """The fake server's base URL, while it runs."""
    command = [sys.executable, str(SCRIPT), "--port", "0", "--latency-ms", str(latency_ms)]
    command += ["--fault-percent", str(fault_percent)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            port = process.stdout.readline().removeprefix("READY ").strip()
            yield f"http://127.0.0.1:{port}/v1"
        finally:
            process.send_signal(signal.SIGTERM)


def stats(url: str) -> dict[str, Any]:
    """What the server counted since it was configured."""
    return _ask(url, "_stats")


def configure(url: str, **how: float | None) -> None:
    """Let it count from zero and answer this way; None is as at its start."""
    given = {name: value for name, value in how.items() if value is not None}
    _ask(url, f"_config?{urllib.parse.urlencode(given)}")


def _ask(url: str, path: str) -> dict[str, Any]:
    root = url.removesuffix("/v1")
    with urllib.request.urlopen(f"{root}/{path}", timeout=10) as answer:
        return dict(json.load(answer))
