"""agenticassure: its command line on a scenario file, its OpenAI adapter, its JSON report."""

import json
from collections.abc import Iterator
from pathlib import Path

from peers.peer import Job, Peer
from peers.workload import case

REPORT = "results_*.json"
PLACE = Path(__file__).parent
SCENARIO = """\
  - name: {name}
    input: "{input}"
    expected_output: "{expected}"
    scorers: [exact]
"""


def command(job: Job) -> list[str]:
    rows = "".join(SCENARIO.format(**case(index)) for index in range(job.cases))
    (job.folder / "suite.yaml").write_text(
        f"suite: {{name: benchmark}}\nscenarios:\n{rows}", "utf-8"
    )
    flags = ["--adapter", "agent.Agent", "--output", "json"]
    return [*job.bin("agenticassure"), "run", "suite.yaml", *flags]


def passed(folder: Path, _output: str) -> Iterator[str]:
    for report in folder.glob(REPORT):
        for row in json.loads(report.read_text("utf-8"))["scenario_results"]:
            if row["passed"]:
                yield row["scenario"]["name"]


PEER = Peer(
    "agenticassure",
    "0.4.0",
    PLACE,
    command,
    passed,
    env={"PYTHONPATH": str(PLACE)},
    reports=(REPORT,),
    is_parallel=False,
)
