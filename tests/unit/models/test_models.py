"""The nouns: frozen, strict, and the same after a trip through JSON."""

import pytest
from pydantic import BaseModel, ValidationError

from holodeck.models.agent import Agent, ClaudeConfig, Instructions
from holodeck.models.base import Model
from holodeck.models.config import ExecutionConfig, GlobalConfig
from holodeck.models.llm import LLMProvider, ProviderEnum
from holodeck.models.metrics.base import metric_class, metric_classes, metric_names
from holodeck.models.metrics.text import ContainsMetric, CustomMetric
from holodeck.models.test_case import ExpectedTool, TestCaseModel
from holodeck.models.test_result import MetricResult, Outcome, ReportSummary, TestResult
from holodeck.models.token_usage import TokenUsage
from support.results import a_result


def models(root: type[BaseModel] = Model):
    for one in root.__subclasses__():
        if one.__module__.startswith("holodeck."):
            yield one
        yield from models(one)


ALL = sorted({*models()}, key=lambda one: one.__name__)


def test_every_model_is_frozen_and_refuses_unknown_keys():
    checks_itself = {ClaudeConfig}  # it takes keys of Claude Code, which have no effect
    open_models = [
        model
        for model in ALL
        if model.model_config["extra"] != "forbid" and model not in checks_itself
    ]
    changeable = [one for one in ALL if one.model_config["frozen"] is not True]

    assert len(ALL) > 100
    assert (open_models, changeable) == ([], [])


def test_a_key_that_does_nothing_yet_is_not_a_field():
    assert [one for one in ALL if set(one.not_supported_yet) & set(one.model_fields)] == []


def test_every_metric_of_the_table_loads_by_its_name():
    extra = {"regex": {"pattern": "a"}, "json_schema": {"schema": {}}, "latency": {"max_ms": 1}}
    assert len(metric_names()) > 30
    for name in metric_names():
        case = TestCaseModel.model_validate(
            {"input": "hi", "evaluations": [{"metric": name, **extra.get(name, {})}]}
        )

        assert type(case.evaluations[0]) is metric_class({"metric": name})


@pytest.mark.parametrize("target", ["graders:check", "a.b:C.d"])
def test_a_metric_with_a_colon_is_the_users_own(target):
    case = TestCaseModel.model_validate({"input": "hi", "evaluations": [{"metric": target}]})

    assert isinstance(case.evaluations[0], CustomMetric)
    assert case.evaluations[0].label == target.partition(":")[2]


def test_the_users_own_metric_may_have_a_name():
    assert CustomMetric(metric="a:b", name="tone").label == "tone"
    assert ContainsMetric(metric="contains").label == "contains"


def test_an_agent_is_the_same_after_a_trip_through_json():
    agent = Agent(
        name="x",
        model=LLMProvider(provider=ProviderEnum.LOCAL, name="m"),
        instructions=Instructions(inline="hi"),
        test_cases=[TestCaseModel(input="a", expected_tools=["b", ExpectedTool(name="c")])],
        execution=ExecutionConfig(llm_timeout=1),
    )

    assert Agent.model_validate_json(agent.model_dump_json()) == agent


def test_a_key_is_not_shown_when_printed():
    model = LLMProvider.model_validate({"provider": "openai", "name": "m", "api_key": "sk-hidden"})

    assert "sk-hidden" not in f"{model!r} {model} {model.model_dump_json()}"


@pytest.mark.parametrize(
    ("written", "matcher"),
    [
        (3, {"equals": 3}),
        (None, {"equals": None}),
        ({"regex": "a"}, {"regex": "a"}),
        ({"fuzzy": "a"}, {"fuzzy": "a"}),
        ({"equals": {"regex": "a"}}, {"equals": {"regex": "a"}}),
        ({"regex": "a", "flags": "i"}, {"equals": {"regex": "a", "flags": "i"}}),
        ({}, {"equals": {}}),
        ({"number": 3}, {"number": {"value": 3.0}}),
        (
            {"number": {"value": 3, "relative_tolerance": 0.1}},
            {"number": {"value": 3.0, "relative_tolerance": 0.1}},
        ),
    ],
)
def test_an_argument_is_a_literal_or_a_matcher(written, matcher):
    found = ExpectedTool(name="t", args={"a": written}).matchers()["a"]

    assert found.model_dump(exclude_unset=True) == matcher


@pytest.mark.parametrize(
    "written", [{"regex": ""}, {"regex": "a", "fuzzy": "b"}, {"number": "x"}, {"number": {}}]
)
def test_a_matcher_that_is_none_is_refused_with_its_argument(written):
    with pytest.raises(ValidationError, match=r"args\.size"):
        ExpectedTool(name="t", args={"size": written})


def test_a_provider_of_ones_own_name_says_which_it_is():
    with pytest.raises(ValidationError, match="for a name of your own, add the key 'provider'"):
        GlobalConfig.model_validate({"providers": {"work": {"name": "m"}}})


def test_settings_remember_their_sources():
    config = ExecutionConfig(llm_timeout=1).with_sources({"llm_timeout": "--timeout"})

    assert config.source_of("llm_timeout") == "--timeout"
    assert config.source_of("quiet") == "given"


def test_tokens_add_up():
    assert TokenUsage.of(1, 2) + TokenUsage.of(3, 4) == TokenUsage.of(4, 6)
    assert TokenUsage().total_tokens == 0
    with pytest.raises(ValidationError, match="less than"):
        TokenUsage(prompt_tokens=2, completion_tokens=2, total_tokens=3)


def result(**changes):
    given = {
        "test_input": "hi",
        "passed": False,
        "outcome": Outcome.FAILED,
        "execution_time_ms": 1,
        "timestamp": "2026-01-01T00:00:00+00:00",
    }
    return TestResult.model_validate(given | changes)


def test_a_result_cannot_contradict_itself():
    with pytest.raises(ValidationError, match="contradicts"):
        result(passed=True)


def test_a_failed_result_tells_every_reason():
    rows = [
        MetricResult(metric_name="bleu", score=0.1, threshold=0.5, passed=False),
        MetricResult(metric_name="regex", error="took too long"),
        MetricResult(metric_name="contains", score=1, passed=True),
    ]

    assert result(errors=["no answer"], metric_results=rows).reasons() == [
        "no answer",
        "bleu: 0.10 (threshold 0.50)",
        "regex: took too long",
    ]


def test_a_summary_must_add_up():
    with pytest.raises(ValidationError, match="passed \\+ failed \\+ skipped is not total_tests"):
        ReportSummary(total_tests=3, passed=1, failed=1, pass_rate=50, total_duration_ms=1)


@pytest.mark.parametrize(
    "case",
    [
        {"repeat": 5, "min_pass": True},
        {"timeout": False},
        {"evaluations": [{"metric": "bleu", "threshold": False}]},
        {"evaluations": [{"metric": "numeric", "value": True}]},
    ],
    ids=["min_pass", "timeout", "threshold", "value"],
)
def test_true_and_false_are_no_numbers(case):
    with pytest.raises(ValidationError, match="expected a number"):
        TestCaseModel.model_validate({"input": "hi", **case})


def test_numbers_that_an_older_record_does_not_have_are_zero_or_empty():
    numbers = {"total_tests": 1, "passed": 1, "failed": 0, "pass_rate": 100}
    summary = ReportSummary(**numbers, total_duration_ms=1)

    kept = summary.model_dump(exclude={*numbers, "total_duration_ms", "cost"})
    nothing = {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}
    assert {name: value for name, value in kept.items() if value not in (0, {}, nothing)} == {}
    assert summary.cost is None


@pytest.mark.parametrize(
    "numbers",
    [
        {"passed": 2}, {"failed": 1}, {"skipped": 1}, {"passed": -1, "failed": 2},
        {"flaky": 2}, {"pass_rate": 100.5}, {"pass_rate": -1}, {"total_tests": 0},
    ],
    ids=str,
)  # fmt: skip
def test_a_summary_that_does_not_add_up_is_refused(numbers):
    right = {"total_tests": 1, "passed": 1, "failed": 0, "pass_rate": 100, "total_duration_ms": 1}
    assert ReportSummary(**right, flaky=1).flaky == 1

    with pytest.raises(ValidationError):
        ReportSummary(**right | numbers)


def test_a_result_whose_verdict_contradicts_its_outcome_is_refused():
    for wrong in (
        {"outcome": Outcome.FAILED, "passed": True},
        {"outcome": Outcome.PASSED, "passed": False},
        {"outcome": Outcome.SKIPPED, "skip_reason": None},
        {"outcome": Outcome.PASSED, "skip_reason": "not today"},
    ):
        with pytest.raises(ValidationError, match="contradicts outcome"):
            a_result(**wrong)


def test_results_name_the_families_of_all_metrics_and_no_others():
    for model in metric_classes():
        kind = model.model_fields["type"].default
        assert MetricResult(metric_name="a", kind=kind).kind == kind
    with pytest.raises(ValueError, match="kind"):
        MetricResult(metric_name="a", kind="geval2")
