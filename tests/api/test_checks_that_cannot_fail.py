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
    assert "only checks that there is an answer" in result.scores[0].explanation
    assert "'a': 'passfail' only checks that there is an answer" in caplog.text


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
    assert "has no effect in 'context'; it is a key of the case" in ran.stderr
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


NAMES_OF_NO_TOOL = {
    "a pattern": ("undelete_f?le", "'?'"),
    "a regular expression": ("^undelete", "'^'"),
    "two names": ("'undelete_file, pay'", "each tool as an item"),
    "two names with a semicolon": ("undelete_file;pay", "each tool as an item"),
    "white space at the end": ("'undelete_file '", "white space"),
    "a placeholder": ("'{{tool}}'", "placeholder"),
}


@pytest.mark.parametrize("what", NAMES_OF_NO_TOOL)
def test_a_forbidden_name_that_no_tool_can_have_is_refused(folder, what):
    name, message = NAMES_OF_NO_TOOL[what]
    case = CASE + "    forbidden_tools: [NAME]\n"
    folder.write({"agent.yaml": AGENT + case.replace("NAME", "undelete_file")})
    assert folder.test().code == 1
    folder.write({"agent.yaml": AGENT + case.replace("NAME", name)})

    ran = folder.test()

    assert ran.code == 2, ran.stdout
    assert "agent.yaml:6:23: test_cases[0].forbidden_tools[0]: no call can match" in ran.stderr
    assert message in ran.stderr


def test_forbidden_names_in_one_cell_with_semicolons_are_refused(folder):
    folder.write(
        {
            "agent.yaml": AGENT + CONTAINS + "test_cases_file: c.csv\n",
            "c.csv": "input,forbidden_tools\nx,undelete_file;pay\n",
        }
    )

    ran = folder.test()

    assert ran.code == 2
    assert "c.csv:2:1: forbidden_tools[0]: no call can match 'undelete_file;pay'" in ran.stderr


LEFT_OVER = {
    "input": "{input: 'In {{city}}?'}",
    "name": "{name: 'in {{city}}', input: x}",
    "ground_truth": "{input: x, ground_truth: '{{city}}', evaluations: [{metric: contains}]}",
    "evaluations[0].value": "{input: x, evaluations: [{metric: contains, value: '{{city}}'}]}",
    "turns[0].input": "{turns: [{input: 'In {{city}}?', expected_tools: []}]}",
    "expected_tools[0].args.q": "{input: x, expected_tools: [{name: a, args: {q: '{{city}}'}}]}",
    "context.city": "{input: x, context: {city: '{{city}}'}}",
    "criteria[0]": "{input: x, criteria: ['It names {{city}}.']}",
}


@pytest.mark.parametrize("key", LEFT_OVER)
def test_a_placeholder_that_nothing_fills_is_told_wherever_it_is(folder, key):
    folder.write({"agent.yaml": AGENT + CONTAINS + f"test_cases: [{LEFT_OVER[key]}]\n"})

    checked = folder.validate()

    assert f"test_cases[0].{key}: '{{{{city}}}}' is not filled in" in checked.stdout


def test_a_text_that_is_forbidden_and_a_placeholder_is_refused(folder):
    case = "    evaluations: [{metric: not_contains, value: '{{secret}}'}]\n"
    folder.write({"agent.yaml": AGENT + CASE + case})

    ran = folder.test()

    assert ran.code == 2
    assert "test_cases[0].evaluations[0].value: no response contains '{{secret}}'" in ran.stderr


PASSED_BY_EVERY_ANSWER = {
    "a line break at the end of what must not be said": (
        'metric: not_contains, value: "no idea"',
        'metric: not_contains, value: "no idea\\n"',
        "value: ends with a line break",
    ),
    "a line break at the end of one of several": (
        "metric: not_contains, values: [idea]",
        'metric: not_contains, values: [secret, "idea\\n"]',
        "values[1]: ends with a line break",
    ),
    "a threshold of 0": (
        "metric: f1_score, value: sunday, threshold: 0.9",
        "metric: f1_score, value: sunday, threshold: 0",
        "threshold: every score reaches 0; write more than 0, or 'required: false'",
    ),
    "a threshold of 0 of a verdict": (
        "metric: contains, value: sunday",
        "metric: contains, value: sunday, threshold: 0",
        "threshold: every score reaches 0",
    ),
    "an alternative that is empty": (
        "metric: regex, pattern: sunday",
        "metric: regex, pattern: sunday|",
        "pattern: 'sunday|' matches every text",
    ),
    "a pattern that may match nothing": (
        "metric: regex, pattern: (sunday)+",
        "metric: regex, pattern: (sunday)*",
        "pattern: '(sunday)*' matches every text",
    ),
    "an exclusion that is not anchored": (
        "metric: regex, pattern: '^(?!.*idea)'",
        "metric: regex, pattern: '(?!.*idea)'",
        "pattern: '(?!.*idea)' matches every text",
    ),
    "an infinite tolerance": (
        "metric: numeric, value: 7, pick: any",
        "metric: numeric, value: 7, pick: any, absolute_tolerance: .inf",
        "absolute_tolerance: found inf; expected a finite number",
    ),
    "a tolerance that is no number": (
        "metric: numeric, value: 7, pick: any",
        "metric: numeric, value: 7, pick: any, absolute_tolerance: .nan",
        "absolute_tolerance: found nan; expected",
    ),
    "a tolerance of 500 %": (
        "metric: numeric, value: 7, pick: any",
        "metric: numeric, value: 7, pick: any, relative_tolerance: 5",
        "relative_tolerance: found 5; expected less than 1",
    ),
}


@pytest.mark.parametrize("what", PASSED_BY_EVERY_ANSWER)
@pytest.mark.parametrize("beside", ["", ", {metric: contains, value: idea}"], ids=["alone", "also"])
def test_a_metric_that_every_answer_passes_is_refused(folder, what, beside):
    right, wrong, message = PASSED_BY_EVERY_ANSWER[what]
    folder.write({"agent.yaml": AGENT + CASE + f"    evaluations: [{{{right}}}{beside}]\n"})
    assert folder.test().code == 1
    (folder.path / "called").unlink()
    folder.write({"agent.yaml": AGENT + CASE + f"    evaluations: [{{{wrong}}}{beside}]\n"})

    ran = folder.test()

    assert ran.code == 2, ran.stdout
    assert f"test_cases[0].evaluations[0].{message}" in ran.stderr
    assert not folder.was_called


@pytest.mark.parametrize(
    "metric",
    [
        "{metric: f1_score, value: sunday, threshold: 0, required: false}",
        "{metric: regex, pattern: 'sunday|', required: false}",
        "{metric: regex, pattern: '^(?!.*sunday)'}",
        "{metric: regex, pattern: '^[^0-9]*$'}",
        "{metric: regex, pattern: '(?s)^.{0,500}$'}",
        "{metric: regex, pattern: '[a-z ]*', fullmatch: true}",
        "{metric: not_contains, value: |-\n  sunday\n}".replace("|-\n  sunday\n", "sunday"),
        "{metric: numeric, value: 7, relative_tolerance: 0.99, required: false}",
    ],
)
def test_a_metric_that_can_fail_or_is_only_reported_is_fine(folder, metric):
    folder.write({"agent.yaml": AGENT + CONTAINS + CASE + f"    scorers: [{metric}]\n"})

    checked = folder.validate("--strict")

    assert checked.code == 0, checked.stdout


JUDGED = "evaluations: {model: {provider: local}}\n" + CASE + "    evaluations:\n"
NEVER_SEES_THE_ANSWER = {
    "a judge's threshold of 0": (
        "{type: judge, name: j, criteria: [Is it kind?], threshold: 0}",
        "[0].threshold: every score reaches 0",
    ),
    "a criterion's threshold of 0": (
        "{type: judge, name: j, criteria: [{question: Is it kind?, threshold: 0}]}",
        "[0].criteria[0].threshold: every score reaches 0",
    ),
    "a judge that sees the input only": (
        "{type: judge, name: j, criteria: [Is it kind?], inputs: [input]}",
        "[0].inputs: the judge does not get the response; add 'response' to input",
    ),
    "a judge that sees what is right only": (
        "{type: judge, name: j, criteria: [Is it kind?], inputs: [input, ground_truth]}",
        "[0].inputs: the judge does not get the response",
    ),
    "a G-Eval that sees the input only": (
        "{type: geval, name: g, criteria: Is it kind?, evaluation_params: [input]}",
        "[0].evaluation_params: the judge does not get the response; add 'actual_output' to input",
    ),
}


@pytest.mark.parametrize("what", NEVER_SEES_THE_ANSWER)
def test_a_judge_that_every_answer_satisfies_is_refused(folder, what):
    metric, message = NEVER_SEES_THE_ANSWER[what]
    ground_truth = "        # the case has one\n"
    folder.write(
        {"agent.yaml": AGENT + JUDGED + ground_truth + f"      - {metric}\n    ground_truth: y\n"}
    )

    ran = folder.test()

    assert ran.code == 2
    assert f"test_cases[0].evaluations{message}" in ran.stderr


def test_a_metric_without_a_threshold_beside_other_checks_is_told_to_decide_nothing(folder):
    metrics = "[{metric: contains, value: idea}, {metric: f1_score, value: sunday}]"
    folder.write({"agent.yaml": AGENT + CASE + f"    evaluations: {metrics}\n"})

    checked, ran = folder.validate(), folder.test()

    told = "test_cases[0].evaluations[1]: 'f1_score' gives no verdict without a threshold"
    assert "warning" in checked.stdout
    assert told in checked.stdout
    assert (ran.code, told in ran.stderr) == (0, True)


def test_a_shared_metric_without_a_threshold_is_told_once(folder):
    metrics = "evaluations: {metrics: [{metric: f1_score, value: sunday}]}\n"
    cases = "test_cases:\n" + "  - {input: x, expected_tools: [undelete_file]}\n" * 2
    folder.write({"agent.yaml": AGENT + metrics + cases})

    checked = folder.validate()

    assert checked.stdout.count("gives no verdict without a threshold") == 1


def test_a_pattern_that_every_text_matches_but_blank_ones_is_a_warning(folder):
    folder.write({"agent.yaml": AGENT + CASE + "    evaluations: [{metric: regex, pattern: .+}]\n"})

    checked = folder.validate()

    assert checked.code == 0
    assert "evaluations[0].pattern: '.+' matches every text that is not blank" in checked.stdout


def test_a_pattern_in_python_that_every_text_matches_passes_no_answer():
    scenario = Scenario(
        name="a", input="x", scorers=["regex"], metadata={"regex_pattern": "sunday|"}
    )

    result = Runner(lambda _: "no idea").run_scenario(scenario)

    assert not result.passed
    assert "'sunday|' matches every text" in str(result.error)


JSON_BOT = """
def answer(text):
    return '{"total": 9, "site": "nowhere", "age": "old"}'
"""
IGNORED_IN_A_SCHEMA = {
    "required": ("required: [name]", "requried: [name]", "schema: the keyword 'requried'"),
    "x-required": ("required: [name]", "x-required: [name]", "'x-required' is an annotation"),
    "properties": (
        "properties: {total: {type: string}}",
        "propertes: {total: {type: string}}",
        "did you mean 'properties'?",
    ),
    "type, further down": (
        "properties: {total: {type: string}}",
        "properties: {total: {typ: string}}",
        "schema.properties.total: the keyword 'typ' is not supported; did you mean 'type'?",
    ),
    "additionalProperties": (
        "additionalProperties: false",
        "additional_properties: false",
        "did you mean 'additionalProperties'?",
    ),
    "a wrapper": (
        "required: [name]",
        "name: order, strict: true, schema: {required: [name]}",
        "'name' belongs to a model's API, not to the schema; write what 'schema' holds",
    ),
    "a keyword of an older draft": (
        "dependentRequired: {total: [name]}",
        "dependencies: {total: [name]}",
        "write 'dependentRequired' or 'dependentSchemas'",
    ),
    "a format": (
        "properties: {site: {pattern: '^https:'}}",
        "properties: {site: {format: uri}}",
        "schema.properties.site.format: the format 'uri' is not checked",
    ),
    "a duration": (
        "properties: {age: {pattern: '^P'}}",
        "properties: {age: {format: duration}}",
        "the format 'duration' is not checked; write a 'pattern', or one of date,",
    ),
    "a keyword among the properties": (
        "properties: {total: {}}, additionalProperties: false",
        "properties: {total: {}, additionalProperties: false}",
        "schema.properties.additionalProperties: is the name of a property here",
    ),
    "a condition without if": (
        "if: {}, then: {required: [name]}",
        "then: {required: [name]}",
        "'then' has no effect without 'if'",
    ),
}


@pytest.mark.parametrize("what", IGNORED_IN_A_SCHEMA)
def test_what_would_be_ignored_in_a_json_schema_is_refused(folder, what):
    right, wrong, message = IGNORED_IN_A_SCHEMA[what]
    metric = "    evaluations: [{metric: json_schema, schema: {SCHEMA}}]\n"
    right_file = AGENT + CASE + metric.replace("SCHEMA", right)
    folder.write({"bot.py": JSON_BOT, "agent.yaml": right_file})
    assert folder.test().code == 1
    folder.write({"bot.py": JSON_BOT, "agent.yaml": AGENT + CASE + metric.replace("SCHEMA", wrong)})

    ran = folder.test()

    assert ran.code == 2, ran.stdout
    assert message in ran.stderr


def test_the_schema_that_a_library_writes_is_read(folder):
    schema = """{title: Order, type: object, "$defs": {Line: {title: Line, type: object,
      properties: {sum: {type: number, exclusiveMinimum: 0, examples: [3]}}, required: [sum],
      additionalProperties: false}}, properties: {total: {anyOf: [{type: integer}, {type: "null"}],
      default: null}, lines: {type: array, items: {"$ref": "#/$defs/Line"}, x-order: 3}}}"""
    folder.write(
        {
            "bot.py": JSON_BOT,
            "agent.yaml": AGENT
            + CASE
            + f"    evaluations: [{{metric: json_schema, schema: {schema}}}]\n",
        }
    )

    assert folder.test().code == 0


@pytest.mark.parametrize(
    ("name", "note"),
    [
        ("delete", "'delete' is only a part of 'undelete_file'"),
        ("file", None),
        ("undelete_file", None),
    ],
)
def test_an_expectation_that_a_part_of_a_name_meets_says_so_in_the_report(folder, name, note):
    folder.write({"agent.yaml": AGENT + CASE + f"    expected_tools: [{name}]\n"})

    ran = folder.test("-o", "r.json", "-o", "r.md")

    [check] = folder.report()["results"][0]["tool_checks"]
    assert (ran.code, check["passed"]) == (0, True)
    assert (check["reason"] or "").startswith(note or "")
    assert (check["reason"] is None) is (note is None)
    assert ("only a part of" in (folder.path / "r.md").read_text()) is (note is not None)
