"""`holodeck init` writes a first agent.yaml; `holodeck validate --load` says what was found."""

import json
import re

import pytest
import yaml
from jsonschema import Draft7Validator

from fakes import Reply, run_cli
from support.actions_runner import Runner
from support.checks import assert_one_error, assert_plain

APP = """
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion
from semantic_kernel.functions import kernel_function

class Orders:
    @kernel_function(description="Find an order.")
    def lookup(self, id: int) -> str:
        raise AssertionError("no tool is called")

def agent():
    service = OpenAIChatCompletion(ai_model_id="none", api_key="sk-none")
    return ChatCompletionAgent(service=service, name="support", plugins=[Orders()])
"""
BOT = """
def answer(message):
    raise AssertionError("the agent is not called")

def listens(message, context):
    return message

class Agent:
    async def run(self, message):
        return message

def breaks():
    return 1 / 0

number = 7
"""


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "bot.py").write_text(BOT)
    return folder


def test_the_first_file_runs_as_it_is(folder):
    ran = run_cli("init", cwd=folder)
    tested = run_cli("test", cwd=folder)

    assert_plain(ran)
    assert (ran.code, ran.stderr) == (0, "")
    assert ran.stdout == (
        "Wrote agent.yaml, my_agent.py and .holodeck/agent.schema.json\n"
        "Next: holodeck test agent.yaml\n"
    )
    assert (tested.code, tested.stderr) == (0, "")
    assert "2/2 passed" in tested.stdout


@pytest.mark.parametrize(
    ("args", "file"),
    [
        (["init"], "agent.yaml"),
        (["init", "sub/shop.yaml", "--from", "bot:listens"], "sub/shop.yaml"),
        (["init", "--suite"], "scenarios/example.yaml"),
    ],
)
def test_the_first_line_names_a_schema_that_accepts_the_file(folder, args, file):
    (folder / "sub").mkdir()
    (folder / "sub" / "bot.py").write_text(BOT)

    assert run_cli(*args, cwd=folder).code == 0

    text = (folder / file).read_text()
    named = re.match(r"# yaml-language-server: \$schema=(\S+)\n", text)
    schema = json.loads(((folder / file).parent / named[1]).read_text())
    Draft7Validator(schema).validate(yaml.safe_load(text))


@pytest.mark.parametrize("file", ["agent.yaml", "my_agent.py"])
def test_a_file_that_exists_is_never_overwritten(folder, file):
    (folder / file).write_text("mine")

    ran = run_cli("init", cwd=folder)

    assert_one_error(ran, 2, file, "is not overwritten")
    assert sorted(one.name for one in folder.iterdir()) == sorted(["bot.py", file])
    assert (folder / file).read_text() == "mine"


def test_the_tools_of_an_agent_become_suggestions(folder):
    (folder / "app.py").write_text(APP)

    ran = run_cli("init", "--from", "app:agent", cwd=folder)

    assert_plain(ran)
    assert ran.code == 0
    assert "Found ChatCompletionAgent of Semantic Kernel; tools: Orders-lookup; keeps" in ran.stdout
    text = (folder / "agent.yaml").read_text()
    assert 'backend: "app:agent" # ChatCompletionAgent of Semantic Kernel' in text
    expected = [{"name": "Orders-lookup", "args": {"id": {"regex": r"[\s\S]+"}}}]
    cases = yaml.safe_load(text)["test_cases"]
    assert [case["expected_tools"] for case in cases] == [expected, expected, []]
    assert text.count("# any value; write the right one") == 2
    assert run_cli("validate", "--load", cwd=folder).code == 0


def test_unfilled_cases_never_pass_and_filled_ones_are_valid(folder):
    run_cli("init", "shop.yaml", "--from", "bot:listens", cwd=folder)
    file = folder / "shop.yaml"

    checked = run_cli("validate", "shop.yaml", "--load", cwd=folder)
    empty = run_cli("test", "shop.yaml", cwd=folder)
    file.write_text(re.sub(r"(?m)^    skip: .*\n", "", file.read_text()))
    unwritten = run_cli("test", "shop.yaml", cwd=folder)
    file.write_text(re.sub(r"(input|value): .*", r"\1: hello", file.read_text()))
    filled = run_cli("test", "shop.yaml", cwd=folder)

    assert checked.code == 0
    assert "shop.yaml: 3 test cases, 0 tools, 6 metrics: ok" in checked.stdout
    assert (empty.code, unwritten.code, filled.code) == (5, 1, 0)
    assert "3/3 passed" in filled.stdout


def ask(folder, question="Refund order 7", **options):
    return run_cli("init", "--from", "app:agent", "--ask", question, cwd=folder, **options)


def confirm(folder):
    """Remove the `todo` of the test case."""
    file = folder / "agent.yaml"
    file.write_text(re.sub(r"(?m)^    todo: .*\n", "", file.read_text()))


def test_what_the_agent_did_becomes_a_case_that_passes_once_confirmed(folder, fake_openai):
    (folder / "app.py").write_text(
        APP.replace('raise AssertionError("no tool is called")', "return 19.90")
    )
    fake_openai.otherwise(
        lambda request: (
            Reply("It is refunded: 19.9 EUR.")
            if request.messages[-1]["role"] == "tool"
            else Reply(tool_calls=[("Orders-lookup", {"id": 7})])
        )
    )
    env = {"OPENAI_BASE_URL": fake_openai.url}

    ran = ask(folder, env=env)
    written = yaml.safe_load((folder / "agent.yaml").read_text())
    checked = run_cli("validate", "--load", cwd=folder, env=env)
    unconfirmed = run_cli("test", cwd=folder, env=env)
    confirm(folder)
    confirmed = run_cli("test", cwd=folder, env=env)

    assert_plain(ran)
    assert ran.code == 0, ran.stderr
    assert (written["name"], written["backend"]) == ("support", "app:agent")
    [case] = written["test_cases"]
    assert case.pop("todo").startswith("confirm the tool calls")
    assert case == {
        "name": "Refund order 7",
        "input": "Refund order 7",
        "expected_tools": [{"name": "Orders-lookup", "args": {"id": 7}}],
        "ground_truth": "It is refunded: 19.9 EUR.",
        "evaluations": [
            {"metric": "contains", "values": ["19.9"]},
            {"metric": "f1_score", "threshold": 0.3},
        ],
    }
    assert (checked.code, unconfirmed.code, confirmed.code) == (0, 5, 0)


CLIENT = """
from openai import OpenAI

def agent(message):
    messages = [{"role": "user", "content": message}]
    client = OpenAI(api_key="none")
    message = client.chat.completions.create(model="m", messages=messages).choices[0].message
    calls = message.tool_calls or []
    return ", ".join(call.function.name for call in calls) or message.content
"""


def test_tool_calls_that_only_the_tap_sees_are_written_with_the_tap(folder, fake_openai):
    (folder / "app.py").write_text(CLIENT)
    fake_openai.otherwise(lambda _request: Reply(tool_calls=[("refund", {"id": 7})]))
    env = {"OPENAI_BASE_URL": fake_openai.url}

    ran = ask(folder, env=env)
    confirm(folder)
    tested = run_cli("test", cwd=folder, env=env)

    assert (ran.code, tested.code) == (0, 0), ran.stderr + tested.stdout
    written = yaml.safe_load((folder / "agent.yaml").read_text())
    assert written["backend"] == {"type": "python", "target": "app:agent", "tap": True}
    assert written["test_cases"][0]["expected_tools"] == [{"name": "refund", "args": {"id": 7}}]


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        ("'hello'", {"ground_truth": "hello"}),
        (
            "{'response': 'k: ${X} #\\n- \\x1b[0m', 'tool_calls': []}",
            {"ground_truth": "k: ${X} #\n- \x1b[0m", "expected_tools": []},
        ),
        (
            "{'response': '', 'ends_with_calls': True, 'tool_calls': [{'name': 'f'}]}",
            {"expected_tools": [{"name": "f"}]},
        ),
        (
            (
                "{'response': '', 'ends_with_calls': True,"
                " 'tool_calls': [{'name': 'f', 'arguments': {'at': {'regex': 1}}}]}"
            ),
            {"expected_tools": [{"name": "f", "args": {"at": {"equals": {"regex": 1}}}}]},
        ),
    ],
    ids=["calls unknown", "no calls", "calls alone", "arguments like matchers"],
)
def test_any_answer_is_written_so_that_it_passes_once_confirmed(folder, answer, expected):
    (folder / "app.py").write_text(f"def agent(message):\n    return {answer}\n")

    ran = ask(folder)
    checked = run_cli("validate", "--load", cwd=folder)
    confirm(folder)
    tested = run_cli("test", cwd=folder)

    assert (ran.code, checked.code, tested.code) == (0, 0, 0), ran.stderr + tested.stdout
    [case] = yaml.safe_load((folder / "agent.yaml").read_text().replace("$${", "${"))["test_cases"]
    facts = {key: case[key] for key in ("ground_truth", "expected_tools") if key in case}
    assert facts == expected


def test_a_secret_in_an_answer_is_not_written(folder):
    (folder / "app.py").write_text("import os\ndef agent(message): return os.environ['MY_API_KEY']")

    ran = ask(folder, env={"MY_API_KEY": "abc-not-a-key-123456"})

    assert ran.code == 0
    assert "abc-not-a-key" not in (folder / "agent.yaml").read_text()


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ("return {}['order']", 3, "the agent failed: KeyError: 'order' (app.py:2"),
        ("return {'error': 'no database'}", 3, "no database"),
        ("raise SystemExit(0)", 3, "SystemExit"),
    ],
)
def test_an_agent_that_fails_when_asked_writes_nothing(folder, body, code, message):
    (folder / "app.py").write_text(f"def agent(message):\n    {body}\n")

    ran = ask(folder)

    assert_one_error(ran, code, message)
    assert not (folder / "agent.yaml").exists()


def test_an_agent_that_waits_for_an_approval_when_asked_writes_nothing(folder):
    (folder / "app.py").write_text("""
from holodeck.lib.backends.base import AgentBackend, ExecutionResult

class agent(AgentBackend):
    async def initialize(self): ...
    async def invoke_once(self, message, context=None):
        return ExecutionResult(response="", pending_approvals=[{"name": "refund"}])
    async def create_session(self, context=None): ...
    async def teardown(self): ...
""")

    ran = ask(folder)

    assert_one_error(ran, 3, "waits for an approval of refund", "'expect_approval'")
    assert not (folder / "agent.yaml").exists()


@pytest.mark.parametrize("args", [("--ask", "hi"), ("--from", "bot:answer", "--ask", " ")])
def test_a_question_needs_an_agent_and_a_text(folder, args):
    ran = run_cli("init", *args, cwd=folder)

    assert (ran.code, (folder / "agent.yaml").exists()) == (2, False)
    assert "--ask needs a text" in ran.stderr


@pytest.mark.parametrize(
    ("target", "code", "message"),
    [
        ("bot:anwser", 2, "did you mean 'answer'"),
        ("nowhere:agent", 2, "No module named 'nowhere'"),
        ("bot", 2, "expected 'module:object'"),
        ("bot:breaks", 3, "ZeroDivisionError: division by zero (bot.py:13"),
        ("bot:number", 2, "an int is not an agent"),
    ],
)
def test_an_agent_that_cannot_be_loaded_writes_nothing(folder, target, code, message):
    ran = run_cli("init", "--from", target, cwd=folder)

    assert_one_error(ran, code, message)
    assert not (folder / "agent.yaml").exists()


def test_only_yaml_files_are_written(folder):
    ran = run_cli("init", "agent.txt", cwd=folder)

    assert (ran.code, (folder / "agent.txt").exists()) == (2, False)


def agent_yaml(folder, backend, *lines):
    cases = "test_cases: [{input: hi, evaluations: [{metric: contains, value: hi}]}]"
    (folder / "agent.yaml").write_text("\n".join([f'name: x\nbackend: "{backend}"', cases, *lines]))


@pytest.mark.parametrize(
    ("target", "found"),
    [
        ("bot:answer", "function answer; tools: unknown; does not see the earlier messages"),
        ("bot:listens", "function listens; tools: unknown; keeps the earlier messages"),
        ("bot:Agent", "class Agent; tools: unknown; does not see the earlier messages"),
        ("app:agent", "ChatCompletionAgent of Semantic Kernel; tools: Orders-lookup; keeps"),
    ],
)
def test_validate_shows_what_it_loaded(folder, target, found):
    (folder / "app.py").write_text(APP)
    agent_yaml(folder, target)

    ran = run_cli("validate", "--load", cwd=folder)

    assert_plain(ran)
    assert (ran.code, ran.stderr) == (0, "")
    assert f"agent.yaml: loaded {target}: {found}" in ran.stdout
    assert "was not imported" not in ran.stdout


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("bot:breaks", "error: backend: the agent cannot be created: ZeroDivisionError"),
        ("bot:number", "error: backend: an int is not an agent"),
    ],
)
def test_code_that_cannot_be_loaded_is_an_error_with_its_place(folder, target, message):
    agent_yaml(folder, target)

    plain = run_cli("validate", cwd=folder)
    loaded = run_cli("validate", "--load", cwd=folder)

    assert plain.code == 0
    assert "was not imported or run: " in plain.stdout
    assert loaded.code == 2
    assert f"agent.yaml:2:10: {message}" in loaded.stdout


def test_a_process_is_started_and_ended_to_look_at_its_agent(folder):
    (folder / "app.py").write_text(APP)
    agent_yaml(folder, "app:agent")
    file = folder / "agent.yaml"
    process = "{type: process, target: 'app:agent'}"
    file.write_text(file.read_text().replace('"app:agent"', process))

    ran = run_cli("validate", "--load", cwd=folder)

    assert (ran.code, ran.stderr) == (0, "")
    assert "loaded app:agent: agent in a process; tools: Orders-lookup; keeps" in ran.stdout


def test_tools_and_metrics_are_loaded_too(folder):
    (folder / "tools.py").write_text(
        'def find(name: str) -> str:\n    """Find."""\n    return name\n'
    )
    (folder / "agent.yaml").write_text("""
name: x
model: {provider: openai, name: m, api_key: none}
instructions: {inline: Help.}
tools: [{type: function, name: find, file: tools.py, function: find}]
test_cases: [{input: hi, expected_tools: [find], evaluations: [{metric: "bot:gone"}]}]
""")
    (folder / "bot.py").write_text("from importlib import import_module as gone\ndel gone\n")

    ran = run_cli("validate", "--load", cwd=folder)

    assert ran.code == 2
    assert "agent.yaml: loaded the tool find(name)" in ran.stdout
    assert "there is no 'gone' in it" in ran.stdout


@pytest.fixture
def runner(agent_dir, tmp_path):
    """A machine of CI whose checkout has an agent and its recordings."""
    agent_dir.write_agent(backend="chat")
    assert agent_dir.run("test", "--record").code == 0
    return Runner(agent_dir.path, tmp_path / "machine")


def test_the_workflow_replays_and_records_again(runner, agent_dir):
    wrote = agent_dir.run("init", "--ci")
    file = agent_dir.path / ".github" / "workflows" / "holodeck.yml"
    jobs = yaml.safe_load(file.read_text())["jobs"]
    scripts = {
        name: [step["run"] for step in job["steps"] if "holodeck " in step.get("run", "")]
        for name, job in jobs.items()
    }

    def run(name):
        steps = [runner.bash(script, agent_dir.path, {}) for script in scripts[name]]
        assert [step.code for step in steps] == [0] * len(steps), steps
        return steps

    assert "Next: holodeck test agent.yaml --record, then commit both" in wrote.stdout
    before = len(agent_dir.server.requests)
    [replayed] = run("replay")
    assert "1 replayed, 0 live" in replayed.output
    assert len(agent_dir.server.requests) == before

    _, recorded, compared = run("record")
    assert "0 replayed, 1 live" in recorded.output
    assert len(agent_dir.server.requests) == before + 1
    assert "A: greeter" in compared.output
    assert "B: greeter" in compared.output


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["other.yaml"], "other.yaml: is not there"),
        (["--suite"], "--ci writes a workflow"),
        (["--from", "app:agent"], "--ci writes a workflow"),
    ],
)
def test_a_workflow_is_written_for_an_agent_that_exists(runner, agent_dir, args, problem):
    ran = agent_dir.run("init", "--ci", *args)

    assert ran.code == 2
    assert problem in ran.stderr
    assert not (agent_dir.path / ".github").exists()


def test_a_workflow_that_exists_stays(runner, agent_dir):
    agent_dir.write(".github/workflows/holodeck.yml", "mine")

    assert agent_dir.run("init", "--ci").code == 2
    assert (agent_dir.path / ".github/workflows/holodeck.yml").read_text() == "mine"
