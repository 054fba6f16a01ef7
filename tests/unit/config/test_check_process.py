"""The static check of processes finds what cannot be started, and starts nothing."""

import sys

import pytest
import yaml

from holodeck.config.checks.agent import check
from holodeck.config.loader import ConfigLoader
from holodeck.errors import ConfigError
from support.cli import run_cli

PYTHON = sys.executable
HISTORY = [{"role": one, "content": "x"} for one in ("user", "assistant")]


@pytest.fixture
def load(tmp_path, monkeypatch):
    """Writes an agent.yaml with this backend, and reads it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bot.py").write_text("raise RuntimeError('imported')\ndef answer(message): ...\n")
    (tmp_path / "run.sh").write_text("#!/bin/sh\n")
    (tmp_path / "env" / "bin").mkdir(parents=True)
    (tmp_path / "env" / "bin" / "python").touch(0o755)

    def load(**backend):
        case = {"input": "hi", "evaluations": [{"metric": "contains", "value": "x"}]}
        agent = {"name": "a", "backend": {"type": "process", **backend}, "test_cases": [case]}
        file = tmp_path / "agent.yaml"
        file.write_text(yaml.safe_dump(agent, sort_keys=False))
        return ConfigLoader().load_agent_yaml("agent.yaml")

    return load


@pytest.mark.parametrize(
    "backend",
    [
        {"target": "bot:answer"},
        {"target": "installed.in.the:environment", "python": "env/bin/python"},
        {"target": "bot:answer", "python": PYTHON, "workers": 3, "start_timeout": 5},
        {"command": ["python3", "no-such-file.py"], "cwd": "env"},
        {"command": ["bin/python"], "cwd": "env"},
        {"command": ["python"], "env": {"PATH": "the folder of the environment"}},
    ],
)
def test_what_can_be_started_has_no_findings(load, tmp_path, backend):
    if "env" in backend:
        backend = {**backend, "env": {"PATH": str(tmp_path / "env" / "bin")}}

    assert check(load(**backend)) == []


@pytest.mark.parametrize(
    ("backend", "path", "said"),
    [
        (
            {"command": ["no-such-program", "x"]},
            "backend.command[0]",
            "program not found in PATH: 'no-such-program'",
        ),
        ({"command": ["./runs.sh"]}, "backend.command[0]", "did you mean 'run.sh'?"),
        ({"command": ["./run.sh"]}, "backend.command[0]", "not executable; try: chmod +x ./run.sh"),
        (
            {"target": "bot:answer", "python": "env/bin/pyton"},
            "backend.python",
            "did you mean 'python'?",
        ),
        (
            {"target": "bot:answer", "python": "./env"},
            "backend.python",
            "'./env' is a folder; expected a program; write 'env/bin/python'",
        ),
        ({"target": "bot.answer"}, "backend.target", "'bot.answer' is not 'module:object'"),
        ({"target": "bot:answr"}, "backend.target", "did you mean 'answer'?"),
        ({"target": "bot:answer", "cwd": "nowhere"}, "backend.cwd", "folder not found: 'nowhere'"),
    ],
)
def test_what_cannot_be_started_is_found_at_its_line(load, backend, path, said):
    [finding] = check(load(**backend))

    assert (finding.severity, finding.path) == ("error", path)
    assert said in finding.message
    assert finding.location.startswith("agent.yaml:")


@pytest.mark.parametrize(
    ("backend", "said"),
    [
        ({}, "write either 'command', such as [node, agent.js], or 'target'"),
        ({"command": ["a"], "target": "b:c"}, "write either 'command'"),
        ({"command": ["a"], "python": "b"}, "'python' needs 'target'"),
        ({"command": ["a"], "scope": "run"}, "'scope' needs 'target'"),
        ({"target": "b:c", "worker": 2}, "did you mean 'workers'?"),
        ({"target": "b:c", "workers": 0}, "found 0; expected at least 1"),
        ({"type": "proces", "target": "b:c"}, "proces"),
    ],
)
def test_a_backend_that_is_no_process_is_an_error_of_the_file(load, backend, said):
    with pytest.raises(ConfigError) as raised:
        load(**backend)

    assert said in str(raised.value)
    assert "agent.yaml:" in str(raised.value)


def test_the_name_alone_says_what_is_missing(tmp_path):
    (tmp_path / "agent.yaml").write_text("name: a\nbackend: process\ntest_cases: [{input: hi}]\n")

    ran = run_cli("validate", "agent.yaml", cwd=tmp_path)

    assert "'process' needs more; write '{type: process, target: module:object}'" in ran.stdout


def test_an_agent_that_gets_no_history_is_found_before_the_run(load, tmp_path):
    (tmp_path / "bot.py").write_text("def answer(message): ...\n")
    case = {"input": "hi", "history": HISTORY, "expected_tools": []}
    load(target="bot:answer")
    text = yaml.safe_load((tmp_path / "agent.yaml").read_text()) | {"test_cases": [case]}
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump(text))
    agent = ConfigLoader().load_agent_yaml(tmp_path / "agent.yaml")

    assert any("'context'" in one.message for one in check(agent))
