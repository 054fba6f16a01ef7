"""A simulated conversation with a judge on the embedded 1.5B model, for real."""

import json

import pytest
import yaml

from fakes import run_cli
from holodeck.lib.local_models.store import ModelStore
from holodeck.lib.support.environment import cache_dir

MODEL = "qwen2.5-coder-1.5b-instruct"
DESK = """\
class Desk:
    def run(self, message):
        if "ORD-9" in message.upper():
            return "Thank you. The money for order ORD-9 is on its way to you."
        return "I am sorry to hear that. Which order is it? Please tell me its number."
"""
AGENT = {
    "name": "desk",
    "backend": "desk:Desk",
    "evaluations": {"model": {"provider": "local", "name": MODEL}},
    "test_cases": [
        {
            "name": "refund",
            "simulate": {
                "situation": "Your shoes do not fit. You want your money back.",
                "persona": "short messages",
                "facts": ["the order number is ORD-9"],
                "opening": "hi, my shoes do not fit, I want my money back",
            },
            "criteria": ["The assistant asks for the order number"],
            "max_turns": 3,
        }
    ],
}


@pytest.mark.large_model
def test_the_embedded_model_plays_the_user_and_judges(tmp_path):
    if ModelStore(cache_dir()).path_of(MODEL) is None:
        pytest.skip("its weights are not here; scripts/models pulls them")
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump(AGENT))
    (tmp_path / "desk.py").write_text(DESK)

    ran = run_cli("test", "-o", "r.json", cwd=tmp_path, timeout=900)
    told = run_cli("report", "-o", "r.md", cwd=tmp_path)

    [result] = json.loads((tmp_path / "r.json").read_text())["results"]
    [row] = result["criteria"]
    assert ran.code == (0 if row["status"] == "passed" else 1), ran.stderr
    assert row["reasoning"]
    assert result["judge_cost"]["calls"] >= 1
    assert told.code == 0, told.stderr
    report = (tmp_path / "r.md").read_text()
    assert "#### Turn 1" in report
    assert "Which order is it?" in report
    assert "| The assistant asks for the order number | " in report
