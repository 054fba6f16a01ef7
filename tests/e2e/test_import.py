"""`holodeck import`: test cases from logs, runs and promptfoo, which cannot pass unwritten."""

import json
import logging

import pytest
import yaml

import holodeck
from holodeck.cli.main import run
from holodeck.lib.case_import.suite_text import make_redact

AGENT = """\
name: shop
backend: "shop:answer"
evaluations: {metrics: [{metric: not_contains, value: error}]}
suites: [{file: cases.yaml}]
"""
CODE = """\
def answer(text, context):
    return {"response": f"You said (it) {text}", "tool_calls": []}
"""
CHATS = [
    {
        "messages": [
            {"role": "system", "content": "You help customers."},
            {"role": "user", "content": "Where is order 4711? I am ada@example.com"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [
                    {
                        "id": "call_1",
                        "type": "function",
                        "function": {"name": "get_order", "arguments": '{"id": 4711}'},
                    }
                ],
            },
            {"role": "tool", "tool_call_id": "call_1", "content": "shipped"},
            {"role": "assistant", "content": "It is on its way."},
            {"role": "user", "content": "Thanks!\n\n  Key: sk-abcdefghijklmnop1234"},
            {"role": "assistant", "content": "You are welcome."},
        ]
    },
    {"messages": [{"role": "user", "content": "What does ${HOME} mean? 1e5 {{ x.y }}"}]},
    {"messages": [{"role": "user", "content": "what does ${home} mean... 1E5 {{x.y}}"}]},
]
RESPONSES = {
    "id": "log-7",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "2 + 2?"}]},
        {"type": "function_call", "call_id": "c1", "name": "add", "arguments": '{"a": 2}'},
        {"type": "function_call_output", "call_id": "c1", "output": "4"},
    ],
    "output": [{"type": "message", "role": "assistant", "content": [{"text": "It is 4."}]}],
}
PROMPTFOO = """\
description: Shop
prompts:
  - "Customer: {{question}}"
providers: [openai:gpt-4o-mini]
defaultTest:
  assert:
    - {type: latency, threshold: 5000}
tests:
  - description: payment
    vars: {question: [May I pay by card?, May I pay in cash?]}
    assert:
      - {type: icontains-any, value: [card, "{{question}}"]}
  - vars: {question: How long can I return it?}
    assert:
      - type: javascript
        value: output.length < 200
      - {type: starts-with, value: "You said (it)"}
"""


@pytest.fixture(autouse=True)
def logging_as_before():
    """The command runs in this process, and it starts logging for the whole of it."""
    root, names = logging.getLogger(), ("", "holodeck", "semantic_kernel", "py.warnings")
    handlers, levels = root.handlers[:], [logging.getLogger(name).level for name in names]
    yield
    logging.captureWarnings(capture=False)
    root.handlers[:] = handlers
    for name, level in zip(names, levels, strict=True):
        logging.getLogger(name).setLevel(level)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "agent.yaml").write_text(AGENT)
    (tmp_path / "shop.py").write_text(CODE)
    (tmp_path / "chats.jsonl").write_text("".join(json.dumps(one) + "\n" for one in CHATS))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def cases_of(folder, name="cases.yaml"):
    return yaml.safe_load((folder / name).read_text())["test_cases"]


def test_chats_become_valid_cases_that_cannot_pass(folder, capsys):
    assert run(["import", "chats.jsonl", "-o", "cases.yaml"]) == 0
    said = capsys.readouterr().err
    assert run(["validate", "agent.yaml"]) == 0

    first, second = cases_of(folder)
    assert [turn["input"] for turn in first["turns"]] == [
        "Where is order 4711? I am <email>",
        "Thanks!\n\n  Key: ***1234",
    ]
    assert second["input"] == "What does $${HOME} mean? 1e5 {{ x.y }}"
    text = (folder / "cases.yaml").read_text()
    assert "ground_truth" not in text
    assert '# recorded tool call of turn 1: get_order {"id": 4711}' in text
    assert "# recorded response of turn 1: It is on its way." in text
    assert "chats.jsonl:1: instructions are left out; they belong in the agent.yaml" in said
    assert "chats.jsonl:3: left out: the user says the same at chats.jsonl:2" in said
    assert "Wrote 2 cases to cases.yaml; 2 cases have a 'todo' and cannot pass yet" in said


def test_a_todo_keeps_a_case_from_passing_and_says_where_to_write(folder, capsys):
    assert run(["import", "chats.jsonl", "-o", "cases.yaml", "--limit", "1"]) == 0
    capsys.readouterr()

    code = run(["test", "agent.yaml"])  # the metric of the agent passes

    out = capsys.readouterr().out
    assert code == 5
    assert "UNCHECKED" in out
    assert "todo at cases.yaml:7:5: write what a right response must do" in out
    assert run(["test", "agent.yaml", "--repeat", "2", "-q"]) == 5
    written = (folder / "cases.yaml").read_text().replace("    todo:", "    description:")
    (folder / "cases.yaml").write_text(written)
    assert run(["test", "agent.yaml", "-q"]) == 0


def test_a_failed_check_of_a_case_with_a_todo_is_a_failure(folder):
    (folder / "cases.yaml").write_text("test_cases: [{input: error, todo: write it}]\n")

    assert run(["test", "agent.yaml", "-q"]) == 1


def test_a_file_is_overwritten_only_on_request(folder, capsys):
    (folder / "cases.yaml").write_text("mine")

    assert run(["import", "chats.jsonl", "-o", "cases.yaml"]) == 2
    assert "cases.yaml: exists; add --force" in capsys.readouterr().err
    assert (folder / "cases.yaml").read_text() == "mine"
    assert run(["import", "chats.jsonl", "-o", "cases.yaml", "--force"]) == 0
    assert len(cases_of(folder)) == 2


def test_each_turn_can_be_a_case_with_the_turns_before_as_history(folder):
    args = ["import", "chats.jsonl", "-o", "cases.yaml", "--split", "multi-turn"]

    assert run(args) == 0

    assert run(["validate", "agent.yaml"]) == 0
    first, second, _ = cases_of(folder)
    assert "history" not in first
    assert [one["role"] for one in second["history"]] == ["user", "assistant", "tool", "assistant"]
    assert second["input"].startswith("Thanks!")


def test_what_a_log_says_reaches_the_agent_unchanged(folder):
    texts = [
        "  a\n",
        "b\n\n",
        "<<",
        "\U0001f600\x1b[2J\u202e",
        "# c: d",
        "0o7",
        "yes",
        "$${x} ${y}",
    ]
    chats = [{"messages": [{"role": "user", "content": text}]} for text in texts]
    (folder / "odd.json").write_text(json.dumps(chats))

    assert run(["import", "odd.json", "-o", "cases.yaml"]) == 0

    agent = holodeck.load_agent("agent.yaml")
    assert [case.input for case in agent.test_cases] == texts


def test_a_turn_without_a_response_leaves_a_todo_in_the_history(folder):
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    items = [{"role": "user", "content": "one"}, call, {"role": "user", "content": "two"}]
    (folder / "gap.json").write_text(json.dumps([{"input": items}]))

    assert run(["import", "gap.json", "-o", "cases.yaml", "--split", "multi-turn"]) == 0

    assert run(["validate", "agent.yaml"]) == 0
    assert "the log lacks a response in 'history'" in cases_of(folder)[1]["todo"]


def test_recorded_responses_are_expected_only_on_request(folder):
    args = ["import", "chats.jsonl", "-o", "cases.yaml", "--expect", "recorded"]

    assert run(args) == 0

    assert run(["validate", "agent.yaml"]) == 0
    first, second = cases_of(folder)
    assert first["turns"][0]["expected_tools"] == [{"name": "get_order", "args": {"id": 4711}}]
    assert first["turns"][1]["ground_truth"] == "You are welcome."
    assert "todo" not in first
    assert "the log lacks a response" in second["todo"]
    assert run(["test", "agent.yaml", "-q"]) == 1


def test_items_of_the_responses_api_are_a_conversation(folder):
    (folder / "log.json").write_text(json.dumps([RESPONSES]))

    assert run(["import", "log.json", "-o", "cases.yaml"]) == 0

    [case] = cases_of(folder)
    assert (case["name"], case["input"]) == ("log-7", "2 + 2?")
    text = (folder / "cases.yaml").read_text()
    assert "# recorded response: It is 4." in text
    assert '# recorded tool call: add {"a": 2}' in text


def test_lines_of_a_transcript_are_grouped_by_their_conversation(folder, capsys):
    lines = [
        {"conversation_id": "a", "role": "user", "content": "Hi"},
        {"conversation_id": "b", "speaker": "human", "text": "Call (030) 123 4567", "mood": "bad"},
        {"conversation_id": "a", "role": "assistant", "content": "Hello"},
        {"role": "user", "content": "lost"},
    ]
    text = "".join(json.dumps(one) + "\n" for one in lines) + "no json\n"
    (folder / "lines.jsonl").write_text(text)

    assert run(["import", "lines.jsonl", "-o", "cases.yaml"]) == 0

    assert [case["input"] for case in cases_of(folder)] == ["Hi", "Call <phone>"]
    said = capsys.readouterr().err
    assert "lines.jsonl:2: 'mood' is not imported" in said
    assert "lines.jsonl:4: left out: it does not say to which conversation" in said
    assert "lines.jsonl:5: left out: cannot be read as JSON" in said


def test_a_recorded_run_becomes_cases(folder, capsys):
    history = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]
    case = {"name": "greets", "input": "hello", "history": history}
    (folder / "cases.yaml").write_text(json.dumps({"test_cases": [case]}))
    assert run(["test", "agent.yaml", "-q"]) == 0

    assert run(["import", "last", "-o", "again.yaml"]) == 0
    [record] = (folder / ".holodeck" / "runs").rglob("*.jsonl")
    assert run(["import", str(record), "-o", "record.yaml"]) == 0

    [case] = cases_of(folder, "again.yaml")
    assert (case["name"], case["input"], case["history"]) == ("greets", "hello", history)
    assert "# recorded response: You said (it) hello" in (folder / "again.yaml").read_text()
    assert cases_of(folder, "record.yaml") == [case]


def test_a_configuration_of_promptfoo_becomes_cases_with_its_checks(folder, capsys):
    (folder / "promptfooconfig.yaml").write_text(PROMPTFOO)

    assert run(["import", "promptfooconfig.yaml", "-o", "cases.yaml"]) == 0

    assert run(["validate", "agent.yaml"]) == 0
    card, cash, back = cases_of(folder)
    assert [card["name"], cash["name"]] == ["payment", "payment (2)"]
    assert card["input"] == "Customer: May I pay by card?"
    latency = {"metric": "latency", "max_ms": 5000}
    words = ["card", "May I pay by card?"]
    either = {"metric": "contains", "values": words, "match": "any", "ignore_case": True}
    assert card["evaluations"] == [latency, either]
    assert "todo" not in card
    start = {"metric": "regex", "pattern": r"\AYou\ said\ \(it\)"}
    assert back["evaluations"] == [latency, start]
    assert "promptfooconfig.yaml:15" in back["todo"]
    said = capsys.readouterr().err
    assert "promptfooconfig.yaml:4: the provider 'openai:gpt-4o-mini' is not imported" in said
    assert "promptfooconfig.yaml:15: the assertion 'javascript' is not imported" in said
    assert run(["test", "agent.yaml", "-q"]) == 5


RAG = {"type": "rag"}
GEVAL = {"type": "geval", "name": "g-eval", "evaluation_params": ["input", "actual_output"]}


@pytest.mark.parametrize(
    ("assertion", "evaluations", "keys"),
    [
        (
            {"type": "bleu", "value": "a b"},
            [{"metric": "bleu", "values": ["a b"], "threshold": 0.5}],
            {},
        ),
        (
            {"type": "rouge-n", "value": "a b", "threshold": 0.9},
            [{"metric": "rouge", "values": ["a b"], "threshold": 0.9, "variant": "rouge1"}],
            {},
        ),
        (
            {"type": "meteor", "value": "a"},
            [{"metric": "meteor", "values": ["a"], "threshold": 0.5}],
            {},
        ),
        (
            {"type": "g-eval", "value": "Be kind"},
            [{**GEVAL, "criteria": "Be kind", "threshold": 0.7}],
            {},
        ),
        (
            {"type": "llm-rubric", "value": "Be kind", "threshold": 0.9},
            [{**GEVAL, "criteria": "Be kind", "threshold": 0.9}],
            {},
        ),
        (
            {"type": "not-llm-rubric", "value": "It is rude"},
            None,
            {"criteria": ["This is not true: It is rude"]},
        ),
        (
            {"type": "answer-relevance"},
            [{**RAG, "metric_type": "answer_relevancy"}],
            {"retrieval_context": ["It is late."]},
        ),
        (
            {"type": "context-recall", "value": "Late", "threshold": 0.8},
            [{**RAG, "metric_type": "contextual_recall", "threshold": 0.8}],
            {"ground_truth": "Late", "retrieval_context": ["It is late."]},
        ),
        (
            {"type": "trajectory:tool-used", "value": "find"},
            None,
            {"expected_tools": [{"name": "find"}]},
        ),
        (
            {"type": "tool-call-f1", "value": ["find", "pay"]},
            None,
            {"expected_tools": [{"name": "find"}, {"name": "pay"}], "only_expected_tools": True},
        ),
        (
            {"type": "contains-json"},
            [{"metric": "json_schema", "schema": {}, "allow_fenced": True}],
            {},
        ),
        (
            {
                "type": "assert-set",
                "assert": [{"type": "contains", "value": "a"}, {"type": "contains", "value": "b"}],
            },
            [{"metric": "contains", "value": "a"}, {"metric": "contains", "value": "b"}],
            {},
        ),
    ],
    ids=lambda part: part.get("type") if isinstance(part, dict) else None,
)
def test_an_assertion_of_promptfoo_becomes_what_checks_the_same(
    folder, assertion, evaluations, keys
):
    test = {"vars": {"question": "Hi", "context": "It is late."}, "assert": [assertion]}
    config = {"prompts": ["{{question}}"], "tests": [test]}
    (folder / "promptfooconfig.yaml").write_text(yaml.safe_dump(config))

    assert run(["import", "promptfooconfig.yaml", "-o", "cases.yaml"]) == 0

    [case] = cases_of(folder)
    assert case.pop("evaluations", None) == evaluations
    assert case == {"name": "Hi", "tags": ["imported"], "input": "Hi", **keys}
    judge = "evaluations: {model: {provider: openai, name: m, api_key: x}}\n"
    (folder / "agent.yaml").write_text(AGENT.replace(AGENT.splitlines(keepends=True)[2], judge))
    assert run(["validate", "agent.yaml"]) == 0


@pytest.mark.parametrize(
    ("assertion", "passes", "fails"),
    [
        ({"type": "not-equals", "value": "no."}, "no.no.", "no."),
        ({"type": "not-starts-with", "value": "no"}, "oh no", "no, sorry"),
        ({"type": "not-regex", "value": "^b|c$"}, "a\nb\nc\n d", "abc"),
    ],
    ids=["equals", "starts with", "regex"],
)
def test_a_negated_assertion_of_promptfoo_becomes_a_pattern(folder, assertion, passes, fails):
    config = {"prompts": ["hi"], "tests": [{"assert": [assertion]}]}
    (folder / "promptfooconfig.yaml").write_text(yaml.safe_dump(config))

    assert run(["import", "promptfooconfig.yaml", "-o", "cases.yaml"]) == 0

    [metric] = cases_of(folder)[0]["evaluations"]
    results = [
        holodeck.run(lambda _, said=said: said, ["hi"], metrics=[metric]).passed
        for said in (passes, fails)
    ]
    assert results == [True, False]


def test_code_of_promptfoo_leaves_a_todo_that_says_what_to_write(folder):
    test = {"assert": [{"type": "python", "value": "len(output) < 9"}]}
    (folder / "promptfooconfig.yaml").write_text(
        yaml.safe_dump({"prompts": ["hi"], "tests": [test]})
    )

    assert run(["import", "promptfooconfig.yaml", "-o", "cases.yaml"]) == 0

    assert "write it in Python, as 'metric: module:callable'" in cases_of(folder)[0]["todo"]


def test_the_right_answers_of_evaluations_are_read_and_other_keys_are_listed(folder, capsys):
    rows = [
        {"input": [{"role": "user", "content": "2 + 2?"}], "ideal": "4", "score": 3},
        {"input": "Capital?", "target": ["B", "b"], "choices": ["Rome", "Paris"], "level": 0},
        {"messages": [{"role": "user", "content": "x?"}], "expected": "y", "score": 1},
    ]
    (folder / "evals.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))

    assert run(["import", "evals.jsonl", "-o", "cases.yaml"]) == 0

    sum_case, capital, last = cases_of(folder)
    loosely = {"metric": "exact_match", "ignore_case": True, "normalize_whitespace": True}
    assert (sum_case["ground_truth"], sum_case["evaluations"]) == ("4", [loosely])
    assert capital["input"] == "Capital?\n\nA) Rome\nB) Paris"
    assert capital["evaluations"] == [{**loosely, "values": ["B", "b"]}]
    assert last["ground_truth"] == "y"
    assert "todo" not in last
    said = capsys.readouterr().err
    assert "evals.jsonl:1: 'score' is not imported, nor in 1 further line" in said
    assert "evals.jsonl:2: 'level' is not imported" in said
    assert "evals.jsonl:2: 'choices' are written below the message" in said


def test_a_transform_that_is_not_imported_leaves_a_todo(folder):
    text = PROMPTFOO.replace(
        "defaultTest:\n", "defaultTest:\n  options: {transform: output.trim()}\n"
    )
    (folder / "promptfooconfig.yaml").write_text(text)

    assert run(["import", "promptfooconfig.yaml", "-o", "cases.yaml"]) == 0

    assert all("make up for 'options'" in case["todo"] for case in cases_of(folder))


@pytest.mark.parametrize(
    "part",
    [
        "scenarios:\n  - config: [{vars: {question: hi}}]\n    tests: [{}]\n",
        "evaluateOptions: {repeat: 3}\n",
        "assertTemplates:\n  polite: {type: contains, value: please}\n",
    ],
    ids=lambda part: part.partition(":")[0],
)
def test_a_part_of_a_configuration_without_an_equivalent_leaves_a_todo_in_every_case(folder, part):
    key = part.partition(":")[0]
    (folder / "promptfooconfig.yaml").write_text(PROMPTFOO + part)

    assert run(["import", "promptfooconfig.yaml", "-o", "cases.yaml"]) == 0

    wanted = f"make up for '{key}' of promptfooconfig.yaml:"
    assert all(wanted in case["todo"] for case in cases_of(folder))
    assert run(["test", "agent.yaml", "-q"]) == 5


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["other.json"], "its format is unknown"),
        (["agent.yaml"], "is no configuration of promptfoo"),
        (["missing.json", "--from", "openai"], "no such file"),
        (["chats.jsonl", "--redact", "x=.*"], "matches the empty text"),
    ],
    ids=["unknown", "yaml", "missing", "pattern"],
)
def test_what_cannot_be_imported_is_an_error(folder, capsys, args, message):
    (folder / "other.json").write_text('[{"a": 1}]')

    assert run(["import", *args]) == 2
    assert message in capsys.readouterr().err


def test_a_sample_is_the_same_for_a_seed(folder, capsys):
    chats = [{"messages": [{"role": "user", "content": f"question {n}"}]} for n in range(20)]
    (folder / "many.json").write_text(json.dumps(chats))
    args = ["import", "many.json", "--sample", "3", "--seed", "7", "--force", "-o"]

    assert run([*args, "one.yaml"]) == run([*args, "two.yaml"]) == 0

    inputs = [case["input"] for case in cases_of(folder, "one.yaml")]
    assert len(inputs) == 3
    assert inputs == [case["input"] for case in cases_of(folder, "two.yaml")]
    assert "17 cases not chosen (seed 7)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "clean"),
    [
        ("write to ada.l+x@mail.example.co.uk.", "write to <email>."),
        ("+49 170 1234567 or 555-867-5309", "<phone> or <phone>"),
        ("pay with 4111 1111 1111 1111 now", "pay with <card> now"),
        ("my IBAN is DE89 3704 0044 0532 0130 00, ok", "my IBAN is <iban>, ok"),
        ("to NO9386011117947 please", "to <iban> please"),
        ("order 12345678 of 2026-11-22, v1.2.3", "order 12345678 of 2026-11-22, v1.2.3"),
        ("ticket A-42", "ticket <ticket>"),
    ],
)
def test_personal_data_is_replaced_and_other_numbers_stay(text, clean):
    redact = make_redact(str, ["ticket=A-[0-9]+"])

    assert redact(text) == clean
