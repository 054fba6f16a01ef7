"""holodeck-ai: its command line on an agent file, its OpenAI backend, its JSON report.

That backend speaks the Responses API only.
"""

import json
from collections.abc import Iterator
from pathlib import Path

from peers.peer import Job, Peer
from peers.workload import MODEL, SYSTEM, case

PLACE = Path(__file__).parent
REPORT = "report.json"
QUIET = {"OPENAI_AGENTS_DISABLE_TRACING": "true", "DEEPEVAL_TELEMETRY_OPT_OUT": "1"}
AGENT = f"""\
name: benchmark
model: {{provider: openai, name: {MODEL}, temperature: 0}}
instructions: {{inline: "{SYSTEM}"}}
test_cases:
"""
CASE = """\
  - name: {name}
    input: "{input}"
    ground_truth: "{expected}"
    evaluations: [{{metric: equality, threshold: 1.0}}]
"""


def command(job: Job) -> list[str]:
    rows = "".join(CASE.format(**case(index)) for index in range(job.cases))
    (job.folder / "agent.yaml").write_text(AGENT + rows, "utf-8")
    flags = ["--output", REPORT, "--quiet", *job.limit("--parallel-test-cases")]
    return [*job.bin("holodeck"), "test", "agent.yaml", *flags]


def passed(folder: Path, _output: str) -> Iterator[str]:
    for row in json.loads((folder / REPORT).read_text("utf-8"))["results"]:
        if row["passed"] and row["metric_results"]:
            yield row["test_name"]


PEER = Peer("holodeck-ai", "0.7.1", PLACE, command, passed, env=QUIET, reports=(REPORT,))
