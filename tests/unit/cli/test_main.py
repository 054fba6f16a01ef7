"""The `holodeck` command itself: help, errors, codes; run as users run it."""

import subprocess
import sys
from pathlib import Path

import pytest

from fakes import clean_environment, run_cli, start_cli
from holodeck import __version__
from holodeck.cli.context import CliContext
from holodeck.cli.main import COMMANDS, LazyGroup, cli

FULL = Path("/dev/full")


def test_help_lists_every_command_and_the_exit_codes(tmp_path):
    ran = run_cli("--help", cwd=tmp_path)

    assert ran.code == 0
    assert all(f"  {name} " in ran.stdout for name in COMMANDS)
    assert "130 interrupted" in " ".join(ran.stdout.split())
    assert ran.stderr == ""


def test_the_version_is_that_of_the_package(tmp_path):
    ran = run_cli("--version", cwd=tmp_path)

    assert (ran.code, ran.stdout) == (0, f"holodeck, version {__version__}\n")


@pytest.mark.parametrize("flag", ["--help", "--version"])
def test_help_and_version_import_nothing_but_click(tmp_path, flag):
    program = (
        "import sys; from holodeck.cli.main import run; run(sys.argv[1:]); "
        "print(*sorted(name for name in sys.modules), file=sys.stderr)"
    )
    env = clean_environment(tmp_path)
    ours = subprocess.run(
        [sys.executable, "-c", program, flag], env=env, capture_output=True, text=True, check=True
    )
    click = subprocess.run(
        [sys.executable, "-c", "import click, click.testing, sys; print(*sys.modules)"],
        env=env, capture_output=True, text=True, check=True,
    )  # fmt: skip

    extra = set(ours.stderr.split()) - set(click.stdout.split())
    known = sys.stdlib_module_names | {"click"}
    assert {name for name in extra if name.partition(".")[0] not in known} == {
        "holodeck", "holodeck.cli", "holodeck.cli.context", "holodeck.cli.main",
        "holodeck.errors", "holodeck.models",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["tset"], "unknown command 'tset'; did you mean 'test'?"),
        (["run"], "unknown command 'run'; did you mean 'holodeck test'?"),
        (["list"], "unknown command 'list'; did you mean 'holodeck test --list'?"),
        (["chat"], "unknown command 'chat'; did you mean 'holodeck test --debug'?"),
        (["agent.yaml"], "did you mean 'holodeck test agent.yaml'?"),
        (["xyz"], "unknown command 'xyz'; known: init, test, validate, schema, runs,"),
        (["--verison"], "No such option: --verison"),
        (["a\x1b[2Jb"], "\\x1b[2Jb"),
    ],
    ids=["typo", "run", "list", "chat", "file", "unknown", "option", "control"],
)
def test_what_cannot_be_understood_is_a_usage_error(tmp_path, args, said):
    ran = run_cli(*args, cwd=tmp_path)

    assert ran.code == 2
    assert said in ran.stderr
    assert "\x1b" not in ran.stderr
    assert ran.stdout == ""


def test_an_error_of_ours_is_one_line_without_a_traceback(tmp_path):
    ran = run_cli("validate", "nothing.yaml", cwd=tmp_path)

    assert ran.code == 2
    assert ran.stderr.startswith("Configuration Error: nothing.yaml: file not found")
    assert ran.stderr.count("\n") == 1


def test_very_verbose_errors_come_with_their_traceback(tmp_path):
    ran = run_cli("test", "-vv", "nothing.yaml", cwd=tmp_path)

    assert ran.code == 2
    assert "Traceback (most recent call last)" in ran.stderr
    assert ran.stderr.splitlines()[-1].startswith("Configuration Error: nothing.yaml")


def test_an_error_does_not_show_a_secret_of_the_environment(tmp_path):
    ran = run_cli(
        "validate", "s3cr3t-value-1234.yaml", cwd=tmp_path, env={"MY_TOKEN": "s3cr3t-value-1234"}
    )

    assert "s3cr3t" not in ran.stderr
    assert "***1234.yaml" in ran.stderr


def test_a_reader_that_leaves_early_is_no_error(tmp_path):
    with start_cli("schema", cwd=tmp_path, from_nothing=True) as run:
        run.stdout.close()
        run.wait(180)
        assert run.stderr.read() == b""


@pytest.mark.skipif(not FULL.exists(), reason="there is no device that is always full")
def test_output_that_does_not_reach_the_disk_is_not_a_success(tmp_path):
    with FULL.open("w") as full:
        ran = subprocess.run(
            [sys.executable, "-m", "holodeck", "--version"],
            stdout=full, stderr=subprocess.PIPE, text=True, check=False,
            env=clean_environment(tmp_path),
        )  # fmt: skip

    assert ran.returncode == 3
    assert "No space left" in ran.stderr
    assert "Traceback" not in ran.stderr


def test_every_command_of_the_table_exists():
    assert isinstance(cli, LazyGroup)
    for name in COMMANDS:
        command = cli.get_command(None, name)
        assert command.name == name


@pytest.mark.parametrize(
    ("args", "verbosity"),
    [
        (["test"], 0),
        (["test", "-v"], 1),
        (["test", "-vv"], 2),
        (["test", "-v", "--verbose"], 2),
        (["test", "-qv", "x"], 1),
        (["test", "--", "-vv"], 0),
        (["--version"], 0),
    ],
)
def test_the_verbosity_is_read_from_the_arguments(args, verbosity):
    assert CliContext.from_args(args).verbosity == verbosity
