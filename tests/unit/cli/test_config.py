"""`holodeck config show`, and the notice about variables that a config.yaml overrules."""

import json
import re

import pytest

from support.cli import run_cli

AGENT = """\
name: x
model: {provider: openai, name: m}
instructions: {inline: hi}
execution: {max_retries: 2}
test_cases: [{input: hi, evaluations: [{metric: contains, value: x}]}]
"""
PROJECT = """\
execution:
  llm_timeout: 30
  fail_fast: true
providers:
  openai: {endpoint: "http://127.0.0.1:9/project", api_key: project-secret-1234}
"""
VARIABLES = {
    "HOLODECK_LLM_TIMEOUT": "5",
    "HOLODECK_MAX_RETRIES": "7",
    "HOLODECK_FILE_TIMEOUT": "8",
    "OPENAI_BASE_URL": "http://127.0.0.1:9/variable",
    "OPENAI_API_KEY": "variable-secret-1234",
}


@pytest.fixture
def project(tmp_path):
    (tmp_path / "agent.yaml").write_text(AGENT)
    (tmp_path / "config.yaml").write_text(PROJECT)
    return tmp_path


def rows(folder, *args, env=VARIABLES):
    ran = run_cli("config", "show", *args, "--format", "json", cwd=folder, env=env)
    assert (ran.code, ran.stderr) == (0, "")
    return {
        one["key"]: (one["value"], one["source"], one["overrules"])
        for one in json.loads(ran.stdout)
    }


def test_every_setting_is_shown_with_its_value_and_source(project):
    found = rows(project)

    assert found["execution.llm_timeout"] == (30, "config.yaml:2:16", "HOLODECK_LLM_TIMEOUT")
    assert found["execution.max_retries"] == (2, "agent.yaml:4:26", None)
    assert found["execution.file_timeout"] == (8, "HOLODECK_FILE_TIMEOUT", None)
    assert found["execution.quiet"] == (False, "default", None)
    assert found["model.name"] == ("m", "agent.yaml:2:33", None)
    assert found["model.endpoint"] == (
        "http://127.0.0.1:9/project", "config.yaml:5:22", "OPENAI_BASE_URL",
    )  # fmt: skip
    assert found["model.temperature"] == (0.3, "default", None)


def test_a_secret_is_never_shown_but_its_source_is(project):
    ran = run_cli("config", "show", cwd=project, env=VARIABLES)

    assert ran.code == 0
    assert "secret-1234" not in ran.stdout
    [line] = [one for one in ran.stdout.splitlines() if one.startswith("model.api_key")]
    assert re.fullmatch(
        r"model.api_key +\(not shown\) +config.yaml:5:61 \(overrides OPENAI_API_KEY\)", line
    )


def test_without_an_agent_the_settings_of_the_folder_are_shown(project):
    (project / "agent.yaml").unlink()

    found = rows(project)

    assert found["execution.llm_timeout"] == (30, "config.yaml:2:16", "HOLODECK_LLM_TIMEOUT")
    assert not any(key.startswith("model.") for key in found)


def test_an_agent_that_is_named_and_not_there_is_an_error(project):
    ran = run_cli("config", "show", "nothing.yaml", cwd=project)

    assert ran.code == 2
    assert "nothing.yaml" in ran.stderr


def test_a_variable_of_an_env_file_is_shown_with_the_file(tmp_path):
    (tmp_path / ".env").write_text("HOLODECK_MAX_RETRIES=4\nOLLAMA_HOST=here\n")
    (tmp_path / "agent.yaml").write_text(
        AGENT.replace("openai", "ollama").replace("max_retries", "maxfail")
    )

    found = rows(tmp_path, "agent.yaml", env={})

    assert found["execution.max_retries"][0] == 4
    assert found["execution.max_retries"][1].endswith(".env")
    assert found["model.endpoint"][0] == "http://here:11434"
    assert found["model.endpoint"][1].startswith("OLLAMA_HOST in ")


NOTICE = "config.yaml overrides environment variables:"


@pytest.mark.parametrize("command", ["test", "validate"])
def test_a_variable_that_a_config_yaml_overrules_is_told_once(project, command):
    agent = AGENT.replace("model: {provider: openai, name: m}\n", "backend: 'bot:answer'\n")
    for name in ("one", "two"):
        (project / name).mkdir()
        (project / name / "agent.yaml").write_text(
            agent.replace("instructions: {inline: hi}\n", "")
        )
        (project / name / "bot.py").write_text("def answer(text): return 'x'\n")
    home = project.parent / f"{project.name}-home" / ".holodeck"
    home.mkdir(parents=True)
    (home / "config.yaml").write_text("execution: {llm_timeout: 30}\n")
    paths = ["one", "two"] if command == "test" else ["one/agent.yaml"]

    ran = run_cli(command, *paths, cwd=project, env={"HOLODECK_LLM_TIMEOUT": "5"})

    assert ran.code == 0, ran.stderr
    assert ran.stderr.count(NOTICE) == 1
    assert "HOLODECK_LLM_TIMEOUT by " in ran.stderr
    assert "config.yaml:1:26 (execution.llm_timeout)" in ran.stderr


@pytest.mark.parametrize(
    ("env", "args"),
    [
        ({"HOLODECK_LLM_TIMEOUT": "30"}, ()),
        ({"HOLODECK_LLM_TIMEOUT": "5"}, ("--timeout", "9")),
        ({"HOLODECK_MAX_RETRIES": "5"}, ()),
    ],
    ids=["same value", "flag wins over both", "agent.yaml wins"],
)
def test_a_variable_that_loses_nothing_to_a_config_yaml_is_not_told(project, env, args):
    ran = run_cli("test", "--list", *args, cwd=project, env=env)

    assert (ran.code, NOTICE in ran.stderr) == (0, False)


def test_a_setting_that_a_config_yaml_overrules_by_its_rival_is_told(project):
    ran = run_cli("test", "--list", cwd=project, env={"HOLODECK_MAXFAIL": "3"})

    assert f"{NOTICE} HOLODECK_MAXFAIL by " in ran.stderr
