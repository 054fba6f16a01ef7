"""Makes a test file of the examples in AgenticAssure's README."""

import re
from collections.abc import Callable

_TESTS = '''\
import shlex
import subprocess
import sys

PYTHON = {python!r}
SCENARIOS = {scenarios!r}
COMMANDS = {commands!r}


class Response:
    latency = 1.0

    def __init__(self, text):
        self.text = text


class YourAgent:
    """The agent that the README leaves to the reader."""

    def invoke(self, input):
        return Response(f"Hello, {{input}} Write to help@example.com")


def test_python(tmp_path, monkeypatch, capsys):
    write(tmp_path)
    monkeypatch.chdir(tmp_path)
    names = {{"your_agent": YourAgent()}}

    for block in PYTHON:
        exec(block, names)

    # the adapter of the README calls no tool, so one of three scenarios fails
    assert "Pass rate: 67%" in capsys.readouterr().out


def test_command_line(tmp_path):
    write(tmp_path)
    adapter = "import test_readme\\nyour_agent = test_readme.YourAgent()\\n" + PYTHON[0]
    (tmp_path / "mymodule.py").write_text(adapter)
    (tmp_path / "test_readme.py").write_text(open(__file__).read())

    codes = [run(command, tmp_path) for command in COMMANDS]

    assert codes == [1 if "--adapter" in command else 0 for command in COMMANDS]
    assert list(tmp_path.glob("report_*.html")) and list(tmp_path.glob("results_*.json"))


def write(folder):
    (folder / "scenarios").mkdir()
    (folder / "scenarios" / "support_agent.yaml").write_text(SCENARIOS)


def run(command, folder):
    args = ["-m", "holodeck", *shlex.split(command)]
    return subprocess.run([sys.executable, *args], cwd=folder).returncode
'''
_COMMANDS = {"run": "test {}", "list": "test {} --list", "validate": "validate {}"}
"""Command of AgenticAssure → that of holodeck, as the guide has them."""


def tests_of(readme: str, rewrite: Callable[[str], str]) -> str:
    """Return a test file for the README; `rewrite` changes the imports of its Python."""
    python = [rewrite(block) for block in _blocks(readme, "python")]
    [scenarios] = _blocks(readme, "yaml")
    lines = [line for block in _blocks(readme, "bash") for line in block.splitlines()]
    given = [line.split(maxsplit=2)[1:] for line in lines if line.startswith("agenticassure ")]
    commands = [_COMMANDS[command].format(rest) for command, rest in given]
    return _TESTS.format(python=python, scenarios=scenarios, commands=commands)


def _blocks(readme: str, language: str) -> list[str]:
    return re.findall(rf"(?ms)^```{language}\n(.*?)^```", readme)
