"""Choosing what `holodeck test` runs, from the outside."""

import json

import pytest
import yaml

from fakes import run_cli
from holodeck.cli.context import CliContext
from holodeck.cli.selection import apply_selection
from holodeck.lib.records.fingerprint import fingerprint_of
from holodeck.lib.records.recorder import json_line
from holodeck.lib.records.run_store import RunStore
from holodeck.lib.selection.request import SelectionRequest, Shard
from holodeck.models.agent import Agent
from holodeck.models.records.record import CaseFinished, RunHead
from holodeck.models.results.origin import Selection
from support.results import a_result

BOT = """
def answer(text):
    if text == "raise":
        raise RuntimeError("no such thing")
    return text
"""
CASES = [
    {"name": "refund", "id": "r1", "tags": ["smoke"], "input": "hello"},
    {"name": "greets", "tags": ["smoke", "slow"], "input": "raise"},
    {"name": "weather", "suite": "small talk", "input": "hullo"},
]


@pytest.fixture
def folder(tmp_path):
    agent = {"name": "echo", "backend": "mine:answer", "test_cases": CASES}
    agent["evaluations"] = {"metrics": [{"metric": "contains", "value": "hello"}]}
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump(agent, sort_keys=False))
    (tmp_path / "mine.py").write_text(BOT)
    return tmp_path


def test_whoever_reads_of_a_part_is_told_of_the_whole(folder):
    ran = run_cli(
        "test", "--tag", "smoke", "-k", "refund", "-o", "r.json", "-o", "r.md", cwd=folder
    )

    chosen = "1 of 3 test cases: --tag smoke -k refund"
    assert (ran.code, ran.stderr) == (0, f"Running {chosen}\n")
    assert "1/1 passed" in ran.stdout
    assert f"  Selected: {chosen}\n" in ran.stdout
    assert f"**Selected: {chosen}**" in (folder / "r.md").read_text()
    report = json.loads((folder / "r.json").read_text())
    assert report["planned_tests"] == 1
    assert report["selection"] == {
        "total": 3, "selected": 1, "deselected": 2, "how": "--tag smoke -k refund",
        "shard": None, "plan": None,
    }  # fmt: skip
    assert run_cli("report", cwd=folder).stdout == (folder / "r.md").read_text()
    assert f"selected:      {chosen}\n" in run_cli("runs", "show", cwd=folder).stdout


@pytest.mark.parametrize(
    ("args", "names"),
    [
        (["agent.yaml::greets"], ["greets"]),
        (["agent.yaml::r1", "./agent.yaml::small talk::weather"], ["refund", "weather"]),
        (["agent.yaml::small talk"], ["weather"]),
        (["::greets", "--name", "r1"], ["refund", "greets"]),
        (["agent.yaml::greets", "."], ["refund", "greets", "weather"]),
        (["more.suite.yaml::rain", "other.suite.yaml"], ["rain", "snow"]),
    ],
)
def test_a_case_can_be_named_behind_its_file(folder, args, names):
    for suite, cases in (("more", ["sun", "rain"]), ("other", ["snow"])):
        written = [{"name": name, "input": "hello"} for name in cases]
        (folder / f"{suite}.suite.yaml").write_text(yaml.safe_dump({"test_cases": written}))

    ran = run_cli("test", *args, "--list", "--json", cwd=folder)

    assert [case["name"] for case in json.loads(ran.stdout)] == names


@pytest.mark.parametrize(
    ("path", "code", "said"),
    [
        ("agent.yaml::refunds", 5, "no case has the name 'refunds'; did you mean 'refund'?"),
        ("agent.yaml::", 2, "names no test case; write agent.yaml::NAME"),
        (".::refund", 2, "'.' is a folder; write FILE::NAME"),
        ("mine.py", 2, "`holodeck init --from mine:OBJECT` writes one"),
    ],
)
def test_a_path_that_names_no_case_says_what_to_write(folder, path, code, said):
    ran = run_cli("test", path, cwd=folder)

    assert ran.code == code
    assert said in ran.stderr.replace("\\", "")


def test_the_agent_above_the_working_folder_is_the_default(folder):
    below = folder / "cases" / "old"
    below.mkdir(parents=True)

    ran = run_cli("test", "--lf", "--allow-empty", cwd=below)
    assert ran.code == 0
    ran = run_cli("test", "--ff", "-n", "1", cwd=below)
    assert "1/1 passed" in ran.stdout
    assert "refund" in run_cli("report", "--format", "json", cwd=below).stdout
    assert run_cli("validate", cwd=below).code == 0

    folder.chmod(0o777)
    assert "agent.yaml: file not found" in run_cli("test", cwd=below).stderr


def test_choosing_nothing_is_not_success_unless_that_is_allowed(folder):
    ran = run_cli("test", "--tag", "smok", "-o", "r.json", cwd=folder)
    allowed = run_cli("test", "--tag", "smok", "--allow-empty", "-o", "r.json", cwd=folder)

    missed = "--tag: no case has the tag 'smok'; did you mean 'smoke'? known: slow, smoke\n"
    assert (ran.code, ran.stdout) == (5, "")
    assert ran.stderr == f"Nothing to test: {missed}"
    assert allowed.code == 0
    assert f"WARNING: {missed}" in allowed.stderr
    assert "No tests to execute (0 of 3 test cases: --tag smok)" in allowed.stdout
    assert json.loads((folder / "r.json").read_text())["selection"]["selected"] == 0


def recorded(agent, number, took, selection=None):
    """Leave the record of a run of all cases, which took so long each."""
    folder = agent.base_dir / ".holodeck" / "runs" / f"2026010{number}-000000-000000-aaaaaa"
    folder.mkdir(parents=True)
    head = {"agent_name": agent.name, "agent_config_path": "agent.yaml", "selection": selection}
    cases = fingerprint_of(agent).cases
    lines = [RunHead(id=folder.name, started="", cases=cases, **head)]
    for at, ms in enumerate(took):
        result = a_result(execution_time_ms=ms, timestamp=f"2026-{number}")
        lines.append(CaseFinished(index=at, hash="", result=result))
    (folder / "run.jsonl").write_bytes(b"".join(map(json_line, lines)))


def test_shards_stay_the_same_while_one_of_them_runs_again_and_again(tmp_path):
    cases = [{"name": name, "input": name} for name in "abcd"]
    agent = Agent.model_validate({"name": "echo", "backend": "mine:answer", "test_cases": cases})
    agent = agent.with_base_dir(tmp_path)
    half = Selection(total=4, selected=4, deselected=0, how="--shard 1/2", shard="1/2", plan="x")
    request = SelectionRequest(shard=Shard(2, 2))
    for number, took in enumerate([(300, 10, 10, 10), (10, 250, 10, 10), (10, 200, 300, 10)], 1):
        recorded(agent, number, took)

    before, _ = apply_selection(agent, request, "agent.yaml", CliContext())
    for number in range(4, 8):
        recorded(agent, number, (10, 10, 900, 10), half)
    after, _ = apply_selection(agent, request, "agent.yaml", CliContext())

    assert [one.name for one in after.test_cases] == [one.name for one in before.test_cases]


def test_a_part_that_broke_off_is_resumed_as_that_part(folder):
    first = run_cli("test", "--shuffle", "--seed", "1", "--exclude-tag", "nothing", cwd=folder)
    part = run_cli("test", "--tag", "smoke", cwd=folder)
    resumed = run_cli("test", "--resume", "--retry-errors", cwd=folder)
    again = run_cli("test", "--resume", "--retry-errors", cwd=folder)

    assert "WARNING: --exclude-tag: no case has the tag 'nothing'" in first.stderr
    assert (first.code, part.code, resumed.code, again.code) == (3, 3, 3, 3)
    for ran in (resumed, again):
        assert "Running 2 of 3 test cases: --tag smoke\n" in ran.stderr
        assert "1 of 2 results are kept, 1 case runs" in ran.stderr
        assert "[Test 2/2] ERROR greets" in ran.stdout
    assert len(RunStore(folder).read("last").finished) == 2


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["-k", "a and"], "Configuration Error: -k 'a and': character 6: found the end"),
        (["--shard", "3/2"], "Configuration Error: --shard: found '3/2'"),
        (["--seed", "3"], "--seed needs --shuffle; add it"),
        (["--shuffle", "--shard", "1/2"], "all shards must use the same order"),
        (["--new", "--shard", "1/2"], "--new may select other cases once another shard has run"),
        (["--failed-first", "-n", "2", "--shard", "1/2"], "--failed-first may select other cases"),
        (["--resume", "--last-failed"], "--resume repeats the selection of its run"),
    ],
    ids=["expression", "shard", "seed", "shuffled", "new", "failed first", "resumed"],
)
def test_what_cannot_be_meant_is_refused_before_anything_is_read(tmp_path, args, said):
    ran = run_cli("test", *args, cwd=tmp_path)

    assert ran.code == 2
    assert said in ran.stderr


def joined_path(path):
    """Tell of every place only its path."""
    return ".".join(map(str, path)), path


def test_chosen_cases_still_know_where_they_stand():
    agent = Agent.model_validate({"name": "a", "backend": "m:f", "test_cases": CASES})
    placed = agent.with_locator(joined_path)

    chosen = placed.with_cases([2, 0])

    assert [one.name for one in chosen.test_cases] == ["weather", "refund"]
    assert chosen.location("test_cases", 0, "input") == "test_cases.2.input"
    assert chosen.with_cases([1]).location("test_cases", 0) == "test_cases.0"
    assert chosen.location("evaluations", "model") == "evaluations.model"
    assert agent.with_cases([1]).location("test_cases", 0) == "agent"


def test_what_did_not_pass_can_be_run_alone_or_first(folder):
    before = run_cli("test", "--last-failed", cwd=folder)
    run_cli("test", "--tag", "smoke", cwd=folder)
    new = run_cli("test", "--new", cwd=folder)
    first = run_cli("test", "--failed-first", "-j", "1", cwd=folder)
    (folder / "mine.py").write_text("def answer(text):\n    return 'hello'\n")
    mended = run_cli("test", "--last-failed", cwd=folder)
    after = run_cli("test", "--last-failed", cwd=folder)

    assert "no recorded run has a result of these cases; run them first" in before.stderr
    assert new.stdout.splitlines()[0] == "[Test 1/1] FAIL weather"
    names = [line.split()[-1] for line in first.stdout.splitlines() if line.startswith("[Test")]
    assert names == ["greets", "weather", "refund"]
    assert (mended.code, "2/2 passed" in mended.stdout) == (0, True)
    assert after.code == 5
    assert "every case with a recorded result passed last time" in after.stderr


def test_a_part_is_graded_again_as_that_part(folder):
    run_cli("test", "-k", "refund or weather", cwd=folder)
    agent = yaml.safe_load((folder / "agent.yaml").read_text())
    agent["evaluations"]["metrics"][0]["value"] = "h"
    (folder / "agent.yaml").write_text(yaml.safe_dump(agent, sort_keys=False))

    ran = run_cli("score", "-o", "r.json", cwd=folder)

    assert (ran.code, ran.stderr) == (0, "")
    assert "  Selected: 2 of 3 test cases: -k 'refund or weather'\n" in ran.stdout
    assert json.loads((folder / "r.json").read_text())["planned_tests"] == 2
