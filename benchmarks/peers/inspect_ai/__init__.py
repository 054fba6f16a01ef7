"""inspect_ai: its command line on a task, its OpenAI provider, its own log as the report."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

from peers.peer import Job, Peer

LOG = "logs/*.eval"
PYTHON = "python.txt"
"""Where the Python is that can read the log."""
PLACE = Path(__file__).parent
CORRECT = ("C", 1, 1.0)


def command(job: Job) -> list[str]:
    """At a limit both connections and samples get it; without one it adapts by itself."""
    (job.folder / PYTHON).write_text(job.bin("python")[0], "utf-8")
    task = f"{PLACE / 'work.py'}@benchmark"
    model = ["--model", "openai/fake", "-M", "responses_api=false", "--temperature", "0"]
    flags = ["-T", f"folder={job.folder}", "--log-dir", "logs", "--display", "none"]
    limits = [*job.limit("--max-connections"), *job.limit("--max-samples")]
    return [*job.bin("inspect"), "eval", task, *model, *flags, *limits]


def passed(folder: Path, _output: str) -> Iterator[str]:
    reader = [(folder / PYTHON).read_text("utf-8"), str(PLACE / "read_log.py")]
    logs = [str(log) for log in folder.glob(LOG)]
    told = subprocess.run([*reader, *logs], check=True, capture_output=True, text=True).stdout
    for name, scores in (row for line in told.splitlines() for row in json.loads(line)):
        if scores and all(score in CORRECT for score in scores):
            yield name


PEER = Peer("inspect_ai", "0.3.285", PLACE, command, passed, reports=(LOG,))
