"""pydantic-evals: a data set, a task, an equality evaluator, its JSON report."""

import json
from collections.abc import Iterator
from pathlib import Path

from peers.peer import Job, Peer

REPORT = "report.json"
PLACE = Path(__file__).parent


def command(job: Job) -> list[str]:
    return job.python(PLACE / "work.py")


def passed(folder: Path, _output: str) -> Iterator[str]:
    for row in json.loads((folder / REPORT).read_text("utf-8"))["cases"]:
        verdicts = row["assertions"].values()
        if verdicts and all(verdict["value"] for verdict in verdicts):
            yield row["name"]


PEER = Peer(
    "pydantic-evals",
    "2.62.0",
    PLACE,
    command,
    passed,
    env={"LOGFIRE_IGNORE_NO_CONFIG": "1"},
    reports=(REPORT,),
)
