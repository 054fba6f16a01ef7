"""The conversational metrics of DeepEval on cases of every form, with a judge of ours."""

import json

from support.checks import assert_plain

DESK = """
class Desk:
    def run(self, message, context):
        return f"Answer {len(context) // 2 + 1} to {message}"
"""
WORDS = {
    "reason": "the judge's reason",
    "intentions": ["to return shoes"],
    "data": {"order": "ORD-9"},
    "verdicts": [],
    "steps": ["Look for a please"],
    "score": 8,
}
"""What the judge says to each question, but for verdicts."""


def judge(asked):
    wanted = asked.body["response_format"]["json_schema"]["schema"]["properties"]
    is_about_forgetting = "forget" in asked.prompt
    words = WORDS | {"verdict": "no" if is_about_forgetting else "yes"}
    return json.dumps({key: words[key] for key in wanted})


def metric(metric, **keys):
    return {"type": "deepeval", "metric": metric, "threshold": 0.7} | keys


METRICS = [
    metric("conversation_completeness"),
    metric("knowledge_retention"),
    metric("turn_relevancy"),
    metric("role_adherence", chatbot_role="a clerk"),
    metric("conversational_geval", criteria="Is it polite?"),
]
SAID = ["I want to return my shoes", "It is ORD-9"]
BEFORE = [{"role": "user", "content": SAID[0]}, {"role": "assistant", "content": "Your order?"}]


def test_all_metrics_about_conversations_are_computed_in_one_run(agent_dir):
    agent_dir.server.otherwise(judge)
    agent_dir.write("desk.py", DESK)
    relevancy = {"evaluations": [METRICS[2]]}
    agent_dir.write_agent(
        model=None,
        instructions=None,
        backend="desk:Desk",
        evaluations={"model": agent_dir.model(name="wise"), "metrics": METRICS},
        test_cases=[
            {"name": "turns", "turns": [{"input": one} for one in SAID]},
            {"name": "history", "history": BEFORE, "input": SAID[1]} | relevancy,
            {"name": "script", "script": [{"user": SAID[0]}, "agent", "succeed"]} | relevancy,
        ],
    )

    ran = agent_dir.run("test", "-o", "report.json")

    assert_plain(ran)
    assert ran.code == 0
    report = json.loads((agent_dir.path / "report.json").read_text(encoding="utf-8"))
    turns, history, script = (one["metric_results"] for one in report["results"])
    names = ["conversation_completeness", "knowledge_retention", "turn_relevancy",
             "role_adherence", "conversational_geval"]  # fmt: skip
    assert [(one["metric_name"], one["score"]) for one in turns] == [
        *((name, 1) for name in names[:-1]), (names[-1], 0.8),
    ]  # fmt: skip
    assert {one["model_used"] for one in turns} == {"openai/wise"}
    assert all(one["reasoning"] and one["judge_calls"] for one in turns)
    asked = [one.prompt for one in agent_dir.server.requests]
    assert any(BEFORE[1]["content"] in one and "Answer 2 to It is ORD-9" in one for one in asked)
    assert [len(history), len(script)] == [1, 1]
    assert all(one["passed"] for one in (*turns, *history, *script))
