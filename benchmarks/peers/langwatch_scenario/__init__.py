"""langwatch-scenario: scripted conversations of one line, a check of the answer, no judge."""

import json
from collections.abc import Iterator
from pathlib import Path

from peers.peer import Job, Peer

PLACE = Path(__file__).parent
REPORT = "report.json"
QUIET = {"LANGWATCH_API_KEY": "", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}


def command(job: Job) -> list[str]:
    return job.python(PLACE / "work.py")


def passed(folder: Path, _output: str) -> Iterator[str]:
    for row in json.loads((folder / REPORT).read_text("utf-8")):
        if row["passed"]:
            yield row["name"]


PEER = Peer("langwatch-scenario", "1.6.0", PLACE, command, passed, env=QUIET, reports=(REPORT,))
