"""What was said before a case: written in it or in a file, and what may be wrong with it."""

import json

import pytest
import yaml

from holodeck.config.cases.rows import load_history
from holodeck.config.checks.agent import check
from holodeck.config.loader import ConfigLoader
from holodeck.errors import ConfigError

HEAD = "name: a\nbackend: 'desk:answer'\ntest_cases:\n  - input: And now?\n"
ASKED = '{role: user, content: "Where is it?"}'
CALL = "{id: x, function: {name: f}}"
SAID = "{role: assistant, content: On its way.}"


def loaded(folder, history, desk="def answer(message, context): ..."):
    (folder / "desk.py").write_text(desk)
    (folder / "agent.yaml").write_text(f"{HEAD}    forbidden_tools: [drop]\n    history:{history}")
    return ConfigLoader().load_agent_yaml(folder / "agent.yaml")


def written(*messages):
    return "\n" + "".join(f"      - {one}\n" for one in messages)


def words(history):
    return [(message.role, message.text) for message in history]


def test_messages_are_read_as_chat_completions_have_them(tmp_path):
    call = "{role: assistant, tool_calls: [{id: c1, function: {name: find, arguments: {n: 9}}}]}"
    found = "{role: tool, tool_call_id: c1, content: shipped}"
    parts = "{role: user, content: [{type: text, text: a}, {type: text, text: b}]}"

    agent = loaded(tmp_path, written(parts, ASKED, call, found, SAID))

    history = load_history(agent, 0)
    assert words(history) == [
        ("user", "a\nb"), ("user", "Where is it?"), ("assistant", ""), ("tool", "shipped"),
        ("assistant", "On its way."),
    ]  # fmt: skip
    assert history[2].tool_calls[0].function.arguments_text == '{"n": 9}'
    assert check(agent) == []


@pytest.mark.parametrize(
    ("messages", "message"),
    [
        ([ASKED, "{role: assistant, content: ' '}"], "8:27: test_cases[0].history[1]: 'content'"),
        (["{role: robot, content: a}", SAID], "7:16: test_cases[0].history[0].role: found 'robot'"),
        (["{role: user, contents: a}", SAID], "7:22: test_cases[0].history[0].contents: unknown"),
        (["{role: system, content: Be kind.}", SAID], "7:10: test_cases[0].history[0]: 'role'"),
        ([SAID, ASKED], "8:10: test_cases[0].history: '[1].role': the last message is of the user"),
        ([ASKED, "{role: tool, tool_call_id: x, content: a}", SAID], "8:22: test_cases[0].history"),
        ([ASKED, "{role: tool, content: a}", SAID], "'tool_call_id' is missing"),
        ([ASKED, "{role: assistant, tool_calls: [{id: x, function: {name: f}}]}", SAID],
         "8:27: test_cases[0].history: '[1].tool_calls': the call 'x' has no result"),
        ([ASKED, "{role: user, content: a, tool_calls: [{id: x, function: {name: f}}]}", SAID],
         "8:34: test_cases[0].history[1]: 'tool_calls': only messages of the assistant call"),
        ([ASKED, "{role: assistant, tool_calls: [{id: x, function: {name: f, arguments: '{'}}]}"],
         "8:68: test_cases[0].history[1].tool_calls[0].function: 'arguments': cannot be read"),
        ([ASKED, "{role: assistant, tool_calls: [{id: x, function: {name: f, arguments: '[]'}}]}"],
         "the JSON is not a mapping"),
        ([ASKED, f"{{role: assistant, tool_calls: [{CALL}, {CALL}]}}"], "two calls have the same"),
        (["{role: user, content: [{type: image_url}]}", SAID], "found 'image_url'; expected"),
        (["{role: [user], content: a}", SAID], "history[0].role: found a list of 1; expected"),
    ],
    ids=[
        "says nothing", "unknown role", "unknown key", "instructions", "ends with user",
        "result without call", "result of no call", "call without result", "user calls",
        "arguments", "list of arguments", "same id", "image", "list of roles",
    ],
)  # fmt: skip
def test_a_history_that_cannot_have_been_is_refused_at_its_place(tmp_path, messages, message):
    with pytest.raises(ConfigError) as refused:
        loaded(tmp_path, written(*messages))

    assert message in str(refused.value)
    assert "expected a mapping" not in str(refused.value)


MESSAGES = [{"role": "user", "content": "Hé?"}, {"role": "assistant", "content": "Ho 😀"}]
FILES = {
    "said.json": json.dumps(MESSAGES),
    "said.jsonl": "\n\n".join(map(json.dumps, MESSAGES)),
    "said.yaml": yaml.safe_dump(MESSAGES),
}


@pytest.mark.parametrize("name", FILES)
def test_a_transcript_may_stand_in_a_file(tmp_path, name):
    (tmp_path / name).write_text(FILES[name])

    agent = loaded(tmp_path, f" {{file: {name}}}")

    assert words(load_history(agent, 0)) == [("user", "Hé?"), ("assistant", "Ho 😀")]


def test_what_libraries_write_into_every_answer_is_no_unknown_key(tmp_path):
    empty = {"refusal": None, "annotations": [], "audio": None, "tool_calls": None}
    (tmp_path / "said.json").write_text(json.dumps([MESSAGES[0], MESSAGES[1] | empty]))

    assert len(load_history(loaded(tmp_path, " {file: said.json}"), 0)) == 2


def test_instructions_in_a_transcript_are_left_out_only_if_the_case_says_so(tmp_path):
    told = {"role": "system", "content": "Be kind."}
    (tmp_path / "said.json").write_text(json.dumps([told, *MESSAGES]))

    kept = load_history(loaded(tmp_path, " {file: said.json, leave_out: [system]}"), 0)

    assert words(kept)[0] == ("user", "Hé?")
    with pytest.raises(ConfigError, match=r"json:1:\d+: \[0\]: 'role'.*leave_out: \[system\]"):
        load_history(loaded(tmp_path, " {file: said.json}"), 0)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("said.json", None, "file not found"),
        ("../said.json", None, "lies outside of the agent's folder"),
        ("said.txt", "x", "unknown file type 'said.txt'; use .json, .jsonl, .yaml, .yml"),
        ("said.json", '{"role": "user"}', "said.json:1:1: expected a list of messages"),
        ("said.json", '[{"role": "user" "x"}]', "said.json:1:18: cannot be read as JSON"),
        ("said.json", '[{"role": "user", "content": "a"},\n {"role": "bot"}]', "said.json:2:11"),
        ("said.jsonl", '{"role": "user", "content": "a"}\n{"role": "bot"}', "said.jsonl:2:1: [1]"),
        ("said.yaml", "- {role: user, content: a}\n- {role: bot}", "said.yaml:2:10: [1].role"),
    ],
    ids=["missing", "outside", "suffix", "no list", "no JSON", "JSON", "JSON Lines", "YAML"],
)
def test_what_is_wrong_with_a_transcript_is_told_with_its_place_in_it(
    tmp_path, name, text, message
):
    if text is not None:
        (tmp_path / name).write_text(text)

    [found] = check(loaded(tmp_path, f" {{file: {name}}}"))

    assert (found.path, found.severity) == ("test_cases[0].history.file", "error")
    assert message in found.message


def test_the_transcript_of_a_suite_lies_beside_it(tmp_path):
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites" / "said.json").write_text(json.dumps(MESSAGES))
    (tmp_path / "suites" / "one.yaml").write_text(
        "test_cases:\n  - {input: a, history: {file: said.json}, expected_tools: []}\n"
    )
    (tmp_path / "agent.yaml").write_text(
        "name: a\nbackend: 'desk:answer'\nsuites: [{file: suites/one.yaml}]\n"
    )

    agent = ConfigLoader().load_agent_yaml(tmp_path / "agent.yaml")

    assert len(load_history(agent, 0)) == 2


@pytest.mark.parametrize(
    ("desk", "is_found"),
    [
        ("def answer(message): ...", True),
        ("def answer(message, verbose=False): ...", True),
        ("class answer:\n    def run(self, message): ...", True),
        ("def answer(message, context): ...", False),
        ("def answer(message, earlier): ...", False),
        ("async def answer(message, *, context=()): ...", False),
        ("def answer(message, context: dict | None = None): ...", True),
        ("def answer(message, case_context, context): ...", False),
        ("def answer(*said): ...", True),
        ("def answer(): ...", False),
        ("@wrapped\ndef answer(message): ...", False),
        ("class answer(Base):\n    def run(self, message): ...", False),
        ("class answer:\n    def run(self, message, context): ...", False),
    ],
    ids=[
        "function", "option", "class", "context", "second", "by name", "context of the case",
        "both", "any", "factory", "decorated",
        "inherits", "class with context",
    ],
)  # fmt: skip
def test_an_agent_that_cannot_be_told_of_before_is_found(tmp_path, desk, is_found):
    found = check(loaded(tmp_path, written(ASKED, SAID), desk))

    assert [(one.path, one.severity) for one in found] == [
        ("test_cases[0].history", "error")
    ] * is_found


@pytest.mark.parametrize(
    ("desk", "warned"),
    [
        ("def answer(message): ...", ["'answer' gets each turn as if it were the first"]),
        ("def answer(message, context): ...", []),
        ("class answer:\n    def run(self, message): ...", []),
    ],
    ids=["function", "context", "class"],
)
def test_a_function_that_hears_each_turn_alone_is_warned_of(tmp_path, desk, warned):
    (tmp_path / "desk.py").write_text(desk)
    (tmp_path / "agent.yaml").write_text(
        "name: a\nbackend: 'desk:answer'\n"
        "test_cases: [{turns: [{input: a}, {input: b}], expected_tools: []}]\n"
    )

    found = check(ConfigLoader().load_agent_yaml(tmp_path / "agent.yaml"))

    assert [one.message.partition(";")[0] for one in found] == warned
    assert {one.severity for one in found} <= {"warning"}


@pytest.mark.parametrize(
    ("line", "desk", "found"),
    [
        ("{agent: Hello}", "def answer(message): ...", ["test_cases[0].script[1]"]),
        (
            "{message: {role: system, content: a}}",
            "class answer:\n    def run(self, message): ...",
            ["test_cases[0].script[1]"],
        ),
        ("{message: {role: user, content: a}}", "def answer(message): ...", []),
        ("{agent: Hello}", "def answer(message, context): ...", []),
    ],
    ids=["stand-in", "note", "of the user", "context"],
)
def test_a_line_of_a_script_that_the_agent_is_not_told_of_is_an_error(tmp_path, line, desk, found):
    (tmp_path / "desk.py").write_text(desk)
    (tmp_path / "agent.yaml").write_text(
        "name: a\nbackend: 'desk:answer'\n"
        f"test_cases: [{{script: [{{user: a}}, {line}, {{user: b}}, agent, succeed]}}]\n"
    )

    problems = check(ConfigLoader().load_agent_yaml(tmp_path / "agent.yaml"))

    assert [one.path for one in problems if one.severity == "error"] == found


HTTP = "name: a\nbackend: {type: http, url: 'http://localhost:1', request: {q: '{input}', %s}}\n"
MESSAGES_SENT, ID_SENT, NOTHING_SENT = "m: '{messages}'", "id: '{conversation_id}'", "n: 1"


@pytest.mark.parametrize(
    ("case", "with_id", "with_nothing"),
    [
        (f"input: b, history: [{ASKED}, {SAID}]", ["history"], ["history"]),
        (
            "script: [{user: a}, {agent: Hello}, {user: b}, agent]",
            ["script[1]"],
            ["script", "script[1]"],
        ),
        ("turns: [{input: a}, {input: b}]", [], ["turns"]),
    ],
    ids=["history", "script", "turns"],
)
def test_a_request_without_a_place_for_what_was_said_before_is_an_error(
    tmp_path, case, with_id, with_nothing
):
    def errors(request):
        cases = f"test_cases: [{{{case}, evaluations: [{{metric: contains, value: x}}]}}]\n"
        (tmp_path / "agent.yaml").write_text(HTTP % request + cases)
        problems = check(ConfigLoader().load_agent_yaml(tmp_path / "agent.yaml"))
        return [one for one in problems if one.severity == "error"]

    assert errors(MESSAGES_SENT) == []
    for request, places in ((ID_SENT, with_id), (NOTHING_SENT, with_nothing)):
        assert [one.path for one in errors(request)] == [f"test_cases[0].{one}" for one in places]
        assert all("'{messages}'" in one.message for one in errors(request))
