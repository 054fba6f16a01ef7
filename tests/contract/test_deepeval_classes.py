"""`class:` of `type: deepeval`: any metric class of DeepEval, and those of users."""

import json
from typing import Any

import pytest
import yaml
from pydantic import TypeAdapter

import holodeck
from fakes import FakeOpenAI
from holodeck.config.check import check
from holodeck.errors import ConfigError
from holodeck.lib.evaluators.build import build_evaluator
from holodeck.lib.evaluators.param_spec import EvalParam
from holodeck.lib.test_runner.judge_trust import fingerprint_of_judge
from holodeck.models.evaluation import Metric
from holodeck.models.llm import LLMProvider

METRIC = TypeAdapter(Metric)
OWN = '''
from deepeval.metrics import BaseMetric
from deepeval.metrics.dag import BinaryJudgementNode, DeepAcyclicGraph
from deepeval.test_case import SingleTurnParams


class Rudeness(BaseMetric):
    """Lower is better."""

    def __init__(self, word: str = "fool", threshold: float = 0.5):
        self.word, self.threshold = word, threshold

    def measure(self, test_case):
        self.score = 0.8 if self.word in test_case.actual_output else 0.2
        self.reason = f"looked for {self.word}"
        return self.score

    def is_successful(self):
        return self.score <= self.threshold


class Unclear(Rudeness):
    def measure(self, test_case):
        self.score, self.success = 0.2, True

    def is_successful(self):
        return getattr(self, "success", None)


question = BinaryJudgementNode(
    criteria="Does it allow dogs?",
    evaluation_params=[SingleTurnParams.ACTUAL_OUTPUT],
)
question.add_verdict(verdict=False, score=0)
question.add_verdict(verdict=True, score=10)
dag = DeepAcyclicGraph(root_nodes=[question])
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
        {"class": "own:Rudeness", "name": "rudeness"},
        {"class": "own:Rudeness", "name": "other word", "args": {"word": "idiot"}},
        {"class": "own:Unclear"},
        {"class": "DAGMetric", "args": {"name": "dogs", "dag": {"python": "own:dag"}}},
    )

    report = await holodeck.arun(path)

    rows = {row.metric_name: row for row in report.results[0].metric_results}
    assert [(one.score, one.passed) for one in list(rows.values())[:4]] == [
        (1.0, True), (0.0, False), (0.2, False), (0.8, True),
    ]  # fmt: skip
    assert rows["rudeness"].raw_score == 0.8
    assert rows["rudeness"].scale == "0-1, 1 is good"
    assert "does not reach the threshold" in rows["Unclear"].error
    assert (rows["DAGMetric"].score, rows["DAGMetric"].passed) == (1.0, True)
    assert "Does it allow dogs?" in server.requests[-1].prompt + server.requests[-2].prompt


async def test_a_class_without_a_judge_needs_no_model(tmp_path):
    (tmp_path / "own.py").write_text(OWN + "\ndef reply(text):\n    return 'Yes.'\n")
    metrics = [{"type": "deepeval", "class": one} for one in ("ExactMatchMetric", "own:Rudeness")]
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
    "a class": ({"class": "BaisMetric"}, "no metric class 'BaisMetric'; did you mean 'BiasMetric'"),
    "no metric": ({"class": "deepeval.metrics.DeepAcyclicGraph"}, "no metric class"),
    "an argument": (
        {"class": "FaithfulnessMetric", "args": {"truth_extraction_limit": 3}},
        "no argument 'truth_extraction_limit'; did you mean 'truths_extraction_limit'?",
    ),
    "a missing argument": ({"class": "TopicAdherenceMetric"}, "args.relevant_topics: is missing"),
    "a type": (
        {"class": "FaithfulnessMetric", "args": {"truths_extraction_limit": "few"}},
        "args.truths_extraction_limit: Input should be a valid integer",
    ),
    "ours": (
        {"class": "BiasMetric", "args": {"threshold": 0.7}}, "write 'threshold' beside 'class'",
    ),
    "an object": (
        {"class": "DAGMetric", "args": {"name": "x", "dag": "own:dag"}},
        'write {python: "module:object"}',
    ),
    "an object that is not there": (
        {"class": "DAGMetric", "args": {"name": "x", "dag": {"python": "own:day"}}},
        "own.py does not define 'day'; did you mean 'dag'?",
    ),
    "a class that is not there": (
        {"class": "own:Rude"}, "own.py does not define 'Rude'; did you mean 'Rudeness'?",
    ),
    "an argument of a class of the user": (
        {"class": "own:Rudeness", "args": {"wrod": "x"}},
        "Rudeness has no argument 'wrod'; did you mean 'word'?",
    ),
    "servers of a class": ({"class": "MCPUseMetric"}, "write 'metric: mcp_use'"),
    "a missing input": ({"class": "HallucinationMetric", "args": {}}, "needs 'files'"),
}  # fmt: skip
MEDIA = {
    "audio": (
        "AudioGlitchMetric", "AudioIntegrityMetric", "VoiceReliabilityMetric",
        "AgentResponsivenessMetric", "SpeechIntelligibilityMetric", "TurnTakingNaturalnessMetric",
        "VoiceNaturalnessMetric", "VoiceConsistencyMetric", "TranscriptionAccuracyMetric",
    ),
    "images in the texts": (
        "ImageCoherenceMetric", "ImageEditingMetric", "ImageHelpfulnessMetric",
        "ImageReferenceMetric", "TextToImageMetric",
    ),
}  # fmt: skip
"""What classes of DeepEval need besides text."""


@pytest.mark.parametrize(
    ("name", "needed"), [(name, needed) for needed, names in MEDIA.items() for name in names]
)
def test_a_class_that_needs_sound_or_images_is_refused_without_a_run(name, needed, agent_file):
    findings = check(holodeck.load_agent(agent_file({"class": name})))

    told = f"{name} reads {needed}"
    assert [one for one in findings if told in one.message] != [], findings


def test_a_class_of_the_user_that_derives_from_one_about_sound_is_refused(tmp_path):
    (tmp_path / "calm.py").write_text(
        "from deepeval.metrics import VoiceReliabilityMetric\n\n\n"
        "class Calm(VoiceReliabilityMetric):\n    pass\n"
    )
    metric = METRIC.validate_python({"type": "deepeval", "class": "calm:Calm"})

    with pytest.raises(ConfigError, match="Calm reads audio, which a run does not record"):
        build_evaluator(metric, tmp_path)


@pytest.mark.parametrize(("keys", "told"), WRONG.values(), ids=WRONG)
def test_mistakes_are_found_without_a_run(keys, told, agent_file, server):
    path = agent_file(keys)
    agent = holodeck.load_agent(path)

    findings = check(agent)

    assert [one for one in findings if told in one.message] != [], findings
    assert server.requests == []


def test_the_arguments_become_what_the_class_declares():
    evaluator = built(
        **{"class": "GEval"},
        args={"name": "x", "criteria": "Is it kind?", "evaluation_params": ["expected_output"]},
    )
    assert evaluator.required_params() == {EvalParam.EXPECTED_OUTPUT}


def test_a_class_that_is_not_a_metric_is_refused():
    with pytest.raises(ConfigError, match="does not derive from DeepEval's BaseMetric"):
        built(**{"class": "click:Command"})


def test_a_metric_has_a_name_or_a_class(agent_file):
    with pytest.raises(ConfigError, match="class: unknown key"):
        holodeck.load_agent(agent_file({"class": "BiasMetric", "metric": "bias"}))


def test_a_check_of_the_judge_is_stale_once_the_code_of_the_class_changes(agent_file, tmp_path):
    agent_file({"class": "own:Rudeness"})
    metric = METRIC.validate_python({"type": "deepeval", "class": "own:Rudeness"})
    llm = LLMProvider(provider="openai", name="wise")
    before = fingerprint_of_judge(metric, llm, tmp_path)

    assert fingerprint_of_judge(metric, llm, tmp_path) == before
    (tmp_path / "own.py").write_text(OWN.replace("0.8", "0.7"))
    assert fingerprint_of_judge(metric, llm, tmp_path) != before
