"""Only `holodeck test` runs code; looking at an agent runs none."""

import shutil

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


@pytest.mark.parametrize("args", [("validate",), ("schema",), ("--help",)], ids=" ".join)
def test_looking_runs_nothing(canary_dir, tally, args):
    ran = canary_dir.run(*args)

    assert "Traceback" not in ran.stderr
    tally("code run by looking", traces_of(canary_dir), 1)


def traces_of(folder):
    return [*folder.path.rglob("RAN"), *folder.path.rglob("__pycache__")]


LOOKS = [
    ("validate", "--strict"), ("validate", "--json"), ("test", "--help"), ("--version",),
    ("models", "list"), ("test", "--no-such-option"), ("test", "gone.yaml"),
    ("test", "-o", "report.nothing"), ("test", "--resume", "gone"), ("runs", "list"), ("report",),
]  # fmt: skip


@pytest.mark.parametrize("args", LOOKS, ids=" ".join)
def test_no_other_look_runs_anything_either(canary_dir, cli, tally, args):
    ran = cli.run(*args, cwd=canary_dir.path)

    assert "Traceback" not in ran.stderr
    tally("code run by looking", traces_of(canary_dir), 1)


def test_looking_at_a_run_that_was_recorded_runs_nothing(canary_dir, cli, tally):
    canary_dir.write_agent(model=None, instructions=None, backend="canary:answer")
    canary_dir.run("test")
    assert traces_of(canary_dir)
    (canary_dir.path / "RAN").unlink()
    for cache in canary_dir.path.rglob("__pycache__"):
        shutil.rmtree(cache)

    for args in (["report"], ["report", "--format", "json"], ["runs", "list"], ["runs", "show"]):
        ran = cli.run(*args, cwd=canary_dir.path)

        assert "Traceback" not in ran.stderr
        tally("code run by looking", traces_of(canary_dir), 1)


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


def test_text_of_a_configuration_is_never_executed(agent_dir):
    text = "!!python/name:os.system {{ 7*7 }} ${jndi:ldap://x} $(id) `id` %(x)s {0.__class__}"
    agent_dir.write_agent(backend="chat", instructions={"inline": text.replace("${", "$${")})

    ran = agent_dir.run("test")

    assert ran.code == 0, ran.stderr
    assert agent_dir.server.requests[0].messages[0]["content"] == text


@pytest.mark.parametrize("place", ["agent", "grader"])
@pytest.mark.parametrize("raised", ["SystemExit(0)", "GeneratorExit"])
def test_an_exception_whose_message_ends_the_program_ends_no_run(bot_dir, write_bot, place, raised):
    bot_dir.write(
        "bot.py",
        "class Sneaky(Exception):\n"
        f"    def __str__(self):\n        raise {raised}\n    __repr__ = __str__\n"
        "def answer(message):\n    return message\n"
        "def fail(case):\n    raise Sneaky()\n",
    )
    metrics = [{"metric": "bot:fail"}]
    write_bot(
        backend="bot:fail" if place == "agent" else "bot:answer",
        test_cases=[{"name": "c", "input": "hi", "evaluations": metrics}],
    )

    ran = bot_dir.run("test")

    assert ran.code == (3 if place == "agent" else 4), ran.stdout + ran.stderr
    assert "Errors: 1" in ran.stdout
    assert "Sneaky" in ran.stdout
