"""promptfoo: its command line on a configuration, its OpenAI provider, its JSON output."""

import json
from collections.abc import Iterator
from pathlib import Path

from peers.peer import Job, Peer
from peers.workload import MODEL, SYSTEM, case

CONFIG = "promptfooconfig.json"
REPORT = "report.json"
PLACE = Path(__file__).parent
PROMPT = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": "{{said}}"}]
QUIET = {
    "PROMPTFOO_DISABLE_TELEMETRY": "1",
    "PROMPTFOO_DISABLE_UPDATE": "1",
    "PROMPTFOO_DISABLE_REMOTE_GENERATION": "1",
    "PROMPTFOO_CACHE_ENABLED": "false",
}


def command(job: Job) -> list[str]:
    (job.folder / "prompt.json").write_text(json.dumps(PROMPT), "utf-8")
    (job.folder / CONFIG).write_text(json.dumps(configuration(job)), "utf-8")
    main = job.installed / "node_modules" / "promptfoo" / "dist" / "src" / "entrypoint.js"
    quiet = ["--no-cache", "--no-progress-bar", "--no-table"]
    files = ["--config", CONFIG, "--output", REPORT]
    return ["node", str(main), "eval", *files, *quiet, *job.limit("--max-concurrency")]


def configuration(job: Job) -> dict[str, object]:
    options = {"temperature": 0, "apiBaseUrl": job.url}
    return {
        "prompts": ["file://prompt.json"],
        "providers": [{"id": f"openai:chat:{MODEL}", "config": options}],
        "tests": [test(index) for index in range(job.cases)],
    }


def test(index: int) -> dict[str, object]:
    row = case(index)
    equals = {"type": "equals", "value": row["expected"]}
    return {"description": row["name"], "vars": {"said": row["input"]}, "assert": [equals]}


def passed(folder: Path, _output: str) -> Iterator[str]:
    for row in json.loads((folder / REPORT).read_text("utf-8"))["results"]["results"]:
        if row["success"]:
            yield row["testCase"]["description"]


PEER = Peer("promptfoo", "0.121.20", PLACE, command, passed, env=QUIET, reports=(REPORT,))
