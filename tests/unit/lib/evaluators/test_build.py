import pytest
from pydantic import TypeAdapter

from holodeck.errors import ConfigError
from holodeck.lib.evaluators.base import BaseEvaluator
from holodeck.lib.evaluators.build import RequiredInputs, build_evaluator, can_fail
from holodeck.lib.evaluators.inputs import Observation
from holodeck.lib.evaluators.nlp_metrics import ROUGEEvaluator
from holodeck.lib.evaluators.observation_metrics import CustomEvaluator
from holodeck.models.agent import Agent
from holodeck.models.evaluation import Metric
from holodeck.models.metrics.base import MODULE_CALLABLE, metric_classes
from holodeck.models.test_case import TestCaseModel
from support.evaluators import EVALUATORS

METRIC = TypeAdapter(Metric)


def metric(**keys):
    return METRIC.validate_python(keys)


def test_every_metric_of_the_configuration_has_an_evaluator():
    names = {name for model in metric_classes() for name in model.names()}

    assert set(EVALUATORS) == names - {MODULE_CALLABLE} | {"geval", "judge"}


@pytest.mark.parametrize("name", EVALUATORS)
def test_the_evaluator_of_a_metric_has_its_name(name):
    assert issubclass(EVALUATORS[name], BaseEvaluator)
    assert EVALUATORS[name].metric == name


def test_what_the_configuration_says_reaches_the_evaluator():
    evaluator = build_evaluator(
        metric(
            metric="rouge",
            variant="rouge2",
            threshold=0,
            values=["a", "b"],
            timeout_ms=1500,
            retry_on_failure=2,
        )
    )

    assert isinstance(evaluator, ROUGEEvaluator)
    assert (evaluator.settings.variant, evaluator.threshold) == ("rouge2", 0)
    assert evaluator.timeout == 1.5
    assert evaluator.retry_config.max_retries == 2
    assert evaluator.retry_config.every_error


@pytest.mark.parametrize(
    ("keys", "field"),
    [
        ({"metric": "regex", "pattern": "("}, "metrics[1].pattern"),
        ({"metric": "json_schema", "schema": {"type": "objet"}}, "metrics[1].schema.type"),
        ({"metric": "numeric", "value": "many"}, "metrics[1].value"),
        ({"metric": "no_such_module_here:check"}, "metrics[1]"),
    ],
)
def test_a_metric_that_cannot_be_built_says_where(keys, field):
    with pytest.raises(ConfigError) as caught:
        build_evaluator(metric(**keys), location="metrics[1]")

    assert caught.value.field == field


def test_a_callable_is_looked_up_beside_the_agent(tmp_path):
    (tmp_path / "graders.py").write_text("def polite(seen): return True")

    evaluator = build_evaluator(metric(metric="graders:polite", threshold=0.5), tmp_path)

    assert isinstance(evaluator, CustomEvaluator)
    assert evaluator.name == "polite"


def test_an_evaluator_class_of_the_user_is_used_as_it_is(tmp_path):
    (tmp_path / "graders.py").write_text(
        "from holodeck.lib.evaluators.base import BaseEvaluator\n"
        "class Polite(BaseEvaluator):\n"
        "    async def _evaluate_impl(self, **kwargs): return {'score': 1.0}\n"
    )

    evaluator = build_evaluator(metric(metric="graders:Polite", timeout_ms=10), tmp_path)

    assert (evaluator.name, evaluator.timeout) == ("Polite", 0.01)


@pytest.mark.parametrize(
    ("keys", "ground_truth", "lacks"),
    [
        ({"metric": "bleu"}, None, True),
        ({"metric": "bleu"}, "text", False),
        ({"metric": "bleu", "value": "text"}, None, False),
        ({"metric": "numeric", "values": [1]}, None, False),
        ({"metric": "numeric"}, None, True),
        ({"metric": "regex", "pattern": "a"}, None, False),
        ({"metric": "graders:polite"}, None, False),
    ],
)
def test_a_metric_that_compares_needs_something_to_compare_with(keys, ground_truth, lacks):
    inputs, one = RequiredInputs(Agent(name="x", backend="a:b")), metric(**keys)
    case = TestCaseModel(input="hi", ground_truth=ground_truth)
    if ":" not in keys["metric"]:
        inputs.register(one, build_evaluator(one))

    assert (inputs.describe_missing(one, case) is not None) is lacks


@pytest.mark.parametrize(
    ("keys", "fails"),
    [
        ({"metric": "bleu"}, False),
        ({"metric": "bleu", "threshold": 0.1}, True),
        ({"metric": "bleu", "threshold": 0}, False),
        ({"metric": "exact_match"}, True),
        ({"metric": "exact_match", "threshold": 0}, False),
        ({"metric": "exact_match", "enabled": False}, False),
        ({"metric": "latency", "max_ms": 5}, True),
        ({"metric": "graders:polite"}, True),
    ],
)
def test_it_is_known_which_metrics_can_fail_a_test(keys, fails):
    assert can_fail(metric(**keys)) is fails


async def test_a_class_that_is_no_evaluator_is_called_with_the_observation(tmp_path):
    code = (
        "class Share(float):\n"
        "    def __new__(cls, observation):\n"
        "        return super().__new__(cls, len(observation.response) / 4)\n"
    )
    (tmp_path / "shares.py").write_text(code)

    evaluator = build_evaluator(metric(metric="shares:Share"), tmp_path)

    assert (await evaluator.evaluate_observation(Observation("abc"))).score == 0.75
