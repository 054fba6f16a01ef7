"""The other commands, the ways to start one, and whose setting wins."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from fakes import case, clean_environment, run_cli
from holodeck import __version__
from support.checks import assert_one_error, assert_plain


@pytest.mark.parametrize(
    "command",
    [[sys.executable, "-m", "holodeck"], [str(Path(sys.executable).with_name("holodeck"))]],
    ids=["module", "script"],
)
def test_the_command_is_there_as_a_module_and_as_a_script(command, tmp_path):
    ran = subprocess.run(
        [*command, "--version"],
        cwd=tmp_path, env=clean_environment(tmp_path), capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert (ran.returncode, ran.stderr) == (0, "")
    assert ran.stdout == f"holodeck, version {__version__}\n"


@pytest.mark.parametrize("command", ["test", "validate", "schema", "models"])
def test_every_command_explains_itself(command, tmp_path):
    ran = run_cli(command, "--help", cwd=tmp_path)

    assert_plain(ran)
    assert (ran.code, ran.stderr) == (0, "")
    assert ran.stdout.startswith(f"Usage: holodeck {command}")


def test_help_of_test_names_every_setting_with_its_default(tmp_path):
    shown = " ".join(run_cli("test", "--help", cwd=tmp_path).stdout.split())

    for flag in ("--llm-timeout", "--retries", "--parallel-test-cases", "--output", "--[no-]quiet"):
        assert flag in shown
    assert "Limit of one agent or judge call [default: 60]" in shown


def test_an_agent_can_be_checked_without_calling_it(agent_dir):
    agent_dir.write_agent()

    ran = agent_dir.run("validate")

    assert_plain(ran)
    assert (ran.code, ran.stderr, agent_dir.server.requests) == (0, "", [])
    assert "1 test case" in ran.stdout


def test_a_check_finds_what_a_run_would_only_find_later(agent_dir):
    agent_dir.write_agent(
        test_cases=[case("calls", "hello", expected_tools=["search"]), case("loose", "hello")]
    )

    ran = agent_dir.run("validate")

    assert_plain(ran)
    assert ran.code == 2
    assert "unknown tool 'search': the agent has no tools" in ran.stdout
    assert "checks nothing" in ran.stdout


def test_the_schema_of_the_format_is_json_on_stdout(tmp_path):
    ran = run_cli("schema", cwd=tmp_path)

    assert (ran.code, ran.stderr) == (0, "")
    assert {"name", "model", "test_cases"} <= set(json.loads(ran.stdout)["properties"])


def test_known_models_are_listed_without_a_network(tmp_path):
    ran = run_cli("models", "list", cwd=tmp_path, env={"HOLODECK_OFFLINE": "1"})

    assert_plain(ran)
    assert (ran.code, ran.stderr) == (0, "")
    assert "smollm2-135m-instruct" in ran.stdout
    assert "qwen2.5-coder-1.5b-instruct" in ran.stdout


def test_a_local_model_that_is_not_there_is_an_honest_error_offline(agent_dir, tmp_path):
    agent_dir.write_agent(model={"provider": "local"})

    ran = agent_dir.run("test", "--offline", env={"HOLODECK_CACHE_DIR": str(tmp_path / "none")})

    assert_one_error(ran, 3, "smollm2-135m-instruct", "offline")


LEVELS = ("default", "environment", "user", "project", "agent.yaml", "command line")
SPY = """
import asyncio

now = peak = 0

class Shared:
    # an object that all cases share, so one runs at a time by default
    async def run(self, message):
        global now, peak
        now += 1
        peak = max(peak, now)
        while peak < LEVEL:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # for more than there may be
        now -= 1
        return f"peak {peak}"

answer = Shared()
"""


@pytest.mark.parametrize("level", range(1, 7), ids=LEVELS)
def test_the_nearest_setting_wins(bot_dir, write_bot, level):
    """How many cases run at once is told by the agent itself; each level says one more."""
    home = bot_dir.path.parent / f"{bot_dir.path.name}-home"
    (home / ".holodeck").mkdir(parents=True)
    bot_dir.write("bot.py", SPY.replace("LEVEL", str(level)))
    cases = [case(f"case {n}", "hello") for n in range(6)]
    cases[-1] = case("last", "hello", contains=f"peak {level}")
    own = {"parallel_test_cases": 5} if level >= 5 else None
    write_bot(test_cases=cases, execution=own)
    if level >= 4:
        bot_dir.write("config.yaml", "execution: {parallel_test_cases: 4}\n")
    if level >= 3:
        (home / ".holodeck" / "config.yaml").write_text("execution: {parallel_test_cases: 3}\n")
    env = {"HOLODECK_PARALLEL_TEST_CASES": "2"} if level >= 2 else {}

    ran = bot_dir.run("test", *(["--parallel", "6"] if level >= 6 else []), env=env)

    assert "PASS last" in ran.stdout, ran.stdout


def test_results_stand_in_the_order_of_the_file_however_they_came(bot_dir, write_bot):
    write_bot(
        test_cases=[
            case("slow", "sleep 2", contains="sleep"), case("quick", "hello", contains="hello"),
        ]
    )  # fmt: skip

    ran = bot_dir.run("test", "--parallel", "2", "-o", "r.json")

    assert ran.stdout.index("PASS quick") < ran.stdout.index("PASS slow")
    results = json.loads((bot_dir.path / "r.json").read_text())["results"]
    assert [result["test_name"] for result in results] == ["slow", "quick"]


def test_an_agent_in_a_folder_can_be_named_by_the_folder(bot_dir, write_bot):
    write_bot()

    ran = run_cli("test", bot_dir.path.name, cwd=bot_dir.path.parent)

    assert (ran.code, ran.stderr) == (0, "")
