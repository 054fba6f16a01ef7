"""Scenario files on the command line: `--adapter`, `-o html`, `init --suite`, `validate FOLDER`."""

import json
import re

import pytest

from fakes import run_cli
from support.checks import assert_one_error, assert_plain
from support.html_page import HtmlPage

DESK = """
from holodeck.suite import AgentResult, ToolCall

class Desk:
    def run(self, input, context=None):
        if "ORD-1" in input:
            call = ToolCall(name="get_order", arguments={"order_id": "ORD-1"})
            return AgentResult(output="ORD-1 is on its way", tool_calls=[call])
        return AgentResult(output="We open at nine. <script>alert(1)</script>")

class Broken:
    calls = []

    def run(self, input, context=None):
        self.calls.append(input)
        raise ValueError(f"call {len(self.calls)}")
"""
SCENARIOS = """\
suite: {name: support}
scenarios:
  - {name: hours, input: When are you open?, expected_output: nine, tags: [smoke]}
  - name: order
    input: Where is ORD-1?
    expected_tools: [get_order]
    expected_tool_args: {get_order: {order_id: ORD-1}}
"""


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "project"
    (folder / "scenarios").mkdir(parents=True)
    (folder / "desk.py").write_text(DESK)
    (folder / "scenarios" / "support.yaml").write_text(SCENARIOS)
    return folder


@pytest.mark.parametrize("adapter", ["desk:Desk", "desk.Desk"], ids=["colon", "dot"])
@pytest.mark.parametrize("path", [["scenarios/"], ["scenarios/support.yaml"], []], ids=str)
def test_scenario_files_run_with_an_adapter_and_without_an_agent_yaml(folder, path, adapter):
    ran = run_cli("test", *path, "--adapter", adapter, cwd=folder)

    assert_plain(ran)
    assert ran.code == 0
    assert "2/2 passed" in ran.stdout


def test_the_other_flags_are_those_of_other_runs(folder):
    ran = run_cli(
        "test", "scenarios", "--adapter", "desk:Broken", "-t", "smoke", "-s", "support",
        "--retry", "1", "--timeout", "5", "-o", "r.json", cwd=folder,
    )  # fmt: skip

    [result] = json.loads((folder / "r.json").read_text())["results"]
    assert ran.code == 3
    assert result["test_name"] == "hours"
    assert len(result["tries"]) == 1


def test_a_run_with_an_adapter_can_be_listed_planned_and_resumed(folder):
    args = ("scenarios", "--adapter", "desk:Broken")

    listed = run_cli("test", *args, "--list", cwd=folder)
    planned = run_cli("test", *args, "--dry-run", cwd=folder)
    stopped = run_cli("test", *args, "--fail-fast", "-j", "1", cwd=folder)

    assert "support.yaml:3" in listed.stdout
    assert "Plan for desk:Broken: 2 test cases" in planned.stdout
    command = re.search("Resume with: holodeck (.*)", stopped.stderr)[1].split()
    assert command[:3] == ["test", "--adapter", "desk:Broken"]
    assert "1 of 2 results are kept" in run_cli(*command, cwd=folder).stderr


def test_scenarios_can_be_listed_and_planned_without_an_agent(folder):
    listed = run_cli("test", "scenarios", "--list", cwd=folder)
    planned = run_cli("test", "scenarios", "--dry-run", cwd=folder)

    assert (listed.code, planned.code) == (0, 0)
    assert "support.yaml:3" in listed.stdout
    assert "Plan for (no agent): 2 test cases" in planned.stdout


def test_an_agent_yaml_in_the_folder_is_not_read_and_named(folder):
    (folder / "agent.yaml").write_text("name: other\nbackend: 'desk:Broken'\n")

    ran = run_cli("test", ".", "--adapter", "desk:Desk", cwd=folder)

    assert ran.code == 0
    assert "Ignored, because --adapter names the agent: agent.yaml" in ran.stderr


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (("--adapter", "desk"), "expected 'module:Class'"),
        (("--adapter", "dsk:Desk"), "--adapter: backend: module not found"),
        (("--adapter", "desk:Dsk"), "did you mean 'Desk'?"),
        (("--adapter", "desk:Desk", "--agent", "a.yaml"), "remove one of them"),
        (("--adapter", "desk:Desk", "--watch"), "--watch needs an agent.yaml"),
        (("--adapter", "desk:Desk", "desk.py"), "'desk.py' is not one"),
        (("--adapter", "desk:Desk", "gone.yaml"), "gone.yaml"),
        ((), "--adapter module:Class"),
    ],
    ids=lambda one: " ".join(one) if isinstance(one, tuple) else "",
)
def test_an_adapter_that_cannot_be_used_is_an_error_that_says_what_to_write(folder, args, message):
    ran = run_cli("test", "scenarios", *args, cwd=folder)

    assert ran.code == 2
    assert message in ran.stderr


def test_a_tag_that_no_scenario_has_is_exit_code_5(folder):
    ran = run_cli("test", "scenarios", "--adapter", "desk:Desk", "--tag", "smok", cwd=folder)

    assert ran.code == 5
    assert "no case has the tag 'smok'" in ran.stderr


def test_a_format_in_place_of_a_file_names_a_new_one(folder):
    args = ("test", "scenarios", "--adapter", "desk:Desk", "-o", "html", "-o", "json", "-o", "cli")

    first, second = run_cli(*args, cwd=folder), run_cli(*args, cwd=folder)

    assert (first.code, second.code) == (0, 0)
    assert len(list(folder.glob("report_*.html"))) == len(list(folder.glob("results_*.json"))) == 2
    for file in folder.glob("report_*.html"):
        page = HtmlPage(file.read_text())
        page.require_harmless()
        assert "We open at nine. <script>alert(1)</script>" in page.cases[0]["agent_response"]
        assert ("support", "order") in [(one["suite"], one["name"]) for one in page.index["rows"]]


def test_the_first_scenarios_run_as_they_are(tmp_path):
    ran = run_cli("init", "--suite", cwd=tmp_path)
    tested = run_cli(
        *ran.stdout.splitlines()[-1].removeprefix("Next: holodeck ").split(), cwd=tmp_path
    )
    again = run_cli("init", "--suite", cwd=tmp_path)

    assert_plain(ran)
    assert ran.stdout.startswith(
        "Wrote scenarios/example.yaml, my_agent.py and .holodeck/suite.schema.json\n"
    )
    assert (tested.code, tested.stderr.count("WARNING")) == (0, 0)
    assert "2/2 passed" in tested.stdout
    assert_one_error(again, 2, "exists and is not overwritten")


def test_a_folder_of_scenarios_is_validated_without_an_agent(folder):
    (folder / "scenarios" / "more.yaml").write_text(
        "scenarios: [{name: a, input: b, expected_output: c}]"
    )

    ran = run_cli("validate", "scenarios/", cwd=folder)

    assert_plain(ran)
    assert (ran.code, ran.stderr) == (0, "")
    assert [line.partition(":")[0] for line in ran.stdout.splitlines()] == [
        "scenarios/more.yaml", "scenarios/support.yaml",
    ]  # fmt: skip


def test_every_invalid_file_of_a_folder_is_named(folder):
    (folder / "scenarios" / "tags.yaml").write_text("scenarios: [{name: a, input: b, tags: c}]")
    (folder / "scenarios" / "name.yaml").write_text(
        "scenarios: [{name: a, input: b, scorers: [x]}]"
    )
    (folder / "scenarios" / "empty.yaml").write_text("")

    ran = run_cli("validate", "scenarios", cwd=folder)
    as_json = run_cli("validate", "scenarios", "--json", cwd=folder)

    assert ran.code == as_json.code == 2
    assert "scenarios/support.yaml: 2 test cases" in ran.stdout
    assert "tags.yaml:1:39: scenarios[0].tags: found 'c'; expected a list" in ran.stderr
    assert "unknown scorer 'x'" in ran.stderr
    assert "not checked: scenarios/empty.yaml: it is empty" in ran.stderr
    assert {row["severity"] for row in json.loads(as_json.stdout)} == {"error"}
    assert len(json.loads(as_json.stdout)) == 2


def test_a_folder_with_an_agent_above_is_validated_with_it(folder):
    (folder / "agent.yaml").write_text("name: desk\nbackend: 'desk:Dsk'\n")

    ran = run_cli("validate", "scenarios", cwd=folder)

    assert ran.code == 2
    assert "desk.py does not define 'Dsk'" in ran.stdout
