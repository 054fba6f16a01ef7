"""The defaults of a project in pyproject.toml."""

import json

import pytest

from holodeck.config.loader import ConfigLoader
from support.cli import run_cli

AGENT = """name: echo
backend: "bot:answer"
test_cases: [{input: hi, evaluations: [{metric: contains, value: hi}]}]
"""


@pytest.fixture
def project(tmp_path):
    """A repository whose agent is in a folder below; writes its pyproject.toml."""
    root = tmp_path / "project"
    folder = root / "agents" / "echo"
    folder.mkdir(parents=True)
    (root / ".git").mkdir()
    (folder / "agent.yaml").write_text(AGENT)
    (folder / "bot.py").write_text("def answer(message):\n    return message\n")

    def write(text):
        (root / "pyproject.toml").write_text(f'[project]\nname = "x"\n\n{text}')
        return root

    return write


def settings(folder, monkeypatch, **variables):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    loader = ConfigLoader()
    agent = loader.load_agent_yaml(folder / "agents" / "echo")
    found = loader.settings_of(agent, None)
    return found.llm_timeout, found.source_of("llm_timeout").rpartition("/")[2]


def test_the_settings_hold_where_nothing_else_sets_them(project, monkeypatch):
    folder = project("[tool.holodeck.execution]\nllm_timeout = 7\n")

    assert settings(folder, monkeypatch) == (7, "pyproject.toml:4:1")

    assert settings(folder, monkeypatch, HOLODECK_LLM_TIMEOUT="8") == (8, "HOLODECK_LLM_TIMEOUT")
    (folder / "agents" / "echo" / "config.yaml").write_text("execution: {llm_timeout: 9}\n")
    assert settings(folder, monkeypatch)[0] == 9


def test_a_variable_wins_over_the_rival_of_its_setting(project, monkeypatch):
    folder = project("[tool.holodeck.execution]\nmaxfail = 7\n")
    monkeypatch.setenv("HOLODECK_FAIL_FAST", "1")
    loader = ConfigLoader()

    found = loader.settings_of(loader.load_agent_yaml(folder / "agents" / "echo"), None)

    assert (found.fail_fast, found.maxfail) == (True, None)


def test_commands_use_the_agent_that_it_names(project):
    folder = project('[tool.holodeck]\nagent = "agents/echo"\n')
    (folder / "docs").mkdir()

    ran = run_cli("test", "-o", "-", "--format", "json", cwd=folder)

    assert ran.code == 0
    assert json.loads(ran.stdout)["agent_config_path"] == "agents/echo/agent.yaml"
    assert "1/1" in run_cli("runs", "list", cwd=folder / "docs").stdout
    assert "echo" in run_cli("report", cwd=folder).stdout


def test_an_agent_on_the_way_up_comes_first(project, tmp_path):
    folder = project('[tool.holodeck]\nagent = "agents/echo"\n')
    other = folder / "agents" / "other"
    (other / "data").mkdir(parents=True)
    (other / "agent.yaml").write_text(AGENT.replace("echo", "other"))
    (tmp_path / "agent.yaml").write_text(AGENT.replace("echo", "elsewhere"))

    def listed(cwd):
        [case] = json.loads(run_cli("test", "--list", "--json", cwd=cwd).stdout)
        return case["place"].rpartition(":")[0].rpartition(":")[0]

    assert listed(other / "data") == "../agent.yaml"
    assert listed(folder / "agents") == "echo/agent.yaml"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[tool.holodeck]\nagnet = 'a'\n", "toml:4:1: agnet: unknown key; did you mean 'agent'?"),
        ("[tool.holodeck.execution]\nrepeat = 0\n", "execution.repeat: found 0; expected at least"),
        ("[tool.holodeck]\nagent = '../agents'\n", "tool.holodeck.agent: '../agents' is outside"),
        ("[tool.holodeck\n", "pyproject.toml: is not TOML"),
        ("[tool]\nholodeck = 3\n", "found 3; expected a mapping"),
    ],
)
def test_what_is_wrong_in_it_is_an_error(project, text, said):
    ran = run_cli("test", cwd=project(text))

    assert ran.code == 2
    assert said in ran.stderr


def test_it_is_searched_up_to_the_root_of_the_repository_only(project, monkeypatch):
    folder = project("[tool.holodeck.execution]\nllm_timeout = 7\n")
    (folder / "agents" / ".git").mkdir()

    assert settings(folder, monkeypatch) == (60, "default")


def test_another_project_is_none_of_its_business(project, monkeypatch):
    assert settings(project("[tool.holodecks]\nx = 1\n"), monkeypatch) == (60, "default")
