"""One case with parameters stands for several."""

import pytest

from holodeck.config.checks.agent import check
from holodeck.config.loader import ConfigLoader
from holodeck.errors import ConfigError


def cases_of(folder, case):
    folder.agent(f"test_cases:\n  - {case}\n")
    return ConfigLoader().load_agent_yaml("agent.yaml").test_cases


def refusal(folder, case):
    with pytest.raises(ConfigError) as caught:
        cases_of(folder, case)
    return str(caught.value)


def test_lists_make_every_combination(folder):
    cases = cases_of(
        folder,
        "{name: weather, id: w, input: 'In {{city}} in {{ unit }}?',"
        " parameters: {city: [Rome, Oslo], unit: [C]}}",
    )

    assert [case.name for case in cases] == [
        "weather[city=Rome,unit=C]",
        "weather[city=Oslo,unit=C]",
    ]
    assert [case.id for case in cases] == ["w[city=Rome,unit=C]", "w[city=Oslo,unit=C]"]
    assert cases[1].input == "In Oslo in C?"


def test_a_list_of_mappings_makes_a_case_of_each(folder):
    cases = cases_of(
        folder,
        "{name: sum, input: '{{a}} + 1?', ground_truth: '{{sum}}',"
        " evaluations: [{metric: contains}],"
        " parameters: [{a: 1, sum: 2}, {a: 2, sum: 3}]}",
    )

    assert [(case.input, case.ground_truth) for case in cases] == [("1 + 1?", "2"), ("2 + 1?", "3")]


def test_a_placeholder_that_is_the_whole_value_keeps_its_type_where_no_text_is_wanted(folder):
    [case] = cases_of(
        folder,
        "{name: a, input: '{{n}}',"
        " expected_tools: [{name: add, args: {x: '{{n}}', value: '{{n}}'}}],"
        " evaluations: [{metric: contains, value: '{{n}}'}], parameters: {n: [3]}}",
    )

    assert case.input == "3"
    assert case.expected_tools[0].args == {"x": 3, "value": 3}
    assert case.evaluations[0].value == "3"


def test_turns_and_names_are_filled_too(folder):
    [case] = cases_of(
        folder, "{name: 'to {{to}}', turns: [{input: 'Go {{to}}'}], parameters: {to: [a]}}"
    )

    assert (case.name, case.turns[0].input) == ("to a", "Go a")


def test_braces_of_a_case_without_parameters_are_text(folder):
    [case] = cases_of(folder, '{input: \'{{city}} and {"a": {"b": {}}}\'}')

    assert case.input == '{{city}} and {"a": {"b": {}}}'


def test_parameters_that_are_null_are_none(folder):
    [case] = cases_of(folder, "{input: hi, parameters: null}")

    assert case.input == "hi"


def test_text_with_other_braces_can_be_the_value_of_a_parameter(folder):
    [case] = cases_of(folder, "{input: 'say {{c}}', parameters: {c: ['{{user.name}}']}}")

    assert case.input == "say {{user.name}}"


@pytest.mark.parametrize(
    ("case", "told"),
    [
        ("{input: 'In {{city}}?'}", ["'{{city}}' is not filled in; add 'parameters' if it stands"]),
        ("{input: Rome?, ground_truth: '{{ city }}'}", ["'{{ city }}' is not filled in"]),
        ("{input: 'In {{c}}?', parameters: {c: [Rome]}}", []),
        ("{input: '{{}} and {a}'}", []),
    ],
    ids=["in the input", "in the ground truth", "with parameters", "other braces"],
)
def test_a_placeholder_that_nothing_fills_is_a_warning(folder, case, told):
    folder.agent(f"test_cases:\n  - {case}\n")
    findings = check(ConfigLoader().load_agent_yaml("agent.yaml"))

    found = [one.message for one in findings if "is not filled in" in one.message]
    assert len(found) == len(told)
    assert all(one.startswith(wanted) for one, wanted in zip(found, told, strict=True))


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ("{}", "test_cases[0].parameters: write names with lists of values"),
        ("3", "test_cases[0].parameters: write names with lists of values"),
        ("{c: Rome}", "test_cases[0].parameters.c: expected a list of values, such as [Rome]"),
        ("{c: []}", "test_cases[0].parameters.c: expected a list of values"),
        ("{c: [[1]]}", "test_cases[0].parameters: the value of 'c' must be text"),
        ("{c: [null]}", "test_cases[0].parameters: the value of 'c' must be text"),
        ("{c: [1, 1]}", "test_cases[0].parameters: duplicate c=1"),
        ("{'c d': [1]}", "test_cases[0].parameters: 'c d' is not a valid name"),
        ("{d: [1]}", "test_cases[0].input: unknown parameter {{c}}; known: d"),
        ("{c: [1], d: [1]}", "test_cases[0].parameters.d: is not used; write {{d}}"),
        (
            "[{c: 1}, {d: 1}]",
            "test_cases[0].parameters[1]: has different names than the first item",
        ),
        ("{c: [1]}, ground_truth: '{{c.name}}'", "ground_truth: invalid placeholder '{{c.name}}'"),
        ("{c: [1]}, ground_truth: '{{ c d }}'", "ground_truth: invalid placeholder '{{ c d }}'"),
        ("{c: [1]}, ground_truth: '{{c | upper}}'", "invalid placeholder '{{c | upper}}'"),
        ("{c: [1]}, ground_truth: '{{$c}}'", "ground_truth: invalid placeholder '{{$c}}'"),
        ("{c: [1]}, ground_truth: 'is {{c} it'", "ground_truth: invalid placeholder '{{c}'"),
        ("[1]", "test_cases[0].parameters[0]: expected a mapping of names to values"),
    ],
)
def test_a_mistake_in_parameters_is_told_with_its_place(folder, parameters, message):
    text = refusal(folder, f"{{input: '{{{{c}}}}', parameters: {parameters}}}")

    assert message in text
    assert text.startswith("agent.yaml:5:")


def test_a_product_has_a_limit(folder):
    values = str(list(range(101)))

    text = refusal(
        folder, f"{{input: '{{{{a}}}}{{{{b}}}}', parameters: {{a: {values}, b: {values}}}}}"
    )

    assert "make 10,201 cases; at most 10,000 are allowed" in text


def test_a_mistake_in_a_filled_case_is_told_where_it_was_written(folder):
    text = refusal(folder, "{input: '{{c}}', inpt: 1, parameters: {c: [1, 2]}}")

    assert text == "agent.yaml:5:22: test_cases[0].inpt: unknown key; did you mean 'input'?"
