"""`class:` of `type: deepeval`: any metric class of DeepEval, and those of users."""

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
from holodeck.lib.test_runner.grading.judge_trust import fingerprint_of_judge
from holodeck.models.evaluation import Metric
from holodeck.models.llm import LLMProvider

METRIC = TypeAdapter(Metric)
OWN = '''
from deepeval.metrics import BaseMetric



class Politeness(BaseMetric):

    def __init__(self, word: str = "fool", threshold: float = 0.5):
        self.word, self.threshold = word, threshold

    def measure(self, test_case):
        self.score = 0.2 if self.word in test_case.actual_output else 0.8
        self.reason = f"looked for {self.word}"
        return self.score

    def is_successful(self):
        return self.score >= self.threshold


class Unclear(Politeness):
    def measure(self, test_case):
        self.score, self.success = 0.2, True

    def is_successful(self):
        return getattr(self, "success", None)


class Rudeness(Politeness):
    """Lower is better."""

    def is_successful(self):
        return self.score <= self.threshold
'''


@pytest.fixture
def server():
    with FakeOpenAI() as fake:
        fake.when(lambda request: request.body["model"] == "agent", "Dogs may come in, fool.")
        yield fake


@pytest.fixture
def agent_file(server, tmp_path):
    def written(*metrics: dict[str, Any]):
        model = {"provider": "openai", "name": "agent", "endpoint": server.url, "api_key": "k"}
        (tmp_path / "own.py").write_text(OWN)
        config = {
            "name": "library",
            "backend": "chat",
            "model": model,
            "instructions": {"inline": "You know the rules."},
            "evaluations": {
                "model": model | {"name": "wise"},
                "metrics": [{"type": "deepeval", **one} for one in metrics],
            },
            "test_cases": [{"input": "Dogs?", "ground_truth": "Dogs may come in, fool."}],
        }
        (tmp_path / "agent.yaml").write_text(yaml.safe_dump(config))
        return tmp_path / "agent.yaml"

    return written


def built(**keys: Any):
    return build_evaluator(METRIC.validate_python({"type": "deepeval", **keys}))


async def test_classes_of_the_library_and_of_the_user_are_run(server, agent_file):
    def judge(request):
        wanted = request.body["response_format"]["json_schema"]["schema"]["properties"]
        return json.dumps({one: True if one == "verdict" else "because" for one in wanted})

    server.otherwise(judge)
    path = agent_file(
        {"class": "ExactMatchMetric"},
        {"class": "deepeval.metrics.PatternMatchMetric", "args": {"pattern": "Cats.*"}},
        {"class": "own:Politeness", "name": "polite"},
        {"class": "own:Politeness", "name": "other word", "args": {"word": "idiot"}},
        {"class": "own:Unclear"},
        {"class": "own:Rudeness"},
        {"class": "SummarizationMetric"},
    )

    report = await holodeck.arun(path)

    rows = {row.metric_name: row for row in report.results[0].metric_results}
    assert [(one.score, one.passed) for one in list(rows.values())[:4]] == [
        (1.0, True), (0.0, False), (0.2, False), (0.8, True),
    ]  # fmt: skip
    assert "does not reach the threshold" in rows["Unclear"].error
    assert (rows["Rudeness"].score, rows["Rudeness"].passed) == (None, False)
    assert "write 'type: code'" in rows["Rudeness"].error
    assert rows["SummarizationMetric"].judge_calls > 0


async def test_a_class_without_a_judge_needs_no_model(tmp_path):
    (tmp_path / "own.py").write_text(OWN + "\ndef reply(text):\n    return 'Yes.'\n")
    metrics = [{"type": "deepeval", "class": one} for one in ("ExactMatchMetric", "own:Politeness")]
    case = {"input": "Dogs?", "ground_truth": "Yes."}
    config = {"name": "a", "backend": "own:reply", "evaluations": {"metrics": metrics},
              "test_cases": [case]}  # fmt: skip
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump(config))
    findings = check(holodeck.load_agent(tmp_path / "agent.yaml"))
    assert [one for one in findings if one.severity == "error"] == []

    report = await holodeck.arun(tmp_path / "agent.yaml")

    rows = report.results[0].metric_results
    assert [(one.passed, one.judge_trust) for one in rows] == [(True, None)] * 2


async def test_a_class_with_a_judge_needs_a_model(tmp_path):
    config = {
        "name": "a",
        "backend": "own:reply",
        "evaluations": {"metrics": [{"type": "deepeval", "class": "BiasMetric"}]},
        "test_cases": [{"input": "Dogs?"}],
    }
    (tmp_path / "own.py").write_text("def reply(text):\n    return 'Yes.'\n")
    (tmp_path / "agent.yaml").write_text(yaml.safe_dump(config))

    with pytest.raises(ConfigError, match="'BiasMetric' needs a model that judges"):
        await holodeck.arun(tmp_path / "agent.yaml")


WRONG = {
    "a class": ({"class": "BaisMetric"}, "for a response; did you mean 'BiasMetric'"),
    "no metric": ({"class": "deepeval.metrics.DeepAcyclicGraph"}, "no metric class"),
    "an argument": (
        {"class": "FaithfulnessMetric", "args": {"truth_extraction_limit": 3}},
        "no argument 'truth_extraction_limit'; did you mean 'truths_extraction_limit'?",
    ),
    "a missing argument": ({"class": "JsonCorrectnessMetric"}, "args.expected_schema: is missing"),
    "ours": (
        {"class": "BiasMetric", "args": {"threshold": 0.7}}, "write 'threshold' beside 'class'",
    ),
    "a class that is not there": (
        {"class": "own:Rude"}, "own.py does not define 'Rude'; did you mean 'Rudeness'?",
    ),
    "an argument of a class of the user": (
        {"class": "own:Politeness", "args": {"wrod": "x"}},
        "Politeness has no argument 'wrod'; did you mean 'word'?",
    ),
    "what no run records": ({"class": "MCPUseMetric"}, "reads mcp_servers, which it does not get"),
    "a missing input": ({"class": "HallucinationMetric", "args": {}}, "needs 'files'"),
    "a conversation": ({"class": "TurnRelevancyMetric"}, "no metric class"),
    "a graph": ({"class": "TaskCompletionMetric"}, "reads trace, which it does not get"),
}  # fmt: skip
IMAGES = (
    "ImageCoherenceMetric", "ImageEditingMetric", "ImageHelpfulnessMetric",
    "ImageReferenceMetric", "TextToImageMetric",
)  # fmt: skip


def test_a_class_that_needs_images_is_refused_without_a_run(agent_file):
    findings = check(holodeck.load_agent(agent_file(*({"class": name} for name in IMAGES))))

    messages = "\n".join(one.message for one in findings)
    assert [name for name in IMAGES if f"{name} reads images in the texts" not in messages] == []


@pytest.mark.parametrize(("keys", "told"), WRONG.values(), ids=WRONG)
def test_mistakes_are_found_without_a_run(keys, told, agent_file, server):
    path = agent_file(keys)
    agent = holodeck.load_agent(path)

    findings = check(agent)

    assert [one for one in findings if told in one.message] != [], findings
    assert server.requests == []


def test_a_class_that_is_not_a_metric_is_refused():
    with pytest.raises(ConfigError, match="does not derive from DeepEval's BaseMetric"):
        built(**{"class": "click:Command"})


def test_a_metric_has_a_name_or_a_class(agent_file):
    with pytest.raises(ConfigError, match="class: unknown key"):
        holodeck.load_agent(agent_file({"class": "BiasMetric", "metric": "bias"}))


def test_a_check_of_the_judge_is_stale_once_the_code_of_the_class_changes(agent_file, tmp_path):
    agent_file({"class": "own:Politeness"})
    metric = METRIC.validate_python({"type": "deepeval", "class": "own:Politeness"})
    llm = LLMProvider(provider="openai", name="wise")
    before = fingerprint_of_judge(metric, llm, tmp_path)

    assert fingerprint_of_judge(metric, llm, tmp_path) == before
    (tmp_path / "own.py").write_text(OWN.replace("0.8", "0.7"))
    assert fingerprint_of_judge(metric, llm, tmp_path) != before
