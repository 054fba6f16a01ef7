"""deepeval: `evaluate()` in its asynchronous mode on answers asked for as many at once."""

import json
from collections.abc import Iterator
from pathlib import Path

from peers.peer import Job, Peer

PLACE = Path(__file__).parent
REPORT = "results/*.json"
QUIET = {
    "DEEPEVAL_TELEMETRY_OPT_OUT": "1",
    "DEEPEVAL_UPDATE_WARNING_OPT_IN": "0",
    "DEEPEVAL_DISABLE_DOTENV": "1",
    "DEEPEVAL_NO_INSPECT_PROMPT": "1",
    "ERROR_REPORTING": "0",
}


def command(job: Job) -> list[str]:
    return job.python(PLACE / "work.py")


def passed(folder: Path, _output: str) -> Iterator[str]:
    for report in folder.glob(REPORT):
        for row in json.loads(report.read_text("utf-8"))["testCases"]:
            if row["success"]:
                yield row["name"]


PEER = Peer("deepeval", "4.3.1", PLACE, command, passed, env=QUIET, reports=(REPORT,))
