"""The benchmark counts only runs that did the work, tried on a stand-in for the command."""

import shlex
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parents[2] / "benchmarks" / "run.py"
STAND_IN = """
import json, re, sys, urllib.request
if sys.argv[1].startswith("--"):
    sys.exit(0)
text = open(sys.argv[2]).read()
url = re.search(r'endpoint: "([^"]+)"', text)[1] + "/chat/completions"
for said in {asked}:
    body = json.dumps({{"model": "m", "messages": [{{"role": "user", "content": said}}]}})
    with urllib.request.urlopen(url, body.encode()) as answer:
        assert said in answer.read().decode()
sys.exit({code})
"""
INPUTS = 're.findall("input: (.*)", text)'


@pytest.fixture
def bench(tmp_path):
    def run(asked=INPUTS, code=0):
        script = tmp_path / "stand_in.py"
        script.write_text(STAND_IN.format(asked=asked, code=code))
        command = shlex.join([sys.executable, str(script)])
        flags = ["--n", "1,3", "--parallel", "2", "--runs", "1", "--latency-ms", "5"]
        return subprocess.run(
            [sys.executable, str(RUN), *flags, "--command", command],
            check=False,
            capture_output=True,
            text=True,
            timeout=60,
        )

    return run


def test_it_prints_a_row_for_every_size_and_every_goal(bench):
    ran = bench()

    assert (ran.returncode, ran.stderr) == (0, "")
    rows = [line.split() for line in ran.stdout.splitlines()]
    assert [row[0] for row in rows if row and row[0] in {"1", "3"}] == ["1", "3"]
    assert ran.stdout.count("goal <= 1.3") == 2
    assert ran.stdout.count("goal <= 1.5") == 1


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"code": 1}, "exit 1, 1 requests, 0 mixed up"),
        ({"asked": f"{INPUTS} * 2"}, "exit 0, 2 requests, 0 mixed up"),
        ({"asked": "['case-00000 case-00001']"}, "exit 0, 1 requests, 1 mixed up"),
        ({"asked": "[]"}, "exit 0, 0 requests, 0 mixed up"),
    ],
    ids=["failed", "asked twice", "mixed up", "asked nothing"],
)
def test_a_run_that_did_not_do_the_work_is_not_counted(bench, wrong, said):
    ran = bench(**wrong)

    assert ran.returncode == 1
    assert f"not counted: 1 cases: {said}" in ran.stderr
