"""From a red job to the failing line: paths of annotations and reports, wherever the job runs."""

import json

import pytest

from support.ci import commands, read_xml
from support.cli import run_cli

BOT = "def answer(message):\n    return message\n"
AGENT = """\
name: shop
backend: "bot:answer"
test_cases:
  - name: own
    input: hi
    evaluations: [{metric: contains, value: nothing}]
test_cases_file: cases.jsonl
suites:
  - {name: table, test_cases_file: data/cases.csv}
evaluations:
  metrics: [{metric: exact_match}]
"""
JSONL = """\
{"name": "first row", "input": "a", "ground_truth": "a"}

{"name": "third line", "input": "b", "ground_truth": "c"}
"""
CSV = 'name,input,ground_truth\nfine,"two\nlines","two\nlines"\nfifth line,x,y\n'
LINES = {
    "own": ("agents/shop/agent.yaml", 4),
    "third line": ("agents/shop/cases.jsonl", 3),
    "fifth line": ("agents/shop/data/cases.csv", 5),
}


@pytest.fixture
def checkout(agent_dir):
    """A checkout with an agent in a sub-folder, whose cases come from three files."""
    agent_dir.write(".git/HEAD", "0123456789abcdef0123456789abcdef01234567\n")
    for name, text in {
        "agent.yaml": AGENT,
        "bot.py": BOT,
        "cases.jsonl": JSONL,
        "data/cases.csv": CSV,
    }.items():
        agent_dir.write(f"agents/shop/{name}", text)
    return agent_dir


@pytest.mark.parametrize(
    ("cwd", "agent"),
    [
        (".", "agents/shop/agent.yaml"),
        ("agents/shop", "agent.yaml"),
        ("elsewhere", "../agents/shop/agent.yaml"),
    ],
    ids=["root", "agent", "sibling"],
)
def test_every_failure_leads_to_its_line_in_the_checkout(checkout, cwd, agent):
    workspace = checkout.path
    folder = workspace / cwd
    folder.mkdir(exist_ok=True)
    actions = {"GITHUB_ACTIONS": "true", "GITHUB_WORKSPACE": str(workspace.parent)}
    targets = ("-o", "r.xml", "-o", "r.json")

    ran = run_cli("test", agent, *targets, cwd=folder, env=actions)
    quality = run_cli("report", "r.json", "--format", "codequality", cwd=folder)

    annotated = {}
    for _, properties, _ in commands(ran.stdout)[0]:
        fields = dict(one.split("=", 1) for one in properties.split(","))
        annotated[fields["title"]] = (fields["file"], int(fields["line"]))
    assert annotated == LINES
    failed = [one._elem for suite in read_xml(folder / "r.xml") for one in suite if one.result]
    assert {one.get("name"): (one.get("file"), int(one.get("line"))) for one in failed} == LINES
    rows = [one["location"] for one in json.loads(quality.stdout)]
    assert [(one["path"], one["lines"]["begin"]) for one in rows] == list(LINES.values())
