"""`holodeck init` writes a first agent.yaml; `holodeck validate --load` says what was found."""

import pytest

from fakes import run_cli
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
    assert ran.stdout == "Wrote agent.yaml and my_agent.py\nNext: holodeck test agent.yaml\n"
    assert (tested.code, tested.stderr) == (0, "")
    assert "2/2 passed" in tested.stdout


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
    assert text.count('expected_tools: ["Orders-lookup"]') == 2


def test_unfilled_cases_never_pass_and_filled_ones_are_valid(folder):
    run_cli("init", "shop.yaml", "--from", "bot:listens", cwd=folder)
    file = folder / "shop.yaml"

    empty = run_cli("test", "shop.yaml", cwd=folder)
    file.write_text(file.read_text().replace("input: #", "input: hello #"))
    half = run_cli("test", "shop.yaml", cwd=folder)
    file.write_text(file.read_text().replace("value: #", "value: hello #"))
    filled = run_cli("test", "shop.yaml", cwd=folder)

    assert (empty.code, half.code, filled.code) == (2, 2, 0)
    assert empty.stderr.count("input: found nothing") == 3
    assert half.stderr.count("value: has no value") == 3
    assert "3/3 passed" in filled.stdout


@pytest.mark.parametrize(
    ("target", "code", "message"),
    [
        ("bot:anwser", 2, "did you mean 'answer'"),
        ("nowhere:agent", 2, "No module named 'nowhere'"),
        ("bot", 2, "expected 'module:object'"),
        ("bot:breaks", 3, "ZeroDivisionError: division by zero (bot.py:13"),
        ("bot:number", 2, "a int is not an agent"),
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
        ("bot:number", "error: backend: a int is not an agent"),
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
