"""The example of the README on the embedded model, as a newcomer runs it."""

import json
import shutil
from pathlib import Path

import pytest

from fakes import run_cli

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.model


@pytest.fixture
def folder(tmp_path):
    """What the example needs of the repository."""
    folder = tmp_path / "clone"
    shutil.copytree(ROOT / "examples", folder / "examples")
    shutil.copy(ROOT / "agent.yaml.example", folder)
    return folder


def answers(report):
    return [
        (one["agent_response"], [call["args"] for call in one["tool_invocations"]])
        for one in json.loads(report.read_text())["results"]
    ]


def test_the_example_passes_and_answers_the_same_run_after_run(folder):
    first, second = folder / "first.json", folder / "second.json"

    runs = [
        run_cli("test", "agent.yaml.example", "--output", report, cwd=folder, timeout=300)
        for report in (first, second)
    ]

    assert [ran.code for ran in runs] == [0, 0], runs[0].stdout + runs[0].stderr
    assert "Test Results: 2/2 passed" in runs[0].stdout
    assert answers(first) == answers(second)


def test_the_example_has_nothing_to_complain_about(folder):
    ran = run_cli("validate", "--strict", "agent.yaml.example", cwd=folder)

    assert ran.code == 0, ran.stderr
    assert "2 test cases, 1 tool" in ran.stdout
