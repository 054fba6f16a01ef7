"""An agent is found where its code is, and loaded once, from any working directory."""

import json

import pytest

from fakes import run_cli
from holodeck import arun
from holodeck.models.test_result import Outcome
from support.folder import write_files

PROJECT = {
    "shop/__init__.py": "",
    "shop/orders.py": "PLACED = []\n",
    "shop/desk.py": (
        "from shop.orders import PLACED\n"
        "import shop.orders\n"
        "def agent(message):\n"
        "    PLACED.append(message)\n"
        "    return 'shared' if shop.orders.PLACED is PLACED else 'loaded twice'\n"
    ),
}
"""A package that imports itself by its whole name."""
GRADER = (
    "from shop.orders import PLACED\n"
    "def check(observation):\n"
    "    return PLACED[-1:] == [observation.input]\n"
)
LAYOUTS = {
    "beside the agent.yaml": ("", "", {}, ""),
    "in a parent folder": ("", "evals", {}, "code: ..\n"),
    "in a parent folder with a pyproject.toml": ("", "tests/evals", {"pyproject.toml": ""}, ""),
    "in src, with a pyproject.toml": ("src", "evals", {"pyproject.toml": ""}, ""),
    "in src, without one": ("src", "evals", {}, "code: ../src\n"),
}
"""Where the package is, where the agent.yaml is, further files, and what the agent.yaml adds."""
BACKENDS = {
    "here": '"shop.desk:agent"',
    "process": '{type: process, target: "shop.desk:agent"}',
}


@pytest.fixture
def elsewhere(tmp_path_factory):
    """A working directory that has nothing to do with the project."""
    return tmp_path_factory.mktemp("elsewhere")


ANSWERS = "evaluations: {metrics: [{metric: exact_match, value: shared}]}\n"
GRADED = "evaluations: {metrics: [{metric: 'graders:check'}]}\n"


def write_project(folder, layout, backend, more=ANSWERS):
    """Write a project, and return its agent.yaml."""
    package, place, files, keys = LAYOUTS[layout]
    write_files(folder / package, PROJECT)
    write_files(folder, files)
    agent = f"name: desk\nbackend: {backend}\n{keys}{more}test_cases: [{{name: a, input: hi}}]\n"
    write_files(folder / place, {"agent.yaml": agent, "graders.py": GRADER})
    return folder / place / "agent.yaml"


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("backend", BACKENDS)
async def test_an_agent_in_a_package_is_found_and_its_modules_are_loaded_once(
    tmp_path, layout, backend
):
    metrics = "{metric: exact_match, value: shared}"
    if backend == "here":  # it looks into the agent's own module
        metrics += ", {metric: 'graders:check'}"
    more = f"evaluations: {{metrics: [{metrics}]}}\n"
    path = write_project(tmp_path, layout, BACKENDS[backend], more)

    [result] = (await arun(path)).results

    assert result.outcome is Outcome.PASSED, result.reasons()


def test_the_checks_find_the_code_root_too(tmp_path, elsewhere):
    path = write_project(tmp_path, "in a parent folder", BACKENDS["here"])

    assert run_cli("validate", "--load", path, cwd=elsewhere).code == 0
    path.write_text(path.read_text().replace("code: ..\n", ""))
    ran = run_cli("validate", path, cwd=elsewhere)
    assert ran.code == 2
    assert "write 'code: ..' in the agent.yaml" in ran.stdout + ran.stderr


def test_an_import_of_code_in_a_folder_above_says_what_finds_it(tmp_path, elsewhere):
    path = write_project(tmp_path, "in src, without one", '"bot:agent"')
    path.write_text(path.read_text().replace("code: ../src\n", ""))
    write_files(path.parent, {"bot.py": "from shop.desk import agent\n"})

    ran = run_cli("test", path, cwd=elsewhere)

    assert ran.code == 2
    assert "No module named 'shop'; write 'code: ../src' in the agent.yaml" in ran.stderr


def test_a_code_root_that_is_missing_is_an_error(tmp_path, elsewhere):
    path = write_project(tmp_path, "in a parent folder", BACKENDS["here"])
    path.write_text(path.read_text().replace("code: ..\n", "code: ../sources\n"))

    ran = run_cli("validate", path, cwd=elsewhere)

    assert ran.code == 2
    assert "agent.yaml:3:7: error: code: folder not found" in ran.stdout + ran.stderr


def test_a_process_finds_modules_in_its_working_folder(tmp_path, elsewhere):
    backend = '{type: process, target: "shop.desk:agent", cwd: ..}'
    path = write_project(tmp_path, "beside the agent.yaml", backend)
    write_files(tmp_path / "evals", {"agent.yaml": path.read_text()})

    assert run_cli("test", tmp_path / "evals" / "agent.yaml", cwd=elsewhere).code == 0


def test_the_command_of_a_process_finds_the_code_root_in_its_variables(tmp_path, elsewhere):
    agent = (
        "import json, sys\n"
        "from shop.desk import agent\n"
        "for line in sys.stdin:\n"
        "    request = json.loads(line)\n"
        "    method, params = request['method'], request['params']\n"
        "    answer = agent(params['message']) if method == 'send' else {'protocol': 1}\n"
        "    answer = {'jsonrpc': '2.0', 'id': request['id'], 'result': answer}\n"
        "    print(json.dumps(answer), flush=True)\n"
    )
    path = write_project(
        tmp_path, "in a parent folder", "{type: process, command: [python, main.py]}"
    )
    write_files(path.parent, {"main.py": agent})

    ran = run_cli("test", path, cwd=elsewhere)

    assert ran.code == 0, ran.stderr


async def test_projects_with_packages_of_the_same_name_each_have_their_own(tmp_path):
    answers = []
    for name in ("first", "second", "first"):
        layout = "in src, with a pyproject.toml"
        path = write_project(tmp_path / name, layout, BACKENDS["here"])
        desk = f"NAME = {name!r}\ndef agent(message):\n    return NAME\n"
        grader = "from shop.desk import NAME\ndef check(observation):\n    return NAME == "
        files = {"src/shop/desk.py": desk, "evals/graders.py": f"{grader}{name!r}\n"}
        write_files(tmp_path / name, files)
        path.write_text(path.read_text().replace(ANSWERS, GRADED))
        [result] = (await arun(path)).results
        answers.append((result.agent_response, result.outcome))

    assert answers == [(name, Outcome.PASSED) for name in ("first", "second", "first")]


async def test_a_metric_beside_the_agent_finds_the_package_of_its_own_project(tmp_path):
    for name in ("first", "second"):
        path = write_project(
            tmp_path / name, "in src, with a pyproject.toml", '"bot:agent"', GRADED
        )
        files = {
            "src/shop/orders.py": f"NAME = {name!r}\n",
            "evals/bot.py": f"def agent(message):\n    return {name!r}\n",
            "evals/graders.py": "from shop.orders import NAME\n"
            "def check(observation):\n    return observation.response == NAME\n",
        }
        write_files(tmp_path / name, files)

        [result] = (await arun(path)).results

        assert result.outcome is Outcome.PASSED, result.reasons()


def test_two_code_roots_are_compared_in_two_processes(tmp_path):
    for name in ("old", "new"):
        write_files(tmp_path / name, PROJECT)
        desk = (
            "import os\n"
            "def agent(message):\n"
            f"    return {{'text': '{name} ' + str(os.getpid()), 'tool_calls': []}}\n"
        )
        write_files(tmp_path / name, {"shop/desk.py": desk})
        agent = f'name: {name}\nbackend: "shop.desk:agent"\ncode: ../{name}\n'
        cases = "test_cases: [{name: a, input: hi, forbidden_tools: [lookup]}]\n"
        write_files(tmp_path / "evals", {f"{name}.yaml": agent + cases})

    folder = tmp_path / "evals"
    ran = run_cli("test", "old.yaml", "--against", "new.yaml", "-o", "report.json", cwd=folder)

    assert ran.code == 0, ran.stderr
    report = json.loads((folder / "report.json").read_text())
    answers = [
        report[side]["report"]["results"][0]["agent_response"] for side in ("first", "second")
    ]
    assert [answer.split()[0] for answer in answers] == ["old", "new"]
    assert answers[0].split()[1] != answers[1].split()[1]
