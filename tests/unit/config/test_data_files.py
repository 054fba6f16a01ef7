"""Cases from CSV, JSON, JSON Lines and YAML lists."""

import json

import pytest

from holodeck.config.loader import ConfigLoader
from holodeck.errors import ConfigError


def agent_of(folder, name, text, written=None):
    folder.write(name, text)
    folder.agent(f"test_cases_file: {written or name}\n")
    return ConfigLoader().load_agent_yaml("agent.yaml")


def cases_of(folder, name, text, written=None):
    return agent_of(folder, name, text, written).test_cases


def refusal(folder, name, text, written=None):
    with pytest.raises(ConfigError) as caught:
        cases_of(folder, name, text, written)
    return str(caught.value)


ROW = {"name": "a", "input": "hi", "expected_tools": ["add"], "tags": ["x"]}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cases.jsonl", json.dumps(ROW) + "\n\n"),
        ("cases.json", json.dumps([ROW], indent=1)),
        ("cases.yaml", "- {name: a, input: hi, expected_tools: [add], tags: [x]}\n"),
        ("cases.csv", "name,input,expected_tools,tags\na,hi,add,x\n"),
    ],
    ids=["jsonl", "json", "yaml", "csv"],
)
def test_a_case_is_the_same_in_every_format(folder, name, text):
    [case] = cases_of(folder, name, text)

    assert case.model_dump(include=set(ROW)) == ROW


def test_cases_of_the_agent_file_run_before_those_of_the_data_file(folder):
    folder.write("more.jsonl", '{"input": "b"}')
    folder.agent("test_cases:\n  - input: a\ntest_cases_file: more.jsonl\n")

    agent = ConfigLoader().load_agent_yaml("agent.yaml")

    assert [case.input for case in agent.test_cases] == ["a", "b"]


def test_csv_keeps_numbers_as_text_where_text_is_wanted(folder):
    text = "\ufeffinput,ground_truth,expected_tools,tool_order,name\r\n"
    text += '007,"3,5","[""a"", {""name"": ""b""}]",true,\r\n"two\nlines",x,"a, b",,\r\n'

    first, second = cases_of(folder, "cases.csv", text)

    assert (first.input, first.ground_truth, first.name) == ("007", "3,5", None)
    assert first.expected_tools[0] == "a"
    assert first.expected_tools[1].name == "b"
    assert first.tool_order is True
    assert (second.input, second.expected_tools) == ("two\nlines", ["a", "b"])


def test_csv_knows_parameters_and_placeholders(folder):
    text = 'input,parameters,tags\n{{q}}?,"{""q"": [1, 2]}","{{q}}, b"\n'

    first, second = cases_of(folder, "cases.csv", text)

    assert (first.input, first.tags) == ("1?", ["1", "b"])
    assert second.input == "2?"


def test_columns_are_renamed_and_ignored(folder):
    written = "{file: q.csv, columns: {input: question, ground_truth: answer}, ignore: [id_old]}"

    [case] = cases_of(folder, "q.csv", "question,answer,id_old\nq,a,9\n", written)

    assert (case.input, case.ground_truth, case.id) == ("q", "a", None)


def test_keys_of_json_lines_are_renamed_and_ignored(folder):
    written = "{file: q.jsonl, columns: {input: question}, ignore: [old]}"

    [case] = cases_of(folder, "q.jsonl", '{"question": "q", "old": 1}', written)

    assert case.input == "q"


def test_variables_are_not_filled_into_data(folder):
    [case] = cases_of(folder, "c.jsonl", '{"input": "costs ${PRICE}"}')

    assert case.input == "costs ${PRICE}"


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("c.csv", "", "c.csv:1:1: the file is empty"),
        ("c.csv", "input\n", "c.csv:1:1: expected a list with at least one test case"),
        ("c.csv", "input;name\na;b\n", "c.csv:1:1: found only one column; separate columns"),
        ("c.csv", "inputt\na\n", "c.csv:1:1: unknown column 'inputt'; did you mean 'input'?"),
        ("c.csv", "input,input\na,b\n", "c.csv:1:1: duplicate column 'input'"),
        ("c.csv", "input,name\na,b\nc\n", "c.csv:3:1: found 1 cells under 2 columns"),
        ("c.csv", 'input,name\n"a\nb",x\n"c', "c.csv:4:1: cannot be read as CSV"),
        ("c.csv", 'input,name\n"a\nb",x\n,y\n', "c.csv:4:1: 'input' is missing"),
        ("c.csv", "input,tags\na,[x\n", "c.csv:2:1: column 'tags': cannot be read as JSON"),
        ("c.csv", "input,tool_order\na,maybe\n", "c.csv:2:1: tool_order: found 'maybe'"),
        (
            "c.csv",
            "input,input.x\na,b\n",
            "c.csv:2:1: 'input.x' needs a mapping, but 'input' is not one",
        ),
        pytest.param(
            "c.csv", "input,timeout\na," + "9" * 5000, "2:1: column 'timeout': ", id="digits"
        ),
        ("c.csv", "input,context\na,x\n", "c.csv:2:1: context: found 'x'; expected a mapping"),
        ("c.jsonl", '{"input": "a"}\n{"input": 3}\n', "c.jsonl:2:1: input: found 3; expected text"),
        ("c.jsonl", '{"input": "a"}\n\n{"input"\n', "c.jsonl:3:9: cannot be read as JSON"),
        (
            "c.jsonl",
            '{"input": "a", "input": "b"}',
            "c.jsonl:1:16: cannot be read as JSON: duplicate key",
        ),
        ("c.jsonl", '{"input": "a", "tags": NaN}', "c.jsonl:1:24: cannot be read as JSON: NaN"),
        ("c.jsonl", '{"input": "a", "context": {"b": 1e999}}', "the number '1e999' is too large"),
        ("c.jsonl", 2 * '{"input": "a", "id": "x"}\n', "c.jsonl:2:1: 'id': 'x' is already"),
        ("c.csv", "input,name\na,x\nb,x\n", "c.csv:3:1: 'name': 'x' is already the name of"),
        ("c.csv", 'input,expected_tools\na,"{""a"": 1}"', "found a mapping; expected a list"),
        ("c.jsonl", '{"inpt": "a"}', "c.jsonl:1:1: inpt: unknown key; did you mean 'input'?"),
        ("c.jsonl", '["a"]\n', "c.jsonl:1:1: found a list of 1; expected a mapping"),
        pytest.param("c.jsonl", "[" * 100_000, "c.jsonl:1:1: nested too deeply", id="deep"),
        ("c.json", '[\n {"input": "a"},\n {"inpt": 3}\n]', "c.json:3:3: [1].inpt: unknown key"),
        ("c.json", '{"input": "a"}', "c.json:1:1: expected a list with at least one test case"),
        ("c.json", "[1,\n2,,]", "c.json:2:3: cannot be read as JSON"),
        ("c.yaml", "- input: a\n- inpt: b\n", "c.yaml:2:3: [1].inpt: unknown key"),
        (
            "c.txt",
            "a",
            "agent.yaml:4:18: test_cases_file: unknown file type 'c.txt'; use .yaml, .yml,",
        ),
    ],
)
def test_a_mistake_in_data_is_told_with_its_line(folder, name, text, message):
    assert message in refusal(folder, name, text)


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("gone.csv", "agent.yaml:4:18: test_cases_file: 'gone.csv': file not found"),
        ("../c.csv", "lies outside of the agent's folder"),
        ("[c.csv]", "agent.yaml:4:18: test_cases_file: found a list of 1; expected a mapping"),
        ("{fil: c.csv}", "agent.yaml:4:19: test_cases_file.fil: unknown key; did you mean 'file'?"),
        (
            "{file: c.csv, columns: {ground_truth: a, description: a}}",
            "test_cases_file.columns.description: 'a' is already read as 'ground_truth'; remove",
        ),
        (
            "{file: c.csv, columns: {ground_truth: a}, ignore: [a]}",
            "test_cases_file.columns.ground_truth: 'a' is in 'ignore' too; remove one",
        ),
        (
            "{file: c.csv, columns: {inptu: a}}",
            (
                "agent.yaml:4:49: test_cases_file.columns.inptu: unknown key 'inptu' of a case;"
                " did you mean 'input'?"
            ),
        ),
        (
            "{file: c.csv, columns: {input: b}}",
            "agent.yaml:4:49: test_cases_file.columns.input: the file has no column or key 'b'",
        ),
        (
            "{file: c.csv, ignore: [b]}",
            "agent.yaml:4:41: test_cases_file.ignore[0]: the file has no column or key 'b'",
        ),
        (
            "{file: c.csv, columns: {input: a}}",
            "test_cases_file.columns.input: the file has a column or key 'input' too",
        ),
    ],
)
def test_a_mistake_about_the_file_is_told_in_the_agent_file(folder, written, message):
    assert message in refusal(folder, "c.csv", "a,input\nx,y\n", written)


def test_a_case_knows_its_place_in_the_data(folder):
    agent = agent_of(folder, "data/c.csv", 'input,name\n"a\nb",x\nc,y\n')

    assert agent.location("test_cases", 1, "input") == "data/c.csv:4:1"
    assert agent.source_path("test_cases", 1, "input") == ("input",)


def test_a_case_knows_its_place_in_a_json_document(folder):
    agent = agent_of(folder, "c.json", '[\n  {"input": "a"},\n  {"input": "b"}\n]\n')

    assert agent.location("test_cases", 1, "input") == "c.json:3:13"


@pytest.mark.parametrize("written", ["FALSE", "no", "0", "TRUE"])
def test_a_column_of_yes_and_no_is_no_reason_to_skip(folder, written):
    folder.write("rows.csv", f"input,skip\nhi,\nho,{written}\n")
    folder.agent("test_cases_file: rows.csv")

    with pytest.raises(ConfigError) as caught:
        ConfigLoader().load_agent_yaml("agent.yaml")

    assert "rows.csv:3:1: skip: " in str(caught.value)
    assert f"'{written}' is not a reason" in str(caught.value)


def test_a_cell_that_is_too_long_for_csv_is_told_where_it_fits(folder):
    text = refusal(folder, "c.csv", f"input\nhi\n{'x' * 200_000}\n")

    assert text.startswith("c.csv:3:1: cannot be read as CSV: field larger than field limit")
    assert text.endswith("write such cases as JSON Lines")


@pytest.mark.parametrize(
    ("row", "place"),
    [
        (
            '{"input": "b",\n  "input": "c"}',
            "cases.json:3:3: cannot be read as JSON: duplicate key 'input'",
        ),
        ('{"input": "b",\n  "timeout": NaN}', "cases.json:3:14: cannot be read as JSON: NaN"),
        ('{"input": "NaN",\n "timeout": -Infinity}', "cases.json:3:13: cannot be read as JSON: -I"),
        (
            '{"input": "b", "timeout":\n1e999}',
            "cases.json:3:1: cannot be read as JSON: the number '1e999'",
        ),
        (
            '{"context": {"a": [{"b": 1, "b": 2}]}}',
            "cases.json:2:29: cannot be read as JSON: duplicate key",
        ),
    ],
    ids=["twice", "NaN", "infinity", "too large", "deep"],
)
def test_what_json_does_not_have_is_told_with_its_line_and_column(folder, row, place):
    text = f'[{{"input": "a"}},\n{row}]'

    assert refusal(folder, "cases.json", text).startswith(place)


@pytest.mark.parametrize(
    ("name", "text", "place"),
    [
        ("cases.json", '[{"q": "x"},\n {"q": {"a": 1}}]', "cases.json:2:8: [1].q: found a mapping"),
        ("cases.jsonl", '{"q": "x"}\n{"q": {"a": 1}}', "cases.jsonl:2:1: q: found a mapping"),
        (
            "cases.yaml",
            "- q: x\n- q: {a: 1}\n",
            "cases.yaml:2:6: [1].q: found a mapping; expected text",
        ),
    ],
    ids=["json", "jsonl", "yaml"],
)
def test_a_mistake_under_a_renamed_key_is_told_where_it_is_written(folder, name, text, place):
    assert place in refusal(folder, name, text, f"{{file: {name}, columns: {{input: q}}}}")


SWALLOWED = {
    "one row": ('a,"hello,yes\nb,hi",no\n', "cases.csv:3:3: the quotation mark that opens here"),
    "two rows": ('a,"hello,yes\nb,hi,no\nc,5",no\n', "is closed on line 5, and the text"),
    "Windows": ('a,"hello,yes\r\nb,hi,no\r\nc,5",no\r\n', "looks like 3 rows"),
    "a blank line": ('a,"hello,yes\n\nb,hi",no\n', "looks like 2 rows"),
}


@pytest.mark.parametrize(("rows", "message"), SWALLOWED.values(), ids=SWALLOWED)
def test_a_quotation_mark_that_swallows_rows_of_csv_is_told_where_it_opens(folder, rows, message):
    text = f"name,input,ground_truth\nz,z,z\n{rows}d,d,d\n"

    told = refusal(folder, "cases.csv", text)

    assert told.startswith("cases.csv:3:3: ")
    assert message in told


@pytest.mark.parametrize(
    "said",
    [
        "Dear John, hello\nhow are you, friend",
        "two\nlines",
        "Sum it up:\nx,y,z\n1,2,3",
        "one, two\n\nthree, four",
    ],
    ids=["letter", "lines", "table", "paragraphs"],
)
def test_text_of_several_lines_in_csv_is_no_swallowed_row(folder, said):
    text = f'name,input,ground_truth\nz,z,z\na,"{said}",no\nd,d,d\n'

    assert [case.input for case in cases_of(folder, "cases.csv", text)] == ["z", said, "d"]


def test_two_short_lines_of_csv_that_may_be_two_rows_are_told_of(folder, caplog):
    cases = cases_of(folder, "cases.csv", 'input,ground_truth\n"hello,yes\nhi",no\n')

    assert len(cases) == 1
    assert "cases.csv:2:1: the quotation mark that opens here is closed on line 3" in caplog.text


def test_a_column_of_csv_without_any_value_is_told_of(folder, caplog):
    cases_of(folder, "cases.csv", "input,forbidden_tools,tags\na,,x\nb, ,\n")

    told = (
        "cases.csv:1:1: the column 'forbidden_tools' has no value in any row;"
        " fill it in, or remove it"
    )
    assert [one.getMessage() for one in caplog.records] == [told]
