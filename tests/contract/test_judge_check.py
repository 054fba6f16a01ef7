"""`judge check` on every judged metric: it asks what a run asks, and reads what a run reads."""

import json
from pathlib import Path

import pytest
import yaml

import holodeck
from fakes import FakeOpenAI
from holodeck.errors import ConfigError
from holodeck.lib.judge_check.judge_check import load_agent_judge
from holodeck.lib.judge_check.labels import Label
from holodeck.models.metrics.azure import AzureMetric
from support import azure_prompt
from support.deepeval_cases import ANSWER, CASES, PASSAGES, QUESTION, TRUTH, said
from support.evaluators import EVALUATORS
from support.token_probabilities import yes
from support.wire_types import Reply, ToolCall

CALLS = [
    {"name": "search", "arguments": {"animal": "dog"}, "result": "allowed"},
    {"name": "search", "arguments": {"animal": "cat"}, "result": "allowed"},
]
HISTORY = [
    {"role": "user", "content": "I have a dog called Rufus."},
    {"role": "assistant", "content": "How nice."},
]
CASE = {
    "input": QUESTION,
    "ground_truth": TRUTH,
    "retrieval_context": list(PASSAGES),
    "history": HISTORY,
    "expected_tools": ["search"],
}
JUDGE = {
    "type": "judge",
    "name": "dogs",
    "criteria": ["Does the answer allow dogs?"],
    "inputs": ["input", "response", "ground_truth", "retrieval_context"],
    "examples": [
        {
            "input": "Cats?",
            "response": "No.",
            "ground_truth": "No cats.",
            "retrieval_context": ["Rule 9: no cats."],
            "answers": ["no"],
        }
    ],
    "votes": 3,
}
METRICS = {
    "judge": JUDGE,
    **{name: one.keys for name, one in CASES.items() if one.calls},
    "any class": {"type": "deepeval", "class": "BiasMetric"},
    **{name: {"type": "azure", "metric": name} for name in AzureMetric.names()},
    "azure class": azure_prompt.KEYS,
    "grader": {"type": "code", "grader": "rules:grader", "judge": True},
}
NAMES = {
    "judge": "dogs",
    "geval": "polite",
    "any class": "BiasMetric",
    "azure class": "Prompts",
}
SCRIPTED = {**CASES, "any class": CASES["bias"]}
TOOLS = '''
def search(animal: str) -> str:
    """Look a rule up."""
    return "allowed"

def grader(case, judge):
    return judge.ask(f"Does this allow dogs? {case.response} {[c.args for c in case.tool_calls]}")
'''


def answer(name, request):
    """What the judge says when a good response is judged by that metric."""
    if name == "azure class":
        return json.dumps({"reason": "because", "score": 5})
    if "response_format" not in request.body:
        return yes(0.9)
    if name == "grader":
        return json.dumps({"reason": "because", "passed": True})
    if name in SCRIPTED:
        script = {"verdict": "no", **SCRIPTED[name].good}
        return said(script, request)
    best = 1 if name == "task_adherence" else 5
    return json.dumps({"reason": "because", "score": best, "status": "completed"})


@pytest.fixture
def server():
    with FakeOpenAI() as fake:
        yield fake


@pytest.fixture
def agent_file(server, tmp_path):
    """Writes an agent.yaml whose agent calls a tool and then answers, with one metric."""

    def written(metrics, case=CASE) -> Path:
        model = {"provider": "openai", "name": "agent", "endpoint": server.url, "api_key": "k"}
        (tmp_path / "rules.py").write_text(TOOLS)
        azure_prompt.write_rater(tmp_path)
        config = {
            "name": "library",
            "backend": "chat",
            "model": model,
            "instructions": {"inline": "You know the rules."},
            "tools": [{"name": "search", "type": "function", "file": "rules.py",
                       "function": "search"}],
            "evaluations": {"model": model | {"name": "wise"}, **metrics},
            "test_cases": [case],
        }  # fmt: skip
        (tmp_path / "agent.yaml").write_text(yaml.safe_dump(config))
        return tmp_path / "agent.yaml"

    def agent(request):
        if request.body["messages"][-1]["role"] == "tool":
            return ANSWER
        return Reply(tool_calls=[ToolCall(one["name"], one["arguments"]) for one in CALLS])

    server.when(lambda request: request.body["model"] == "agent", agent)
    return written


def asked(server, since=0):
    """What the judge was asked, in an order that does not depend on which came first."""
    requests = [one for one in server.requests[since:] if one.body["model"] == "wise"]
    return sorted(json.dumps(one.body, sort_keys=True) for one in requests)


def label(**changes):
    keys = {**CASE, "response": ANSWER, "label": "pass", "tool_calls": CALLS}
    return Label.model_validate({**keys, **changes})


async def checked(path, name, labels):
    subject = load_agent_judge(str(path), name, lambda _: None)
    try:
        return await subject.check(labels, 1, lambda *_: None)
    finally:
        await subject.judges.close()


def test_every_metric_that_asks_a_judge_is_in_this_suite():
    asking = {name for name, one in EVALUATORS.items() if one.uses_judge}
    assert asking - {"tool_correctness"} == set(METRICS) - {
        "grader",
        "any class",
        "azure class",
    }


@pytest.mark.parametrize("name", METRICS)
async def test_a_check_asks_what_a_run_asks(name, server, agent_file):
    server.otherwise(lambda request: answer(name, request))
    path = agent_file({"metrics": [dict(METRICS[name])]})
    report = await holodeck.arun(path)
    in_run = asked(server)
    count = len(server.requests)

    found = await checked(path, NAMES.get(name, name), [label()])

    assert found.errors == []
    assert asked(server, since=count) == in_run != []
    [row] = report.results[0].metric_results
    [judged] = found.judgements
    assert (judged.score, judged.passed) == (row.score, row.passed) == (judged.score, True)
    assert found.usage.requests == row.judge_calls == len(in_run)
    sent = [one.body["messages"][-1]["content"] for one in server.requests]
    assert len(row.judge_prompts) == min(len(in_run), 5)
    assert all(any(text[:500] in one for text in sent) for one in row.judge_prompts)


async def test_a_check_of_criteria_asks_what_a_run_asks(server, agent_file):
    server.otherwise(json.dumps({"c1": {"reasoning": "Yes.", "status": "passed"}}))
    criterion = "The agent allows dogs"
    path = agent_file({}, CASE | {"criteria": [criterion]})
    await holodeck.arun(path)
    in_run, count = asked(server), len(server.requests)

    found = await checked(path, "criteria", [label(criterion=criterion)])

    assert asked(server, since=count) == in_run != []
    assert [one.passed for one in found.judgements] == [True]


async def test_repeats_never_use_a_wording_twice(server, agent_file):
    server.otherwise(yes(0.9))
    path = agent_file({"metrics": [JUDGE]})
    subject = load_agent_judge(str(path), "dogs", lambda _: None)

    found = await subject.check([label()], 5, lambda *_: None)
    await subject.judges.close()

    assert found.repeats == 3  # ten wordings make three rounds of three votes
    rounds = asked(server)[:]
    plain = [one for one in rounds if "written on a weekday" not in one]
    assert len(plain) == len(set(plain)) == 9


WRONG = {
    "no such criterion": (
        "dogs", {"criterion": "Does the answer allow dog?"},
        "has no criterion 'Does the answer allow dog?'; did you mean 'Does the answer allow dogs?'",
    ),
    "a criterion of a metric without any": (
        "polite", {"criterion": "Is it kind?"}, "'polite' has no criteria of its own",
    ),
    "no criterion to judge": ("criteria", {}, "'criterion' is missing"),
    "no passages": ("faithfulness", {"retrieval_context": None}, "needs 'retrieval_context'"),
    "no such metric": ("rude", {}, "no judged metric is named 'rude'; known: dogs, polite"),
}  # fmt: skip


@pytest.mark.parametrize(("name", "changes", "told"), WRONG.values(), ids=WRONG)
async def test_labels_that_do_not_fit_the_metric_are_refused_before_any_call(
    name, changes, told, server, agent_file
):
    metrics = [JUDGE, dict(CASES["geval"].keys), dict(CASES["faithfulness"].keys)]
    path = agent_file({"metrics": metrics})

    with pytest.raises(ConfigError) as caught:
        await checked(path, name, [label(**changes).at("labels.jsonl:7")])

    assert told in str(caught.value)
    assert server.requests == []
    if name in NAMES.values():
        assert str(caught.value).startswith("labels.jsonl:7")


async def test_tool_calls_that_a_label_lacks_are_unknown_not_none(server, agent_file):
    path = agent_file({"metrics": [dict(CASES["argument_correctness"].keys)]})

    found = await checked(path, "argument_correctness", [label(tool_calls=None)])

    assert "tool calls are unknown" in found.errors[0]
    assert found.strict_agreement.false_negatives == 1
    assert asked(server) == []


@pytest.mark.parametrize(
    "keys",
    [
        {"type": "deepeval", "class": "ExactMatchMetric"},
        {"type": "azure", "class": "GleuScoreEvaluator", "scale": [0, 1]},
    ],
    ids=lambda keys: keys["type"],
)
async def test_a_class_that_asks_no_judge_cannot_be_checked(keys, server, agent_file):
    path = agent_file({"metrics": [keys]})

    with pytest.raises(ConfigError, match=f"'{keys['class']}' asks no judge"):
        await checked(path, keys["class"], [label()])

    assert server.requests == []
