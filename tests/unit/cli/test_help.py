"""The help of a command with many options."""

import re

import pytest

from support.cli import run_cli

GROUPS = (
    "Input", "Selection", "Comparison", "Preview", "Run", "Resuming", "Limits",
    "Retries and repeats", "Output", "Cache and recordings", "Other",
)  # fmt: skip


def test_the_options_of_test_stand_in_groups_each_on_one_line(tmp_path):
    ran = run_cli("test", "--help", cwd=tmp_path, env={"COLUMNS": "80"})

    *_, options = re.split(r"(?m)^(?=Input:$)", ran.stdout)
    lines = options.splitlines()
    assert [line.removesuffix(":") for line in lines if line[:1].strip()] == list(GROUPS)
    assert max(map(len, lines)) < 80
    assert all(line.strip().startswith("-") for line in lines if line.startswith(" "))


@pytest.mark.parametrize(
    ("old", "new", "value"),
    [
        ("--timeout", "--llm-timeout", "5"),
        ("--parallel", "--parallel-test-cases", "2"),
    ],
)
def test_the_earlier_name_of_an_option_still_works_and_is_not_shown(tmp_path, old, new, value):
    (tmp_path / "agent.yaml").write_text("name: a\nbackend: a:a\ntest_cases: [{input: hi}]\n")

    ran = run_cli("test", "--list", old, value, "-v", cwd=tmp_path)
    shown = run_cli("test", "--help", cwd=tmp_path).stdout

    assert ran.code == 0
    assert f"{old} " not in shown
    assert f"{new} " in shown
