"""`holodeck test --list` and `--dry-run`, from the outside."""

import json

import pytest
import yaml

from fakes import run_cli
from holodeck.cli.selection import case_list
from holodeck.lib.selection.request import SelectionRequest, Shard, parse_expression
from holodeck.lib.selection.select_cases import select
from holodeck.models.agent import Agent

BOT = """
open("called", "w")

def answer(text):
    return text
"""
CASES = [
    {"name": "refund", "id": "r1", "tags": ["smoke", "money"], "input": "hello"},
    {"turns": [{"input": "hello"}, {"input": "again"}]},
    {"name": "later", "suite": "small talk", "skip": "not today", "input": "hullo"},
]
PLACES = ["agent.yaml:4:3", "agent.yaml:5:3", "agent.yaml:6:3"]


@pytest.fixture
def folder(tmp_path):
    head = 'name: echo\nbackend: "mine:answer"\ntest_cases:\n'
    cases = "".join(f"- {json.dumps(one)}\n" for one in CASES)
    (tmp_path / "agent.yaml").write_text(head + cases)
    (tmp_path / "mine.py").write_text(BOT)
    return tmp_path


def with_fields(folder, **fields):
    agent = yaml.safe_load((folder / "agent.yaml").read_text()) | fields
    (folder / "agent.yaml").write_text(yaml.safe_dump(agent, sort_keys=False))


def test_a_list_shows_what_would_run_and_where_it_stands(folder):
    ran = run_cli("test", "--list", cwd=folder)

    assert (ran.code, ran.stderr) == (0, "")
    assert ran.stdout.splitlines() == [
        "NAME         ID  SUITE       TAGS          KIND            PLACE",
        f"refund       r1              smoke, money  input           {PLACES[0]}",
        f"hello again                                turns           {PLACES[1]}",
        f"later            small talk                input, skipped  {PLACES[2]}",
        "",
        "3 test cases",
    ]
    assert not (folder / "called").exists()
    assert not (folder / ".holodeck").exists()


def test_a_list_is_of_what_was_chosen(folder):
    ran = run_cli("test", "--list", "--json", "-k", "later or refund", "--shuffle", cwd=folder)

    rows = json.loads(ran.stdout)
    assert {one["name"]: one["place"] for one in rows} == {"refund": PLACES[0], "later": PLACES[2]}
    assert min(rows, key=str) == {
        "name": "later", "id": None, "suite": "small talk", "tags": [], "kind": "input",
        "skip": "not today", "place": PLACES[2], "input": "hullo",
    }  # fmt: skip


def test_a_plan_counts_calls_and_calls_nothing_unknown_by_a_number(folder):
    ran = run_cli("test", "--dry-run", "-j", "4", cwd=folder)

    assert ran.code == 0
    assert ran.stdout.splitlines() == [
        "Plan for echo: 2 test cases, 1 skipped",
        "  At the same time: 4",
        "  Agent calls: 3",
        "  Judge calls: 0",
        "  Time: unknown, one case after the other",
        "  Agent tokens: unknown",
    ]
    assert not (folder / "called").exists()
    assert not (folder / ".holodeck").exists()


def test_a_plan_knows_the_time_of_cases_that_have_run(folder):
    run_cli("test", "--id", "r1", cwd=folder)

    ran = run_cli("test", "--dry-run", "--json", cwd=folder)

    plan = json.loads(ran.stdout)
    assert (plan["cases"], plan["skipped"], plan["selection"]) == (2, 1, None)
    assert plan["agent_calls"] == {"least": 3, "most": 3}
    assert plan["duration_ms"]["known"] is not None
    assert plan["duration_ms"]["unknown_cases"] == 1
    assert plan["agent_tokens"] == {"known": None, "unknown_cases": 2}


def test_a_plan_is_checked_as_a_run_is(folder):
    with_fields(folder, evaluations={"metrics": [{"metric": "nobody:knows"}]})

    plan, listed = (run_cli("test", one, cwd=folder) for one in ("--dry-run", "--list"))

    assert plan.code == 2
    assert "nobody" in plan.stderr
    assert listed.code == 0


@pytest.mark.parametrize(
    ("args", "code", "said"),
    [
        (["--list", "--tag", "smok"], 5, "did you mean 'smoke'?"),
        (["--list", "--tag", "smok", "--allow-empty"], 0, "did you mean 'smoke'?"),
        (["--list", "--dry-run"], 2, "--list and --dry-run exclude each other"),
        (["--list", "-o", "r.md"], 2, "--list runs nothing; remove --output"),
        (["--dry-run", "--resume"], 2, "--dry-run runs nothing; remove --resume"),
        (["--json"], 2, "--json needs --list or --dry-run"),
    ],
    ids=["empty", "allowed", "both", "output", "resume", "json"],
)
def test_a_look_that_shows_nothing_or_cannot_be_is_told(folder, args, code, said):
    ran = run_cli("test", *args, cwd=folder)

    assert ran.code == code
    assert said in ran.stderr


def test_ten_thousand_cases_are_chosen_from_and_listed():
    cases = [
        {"name": f"case {n} of {n % 97}", "suite": f"s{n % 9}", "tags": [f"t{n % 7}"], "input": "x"}
        for n in range(10_000)
    ]
    agent = Agent.model_validate({"name": "a", "backend": "m:f", "test_cases": cases})
    words = parse_expression("case and not (12 or 13)")

    part = select(agent.test_cases, SelectionRequest(keyword=words, tags=("t1", "t2"), seed=1))
    whole = select(agent.test_cases, SelectionRequest(shard=Shard(1, 2)))
    shown = case_list(agent.with_cases(part.indexes), None, as_json=False)
    rows = case_list(agent, None, as_json=True)

    assert len(whole.indexes) == 5_000
    assert shown.count("\n") == len(part.indexes) + 2
    assert len(json.loads(rows)) == 10_000
