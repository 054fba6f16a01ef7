"""Suites in the agent.yaml and in files of their own."""

import logging

import pytest

from holodeck.config.checks.agent import check
from holodeck.config.loader import ConfigLoader
from holodeck.errors import ConfigError
from holodeck.lib.support.safe_paths import allow_outside


def load(folder, more):
    folder.agent(more)
    return ConfigLoader().load_agent_yaml("agent.yaml")


def refusal(folder, more):
    with pytest.raises(ConfigError) as caught:
        load(folder, more)
    return str(caught.value)


BILLING = """\
suite: {name: billing, tags: [money]}
test_cases:
  - {name: a, input: pay, tags: [smoke, money]}
  - {name: b, input: refund}
"""


def test_cases_of_suites_stand_after_the_agents_own(folder):
    folder.write("suites/billing.yaml", BILLING)
    agent = load(
        folder,
        """\
        test_cases:
          - {name: a, input: first}
        suites:
          - name: inline
            test_cases:
              - {name: a, input: second}
          - file: suites/*.yaml
        """,
    )

    found = [(case.suite, case.name, case.tags) for case in agent.test_cases]
    assert found == [
        (None, "a", []),
        ("inline", "a", []),
        ("billing", "a", ["money", "smoke"]),
        ("billing", "b", ["money"]),
    ]


def test_a_suite_without_a_name_is_called_like_its_file(folder):
    folder.write("b.suite.yaml", "test_cases: [{input: x}]")
    folder.write("a.yaml", "test_cases: [{input: x}]")

    agent = load(folder, "suites: [{file: '*.suite.yaml'}, {file: a.yaml}]")

    assert [case.suite for case in agent.test_cases] == ["b", "a"]


def test_variables_are_filled_into_suite_files(folder):
    folder.write(".env", "CITY=Oslo")
    folder.write("a.yaml", 'test_cases: [{input: "${CITY}"}]')

    assert load(folder, "suites: [{file: a.yaml}]").test_cases[0].input == "Oslo"


def test_a_suite_takes_more_cases_from_a_data_file_beside_it(folder):
    folder.write("deep/a.yaml", "test_cases_file: a.csv")
    folder.write("deep/a.csv", "input\nx\n")

    agent = load(folder, "suites: [{file: deep/a.yaml}]")

    assert [(case.suite, case.input) for case in agent.test_cases] == [("a", "x")]
    assert agent.location("test_cases", 0) == "deep/a.csv:2:1"


def test_files_of_a_case_are_looked_for_beside_its_suite(folder):
    folder.write("deep/note.txt", "x")
    folder.write("deep/a.yaml", "test_cases: [{input: x, files: [{path: note.txt, type: text}]}]")

    agent = load(folder, "suites: [{file: deep/a.yaml}]")

    assert agent.test_cases[0].files[0].path == "deep/note.txt"
    assert not [one for one in check(agent) if "files" in one.path]


def test_foreign_yaml_that_a_pattern_matches_is_left_out_with_a_notice(folder, caplog):
    folder.write("suites/billing.yaml", BILLING)
    folder.write("suites/compose.yaml", "services: {}")

    with caplog.at_level(logging.WARNING):
        agent = load(folder, "suites: [{file: 'suites/*.yaml'}]")

    assert len(agent.test_cases) == 2
    assert "suites/compose.yaml: skipped, because it holds no suite" in caplog.text


def test_the_agent_file_is_no_suite_of_its_own(folder):
    folder.write("billing.yaml", BILLING)

    assert len(load(folder, "suites: [{file: '*.yaml'}]").test_cases) == 2


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ("suites: []", "agent.yaml:4:9: suites: expected a list with at least one suite"),
        ("test_cases: [{input: a}]\nsuites:", "agent.yaml:5:8: suites: has no value"),
        ("test_cases_file:", "agent.yaml:4:17: test_cases_file: has no value"),
        ("suites: {}", "agent.yaml:4:9: suites: expected a list with at least one suite"),
        ("suites: [a]", "agent.yaml:4:10: suites[0]: expected a mapping: write 'file: a'"),
        ("suites: [{test_cases: []}]", "agent.yaml:4:10: suites[0]: 'name' is missing"),
        ("suites: [{name: a}]", "agent.yaml:4:10: suites[0]: the suite has no test cases"),
        ("suites: [{name: a, test_cases: []}]", "suites[0]: the suite has no test cases"),
        ("suites: [{name: a, test_cases: 3}]", "4:32: suites[0].test_cases: found 3; expected a"),
        ("suites: [{nme: a}]", "agent.yaml:4:11: suites[0].nme: unknown key; did you mean 'name'?"),
        (
            "suites: [{file: a.yaml, name: b}]",
            "4:25: suites[0]: 'name' cannot be combined with 'file'",
        ),
        ("suites: [{file: gone.yaml}]", "agent.yaml:4:17: suites[0].file: 'gone.yaml': file"),
        ("suites: [{file: 'x*.yaml'}]", "agent.yaml:4:17: suites[0].file: no file matches"),
        ("suites: [{file: '/x/*.yaml'}]", "suites[0].file: invalid pattern '/x/*.yaml'"),
        ("suites: [{file: ../a.yaml}]", "lies outside of the agent's folder"),
        ("suites: [{file: '../*/*.yaml'}]", "lies outside of the agent's folder"),
        (
            "suites: [{name: a, test_cases: [{input: 3}]}]",
            "agent.yaml:4:41: suites[0].test_cases[0].input: found 3; expected text",
        ),
        (
            "suites: [{name: a, test_cases: [{input: x, suite: b}]}]",
            "suites[0].test_cases[0].suite: the case belongs to the suite 'a'",
        ),
        (
            "suites: [{name: a, test_cases: [{input: x}]}, {name: a, test_cases: [{input: y}]}]",
            "agent.yaml:4:47: suites[1]: duplicate suite name 'a' (agent.yaml:4:10)",
        ),
        (
            "suites: [{name: a, test_cases: [{name: x, input: x}, {name: x, input: y}]}]",
            (
                "agent.yaml:4:55: 'suites[0].test_cases[1].name': 'x' is already the name of"
                " suites[0].test_cases[0]"
            ),
        ),
        (
            "test_cases: 3\nsuites: [{file: a}]",
            "agent.yaml:4:13: test_cases: found 3; expected a list",
        ),
    ],
)
def test_a_mistake_about_suites_is_told_with_its_place(folder, more, message):
    folder.write("../outside/a.yaml", BILLING)

    assert message in refusal(folder, more)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a.yaml:1:1: expected a mapping with 'suite' and 'test_cases'"),
        ("- input: x", "a.yaml:1:1: expected a mapping with 'suite' and 'test_cases'"),
        ("suite: {name: a}", "a.yaml:1:1: the suite has no test cases"),
        ("suite: a\ntest_cases: [{input: x}]", "a.yaml:1:8: suite: found 'a'; expected a mapping"),
        (
            "test_case: [{input: x}]",
            "a.yaml:1:1: test_case: unknown key; did you mean 'test_cases'?",
        ),
        ("test_cases:\n  - inpt: x", "a.yaml:2:5: test_cases[0].inpt: unknown key; did you mean"),
        ("test_cases: [", "a.yaml:2:1: missing value"),
        (
            "test_cases: [{input: x}]\ntest_cases_file:\n",
            "a.yaml:2:17: test_cases_file: has no value; write the path of the cases",
        ),
        ('test_cases: [{input: "${GONE}"}]', "a.yaml:1:22: test_cases[0].input: "),
    ],
)
def test_a_mistake_in_a_suite_file_is_told_in_that_file(folder, text, message):
    folder.write("a.yaml", text)

    assert message in refusal(folder, "suites: [{file: a.yaml}]")


@pytest.mark.parametrize(
    "text",
    ["a: 1\n---\nb: 2\n", "Bucket: !Ref x\n", "image: {{ .Values.image }}\n", "a: 1\na: 2\n"],
    ids=["documents", "tag", "template", "twice"],
)
def test_yaml_of_another_tool_is_left_out_even_if_it_is_none_to_us(folder, caplog, text):
    folder.write("suites/billing.yaml", BILLING)
    folder.write("suites/other.yaml", text)

    agent = load(folder, "suites: [{file: 'suites/*.yaml'}]")

    assert len(agent.test_cases) == 2
    assert "suites/other.yaml: skipped, because it holds no suite" in caplog.text


@pytest.mark.parametrize(
    "text",
    [
        "scenarios: [",
        "  test_cases:\n - {",
        "scenario:\n- {",
        "suite: {name: a}".encode("utf-16"),
        "",
    ],
    ids=["open", "indented", "misspelt", "utf-16", "empty"],
)
def test_what_may_be_a_suite_is_told_of_if_it_cannot_be_read(folder, text):
    folder.write("suites/billing.yaml", BILLING)
    folder.write("suites/other.yaml", text)

    assert "suites/other.yaml:" in refusal(folder, "suites: [{file: 'suites/*.yaml'}]")


def test_a_mistake_beside_a_pattern_is_not_taken_for_foreign_yaml(folder):
    folder.write("suites/a.yaml", "test_case: [{input: x}]")

    assert "did you mean 'test_cases'" in refusal(folder, "suites: [{file: 'suites/*.yaml'}]")


def test_mistakes_in_several_files_are_told_together_each_in_its_file(folder):
    folder.write("a.yaml", "test_cases: [{inpt: x}]")
    folder.write("b.jsonl", '{"input": 1}')

    text = refusal(
        folder, "test_cases: [{input: 2}]\nsuites: [{file: a.yaml}]\ntest_cases_file: b.jsonl\n"
    )

    assert "agent.yaml:4:22: test_cases[0].input: found 2" in text
    assert "a.yaml:1:15: test_cases[0].inpt: unknown key" in text
    assert "b.jsonl:1:1: input: found 1" in text


def test_an_id_is_unique_across_files(folder):
    folder.write("a.yaml", "test_cases: [{input: x, id: one}]")

    text = refusal(folder, "test_cases: [{input: y, id: one}]\nsuites: [{file: a.yaml}]")

    assert text.startswith(
        "a.yaml:1:25: 'test_cases[0].id': 'one' is already the id of test_cases[0]"
        " (agent.yaml:4:14)"
    )


def test_a_finding_about_a_case_is_told_in_its_file(folder):
    folder.write("a.yaml", "test_cases:\n  - {input: x, expected_tools: [serch]}\n")

    [one] = [
        found for found in check(load(folder, "suites: [{file: a.yaml}]")) if "serch" in str(found)
    ]

    assert str(one).startswith("a.yaml:2:33: error: test_cases[0].expected_tools[0]: ")


def test_suites_may_lie_outside_if_the_command_line_says_so(folder):
    folder.write("../outside/a.yaml", BILLING)

    with allow_outside():
        agent = load(folder, "suites: [{file: ../outside/a.yaml}]")

    assert len(agent.test_cases) == 2


def test_the_context_of_a_suite_stands_under_that_of_its_cases(folder):
    agent = load(
        folder,
        """\
        suites:
          - name: s
            context: {user: kim, plan: free}
            test_cases:
              - {input: a}
              - {input: b, context: {plan: paid}}
        """,
    )

    found = [case.context for case in agent.test_cases]
    assert found == [{"user": "kim", "plan": "free"}, {"user": "kim", "plan": "paid"}]


def test_a_context_that_the_backend_cannot_take_is_found(folder):
    agent = load(folder, "test_cases: [{input: a, context: {user: kim}}]")

    [one] = [found for found in check(agent) if found.path == "test_cases[0].context"]

    assert one.severity == "error"
    assert "the built-in agent takes no context" in one.message


def test_a_suite_says_how_its_cases_are_repeated_and_when_it_ends(folder):
    agent = load(
        folder,
        """\
        suites:
          - name: shaky
            config: {repeat: 5, min_pass: 4, retries: 1, retry_on: [error], fail_fast: true}
            test_cases:
              - {input: a}
              - {input: b, min_pass_rate: 0.5, fail_fast: false}
        """,
    )

    first, second = agent.test_cases
    assert (first.repeat, first.min_pass, first.retry_on, first.fail_fast) == (
        5,
        4,
        ["error"],
        True,
    )
    assert (second.repeat, second.min_pass, second.min_pass_rate) == (5, None, 0.5)
    assert second.fail_fast is False


def test_a_link_to_nowhere_that_a_pattern_matches_is_no_suite_less(folder):
    folder.write("suites/a.yaml", "test_cases: [{input: hi}]\n")
    (folder.path / "suites" / "b.yaml").symlink_to("gone.yaml")
    (folder.path / "suites" / ".#a.yaml").symlink_to("kim@desk.42")  # as an editor leaves them

    text = refusal(folder, 'suites: [{file: "suites/*.yaml"}]\n')

    assert text.startswith("agent.yaml:4:17: suites[0].file: 'suites/b.yaml': file not found")


def test_a_file_that_is_named_twice_is_told_so(folder):
    folder.write("suites/a.yaml", "test_cases: [{input: hi}]\n")

    text = refusal(folder, 'suites: [{file: "suites/*.yaml"}, {file: suites/a.yaml}]\n')

    assert text == "suites/a.yaml:1:1: 'suites' names this file twice"


NOT_READ = {
    "bare list": (
        "- {input: x, forbidden_tools: [a]}\n",
        "other.yaml:1:1: found test cases outside",
    ),
    "broken list": ("- input: x: y\n", "other.yaml:1:11: "),
    "other key": (
        "questions:\n- {input: x}\n",
        "other.yaml:2:1: found test cases outside of a suite",
    ),
}


@pytest.mark.parametrize(("text", "message"), NOT_READ.values(), ids=NOT_READ)
def test_cases_without_a_suite_that_a_pattern_matches_are_an_error(folder, text, message):
    folder.write("suites/billing.yaml", BILLING)
    folder.write("suites/other.yaml", text)

    assert message in refusal(folder, "suites: [{file: 'suites/*.yaml'}]")


def test_a_list_that_a_suite_names_as_its_data_file_is_no_mistake_beside_a_pattern(folder):
    folder.write("suites/billing.yaml", BILLING + "test_cases_file: more.yaml\n")
    folder.write("suites/more.yaml", "- {name: c, input: x}\n")

    agent = load(folder, "suites: [{file: 'suites/*.yaml'}]")

    assert [case.name for case in agent.test_cases] == ["a", "b", "c"]


@pytest.mark.parametrize("name", ["more.yml", "more.YAML"])
def test_a_suite_that_only_its_ending_keeps_out_of_a_pattern_is_an_error(folder, name):
    folder.write("suites/billing.yaml", BILLING)
    folder.write(f"suites/{name}", "test_cases: [{input: x}]\n")
    pattern = "suites: [{file: 'suites/*.yaml'}"

    wrong = refusal(folder, f"{pattern}]")
    named = load(folder, f"{pattern}, {{file: suites/{name}}}]")

    assert f"'suites/*.yaml' does not match 'suites/{name}', which holds a suite" in wrong
    assert len(named.test_cases) == 3


def test_tags_that_are_no_text_are_told_with_their_place(folder):
    inline = "suites: [{name: a, tags: [x], test_cases: [{input: x, tags: [y, []]}]}]"

    told = "agent.yaml:4:65: suites[0].test_cases[0].tags[1]: found a list of 0; expected text"
    assert told in refusal(folder, inline)


OPTIONS = {
    "exact": ("exact_normalize: maybe", "exact_normalize: found 'maybe'; expected true or false"),
    "similarity": ("similarity_threshold: high", "similarity_threshold: found 'high'; expected a"),
}


@pytest.mark.parametrize("scorer", OPTIONS)
def test_an_option_of_a_scenario_that_is_wrong_is_told_where_it_stands(folder, scorer):
    option, message = OPTIONS[scorer]
    scenario = f"name: a, input: x, expected_output: y, scorers: [{scorer}]"
    folder.write("a.yaml", f"scenarios:\n- {{{scenario},\n   metadata: {{{option}}}}}\n")

    told = refusal(folder, "suites: [{file: a.yaml}]")

    assert told.startswith(f"a.yaml:3:{16 + len(option.split()[0])}: scenarios[0].metadata.")
    assert message in told
