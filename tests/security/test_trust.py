"""What a configuration may name: modules, commands, hosts and variables."""

import subprocess
import sys

import pytest

from support.cli import clean_environment, home_for

CASE = {
    "name": "c",
    "input": "touch RAN",
    "evaluations": [{"metric": "contains", "value": "x"}],
}


REFUSED = [
    "os:system", "builtins:exec", "subprocess:getoutput", "__main__:main",
    "importlib.util:find_spec", "holodeck.lib.registry:load_attribute", "holodeck:run",
]  # fmt: skip
PLACES = {
    "backend": {"backend": "os:system"},
    "python": {"backend": {"type": "python", "target": "os:system"}},
    "process": {"backend": {"type": "process", "target": "os:system"}},
    "metric": {"test_cases": [CASE | {"evaluations": [{"metric": "os:system"}]}]},
    "call": {"test_cases": [{"script": [{"user": "touch RAN"}, "agent", {"call": "os:system"}]}]},
}


@pytest.mark.parametrize("target", REFUSED)
def test_modules_of_python_and_of_holodeck_are_no_agents(write_bot, cli, target):
    ran = cli.run("validate", cwd=write_bot(backend=target, test_cases=[CASE]).parent)

    assert ran.code == 2
    assert f"backend: {target.partition(':')[0]!r} is a module of" in ran.stdout


@pytest.mark.parametrize("place", PLACES)
def test_a_module_of_python_is_not_run_wherever_it_is_named(write_bot, cli, place):
    folder = write_bot(**({"test_cases": [CASE]} | PLACES[place])).parent

    for command in ("validate", "test"):
        ran = cli.run(command, cwd=folder)

        assert ran.code == 2, ran.stdout
        assert "'os' is a module of Python itself" in ran.stdout + ran.stderr
    assert not (folder / "RAN").exists()


def test_a_file_beside_the_agent_may_have_the_name_of_a_module_of_python(bot_dir, write_bot):
    bot_dir.write("calendar.py", "def answer(message): return message")
    write_bot(backend="calendar:answer")

    assert bot_dir.run("test").code == 0


DECLARATIONS = {
    "pyproject.toml": '[project]\nname = "x"\ndependencies = ["{}>=1"]\n',
    "requirements.txt": "# ours\n{}==8.1.0  # pinned\n",
    "requirements-dev.txt": "{}\n",
    "setup.cfg": "[options]\ninstall_requires =\n  {}>=8\n",
}


@pytest.mark.parametrize("file", DECLARATIONS)
def test_an_installed_package_must_be_one_that_the_project_declares(bot_dir, write_bot, cli, file):
    write_bot(backend="click:style", test_cases=[CASE])
    project = bot_dir.path.parent / file

    codes = [cli.run("validate", cwd=bot_dir.path).code]
    project.write_text(DECLARATIONS[file].format("httpx2"))
    undeclared = cli.run("validate", cwd=bot_dir.path)
    ran = cli.run("test", cwd=bot_dir.path)
    project.write_text(DECLARATIONS[file].format("Click"))
    codes += [undeclared.code, ran.code, cli.run("validate", cwd=bot_dir.path).code]

    assert codes == [0, 2, 2, 0]
    assert "does not declare the package of 'click'; add 'click'" in undeclared.stdout


def test_a_package_may_have_another_name_than_its_module(bot_dir, write_bot, cli):
    bot_dir.write("pyproject.toml", DECLARATIONS["pyproject.toml"].format("PyYAML"))
    write_bot(backend="yaml:safe_load", test_cases=[CASE])

    assert cli.run("validate", cwd=bot_dir.path).code == 0


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("pyproject.toml", "[tool.ruff]\nline-length = 100\n"),
        ("pyproject.toml", '[project]\nname = "x"\ndynamic = ["dependencies"]\n'),
        ("pyproject.toml", "[project\n"),
        ("setup.py", "raise SystemExit('never run')\n"),
    ],
    ids=["no dependencies", "dynamic", "broken", "code"],
)
def test_a_project_that_declares_nothing_readable_forbids_no_installed_package(
    bot_dir, write_bot, cli, file, text
):
    bot_dir.write(file, text)
    write_bot(backend="click:style", test_cases=[CASE])

    assert cli.run("validate", cwd=bot_dir.path).code == 0


def test_python_m_holodeck_imports_no_module_of_the_working_folder(bot_dir, write_bot):
    for name in ("yaml", "click", "pydantic", "platformdirs"):
        bot_dir.write(f"{name}.py", "open('RAN', 'w')\nraise SystemExit(9)\n")
    write_bot()

    ran = subprocess.run(
        [sys.executable, "-m", "holodeck", "validate"],
        cwd=bot_dir.path,
        env=clean_environment(home_for(bot_dir.path)),
        capture_output=True,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    assert not (bot_dir.path / "RAN").exists()
