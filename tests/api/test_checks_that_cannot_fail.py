"""A check that compares nothing, or that every answer passes, never turns a run green.

Each file below holds one mistake. Without it the agent would fail: it says nothing of use, and it
calls the tool that the case forbids.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from fakes import Ran, run_cli
from holodeck.suite import Runner, Scenario

AGENT = 'name: bot\nbackend: "bot:answer"\n'
BOT = """
def answer(text):
    open("called", "a").write("x")
    return {"text": "no idea", "tool_calls": [{"name": "undelete_file", "args": {}}]}
"""
SUITE_FILE = "x.suite.yaml"


@dataclass(frozen=True)
class Folder:
    """A folder with an agent that answers everything wrongly."""

    path: Path

    def write(self, files: dict[str, str]) -> None:
        for name, text in ({"bot.py": BOT, "agent.yaml": AGENT} | files).items():
            (self.path / name).write_text(text)

    def test(self, *args: str) -> Ran:
        return run_cli("test", *args, cwd=self.path)

    def validate(self, *args: str) -> Ran:
        return run_cli("validate", *args, cwd=self.path)

    @property
    def was_called(self) -> bool:
        return (self.path / "called").exists()

    def report(self) -> dict:
        return json.loads((self.path / "r.json").read_text())


@pytest.fixture
def folder(tmp_path):
    return Folder(tmp_path)


PASSFAIL = "suite: {name: s, config: {default_scorers: [passfail]}}\n"
NOTHING_TO_COMPARE = {
    "a scenario that expects nothing": (
        SUITE_FILE,
        "scenarios: [{name: a, input: x}]\n",
    ),
    "a case without ground_truth": (
        SUITE_FILE,
        PASSFAIL + "test_cases: [{name: a, input: x}]\n",
    ),
    "an empty cell": ("c.csv", "name,input,ground_truth\na,x,\n"),
    "a null in a line": ("c.jsonl", '{"name": "a", "input": "x", "ground_truth": null}\n'),
}


@pytest.mark.parametrize("what", NOTHING_TO_COMPARE)
def test_a_passfail_with_nothing_to_compare_passes_no_answer(folder, what):
    name, text = NOTHING_TO_COMPARE[what]
    files = {name: text}
    args = (name,)
    if name != SUITE_FILE:
        files[SUITE_FILE] = PASSFAIL + f"test_cases_file: {name}\n"
        args = (SUITE_FILE,)
    folder.write(files)

    checked, ran = folder.validate(*args), folder.test(*args, "-o", "r.json")

    assert "warning" in checked.stdout
    assert "'passfail' has nothing to compare" in checked.stdout
    assert ran.code == 5, ran.stdout
    assert "0/1 passed" in ran.stdout
    [result] = folder.report()["results"]
    assert result["outcome"] == "unchecked"
    assert result["metric_results"][0]["passed"] is None


def test_a_passfail_with_nothing_to_compare_leaves_the_verdict_to_the_other_checks(folder):
    case = "{input: x, scorers: [passfail], evaluations: [{metric: contains, value: WORD}]}"
    folder.write({"agent.yaml": AGENT + f"test_cases: [{case.replace('WORD', 'idea')}]\n"})
    passed = folder.test()
    folder.write({"agent.yaml": AGENT + f"test_cases: [{case.replace('WORD', 'sunday')}]\n"})

    assert (passed.code, folder.test().code) == (0, 1)


def test_a_passfail_of_a_turn_with_nothing_to_compare_decides_nothing(folder):
    folder.write(
        {"agent.yaml": AGENT + "test_cases: [{turns: [{input: x, scorers: [passfail]}]}]\n"}
    )

    checked, ran = folder.validate(), folder.test()

    assert "test_cases[0].turns[0].scorers[0]: 'passfail' has nothing" in checked.stdout
    assert ran.code == 5


def test_a_scenario_in_python_that_only_asks_for_an_answer_says_so(caplog):
    result = Runner(lambda _: "no idea").run_scenario(Scenario(name="a", input="x"))

    assert result.passed
    assert "only looks whether there is an answer" in result.scores[0].explanation
    assert "'a': 'passfail' only looks whether there is an answer" in caplog.text
