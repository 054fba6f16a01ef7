"""Only `holodeck test` runs code; looking at an agent runs none."""

import pytest

CANARY = """
import pathlib
pathlib.Path(__file__).with_name("RAN").write_text("x")

def answer(message):
    return message

def tool(city: str) -> str:
    "A tool."
    return city

def score(observation):
    return 1.0

class Sneaky:
    def __class_getitem__(cls, item):
        return item

@(lambda function: function)
def decorated(city: str = open(__file__).name) -> Sneaky[print("ran")]:
    return city
"""


@pytest.fixture
def canary_dir(agent_dir):
    """An agent that would leave a file behind if any of its code ran."""
    for name in ("canary.py", "conftest.py", "sitecustomize.py", "yaml.py", "holodeck.py"):
        agent_dir.write(name, CANARY)
    agent_dir.write("package/__init__.py", CANARY)
    tool = {"type": "function", "name": "tool", "file": "canary.py", "function": "tool"}
    agent_dir.write_agent(
        tools=[tool, tool | {"name": "decorated", "function": "decorated"}],
        evaluations={"metrics": [{"metric": "canary:score"}, {"metric": "package:score"}]},
        test_cases=[{"name": "c", "input": "hi"}],
    )
    return agent_dir


@pytest.mark.parametrize(
    "args",
    [
        ("validate",), ("validate", "--strict"), ("validate", "--json"), ("schema",),
        ("--help",), ("test", "--help"), ("--version",), ("models", "list"),
        ("test", "--no-such-option"), ("test", "gone.yaml"), ("test", "-o", "report.nothing"),
    ],
    ids=" ".join,
)  # fmt: skip
def test_looking_runs_nothing(canary_dir, args):
    ran = canary_dir.run(*args)

    assert "Traceback" not in ran.stderr
    assert not list(canary_dir.path.rglob("RAN"))
    assert not list(canary_dir.path.rglob("__pycache__"))


def test_nothing_runs_where_the_file_has_an_error_elsewhere(canary_dir):
    canary_dir.write_agent(
        tools=[{"type": "function", "name": "tool", "file": "canary.py", "function": "gone"}]
    )

    ran = canary_dir.run("test")

    assert ran.code == 2
    assert not (canary_dir.path / "RAN").exists()


def test_a_run_runs_the_code_of_the_folder(canary_dir):
    ran = canary_dir.run("test")

    assert ran.code in {0, 1}, ran.stderr
    assert (canary_dir.path / "RAN").exists()


@pytest.mark.parametrize(
    "value", ["!!python/name:os.system", "{{ 7*7 }}", "${jndi:ldap://x}", "$(id)"]
)
def test_text_of_a_configuration_is_never_executed(agent_dir, value):
    agent_dir.write_agent(instructions={"inline": value.replace("${", "$${")})

    ran = agent_dir.run("test")

    assert ran.code == 0, ran.stderr
    assert agent_dir.server.requests[0].messages[0]["content"] == value
