"""A check that compares nothing, or that every answer passes, never turns a run green.

Each file below holds one mistake. Without it the agent would fail: it says nothing of use, and it
calls the tool that the case forbids.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from fakes import Ran, run_cli
from holodeck.errors import ConfigError
from holodeck.suite import Runner, Scenario, load_scenarios

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


CASE = "test_cases:\n  - name: a\n    input: x\n"
CONTAINS = "evaluations: {metrics: [{metric: contains, value: idea}]}\n"
NO_VALUE = {
    "forbidden tools, all commented out": (
        CONTAINS + CASE + "    forbidden_tools:\n      # - undelete_file\n",
        "agent.yaml:7:5: test_cases[0].forbidden_tools: has no value",
    ),
    "expected tools, all commented out": (
        CONTAINS + CASE + "    expected_tools:\n      # - search\n",
        "test_cases[0].expected_tools: has no value",
    ),
    "the metrics of a case, all commented out": (
        CONTAINS + CASE + "    evaluations:\n      # - {metric: contains, value: sunday}\n",
        "test_cases[0].evaluations: has no value",
    ),
    "the scorers of a case, all commented out": (
        CONTAINS + CASE + "    scorers:\n      # - {regex: {pattern: sunday}}\n",
        "test_cases[0].scorers: has no value",
    ),
    "the criteria of a case, all commented out": (
        CONTAINS + CASE + "    criteria:\n      # - It names a day.\n",
        "test_cases[0].criteria: has no value",
    ),
    "the turns of a case, all commented out": (
        CONTAINS + CASE + "    turns:\n      # - {input: y, forbidden_tools: [undelete_file]}\n",
        "test_cases[0].turns: has no value",
    ),
    "the metrics of the agent, all commented out": (
        "evaluations:\n  # metrics: [{metric: contains, value: sunday}]\n"
        + CASE
        + "    expected_tools: [undelete_file]\n",
        "evaluations: has no value",
    ),
    "the cases beside a suite, all commented out": (
        CONTAINS
        + "test_cases:\n  # - {input: x, forbidden_tools: [undelete_file]}\n"
        + "suites: [{name: s, test_cases: [{input: x}]}]\n",
        "test_cases: has no value",
    ),
    "the cases of a suite beside a file, all commented out": (
        CONTAINS
        + "suites:\n  - name: s\n    test_cases_file: c.csv\n    test_cases:\n      # - {}\n",
        "suites[0].test_cases: has no value",
    ),
    "the scorers of a suite, all commented out": (
        CONTAINS
        + "suites:\n  - name: s\n    test_cases: [{input: x}]\n"
        + "    config:\n      default_scorers:\n        # - {regex: {pattern: sunday}}\n",
        "suites[0].config.default_scorers: has no value",
    ),
    "the right answer, commented out": (
        CASE
        + "    ground_truth: # sunday\n    scorers: [passfail]\n"
        + "    expected_tools: [undelete_file]\n",
        "test_cases[0].ground_truth: has no value",
    ),
    "a value, commented out": (
        CASE
        + "    ground_truth: idea\n    evaluations:\n      - metric: contains\n"
        + "        value: # sunday\n",
        "test_cases[0].evaluations[0].value: has no value",
    ),
    "a threshold, commented out": (
        CASE
        + "    evaluations:\n      - {metric: contains, value: idea}\n"
        + "      - metric: f1_score\n        value: sunday\n        threshold: # 0.9\n",
        "test_cases[0].evaluations[1].threshold: has no value",
    ),
    "a count, commented out": (
        CASE + "    expected_tools:\n      - name: undelete_file\n        count: # 2\n",
        "test_cases[0].expected_tools[0].count: has no value",
    ),
    "forbidden tools of a turn, all commented out": (
        CONTAINS
        + "test_cases:\n  - turns:\n      - input: x\n        forbidden_tools:\n          # - a\n",
        "test_cases[0].turns[0].forbidden_tools: has no value",
    ),
    "forbidden tools of a check, all commented out": (
        CONTAINS
        + "test_cases:\n  - script:\n      - user: x\n      - agent\n      - check:\n"
        + "          expected_tools: [undelete_file]\n          forbidden_tools:\n",
        "test_cases[0].script[2].check.forbidden_tools: has no value",
    ),
}


@pytest.mark.parametrize("what", NO_VALUE)
def test_a_check_whose_value_is_commented_out_is_refused(folder, what):
    text, message = NO_VALUE[what]
    folder.write({"agent.yaml": AGENT + text, "c.csv": "input\nx\n"})

    ran = folder.test()

    assert ran.code == 2, ran.stdout
    assert message in ran.stderr
    assert "write one, or remove the key" in ran.stderr
    assert not folder.was_called


SCENARIO = "scenarios:\n  - name: a\n    input: x\n    expected_output: idea\n"
NO_VALUE_IN_A_SCENARIO = {
    "expected_tools": SCENARIO + "    expected_tools:\n      # - search\n",
    "scorers": SCENARIO + "    scorers:\n      # - exact\n",
    "expected_output": SCENARIO.replace(" idea", " # sunday")
    + "    expected_tools: [undelete_file]\n",
}


@pytest.mark.parametrize("key", NO_VALUE_IN_A_SCENARIO)
def test_a_check_of_a_scenario_whose_value_is_commented_out_is_refused(folder, key):
    folder.write({SUITE_FILE: NO_VALUE_IN_A_SCENARIO[key]})

    ran = folder.test(SUITE_FILE)

    assert ran.code == 2, ran.stdout
    assert f"scenarios[0].{key}: has no value" in ran.stderr
    with pytest.raises(ConfigError, match=rf"scenarios\[0\].{key}: (has no value|found nothing)"):
        load_scenarios(folder.path / SUITE_FILE)


@pytest.mark.parametrize("name", ["c.jsonl", "c.json"])
def test_a_null_in_a_row_of_data_says_nothing_as_an_empty_cell_does(folder, name):
    row = '{"input": "x", "ground_truth": "idea", "expected_tools": null}'
    text = row if name == "c.jsonl" else f"[{row}]"
    metrics = "evaluations: {metrics: [{metric: contains}]}\n"
    folder.write({"agent.yaml": AGENT + metrics + f"test_cases_file: {name}\n", name: text})

    assert folder.test().code == 0


SWALLOWED = {
    "forbidden_tools": "[undelete_file]",
    "expected_tools": "[search]",
    "evaluations": "[{metric: contains, value: sunday}]",
    "scorers": "[{regex: {pattern: sunday}}]",
    "ground_truth": "sunday",
    "expected_output": "sunday",
    "only_expected_tools": "true",
    "min_pass": "3",
    "criteria": "[It names a day.]",
    "turns": "[{input: y, forbidden_tools: [undelete_file]}]",
    "repeat": "3",
}


@pytest.mark.parametrize("key", SWALLOWED)
def test_a_check_that_is_indented_into_the_context_is_refused(folder, key):
    case = CASE + f"    context:\n      user: kim\n      {key}: {SWALLOWED[key]}\n"
    folder.write({"agent.yaml": AGENT + CONTAINS + case})

    ran = folder.test()

    assert ran.code == 2, ran.stdout
    assert f"agent.yaml:9:7: test_cases[0].context.{key}:" in ran.stderr
    assert "is a key of the case, and nothing in 'context' reads it" in ran.stderr
    assert not folder.was_called


def test_a_check_that_is_indented_further_into_the_context_is_refused(folder):
    context = (
        "    context:\n      user:\n        name: kim\n        forbidden_tools: [undelete_file]\n"
    )
    folder.write({"agent.yaml": AGENT + CONTAINS + CASE + context})

    ran = folder.test()

    assert ran.code == 2
    assert "test_cases[0].context.user.forbidden_tools" in ran.stderr


def test_a_check_in_the_context_of_a_suite_is_refused(folder):
    suite = "suite:\n  name: s\n  context:\n    user: kim\n    forbidden_tools: [undelete_file]\n"
    folder.write({"agent.yaml": AGENT + CONTAINS, SUITE_FILE: suite + CASE})

    ran = folder.test(SUITE_FILE)

    assert ran.code == 2
    assert "suite.context.forbidden_tools" in ran.stderr


@pytest.mark.parametrize(
    "context",
    [
        "{user: kim, id: 7, name: Kim, tags: [vip], input: y, timeout: 3}",
        "{repeat: weekly, criteria: cheap, turns: 3}",
        "{search: {criteria: [cheap, near]}}",
    ],
)
def test_a_context_may_use_words_that_a_case_knows(folder, context):
    bot = 'def answer(text, case_context):\n    return "no idea"\n'
    folder.write(
        {"bot.py": bot, "agent.yaml": AGENT + CONTAINS + CASE + f"    context: {context}\n"}
    )

    assert folder.test().code == 0


@pytest.mark.parametrize("key", ["expected_output", "expected_tools", "scorers", "forbidden_tools"])
def test_a_check_that_is_indented_into_the_metadata_is_refused(folder, key):
    value = {"scorers": "[exact]"}.get(key) or SWALLOWED[key]
    text = "scenarios:\n  - name: a\n    input: x\n    metadata:\n      note: n\n"
    folder.write({SUITE_FILE: f"{text}      {key}: {value}\n"})

    ran = folder.test(SUITE_FILE)

    assert ran.code == 2, ran.stdout
    assert f"scenarios[0].metadata.{key}" in ran.stderr
    with pytest.raises(ConfigError, match=rf"scenarios\[0\].metadata.{key}"):
        load_scenarios(folder.path / SUITE_FILE)
