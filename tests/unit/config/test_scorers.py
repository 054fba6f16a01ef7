"""Scorers of cases, settings of suites, and files of AgenticAssure."""

import pytest

from holodeck.config.checks.agent import check
from holodeck.config.loader import ConfigLoader
from holodeck.errors import ConfigError
from holodeck.models.test_case import TestCaseModel


def load(folder, more):
    folder.agent(more)
    return ConfigLoader().load_agent_yaml("agent.yaml")


def refusal(folder, more):
    with pytest.raises(ConfigError) as caught:
        load(folder, more)
    return str(caught.value)


@pytest.mark.parametrize(
    ("scorer", "metric"),
    [
        ("passfail", {"metric": "passfail"}),
        ("exact", {"metric": "exact_match", "ignore_case": True, "strip": True}),
        (
            {"exact": {"normalize": False}},
            {"metric": "exact_match", "ignore_case": False, "strip": False},
        ),
        ({"regex": {"pattern": "a"}}, {"metric": "regex", "pattern": "a"}),
        ("similarity", {"metric": "semantic_similarity", "threshold": 0.7}),
        (
            {"similarity": {"threshold": 0.5}},
            {"metric": "semantic_similarity", "threshold": 0.5},
        ),
        (
            {"exact": {"normalize": False, "required": False}},
            {"metric": "exact_match", "strip": False, "required": False},
        ),
        ({"passfail": {"required": False}}, {"metric": "passfail", "required": False}),
        ("my:check", {"metric": "my:check"}),
        ({"my:check": {"required": False}}, {"metric": "my:check", "required": False}),
        ({"metric": "contains", "value": "x"}, {"metric": "contains", "value": "x"}),
    ],
    ids=str,
)
def test_a_scorer_is_a_metric_by_a_short_name(scorer, metric):
    case = TestCaseModel.model_validate({"input": "x", "scorers": [scorer]})

    found = case.scorers[0]
    assert {key: getattr(found, key) for key in metric} == metric
    assert TestCaseModel.model_validate_json(case.model_dump_json()) == case


@pytest.mark.parametrize(
    ("scorers", "message"),
    [
        ("[exat]", "scorers[0]: unknown scorer 'exat'; did you mean 'exact'?"),
        ("[zzz]", "scorers[0]: unknown scorer 'zzz'; known: passfail, exact, regex,"),
        ("[{regex: {patern: a}}]", "'regex' has no option 'patern'; it has: pattern, required"),
        ("[{exact: {required: 3}}]", "test_cases[0].scorers[0]"),
        (
            "[{metric: contains, required: false, fail_on_error: true}]",
            "'required: false' never fails a case; remove 'fail_on_error'",
        ),
        ("[regex]", "test_cases[0].scorers[0].pattern: this key is missing"),
        (
            "[{regex: {pattern: 3}}]",
            "test_cases[0].scorers[0].regex.pattern: found 3; expected text",
        ),
        ("[{exact: {normalize: 3}}]", "test_cases[0].scorers[0]"),
        ("[{exact: {}, regex: {}}]", "a scorer is a name, or one name with its options"),
        ("[{exact: no}]", "the options of 'exact' must be a mapping"),
        ("passfail", "test_cases[0].scorers: found 'passfail'; expected a list"),
    ],
)
def test_a_mistake_in_scorers_is_told_with_its_place(folder, scorers, message):
    text = refusal(folder, f"test_cases: [{{input: x, scorers: {scorers}}}]")

    assert message in text
    assert text.startswith("agent.yaml:4:")


def test_a_scorer_that_lacks_what_it_compares_with_is_found_before_the_run(folder):
    agent = load(folder, "test_cases: [{input: x, scorers: [exact]}]")

    [one] = [found for found in check(agent) if found.severity == "error"]

    assert one.path == "test_cases[0].scorers[0]"
    assert "nothing to compare with" in one.message


def test_a_case_whose_only_scorer_is_reported_only_is_told_to_check_nothing(folder):
    scorers = "scorers: [{exact: {required: false}}]"
    agent = load(folder, f"test_cases: [{{input: x, ground_truth: x, {scorers}}}]")

    [one] = check(agent)

    assert one.message == (
        "cannot fail: exact_match is only reported, because of 'required: false' or no"
        " threshold above 0"
    )


def test_a_suite_says_how_its_cases_are_run_unless_they_do(folder):
    agent = load(
        folder,
        """\
        suites:
          - name: s
            config: {timeout: 5, retries: 3, default_scorers: [passfail]}
            test_cases:
              - {input: a}
              - {input: b, timeout: 7, retries: 0, scorers: []}
              - {input: c, timeout: null}
        """,
    )

    found = [
        (case.timeout, case.retries, [one.label for one in case.scorers])
        for case in agent.test_cases
    ]
    assert found == [(5, 3, ["passfail"]), (7, 0, []), (5, 3, ["passfail"])]


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            "{retries: -1}",
            "agent.yaml:4:38: suites[0].config.retries: found -1; expected at least 0",
        ),
        ("{timeout: 0}", "suites[0].config.timeout: found 0; expected more than 0"),
        ("{retrys: 1}", "suites[0].config.retrys: unknown key; did you mean 'retries'?"),
        ("{default_scorers: [exat]}", "default_scorers[0]: unknown scorer 'exat'; did"),
        ("{timeout: 1, default_timeout: 1}", "'default_timeout' is another name of 'timeout'"),
    ],
)
def test_a_mistake_in_the_settings_of_a_suite_is_told_with_its_place(folder, config, message):
    more = f"suites: [{{name: s, config: {config}, test_cases: [{{input: x}}]}}]"

    assert message in refusal(folder, more)


ASSURED = """\
suite:
  name: support
  config: {default_timeout: 9, retries: 1, default_scorers: [regex]}
scenarios:
  - name: order
    description: For people
    input: Where is my order?
    expected_output: shipped
    expected_tools: [lookup, notify]
    expected_tool_args: {lookup: {id: 3}}
    scorers: [passfail, exact, regex, similarity]
    metadata: {regex_pattern: ord, exact_normalize: false, similarity_threshold: 0.5, note: x}
    tags: [smoke]
    timeout_seconds: 4
  - name: bye
    input: bye
    metadata: {regex_pattern: bye}
"""


def test_a_file_of_agentic_assure_is_read_as_it_is(folder):
    folder.write("support.yaml", ASSURED)

    order, bye = load(folder, "suites: [{file: support.yaml}]").test_cases

    assert (order.name, order.suite, order.ground_truth) == ("order", "support", "shipped")
    assert (order.timeout, order.retries, order.tags) == (4, 1, ["smoke"])
    assert [(one.name, one.match) for one in order.expected_tools] == [
        ("lookup", "exact"),
        ("notify", "exact"),
    ]
    assert order.expected_tools[0].matchers()["id"].equals == 3
    labels = ["passfail", "exact_match", "regex", "semantic_similarity"]
    assert [one.label for one in order.scorers] == labels
    assert order.scorers[1].strip is False
    assert order.scorers[2].pattern == "ord"
    assert order.scorers[3].threshold == 0.5
    assert (bye.timeout, bye.expected_tools, bye.scorers[0].pattern) == (9, None, "bye")


def test_scenarios_without_scorers_are_scored_by_passfail(folder):
    folder.write("a.yaml", "scenarios: [{name: a, input: x}]")

    [case] = load(folder, "suites: [{file: a.yaml}]").test_cases

    assert [one.label for one in case.scorers] == ["passfail"]


@pytest.mark.parametrize(
    ("scenario", "message"),
    [
        ("{input: x}", "a.yaml:1:13: scenarios[0].name: this key is missing"),
        ("{name: a, input: x, ground_truth: y}", "scenarios[0].ground_truth: unknown key"),
        (
            "{name: a, input: x, expected_output: 4}",
            "scenarios[0].expected_output: found 4; expected",
        ),
        ("{name: a, input: x, expected_tool_args: {t: [1]}}", "expected_tool_args.t: found a list"),
        ("{name: a, input: x, scorers: [exat]}", "unknown scorer 'exat'; did you mean"),
        (
            "{name: a, input: x, scorers: [passfail, exact]}",
            "a.yaml:1:53: scenarios[0].scorers[1]: 'exact' needs 'expected_output'; write",
        ),
        (
            "{name: a, input: x, scorers: [regex]}",
            "scenarios[0].scorers[0]: 'regex' needs 'metadata: {regex_pattern: …}'; write it",
        ),
        (
            "{name: a, input: x, scorers: [regex], metadata: {regex_pattern: ' '}}",
            "'regex' needs 'metadata: {regex_pattern: …}'; write it",
        ),
        (
            "{name: a, input: x, metadata: {regex_patern: y}}",
            "scenarios[0].metadata.regex_patern: unknown option 'regex_patern'; did you mean",
        ),
    ],
)
def test_a_mistake_in_a_scenario_is_told_with_its_place(folder, scenario, message):
    folder.write("a.yaml", f"scenarios: [{scenario}]")

    text = refusal(folder, "suites: [{file: a.yaml}]")

    assert text.startswith("a.yaml:1:")
    assert message in text


def test_words_of_agentic_assure_are_known_under_scenarios_only(folder):
    text = refusal(folder, "test_cases: [{input: x, expected_output: y}]")

    assert "expected_output: unknown key" in text
