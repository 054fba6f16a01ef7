"""The plugin of pytest: no result of a scenario or a file of cases vanishes."""

import pytest

from support.own_pytest import run_pytest

HEAD = """
import asyncio, threading
import pytest
from holodeck import scenario

class Says(scenario.AgentAdapter):
    async def call(self, input):
        return "hello"

def play(name, last=scenario.fail):
    return scenario.run(name, "...", [Says()], script=[scenario.agent(), last("so it is")])
"""
PROCESSES = pytest.mark.parametrize(
    "processes", [[], ["-n", "1"]], ids=["one process", "another process"]
)


@PROCESSES
def test_a_scenario_that_ends_after_the_last_test_is_in_the_summary(tmp_path, processes):
    (tmp_path / "test_late.py").write_text(HEAD + "def test_nothing():\n    pass\n")
    (tmp_path / "conftest.py").write_text(
        "import asyncio, pytest\n"
        "@pytest.hookimpl(tryfirst=True)\n"
        "def pytest_sessionfinish(session):\n"
        "    if not session.config.getoption('numprocesses', 0):\n"
        "        from test_late import play\n"
        "        asyncio.run(play('late one'))\n"
    )

    told = run_pytest(tmp_path, *processes)

    assert "FAILED late one: " in told
    assert "(while no test ran)" in told


@PROCESSES
def test_a_scenario_that_nobody_awaits_fails_the_run(tmp_path, processes):
    (tmp_path / "test_lazy.py").write_text(HEAD + "def test_lazy():\n    play('lazy')\n")
    (tmp_path / "conftest.py").write_text(
        "import pathlib, pytest\n"
        "@pytest.hookimpl(trylast=True)\n"
        "def pytest_sessionfinish(session):\n"
        "    if not hasattr(session.config, 'workerinput'):\n"
        "        pathlib.Path('status').write_text(str(int(session.exitstatus)))\n"
    )

    told = run_pytest(tmp_path, *processes)

    assert "NOT RUN a scenario was created and never run" in told
    assert "(test_lazy.py::test_lazy)" in told
    assert (tmp_path / "status").read_text() == "1"


def test_a_failed_scenario_in_a_test_that_passed_is_pointed_out(tmp_path):
    (tmp_path / "test_lax.py").write_text(
        HEAD
        + "def test_lax():\n    asyncio.run(play('lax'))\n"
        + "def test_strict():\n    assert asyncio.run(play('strict')).success\n"
        + "def test_good():\n    asyncio.run(play('good', scenario.succeed))\n"
    )

    told = run_pytest(tmp_path)

    assert "(test_lax.py::test_lax, which passed anyway)" in told
    assert "(test_lax.py::test_strict)" in told
    assert "(test_lax.py::test_good)" in told


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("name: bot\ntest_case: []\n", "test_case"),
        ('"name": bot\n"test_cases": []\n', "bot.yaml: "),
        ('name: bot\nbackend: "bot:answer"\n', "it has no test cases"),
        ('name: bot\nbackend: "bot:answer"\ntest_cases: []\n', "it has no test cases"),
    ],
    ids=["misspelt", "quoted", "without cases", "empty"],
)
def test_a_named_file_of_cases_that_gives_no_test_is_an_error(tmp_path, text, wanted):
    (tmp_path / "bot.yaml").write_text(text)
    (tmp_path / "bot.py").write_text("def answer(text):\n    return text\n")
    (tmp_path / "test_other.py").write_text("def test_other():\n    pass\n")

    told = run_pytest(tmp_path, "test_other.py", "bot.yaml")

    assert wanted in told
    assert "1 error" in told


@pytest.mark.parametrize(
    "named", [(".", "bot.yaml"), ("bot.yaml::loud", ".")], ids=["after its folder", "one case"]
)
def test_a_file_that_is_named_beside_its_folder_is_run_as_well(tmp_path, named):
    evaluations = "evaluations: [{metric: contains, value: HELLO}]"
    case = f"{{name: loud, input: hello, {evaluations}}}"
    (tmp_path / "bot.yaml").write_text(
        f'name: bot\nbackend: "bot:answer"\ntest_cases:\n  - {case}\n'
    )
    (tmp_path / "bot.py").write_text("def answer(text):\n    return text\n")
    (tmp_path / "test_other.py").write_text("def test_other():\n    pass\n")

    told = run_pytest(tmp_path, *named)

    assert "1 failed, 1 passed" in told
