"""The peers of the benchmark: what they are asked to do, and how their verdicts are read."""

import dataclasses
import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
from loopback import server
from peers import PEERS
from peers.install import install_all

BENCHMARKS = Path(__file__).parents[3] / "benchmarks"
URL = "http://127.0.0.1:1/v1"
ROWS = (("case-00000", True), ("case-00001", False), ("case-00002", True))


def equals(ok):
    return {"Equals": {"value": ok}}


REPORTS = {
    "pydantic-evals": (
        "report.json",
        {"cases": [{"name": name, "assertions": equals(ok)} for name, ok in ROWS]},
    ),
    "agenticassure": (
        "results_1.json",
        {"scenario_results": [{"scenario": {"name": name}, "passed": ok} for name, ok in ROWS]},
    ),
    "deepeval": (
        "results/test_run_1.json",
        {"testCases": [{"name": name, "success": ok} for name, ok in ROWS]},
    ),
    "langwatch-scenario": (
        "report.json",
        [{"name": name, "passed": ok} for name, ok in ROWS],
    ),
    "holodeck-ai": (
        "report.json",
        {"results": [{"test_name": n, "passed": ok, "metric_results": [{}]} for n, ok in ROWS]},
    ),
    "promptfoo": (
        "report.json",
        {
            "results": {
                "results": [{"testCase": {"description": n}, "success": ok} for n, ok in ROWS]
            }
        },
    ),
}


@pytest.mark.parametrize("name", REPORTS)
def test_only_the_cases_that_the_report_calls_passed_are_counted(name, tmp_path):
    file, document = REPORTS[name]
    report = tmp_path / file
    report.parent.mkdir(exist_ok=True)
    report.write_text(json.dumps(document))

    assert PEERS[name].passed(tmp_path, "", 3) == 2


@pytest.mark.parametrize("name", PEERS)
def test_a_run_without_a_report_has_passed_nothing(name, tmp_path):
    assert PEERS[name].passed(tmp_path, "3 passed", 3) == 0


@pytest.mark.parametrize("name", REPORTS)
def test_the_report_of_an_earlier_run_is_gone_before_the_next(name, tmp_path):
    file, document = REPORTS[name]
    report = tmp_path / "work" / file
    report.parent.mkdir(parents=True)
    report.write_text(json.dumps(document))

    PEERS[name].prepare(tmp_path / "home", tmp_path / "work", URL, 3, None)

    assert not report.exists()


def test_a_passed_case_that_nobody_asked_for_is_not_counted(tmp_path):
    rows = [{"name": name, "passed": True} for name in ("case-00000", "case-00000", "case-00009")]
    (tmp_path / "report.json").write_text(json.dumps(rows))

    assert PEERS["langwatch-scenario"].passed(tmp_path, "", 3) == 1


@pytest.mark.parametrize("name", PEERS)
def test_a_limit_is_said_only_when_one_is_given(name, tmp_path):
    peer = PEERS[name]

    free = peer.prepare(tmp_path, tmp_path / "free", URL, 3, None).command
    limited = peer.prepare(tmp_path, tmp_path / "limited", URL, 3, 4321).command

    assert "4321" not in free
    assert ("4321" in limited) is peer.is_parallel


@pytest.mark.parametrize("name", PEERS)
def test_no_key_or_proxy_of_the_user_reaches_a_peer(name, tmp_path, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "of-the-user")
    monkeypatch.setenv("OPENAI_API_KEY", "of-the-user")
    monkeypatch.setenv("HTTPS_PROXY", "http://of-the-user")

    env = PEERS[name].prepare(tmp_path, tmp_path / "work", URL, 3, None).env

    assert "of-the-user" not in " ".join(env.values())
    assert env["OPENAI_BASE_URL"] == URL


@pytest.mark.parametrize("name", PEERS)
def test_a_peer_counts_as_installed_only_with_the_lock_of_today(name, tmp_path):
    peer = PEERS[name]
    place = peer.environment(tmp_path)
    place.mkdir()
    before = peer.is_installed(tmp_path)
    (place / "installed.txt").write_text(peer.fingerprint())
    fresh = peer.is_installed(tmp_path)
    (place / "installed.txt").write_text("an older lock")

    assert (before, fresh, peer.is_installed(tmp_path)) == (False, True, False)


@pytest.mark.parametrize("name", PEERS)
def test_a_lock_pins_the_version_and_names_no_index(name):
    peer = PEERS[name]
    locked = (peer.place / ("package.lock" if peer.is_node else "requirements.txt")).read_text()

    pinned = f'"{name}": "{peer.version}"' if peer.is_node else f"{name}=={peer.version}"
    loose = [] if peer.is_node else [line for line in locked.splitlines() if "==" not in line]
    assert pinned.replace(" ", "").replace("_", "-") in locked.replace(" ", "").replace("_", "-")
    assert not re.search(r"https?:|file:|index-url|resolved", locked)
    assert loose == []


def test_an_unknown_peer_is_refused_with_the_names_there_are():
    script = BENCHMARKS / "peers" / "install.py"
    done = subprocess.run(
        [sys.executable, str(script), "pydantic"], capture_output=True, text=True, check=False
    )

    assert done.returncode == 2
    assert "pydantic: no such peer" in done.stderr
    assert "pydantic-evals" in done.stderr


def test_a_peer_that_cannot_be_installed_is_said_and_the_others_go_on(tmp_path, capsys):
    place = tmp_path / "locks"
    place.mkdir()
    (place / "requirements.txt").write_text("./not-there\n")
    broken = dataclasses.replace(PEERS["deepeval"], name="broken", place=place)
    ready = PEERS["agenticassure"]
    mark = ready.environment(tmp_path) / "installed.txt"
    mark.parent.mkdir()
    mark.write_text(ready.fingerprint())

    failed = install_all([broken, ready], tmp_path)

    told = capsys.readouterr()
    assert failed == 1
    assert "broken 4.3.1: NOT installed" in told.err
    assert "not-there" in told.err
    assert "agenticassure 0.4.0: installed" in told.out
    assert not broken.is_installed(tmp_path)


def test_a_peer_that_is_not_installed_fails_the_check(tmp_path):
    script = BENCHMARKS / "peers" / "check.py"
    done = subprocess.run(
        [sys.executable, str(script), "--home", str(tmp_path), "agenticassure"],
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 1
    assert "MISSING" in done.stdout


@pytest.mark.parametrize("asked", ["Say it", [{"role": "user", "content": "Say it"}]])
def test_the_fake_server_answers_the_responses_api_too(asked):
    body = json.dumps({"model": "fake", "instructions": "Do it.", "input": asked}).encode()
    with server(0) as url, urllib.request.urlopen(f"{url}/responses", body) as answer:
        document = json.load(answer)

    assert document["output"][0]["content"][0]["text"] == "OK: Say it"
