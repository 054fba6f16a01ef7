"""The example of the README on the embedded model, as a newcomer runs it."""

import json
import shutil
from pathlib import Path

import pytest

from fakes import Reply, run_cli

ROOT = Path(__file__).resolve().parents[2]


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


@pytest.mark.model
def test_the_example_passes_and_answers_the_same_run_after_run(folder):
    first, second = folder / "first.json", folder / "second.json"

    runs = [
        run_cli("test", "agent.yaml.example", "--output", report, cwd=folder, timeout=300)
        for report in (first, second)
    ]

    assert [ran.code for ran in runs] == [0, 0], runs[0].stdout + runs[0].stderr
    assert "Test Results: 2/2 passed" in runs[0].stdout
    assert answers(first) == answers(second)


@pytest.mark.model
def test_the_example_has_nothing_to_complain_about(folder):
    ran = run_cli("validate", "--strict", "agent.yaml.example", cwd=folder)

    assert ran.code == 0, ran.stderr
    assert "2 test cases, 1 tool" in ran.stdout


def answer(request):
    """What a scripted model says in place of the embedded one."""
    if request.tool_results:
        return request.tool_results[-1]
    city = "Paris" if "Paris" in request.prompt else "Oslo"
    return Reply(tool_calls=[("get_weather", {"city": city})])


def test_the_example_on_a_scripted_model_has_the_golden_reports(folder, fake_openai, golden):
    file = folder / "agent.yaml.example"
    text = file.read_text()
    assert "  provider: local #" in text
    file.write_text(text.replace("  provider: local #", "  provider: openai\n  name: scripted #"))
    fake_openai.otherwise(answer)
    env = {"OPENAI_BASE_URL": fake_openai.url, "OPENAI_API_KEY": "not-a-real-key"}

    ran = run_cli("test", file.name, "-o", "report.json", "-o", "report.md", cwd=folder, env=env)

    assert ran.code == 0, ran.stdout + ran.stderr
    golden("weather", folder, "report.json", "report.md")
