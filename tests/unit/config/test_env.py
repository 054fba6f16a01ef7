"""Variables: where they come from, and `${VAR}` in values."""

import os

import pytest

from holodeck.config.environment import Environment
from holodeck.config.loader import ConfigLoader
from holodeck.errors import ConfigError


def substitute(text, **variables):
    return Environment([("environment", variables)]).substitute(text)


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("${A}", "1"),
        ("x ${A} y ${A}", "x 1 y 1"),
        ("${A:-2}", "1"),
        ("${NONE:-2}", "2"),
        ("${EMPTY:-2}", "2"),
        ("${EMPTY}", ""),
        ("${NONE:-}", ""),
        ("$${A}", "${A}"),
        ("$$${A}", "$${A}"),
        ("$A", "$A"),
        ("${}", "${}"),
        ("${1}", "${1}"),
        ("${A-2}", "${A-2}"),
        ("${RECURSIVE}", "${A}"),
        ("${NONE:-${A}}", "${A}"),
        ("no variables", "no variables"),
    ],
)
def test_variables_are_replaced_once(text, result):
    assert substitute(text, A="1", EMPTY="", RECURSIVE="${A}") == result


def test_a_variable_that_is_not_set_is_an_error_with_its_place(folder):
    path = folder.agent("description: from ${NOWHERE}\n")

    with pytest.raises(ConfigError) as caught:
        ConfigLoader().load_agent_yaml(path)

    assert str(caught.value) == (
        "agent.yaml:4:14: description: ${NOWHERE}: the variable NOWHERE is not set; set it, write"
        " it into a .env file beside the agent.yaml, or give a default: ${NOWHERE:-text}"
    )


def test_variables_in_keys_and_comments_are_left_alone(folder, monkeypatch):
    monkeypatch.setenv("SOME", "thing")
    path = folder.agent(
        """\
        # not ${SET_ANYWHERE}
        backend: {type: http, url: http://x, request: {"${SOME}": "${SOME}"}}  # ${EITHER}
        """
    )

    agent = ConfigLoader().load_agent_yaml(path)

    assert agent.backend.request == {"${SOME}": "thing"}


@pytest.mark.parametrize("value", ["a: b", "[1]", "# no comment", "- x", "*a", "\n\nx: y", "12"])
def test_a_variable_cannot_change_the_structure(folder, monkeypatch, value):
    monkeypatch.setenv("HOSTILE", value)
    path = folder.agent("description: ${HOSTILE}\n")

    assert ConfigLoader().load_agent_yaml(path).description == value


def test_a_variable_may_stand_for_a_number_or_a_switch(folder, monkeypatch):
    monkeypatch.setenv("SECONDS", "12.5")
    path = folder.agent("execution: {llm_timeout: '${SECONDS}', quiet: '${QUIET:-true}'}\n")

    execution = ConfigLoader().load_agent_yaml(path).execution

    assert (execution.llm_timeout, execution.quiet) == (12.5, True)


def test_real_variables_win_over_env_files_and_those_by_nearness(folder, monkeypatch):
    path = folder.agent("description: ${V}\n", name="agents/agent.yaml")
    loaded = []

    def load():
        loaded.append(ConfigLoader().load_agent_yaml(path).description)

    folder.user(".config/holodeck/.env", "V=xdg\n")
    load()
    folder.user(".holodeck/.env", "V=user\n")
    load()
    folder.write(".env", "V=working folder\n")
    load()
    folder.write("agents/.env", "V=agent folder\n")
    load()
    monkeypatch.setenv("V", "real")
    load()

    assert loaded == ["xdg", "user", "working folder", "agent folder", "real"]


def test_env_files_do_not_change_the_process(folder):
    folder.write(".env", "FROM_A_FILE=1\n")

    env = Environment.beside(folder.path)

    assert env["FROM_A_FILE"] == "1"
    assert "FROM_A_FILE" not in os.environ


def test_a_variable_knows_where_it_was_found(folder, monkeypatch):
    monkeypatch.setenv("REAL", "1")
    folder.write(".env", "IN_FILE=1\nREAL=2\n")

    env = Environment.beside(folder.path)

    assert env.source_of("REAL") == "environment"
    assert env.source_of("IN_FILE") == str((folder.path / ".env").resolve())
    assert env.source_of("NOWHERE") is None
    assert {"REAL", "IN_FILE"} <= set(env)
    assert len(env) == len(set(env))


def test_an_env_file_that_is_no_text_is_an_error_naming_it(folder):
    folder.write(".env", b"A=\xff\n")

    with pytest.raises(ConfigError, match=r"\.env:1:3: byte 0xff is not UTF-8"):
        Environment.beside(folder.path)
