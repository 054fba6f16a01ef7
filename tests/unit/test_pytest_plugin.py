"""The plugin of pytest, in a pytest of its own."""

import tomllib
from functools import partial
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from support.own_pytest import run_pytest, run_pytest_from_nothing

ROOT = Path(__file__).resolve().parents[2]
SCENARIOS = """
import asyncio
import pytest
from holodeck import scenario


class Says(scenario.AgentAdapter):
    def __init__(self, word, role=scenario.AgentRole.AGENT):
        self.word, self.role = word, role

    async def call(self, input):
        if isinstance(self.word, BaseException):
            raise self.word
        return self.word


def play(name, word, *, verdict=None, executor=False):
    parts = [Says("hi", scenario.AgentRole.USER), Says(word)]
    if verdict is not None:
        parts.append(Says(verdict, scenario.AgentRole.JUDGE))
    last = scenario.succeed() if verdict is None else scenario.judge()
    given = dict(script=[scenario.user(), scenario.agent(), last], verbose=False)
    if executor:
        return asyncio.run(scenario.ScenarioExecutor(name, "...", parts, **given).run())
    return asyncio.run(scenario.run(name, "...", parts, **given))


@pytest.mark.agent_test
def test_good():
    assert play("good one", "hello").success


def test_bad():
    verdict = scenario.ScenarioResult(
        success=False, messages=[], reasoning="too short",
        passed_criteria=["polite"], failed_criteria=["long"],
    )
    assert play("bad one", "hello", verdict=verdict).success


def test_error():
    play("broken one", OSError("gone"), executor=True)


def test_rude():
    play("rude one", pytest.fail.Exception("it is rude"))


def test_unfit():
    play("unfit one", pytest.skip.Exception("no key"))
"""
AGENT = """
name: echo
backend: "echo:answer"
test_cases:
  - name: repeats
    input: hello
    evaluations: [{metric: exact_match, value: hello}]
  - name: shouts
    input: hello
    evaluations: [{metric: exact_match, value: HELLO}]
  - input: hello
    evaluations: [{metric: exact_match, value: hello}]
"""


@pytest.fixture
def run(tmp_path):
    return partial(run_pytest, tmp_path)


@pytest.fixture
def scenarios(tmp_path):
    (tmp_path / "test_scenarios.py").write_text(SCENARIOS)


REPORTER = """

def test_the_report(scenario_reporter, capsys):
    assert [one["scenario"].name for one in scenario_reporter.results] == ["good one", "bad one"]
    assert scenario_reporter.get_summary() == {
        "total": 2, "passed": 1, "failed": 1, "success_rate": 50.0
    }
    scenario_reporter.print_report()
    assert capsys.readouterr().out == (
        "2 scenarios: 1 passed, 1 failed; success rate 50 %\\n"
        "1. good one: PASSED\\n"
        "   Scenario marked as successful\\n"
        "2. bad one: FAILED, criteria 1/2\\n"
        "   too short\\n"
    )
"""


@pytest.fixture
def agent(tmp_path):
    (tmp_path / "agent.yaml").write_text(AGENT)
    (tmp_path / "echo.py").write_text("def answer(text: str) -> str:\n    return text\n")


def test_a_test_can_read_the_results_of_the_scenarios_before_it(run, tmp_path):
    (tmp_path / "test_scenarios.py").write_text(SCENARIOS + REPORTER)

    told = run("-k", "good or bad or report")

    assert "1 failed, 2 passed" in told


def test_the_options_of_scenarios_own_plugin_are_there_on_request(run, tmp_path):
    (tmp_path / "test_scenarios.py").write_text(SCENARIOS)
    asked = ("-p", "holodeck.scenario.pytest_plugin", "-k", "good")

    assert "1 passed" in run(*asked, "--headless")
    assert "--holodeck-debug needs a terminal" in run(*asked, "--scenario-debug")


def test_the_entry_point_is_declared():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    module = project["entry-points"]["pytest11"]["holodeck"]

    assert import_module(module).pytest_configure is not None


@pytest.mark.parametrize("processes", [[], ["-n", "2"]], ids=["one process", "two processes"])
def test_the_summary_lists_every_scenario_the_broken_ones_too(run, scenarios, processes):
    told = run(*processes)

    assert "= holodeck =" in told
    assert "PASSED good one: " in told
    assert "(test_scenarios.py::test_good)" in told
    assert "FAILED bad one: " in told
    assert "criteria 1/2" in told
    assert "too short" in told
    assert "ERROR  broken one: " in told
    assert "OSError: gone" in told
    assert "FAILED rude one: " in told
    assert "it is rude" in told
    assert "SKIPPED unfit one: " in told
    assert "5 scenarios: 1 passed, 2 failed, 1 error, 1 skipped; success rate 25%" in told
    assert "3 failed, 1 passed, 1 skipped" in told


def test_the_marker_selects(run, scenarios):
    told = run("-m", "agent_test")

    assert "1 passed, 4 deselected" in told
    assert "1 scenario: 1 passed; success rate 100%" in told


def test_without_scenarios_there_is_no_section_and_nothing_is_imported(tmp_path):
    (tmp_path / "test_other.py").write_text(
        "import sys\n"
        "def test_imports():\n"
        "    ours = sorted(name for name in sys.modules if name.startswith('holodeck'))\n"
        "    assert ours == ['holodeck', 'holodeck.lib', 'holodeck.lib.conversation',"
        " 'holodeck.lib.conversation.result_listeners', 'holodeck.models',"
        " 'holodeck.pytest_plugin']\n"
        "    assert 'pydantic' not in sys.modules\n"
    )
    told = run_pytest_from_nothing(tmp_path)

    assert "1 passed" in told
    assert "= holodeck =" not in told


@pytest.mark.parametrize("processes", [[], ["-n", "2"]], ids=["one process", "two processes"])
def test_the_cases_of_an_agent_are_tests(run, agent, tmp_path, processes):
    told = run("agent.yaml", "--junitxml", "x.xml", *processes)

    assert "1 failed, 2 passed" in told
    assert "shouts: exact_match" in told
    assert "3 scenarios: 2 passed, 1 failed; success rate 67%" in told
    cases = ET.parse(tmp_path / "x.xml").getroot().iter("testcase")
    names = {one.get("name"): one.find("failure") is not None for one in cases}
    assert names == {"repeats": False, "shouts": True, "case 3": False}


def test_one_case_can_be_chosen_by_word_and_by_name(run, agent):
    assert "1 passed, 2 deselected" in run("agent.yaml", "-k", "repeats")
    assert "1 passed" in run("agent.yaml::repeats")


def test_a_budget_that_pytest_cannot_hold_is_told(run, agent, tmp_path):
    with (tmp_path / "agent.yaml").open("a") as file:
        file.write("execution: {max_calls: 1}\n")

    told = run("agent.yaml", "-k", "repeats")

    assert "agent.yaml: its budget is ignored, as each case is a run of its own" in told


def test_skipped_cases_are_skipped_and_flaky_ones_are_counted_apart(run, tmp_path):
    (tmp_path / "dice.py").write_text("said = iter('ab')\ndef answer(_):\n    return next(said)\n")
    (tmp_path / "agent.yaml").write_text(
        'name: dice\nbackend: "dice:answer"\ntest_cases:\n'
        "  - {name: later, input: x, expected_tools: [], skip: the die is lost}\n"
        "  - {name: rolls, input: x, repeat: 2, min_pass: 1, stop_early: false,\n"
        "     evaluations: [{metric: exact_match, value: b}]}\n"
    )

    told = run("agent.yaml", "-rs", "-W", "error")

    assert "1 skipped, 1 flaky" in told
    assert "the die is lost" in told
    assert "FLAKY  rolls: " in told
    assert "1 of 2 repetitions passed, 1 needed" in told


def test_the_last_failed_case_can_be_run_again(run, agent):
    run("agent.yaml")
    told = run("agent.yaml", "--lf")

    assert "run-last-failure" in told
    assert "1 failed" in told
    assert "passed" not in told.splitlines()[-1]


def test_an_agent_in_a_folder_is_left_alone_unless_the_configuration_names_it(run, agent, tmp_path):
    assert "no tests ran" in run()

    (tmp_path / "pytest.ini").write_text("[pytest]\nholodeck_files = agent.yaml\n")
    assert "1 failed, 2 passed" in run()


def test_a_wrong_agent_is_an_error_of_collection_that_says_where(run, agent, tmp_path):
    (tmp_path / "agent.yaml").write_text(AGENT.replace("backend", "bakcend"))
    told = run("agent.yaml")

    assert "bakcend" in told
    assert "Traceback" not in told
    assert "1 error" in told


def test_other_yaml_files_are_no_agents(run, tmp_path):
    (tmp_path / "values.yaml").write_text("a: 1\n")

    assert "no tests ran" in run("values.yaml")


def test_a_run_that_was_given_up_counts_once(run, tmp_path):
    (tmp_path / "test_late.py").write_text(
        "import asyncio, pytest, time\n"
        "from holodeck import scenario\n"
        "from holodeck.errors import BackendTimeoutError\n"
        "class Slow(scenario.AgentAdapter):\n"
        "    async def call(self, input):\n"
        "        time.sleep(0.6)\n"
        "        return 'late'\n"
        "def test_late():\n"
        "    script = [scenario.agent(), scenario.succeed()]\n"
        "    run = scenario.run('late', '...', [Slow()], script=script, timeout=0.1)\n"
        "    with pytest.raises(BackendTimeoutError):\n"
        "        asyncio.run(run)\n"
        "    time.sleep(0.8)\n"
    )
    told = run()

    assert "ERROR  late: " in told
    assert "1 scenario: 1 error; success rate 0%" in told


def test_debugging_needs_a_terminal(run, scenarios):
    told = run("--holodeck-debug")

    assert "--holodeck-debug needs a terminal, and " in told
    assert "Traceback" not in told
    assert "passed" not in told


def test_conversations_stay_out_of_the_output_unless_asked_for(run, scenarios, tmp_path):
    loud = tmp_path / "test_scenarios.py"
    loud.write_text(SCENARIOS.replace(", verbose=False", ""))

    assert "User: hi" not in run("-s")
    loud.write_text(SCENARIOS.replace("verbose=False", "verbose=True"))
    assert "User: hi" in run("-s")


@pytest.mark.parametrize(
    ("arguments", "ini", "told"),
    [
        ((), "holodeck_files = agents.yaml", "matches no file in .; did you mean 'agent.yaml'?"),
        (("tests",), "holodeck_files = agents.yaml", "matches no file in .; did you mean"),
        ((), "holodeck_files = agent.yaml\ntestpaths = tests", "matches no file in tests"),
        (("-n", "1"), "holodeck_files = agents.yaml", "matches no file in .; did you mean"),
    ],
    ids=["misspelt", "narrowed", "elsewhere", "processes"],
)
def test_a_pattern_of_files_that_matches_nothing_is_a_usage_error(tmp_path, arguments, ini, told):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_one.py").write_text("def test_one():\n    pass\n")
    (tmp_path / "agent.yaml").write_text("name: x\nbackend: 'bot:answer'\n")
    (tmp_path / "pytest.ini").write_text(f"[pytest]\n{ini}\n")

    shown = run_pytest(tmp_path, *arguments)

    assert "ERROR: holodeck_files: 'agent" in shown
    assert told in shown
    assert "1 passed" not in shown


def test_a_pattern_may_match_a_file_beside_those_that_are_asked_for(tmp_path):
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_one.py").write_text("def test_one():\n    pass\n")
    (tmp_path / "agent.yaml").write_text("name: x\nbackend: 'bot:answer'\n")
    (tmp_path / "pytest.ini").write_text("[pytest]\nholodeck_files = agent.yaml\n")

    assert "1 passed" in run_pytest(tmp_path, "tests")
