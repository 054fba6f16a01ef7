"""A run of many cases, which are packed, is the same as that of a few."""

import json
import subprocess
import sys
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import pytest

from support.cli import Ran, clean_environment, run_cli
from support.fleet import without_times

AGENT = """\
name: many
backend: bot_of_many:answer
evaluations: {metrics: [{metric: contains}]}
execution: {retries: 1}
test_cases_file: cases.jsonl
"""
BOT = "def answer(text):\n    return 'no' if 'wrong' in text else f'said {text}'\n"
CASES: list[dict[str, Any]] = [
    *({"name": f"case {at}", "input": f"{at}", "ground_truth": f"said {at}"} for at in range(6)),
    {"name": "fails", "input": "wrong", "ground_truth": "said wrong", "tags": ["slow"]},
    {"input": "own", "evaluations": [{"metric": "contains", "value": "own"}]},
    {"input": "repeated", "ground_truth": "said", "repeat": 2, "retries": 0},
    {"input": "left out", "ground_truth": "said", "skip": "later"},
]
PACKED = """
from holodeck.models import packed_cases
packed_cases.MOST_UNPACKED = 1
from holodeck.__main__ import main
main()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "agent.yaml").write_text(AGENT, "utf-8")
    (tmp_path / "bot_of_many.py").write_text(BOT, "utf-8")
    lines = "".join(f"{json.dumps(one)}\n" for one in CASES)
    (tmp_path / "cases.jsonl").write_text(lines, "utf-8")
    return tmp_path


def seen(folder: Path, ran: Ran | CompletedProcess[str]) -> tuple[str, str, Any, Any]:
    """Return the output, the report and the first line of the record."""
    report = without_times(json.loads((folder / "r.json").read_text("utf-8")))
    del report["origin"]
    record = max((folder / ".holodeck" / "runs").glob("*/run.jsonl"))
    first = json.loads(record.read_text("utf-8").splitlines()[0])
    parts = {key: first[key] for key in ("hashes", "cases", "config")}
    return ran.stdout.partition("  Duration")[0], ran.stderr, report, parts


@pytest.mark.parametrize("args", [(), ("--tag", "slow"), ("-k", "case", "--shard", "2/2")])
def test_the_report_and_the_record_are_the_same(folder: Path, args: tuple[str, ...]) -> None:
    args = ("test", "agent.yaml", "-o", "r.json", *args)
    few = seen(folder, run_cli(*args, cwd=folder))
    many = subprocess.run(
        [sys.executable, "-c", PACKED, *args],
        cwd=folder, env=clean_environment(folder), capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert seen(folder, many) == few
