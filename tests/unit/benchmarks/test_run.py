"""The benchmark counts only runs that did the work, tried on a stand-in for the command."""

import json
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

RUN = Path(__file__).parents[3] / "benchmarks" / "run.py"
STAND_IN = """
import json, re, sys, urllib.request
if sys.argv[1].startswith("--"):
    sys.exit(0)
text = open("agent.yaml").read()
url = re.search(r'endpoint: "([^"]+)"', text)[1] + "/chat/completions"
said = {asked}
for one in said:
    body = json.dumps({{"model": "m", "messages": [{{"role": "user", "content": one}}]}})
    with urllib.request.urlopen(url, body.encode()) as answer:
        assert one in answer.read().decode()
passed = {passed}
json.dump({{"summary": {{"passed": passed}}}}, open("report.json", "w"))
sys.exit({code})
"""
INPUTS = 're.findall("input: (.*)", text)'


@pytest.fixture
def judge_provider(tmp_path):
    def run(*flags, asked=INPUTS, passed="len(said)", code=0):
        script = tmp_path / "stand_in.py"
        script.write_text(STAND_IN.format(asked=asked, passed=passed, code=code))
        command = shlex.join([sys.executable, "-S", str(script)])
        usual = ["--peers", "none", "--backend", "chat", "--runs", "1", "--most-others", "99"]
        return subprocess.run(
            [sys.executable, str(RUN), *usual, *flags, "--check", "--command", command],
            check=False,
            capture_output=True,
            text=True,
            timeout=600,
        )

    return run


def test_a_goal_that_is_met_is_shown_with_what_it_is_made_of(judge_provider, tmp_path):
    told = tmp_path / "results.json"

    ran = judge_provider("--only", "S2", "--slack", "1000", "--json", str(told))

    assert ran.returncode == 0, ran.stderr
    table = json.loads(told.read_text())
    assert [row["verdict"] for row in table["rows"]] == ["ok"]
    assert "1 case / P" in ran.stdout
    assert "1 right, 1 requests, 1 at once" in ran.stdout
    assert table["command"].startswith("python benchmarks/run.py --peers none")
    assert str(tmp_path) not in told.read_text()


def test_too_slow_a_run_misses_its_goal_and_fails_the_check(judge_provider):
    ran = judge_provider("--only", "S2", "--slack", "0.001")

    assert ran.returncode == 1
    assert "MISSED" in ran.stdout


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"code": 1}, "1/1 right, 1 requests, 0 mixed up, exit 1"),
        ({"passed": "0"}, "0/1 right, 1 requests, 0 mixed up, exit 0"),
        ({"asked": f"{INPUTS} * 2"}, "2/1 right, 2 requests, 0 mixed up, exit 0"),
        ({"asked": "['case-00000 case-00001']"}, "1/1 right, 1 requests, 1 mixed up, exit 0"),
        ({"asked": "[]"}, "0/1 right, 0 requests, 0 mixed up, exit 0"),
    ],
    ids=["failed", "wrong verdict", "asked twice", "mixed up", "asked nothing"],
)
def test_a_run_that_did_not_do_the_work_misses_its_goal(judge_provider, wrong, said):
    ran = judge_provider("--only", "S2", **wrong)

    assert ran.returncode == 1
    assert f"not counted: {said}" in ran.stdout


def test_a_promise_that_is_not_known_is_named(judge_provider):
    ran = judge_provider("--only", "S99")

    assert ran.returncode != 0
    assert "S99 is not known" in ran.stderr
