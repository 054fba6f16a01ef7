"""How many modules a command imports: what is imported without need makes every start slower."""

import subprocess
import sys
from pathlib import Path

import pytest

from fakes import FakeOpenAI, clean_environment

AGENT = """
name: echo
backend: {backend}
model: {{provider: openai, name: fake, endpoint: "{url}", api_key: x}}
instructions: {{inline: "Do what the user says."}}
test_cases:
  - {{input: hello, ground_truth: hello, evaluations: [{{metric: contains}}]}}
"""
BUDGETS = {
    "--help": 72,
    "validate agent.yaml": 278,
    "test agent.yaml --quiet": 360,
    "test semantic_kernel.yaml --quiet": 961,
}
"""Command → the number of modules that it may import."""
KNOWN = Path(__file__).parent / "known_modules"
"""Folder with the modules that each command imported when its budget was set."""
PROGRAM = """
import sys
from holodeck.cli.main import run
code = run(sys.argv[1:])
open("modules.txt", "w").write(" ".join(sys.modules))
sys.exit(code)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("budget")
    with FakeOpenAI("hello") as server:
        for name, backend in (("agent", "chat"), ("semantic_kernel", "semantic_kernel")):
            text = AGENT.format(url=server.url, backend=backend)
            (folder / f"{name}.yaml").write_text(text)
        yield folder


@pytest.mark.parametrize("command", BUDGETS)
def test_a_command_imports_no_more_modules_than_its_budget(command, folder):
    found = imported(command, folder)
    listed = KNOWN / f"{command.partition('.yaml')[0].strip('-').replace(' ', '-')}.txt"
    known = set(listed.read_text("utf-8").split())

    assert len(found) <= BUDGETS[command], (
        f"`holodeck {command}` imports {len(found)} modules; its budget is {BUDGETS[command]}."
        f" New since it was set: {', '.join(sorted(found - known)) or 'none'}."
        f" Import them where they are used; if every run needs them, raise the budget here and add"
        f" them to {listed.relative_to(KNOWN.parent.parent.parent)}."
    )


def imported(command, folder):
    """The modules of holodeck and of other packages, and the packages of the standard library,
    whose modules differ from one version of Python to the next."""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", PROGRAM, *command.split()], cwd=folder,
        env=clean_environment(folder), capture_output=True, text=True, timeout=180, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return {
        top if (top := name.partition(".")[0]) in sys.stdlib_module_names else name
        for name in (folder / "modules.txt").read_text("utf-8").split()
        if not name.startswith("_")
    }
