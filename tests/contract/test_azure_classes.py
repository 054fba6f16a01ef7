"""`class:` of `type: azure`: classes of Azure AI Evaluation without a name, and those of users."""

import json
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter

import holodeck
from fakes import FakeOpenAI
from holodeck.config.checks.agent import check
from holodeck.errors import ConfigError
from holodeck.lib.evaluators.build import build_evaluator
from holodeck.lib.records.fingerprint import fingerprint_of
from holodeck.lib.test_runner.grading.judge_trust import fingerprint_of_judge
from holodeck.models.evaluation import Metric
from holodeck.models.llm import LLMProvider
from support import azure_prompt
from support.wire_types import Reply, ToolCall

METRIC = TypeAdapter(Metric)
OWN = '''
def search(animal: str) -> str:
    """Look a rule up."""
    return "allowed"


class Returns:
    """Returns what it is told to."""

    def __init__(self, result=None, number: str = ""):
        self.result = {"stars": float(number)} if number else result

    def __call__(self, *, response: str):
        return self.result


class CallsAModel:
    def __init__(self, model_config):
        self.model_config = model_config

    def __call__(self, *, response: str):
        return {"score": 1}


class ReadsWeather:
    def __call__(self, *, response: str, weather: str):
        return {"score": 1}


class NamesNothing:
    def __call__(self, **kwargs):
        return {"score": 1}


class NotCallable:
    pass


def function(*, response: str):
    return {"score": 1}
'''
STARS = {"class": "own:Returns", "scale": [1, 5]}
GLEU = {"class": "GleuScoreEvaluator", "scale": [0, 1]}
ANSWER = "Dogs may come in."
CASE = {
    "input": "Dogs?",
    "ground_truth": ANSWER,
    "retrieval_context": ["Dogs may."],
    "expected_tools": ["search"],
}


@pytest.fixture
def server():
    def agent(request):
        if request.body["messages"][-1]["role"] == "tool":
            return ANSWER
        return Reply(tool_calls=[ToolCall("search", {"animal": "dog"})])

    with FakeOpenAI() as fake:
        fake.when(lambda request: request.body["model"] == "agent", agent)
        yield fake


@pytest.fixture
def agent_file(server, tmp_path):
    (tmp_path / "own.py").write_text(OWN)
    azure_prompt.write_rater(tmp_path)

    def written(*metrics: dict[str, Any], judge: bool = True, **case: Any):
        model = {"provider": "openai", "name": "agent", "endpoint": server.url, "api_key": "k"}
        judged = {"model": model | {"name": "wise"}} if judge else {}
        config = {
            "name": "library",
            "backend": "chat",
            "model": model,
            "instructions": {"inline": "You know the rules."},
            "tools": [
                {"name": "search", "type": "function", "file": "own.py", "function": "search"}
            ],
            "evaluations": judged | {"metrics": [{"type": "azure", **one} for one in metrics]},
            "test_cases": [{key: one for key, one in (CASE | case).items() if one is not None}],
        }
        (tmp_path / "agent.yaml").write_text(yaml.safe_dump(config))
        return tmp_path / "agent.yaml"

    return written


async def rows_of(path):
    report = await holodeck.arun(path)
    return report.results[0].metric_results


async def test_a_class_of_the_library_is_run_without_a_judge(server, agent_file):
    path = agent_file({"class": "F1ScoreEvaluator", "scale": [0, 1]}, judge=False)
    assert check(holodeck.load_agent(path)) == []

    [row] = await rows_of(path)

    assert (row.metric_name, row.score, row.passed) == ("F1ScoreEvaluator", 1.0, True)
    assert (row.raw_score, row.raw_scale, row.judge_calls) == (1.0, "0-1", 0)


NO_SCORE = {
    "none": {"reason": "?", "status": "completed"},
    "null": {"reason": "?", "score": None, "status": "completed"},
    "out of range": {"reason": "?", "score": 7, "status": "completed"},
    "skipped": {"reason": "nothing to judge", "score": None, "status": "skipped"},
}


@pytest.mark.parametrize("answer", NO_SCORE.values(), ids=NO_SCORE)
async def test_without_a_score_of_the_judge_there_is_none(answer, server, agent_file):
    server.otherwise(json.dumps(answer))
    path = agent_file(azure_prompt.KEYS)

    rows = await rows_of(path)

    assert [(one.score, bool(one.passed)) for one in rows] == [(None, False)]
    assert all(one.error for one in rows)


WRONG = {
    "a class": (
        {"class": "GlewScoreEvaluator", "scale": [0, 1]}, "did you mean 'GleuScoreEvaluator'?",
    ),
    "a class with a name": (
        {"class": "CoherenceEvaluator", "scale": [1, 5]},
        "has a name; write 'metric: coherence' instead",
    ),
    "an argument": (GLEU | {"args": {"treshold": 1}}, "no argument 'treshold'"),
    "an argument of ours": (
        GLEU | {"args": {"threshold": 1}}, "write 'threshold' beside 'class'",
    ),
    "an argument of the user's class": (
        STARS | {"args": {"reslt": {}}}, "did you mean 'result'?",
    ),
    "the user's class": ({"class": "own:Return", "scale": [1, 5]}, "did you mean 'Returns'?"),
}  # fmt: skip


@pytest.mark.parametrize(("keys", "told"), WRONG.values(), ids=WRONG)
def test_mistakes_are_found_without_a_run(keys, told, agent_file, server):
    findings = check(holodeck.load_agent(agent_file(keys)))

    assert [one for one in findings if told in one.message and one.stops_the_run] != [], findings
    assert server.requests == []


MISSING = {
    "ground_truth": (GLEU, {"ground_truth": None}, "'ground_truth'"),
}  # fmt: skip


@pytest.mark.parametrize(("keys", "without", "told"), MISSING.values(), ids=MISSING)
def test_a_case_that_lacks_an_input_is_found_without_a_run(keys, without, told, agent_file):
    findings = check(holodeck.load_agent(agent_file(keys, **without)))

    expected = f"the metric {keys['class']!r} needs {told} in the case"
    assert [one for one in findings if expected in one.message] != [], findings


REFUSED = {
    "not a class": ({"class": "own:function"}, "'own:function' is not a class whose"),
    "not callable": ({"class": "own:NotCallable"}, "is not a class whose objects can be called"),
    "an input": ({"class": "own:ReadsWeather"}, "reads weather.*write 'type: code'|known: query"),
    "no inputs": ({"class": "own:NamesNothing"}, "names no input"),
    "a model of its own": ({"class": "own:CallsAModel"}, "write 'type: code' with 'judge: true'"),
    "a project": (
        {"class": "UngroundedAttributesEvaluator", "args": {"credential": 1}},
        "call what asks a project in Azure in 'type: code'",
    ),
    "a project without its arguments": (
        {"class": "UngroundedAttributesEvaluator"}, "azure_ai_project: is missing",
    ),
    "several metrics": ({"class": "QAEvaluator"}, "write 'type: code' with 'judge: true'"),
    "messages": ({"class": "TaskCompletionEvaluator"}, "no evaluator class"),
}  # fmt: skip


@pytest.mark.parametrize(("keys", "told"), REFUSED.values(), ids=REFUSED)
def test_a_class_that_cannot_be_a_metric_is_refused(keys, told, agent_file, tmp_path):
    agent_file()
    metric = METRIC.validate_python({"type": "azure", "scale": [0, 1], **keys})

    with pytest.raises(ConfigError, match=told):
        build_evaluator(metric, tmp_path)


RESULTS = {
    "the best": ({"result": {"stars": 5}}, {}, (1.0, True)),
    "the class says no": ({"result": {"stars": 4, "stars_result": "fail"}}, {}, (0.75, False)),
    "the class says yes": ({"result": {"stars": 2, "stars_passed": True}}, {}, (0.25, False)),
    "the user decides": (
        {"result": {"stars": 4, "stars_result": "pass"}}, {"threshold": 0.8}, (0.75, False),
    ),
    "older names": ({"result": {"stars": 5, "stars_score": 5, "gpt_stars": 5}}, {}, (1.0, True)),
    "less is better": ({"result": {"stars": 2}}, {"scale": [5, 1]}, (0.75, True)),
    "a label": ({"result": {"x_label": True}}, {"scale": [1, 0]}, (0.0, False)),
    "one of several": (
        {"result": {"stars": 1, "moons": 5}}, {"score_key": "moons"}, (1.0, True),
    ),
}  # fmt: skip
NO_RESULTS = {
    "several": ({"stars": 5, "moons": 5}, "write 'score_key' with one of moons, stars"),
    "none": ({"stars_reason": "fine"}, "returned no score"),
    "a text": ({"stars": "5"}, "returned no score"),
    "null": ({"stars": None, "stars_reason": "no idea"}, "got no score: no idea"),
    "not applicable": ({"stars": 5, "stars_result": "not_applicable"}, "got no score"),
    "skipped": ({"stars": 5, "stars_status": "skipped"}, "got no score"),
    "beyond the scale": ({"stars": 6}, "6 is not a number of the scale 1-5"),
    "a label on a scale": ({"stars": True}, "True is not a number of the scale 1-5"),
    "no mapping": (5, "returned 5; it must return a mapping"),
    "nothing": (None, "returned None; it must return a mapping"),
}


async def test_results_of_a_class_of_the_user_are_read(agent_file):
    metrics = [
        STARS | {"name": name, "args": args} | more for name, (args, more, _) in RESULTS.items()
    ]
    metrics += [
        STARS | {"name": name, "args": {"result": result}}
        for name, (result, _) in NO_RESULTS.items()
    ]
    metrics += [STARS | {"name": "not a number", "args": {"number": "nan"}}]

    rows = {one.metric_name: one for one in await rows_of(agent_file(*metrics))}

    found = {name: (rows[name].score, rows[name].passed) for name in RESULTS}
    assert found == {name: expected for name, (_, _, expected) in RESULTS.items()}
    errors = NO_RESULTS | {"not a number": (None, "got no score")}
    assert [name for name in errors if rows[name].score is not None or rows[name].passed] == []
    assert [name for name, (_, told) in errors.items() if told not in rows[name].error] == []
    assert {one.judge_trust for one in rows.values()} == {None}


@pytest.mark.parametrize(("answer", "score"), [(5, 1.0), (1, 0.0)])
async def test_an_evaluator_of_the_user_on_the_librarys_base_asks_our_judge(
    answer, score, server, agent_file
):
    server.otherwise(json.dumps({"score": answer, "reason": "because"}))
    path = agent_file(azure_prompt.KEYS)

    [row] = await rows_of(path)

    assert (row.score, row.passed, row.error) == (score, bool(score), None)
    assert (row.judge_calls, row.judge_trust) == (1, "not checked")


async def test_a_text_without_a_score_passes_nothing(server, agent_file):
    server.otherwise("certainly 10 of 10")

    [row] = await rows_of(agent_file(azure_prompt.KEYS))

    assert "answered Prompts without a score" in row.error


def test_a_result_belongs_to_the_code_of_its_class(agent_file, tmp_path):
    agent = holodeck.load_agent(agent_file(STARS))
    before = fingerprint_of(agent).parts["metrics"]

    assert fingerprint_of(agent).parts["metrics"] == before
    (tmp_path / "own.py").write_text(OWN + "\nversion = 2\n")
    assert fingerprint_of(agent).parts["metrics"] != before


def test_a_check_of_the_judge_is_stale_once_class_or_arguments_change(agent_file, tmp_path):
    agent_file()
    llm = LLMProvider(provider="openai", name="wise")

    def fingerprint(**keys):
        metric = METRIC.validate_python({"type": "azure", "class": "own:Returns", **keys})
        return fingerprint_of_judge(metric, llm, tmp_path)

    before = fingerprint(scale=[1, 5])
    assert fingerprint(scale=[1, 5]) == before
    assert before not in {
        fingerprint(scale=[5, 1]),
        fingerprint(scale=[1, 5], args={"number": "5"}),
        fingerprint(scale=[1, 5], **{"class": "GleuScoreEvaluator"}),
    }
    (tmp_path / "own.py").write_text(OWN.replace("float(number)", "float(number) + 1"))
    assert fingerprint(scale=[1, 5]) != before
