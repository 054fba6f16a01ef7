"""Which checks a case has: those of all cases, its own, those of its turns and steps, criteria."""

import pytest

from holodeck.errors import ConfigError
from holodeck.lib.evaluators.text_metrics import ContainsEvaluator
from holodeck.lib.test_runner.grading.checks import Check, EvaluatorSet
from holodeck.lib.test_runner.grading.judge_trust import Trust
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig

LLM = {"provider": "openai", "name": "judge", "endpoint": "http://127.0.0.1:1", "api_key": "k"}
KIND = {"type": "judge", "name": "kind", "criteria": ["It is kind."]}


def contains(threshold, **keys):
    return {"metric": "contains", "value": "a", "threshold": threshold, **keys}


def evaluator_set(*cases, metrics=(), model=None, **how):
    evaluations = {"metrics": list(metrics)} | ({"model": model} if model else {})
    raw = {"name": "x", "backend": "a:b"}
    if metrics or model:
        raw["evaluations"] = evaluations
    if cases:
        raw["test_cases"] = [
            case if {"turns", "script"} & {*case} else {"input": "hi", **case} for case in cases
        ]
    return EvaluatorSet(Agent.model_validate(raw), **how)


def names(checks):
    return [check.name for check in checks]


def thresholds(checks):
    """What tells the checks apart."""
    return [check.threshold for check in checks]


def test_a_case_without_checks_of_its_own_has_those_of_all_cases():
    checks = evaluator_set({}, {}, metrics=[contains(0.1)])

    assert thresholds(checks.checks_of(0).at_end) == [0.1]
    assert checks.checks_of(0) is checks.checks_of(1)
    assert list(checks.evaluators) == ["contains"]


def test_evaluations_of_a_case_replace_those_of_all_cases_and_scorers_are_added():
    own, scorers = {"evaluations": [contains(0.2)]}, {"scorers": [contains(0.3)]}
    checks = evaluator_set(
        own, scorers, own | scorers, {"evaluations": []}, metrics=[contains(0.1)]
    )

    found = [checks.checks_of(at).at_end for at in range(4)]

    assert list(map(thresholds, found)) == [[0.2], [0.1, 0.3], [0.2, 0.3], []]
    assert list(map(names, found)) == [
        ["contains"], ["contains", "contains #2"], ["contains", "contains #2"], [],
    ]  # fmt: skip


def test_metrics_of_the_same_name_are_numbered_and_those_that_are_off_are_left_out():
    metrics = [contains(0.1), contains(0.2, enabled=False), contains(0.3), contains(0.4)]

    checks = evaluator_set({}, metrics=metrics).checks_of(0).at_end

    assert names(checks) == ["contains", "contains #2", "contains #3"]
    assert thresholds(checks) == [0.1, 0.3, 0.4]


def test_each_turn_has_its_own_checks_and_scorers():
    turns = [
        {"input": "a", "evaluations": [contains(0.1)], "scorers": [contains(0.2)]},
        {"input": "b"},
    ]

    checks = evaluator_set({"turns": turns}, metrics=[contains(0.9)]).checks_of(0)

    assert [thresholds(turn) for turn in checks.of_turns] == [[0.1, 0.2], []]
    assert names(checks.of_turns[0]) == ["contains", "contains #2"]
    assert (thresholds(checks.at_end), checks.of_steps, checks.criteria) == ([0.9], {}, None)


def test_a_check_of_a_script_belongs_to_its_step():
    script = [{"user": "hi"}, "agent", {"check": {"evaluations": [contains(0.1)]}}]

    checks = evaluator_set({"script": script}).checks_of(0)

    assert {at: thresholds(step) for at, step in checks.of_steps.items()} == {2: [0.1]}
    assert (checks.of_turns, checks.at_end, checks.criteria) == ([], [], None)


def test_only_a_case_with_criteria_has_a_judge_for_them():
    checks = evaluator_set({}, {"criteria": ["is kind"]}, model=LLM, metrics=[contains(0.1)])

    assert checks.checks_of(0).criteria is None
    assert checks.checks_of(1).criteria is not None
    assert thresholds(checks.checks_of(1).at_end) == [0.1]


def test_criteria_without_a_model_that_judges_are_a_configuration_error():
    with pytest.raises(ConfigError, match="criteria need a judge model"):
        evaluator_set({"criteria": ["is kind"]})


def test_an_agent_without_cases_has_checks_of_all_cases():
    assert list(evaluator_set(metrics=[contains(0.1)]).evaluators) == ["contains"]


def test_an_injected_evaluator_replaces_the_metric_of_its_name_or_is_added_to_every_case():
    replaces, more = ContainsEvaluator(value="b"), ContainsEvaluator(value="c")
    injected = {"contains": replaces, "more": more}

    checks = evaluator_set({}, {"scorers": [contains(0.4)]}, metrics=[contains(0.1)],
                           injected=injected)  # fmt: skip

    found = [check.evaluator for check in checks.checks_of(0).at_end]
    assert found == [replaces, more]
    assert names(checks.checks_of(1).at_end) == ["contains", "contains #2", "more"]
    assert checks.evaluators == injected


def test_a_metric_keeps_what_its_configuration_says_of_the_verdict():
    metric = contains(0.5, required=False)

    [check] = evaluator_set({}, metrics=[metric]).checks_of(0).at_end

    assert (check.threshold, check.required, check.trust) == (0.5, False, None)
    [check] = evaluator_set({}, metrics=[contains(None, fail_on_error=True)]).checks_of(0).at_end
    assert (check.threshold, check.required, check.fail_on_error) == (None, True, True)


@pytest.mark.parametrize(
    ("trust", "is_distrusted"),
    [
        (Trust("checked", is_required=True), False),
        (Trust("not checked", is_required=True), True),
        (Trust("stale", is_required=True), True),
        (Trust("not checked"), False),
        (None, False),
    ],
    ids=str,
)
def test_a_verdict_decides_nothing_only_if_a_checked_judge_is_needed_and_it_is_not(
    trust, is_distrusted
):
    check = Check("kind", ContainsEvaluator(value="a"), trust=trust)

    assert check.is_distrusted is is_distrusted


@pytest.mark.parametrize(
    ("mode", "trust", "is_distrusted", "notes"),
    [
        ("require", "not checked", True, 1),
        ("warn", "not checked", False, 1),
        ("off", None, False, 0),
        (None, None, False, 0),
    ],
)
def test_the_mode_says_what_a_judge_without_a_check_means(
    tmp_path, mode, trust, is_distrusted, notes
):
    raw = {
        "name": "x",
        "backend": "a:b",
        "evaluations": {"model": LLM, "metrics": [KIND, contains(0.1)]},
        "test_cases": [{"input": "hi"}],
    }
    agent = Agent.model_validate(raw).with_base_dir(tmp_path)

    settings = None if mode is None else ExecutionConfig(judge_trust=mode)
    checks = EvaluatorSet(agent, settings=settings)

    judged, literal = checks.checks_of(0).at_end
    assert (judged.trust and judged.trust.state) == trust
    assert (judged.is_distrusted, literal.trust) == (is_distrusted, None)
    assert len(checks.notes) == notes


@pytest.mark.parametrize("kind", ["case", "turn"])
def test_a_metric_whose_input_is_missing_is_a_configuration_error_where_it_is_asked(kind):
    asked = {"evaluations": [{"metric": "exact_match"}]}
    case = asked if kind == "case" else {"turns": [{"input": "a"} | asked]}

    with pytest.raises(ConfigError, match=r"test_cases\[0\].*ground_truth"):
        evaluator_set(case)


def test_a_metric_that_is_off_needs_no_input():
    metric = {"metric": "exact_match", "enabled": False}

    assert evaluator_set({"evaluations": [metric]}).checks_of(0).at_end == []
