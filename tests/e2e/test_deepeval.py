"""Metrics of DeepEval from agent.yaml to the report."""

import json

from support.checks import assert_plain
from support.deepeval_cases import ANSWER, QUESTION, said, verdicts

SCRIPT = {
    "score": 8,
    "opinions": ["one", "two"],
    "verdicts": [*verdicts("no", 1), *verdicts("yes", 1)],
}


def test_each_metric_is_a_row_with_its_score_its_reason_and_what_it_cost(agent_dir):
    agent_dir.server.otherwise(
        lambda asked: said(SCRIPT, asked) if "response_format" in asked.body else ANSWER
    )
    kind = {"type": "geval", "name": "polite", "evaluation_steps": ["Look for a please"]}
    harm = {"type": "deepeval", "metric": "bias", "threshold": 0.9}
    broken = {"type": "rag", "metric_type": "contextual_recall"}
    agent_dir.write_agent(
        evaluations={"model": agent_dir.model(name="wise"), "metrics": [kind, harm, broken]},
        test_cases=[
            {
                "name": "dogs",
                "input": QUESTION,
                "ground_truth": "Yes.",
                "retrieval_context": ["A rule."],
            }
        ],
    )
    agent_dir.server.when(lambda asked: "A rule." in str(asked.messages), "prose")

    ran = agent_dir.run("test", "-o", "report.json")

    assert_plain(ran)
    assert ran.code == 1
    report = json.loads((agent_dir.path / "report.json").read_text(encoding="utf-8"))
    polite, bias, recall = report["results"][0]["metric_results"]
    assert (polite["score"], polite["raw_score"], polite["raw_scale"]) == (0.8, 8, "0-10")
    assert (polite["passed"], polite["reasoning"], polite["judge_calls"]) == (True, "the reason", 1)
    assert (bias["score"], bias["passed"], bias["scale"]) == (0.5, False, "0-1, 1 is good")
    assert (bias["model_used"], bias["judge_calls"]) == ("openai/wise", 3)
    assert "did not answer as asked, twice" in recall["error"]
    assert sorted(path.name for path in agent_dir.path.iterdir()) == [
        ".holodeck",
        "agent.yaml",
        "report.json",
    ]
