"""Static checks of metrics: can each be built, and can a response fail it?"""

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

from pydantic import BaseModel

from holodeck.config.checks.findings import CheckContext
from holodeck.config.checks.programs import (
    arguments_of_class,
    definition_of,
    import_warning,
    parameter_names,
    require_target,
)
from holodeck.config.yaml.source import KeyPath
from holodeck.errors import ConfigError
from holodeck.lib.evaluators.build import (
    build_evaluator,
    can_fail,
    judge_model_of,
    needs_judge,
)
from holodeck.lib.support.patterns import compile_pattern, passes_every_text
from holodeck.lib.support.text import did_you_mean_or_list
from holodeck.lib.user_code.code_root import CodeFolders
from holodeck.models.metrics.base import ClassMetric, MetricSettings
from holodeck.models.metrics.deepeval import GEvalMetric
from holodeck.models.metrics.judge import JudgeMetric
from holodeck.models.metrics.text import CodeMetric, NotContainsMetric, RegexMetric
from holodeck.models.test_case import PLACEHOLDER

ONLY_REPORTED = "or 'required: false' to only report it"
NOT_FROM_THE_AGENT = frozenset({"input", "ground_truth", "expected_output"})
"""Inputs of a judge that do not come from the agent."""
_QUOTES_AND_INVISIBLE = "\"'“”‘’\u200b\u200c\u200d\u2060\ufeff"
_UNCHECKED_KEYS = frozenset({"forbidden_tools", "description"})
"""Keys whose placeholders another check reports, or that only people read."""


def check_metrics(context: CheckContext, metrics: Sequence[MetricSettings], path: KeyPath) -> None:
    """Check that the metrics can be built and can fail, and note what they need."""
    for index, metric in enumerate(metrics):
        metric_path = (*path, index)
        if metric in metrics[:index]:
            context.warning(metric_path, f"{metric.label!r} is listed twice with equal settings")
        if not metric.enabled:
            continue
        if metric.required:
            _check_that_it_can_fail(context, metric, metric_path)
        asks_judge = needs_judge(metric)
        with context.reporting(metric_path):
            if metric.user_code is not None:
                check_target(
                    context, metric.user_code, metric_path, "metric", context.agent.code_folders
                )
                _check_judge_of_grader(context, metric, metric_path)
            elif metric.user_class is not None:  # building the metric would run the user's code
                folders = context.agent.code_folders
                class_path = (*metric_path, "class")
                check_target(context, metric.user_class, class_path, "metric", folders)
                _check_arguments(context, metric, metric_path)
                asks_judge = False  # only the run knows
            else:
                evaluator = build_evaluator(metric, context.agent.code_folders, location="")
                context.inputs.register(metric, evaluator)
                asks_judge = evaluator.asks_judge
            if asks_judge and judge_model_of(context.agent, metric) is None:
                context.error(
                    metric_path,
                    f"{metric.label!r} needs a judge model; write 'model' here or in 'evaluations'",
                )


def _check_arguments(context: CheckContext, metric: MetricSettings, path: KeyPath) -> None:
    """Check the names of the arguments of a class beside the agent.yaml."""
    target = metric.user_class
    if target is None or not isinstance(metric, ClassMetric):
        return
    known = arguments_of_class(target, context.agent.code_folders)
    if known is None:
        return
    for name in metric.args:
        if name not in known:
            hint = did_you_mean_or_list(name, known) or "; it takes none"
            context.error(
                (*path, "args", name),
                f"{target.partition(':')[2]} has no argument {name!r}{hint}",
            )


def _check_judge_of_grader(context: CheckContext, metric: MetricSettings, path: KeyPath) -> None:
    """Check that a grader beside the agent.yaml takes a judge if, and only if, it gets one."""
    grader = definition_of(metric.user_code or "", context.agent.code_folders, "metric")
    names = parameter_names(grader)
    if names is None:
        return
    if needs_judge(metric) and "judge" not in names:
        context.error(
            (*path, "judge"),
            f"{metric.user_code!r} has no parameter 'judge'; add it, or remove 'judge: true'",
        )
    elif isinstance(metric, CodeMetric) and not metric.judge and "judge" in names[1:]:
        context.warning(
            path, f"{metric.user_code!r} takes a judge; to give it one, write 'judge: true'"
        )


def check_target(
    context: CheckContext, target: str, path: KeyPath, kind: str, folders: CodeFolders
) -> None:
    """Check that `module:attribute` exists, perhaps in `folders`.

    Raises ConfigError if it certainly does not.
    """
    require_target(target, folders, kind)
    warning = import_warning(target, folders)
    if warning is not None:
        context.warning(path, warning)


def _check_that_it_can_fail(context: CheckContext, metric: MetricSettings, path: KeyPath) -> None:
    if metric.threshold == 0:
        _report_zero_threshold(context, (*path, "threshold"), metric.user_code)
    if isinstance(metric, RegexMetric):
        _check_pattern(context, metric, (*path, "pattern"))
    elif isinstance(metric, NotContainsMetric):
        for index, text in enumerate(metric.expected_texts() or ()):
            key = ("value",) if metric.values is None else ("values", index)
            check_forbidden_text(context, text, metric, (*path, *key))
    elif isinstance(metric, JudgeMetric):
        for index, criterion in enumerate(metric.criteria):
            if not isinstance(criterion, str) and criterion.threshold == 0:
                _report_zero_threshold(context, (*path, "criteria", index, "threshold"))
        _check_judge_inputs(context, metric.inputs, "response", (*path, "inputs"))
    elif isinstance(metric, GEvalMetric):
        parameters = metric.evaluation_params
        _check_judge_inputs(context, parameters, "actual_output", (*path, "evaluation_params"))


def _report_zero_threshold(
    context: CheckContext, path: KeyPath, user_code: str | None = None
) -> None:
    if user_code is None:
        context.error(path, f"every score reaches 0; write more than 0, {ONLY_REPORTED}")
    else:
        context.warning(
            path,
            f"every score reaches 0, so only 'passed' decides; write more than 0, {ONLY_REPORTED}",
        )


def _check_pattern(context: CheckContext, metric: RegexMetric, path: KeyPath) -> None:
    try:
        pattern = compile_pattern(metric.pattern, ignore_case=metric.ignore_case)
    except ConfigError:
        return  # reported where the metric is built
    matched = passes_every_text(pattern, whole=metric.fullmatch)
    if matched == "every":
        context.error(path, f"{metric.pattern!r} matches every text, so no response can fail")
    elif matched == "not blank":
        context.warning(
            path, f"{metric.pattern!r} matches every text that is not blank, so only a blank"
            " response can fail",
        )  # fmt: skip


def check_forbidden_text(
    context: CheckContext, text: str, metric: NotContainsMetric, path: KeyPath
) -> None:
    """Find a text for 'not_contains' that hardly any response contains."""
    if text.endswith("\n"):
        context.error(
            path,
            "ends with a line break, which few responses contain after it; write '|-' instead of"
            " '|', or '>-' instead of '>'",
        )
    elif text != text.strip() and not metric.normalize_whitespace:
        context.warning(
            path,
            f"{text!r} begins or ends with white space, which the response must contain too;"
            " remove it, or use 'regex' with \\b for whole words",
        )
    elif text.strip(_QUOTES_AND_INVISIBLE) != text:
        context.warning(
            path,
            f"{text!r} begins or ends with quotes or an invisible character, which the response"
            " must contain too; remove them unless they are intended",
        )


def _check_judge_inputs(
    context: CheckContext, inputs: Sequence[str], response: str, path: KeyPath
) -> None:
    if NOT_FROM_THE_AGENT.issuperset(inputs):
        context.error(
            path, f"the judge does not get the response; add {response!r} to {', '.join(inputs)}"
        )


def warn_of_no_threshold(
    context: CheckContext, metrics: Sequence[MetricSettings], path: KeyPath
) -> None:
    """Find metrics that give no verdict, in a case whose other checks do."""
    for index, metric in enumerate(metrics):
        if metric.enabled and metric.required and not can_fail(metric) and metric.threshold is None:
            context.warning(
                (*path, index),
                f"{metric.label!r} gives no verdict without a threshold; write one,"
                f" {ONLY_REPORTED}",
            )


def check_placeholders(context: CheckContext) -> None:
    """Find placeholders such as `{{name}}` in cases and metrics that no parameter fills."""
    agent = context.agent
    shared: tuple[KeyPath, Any] = (("evaluations",), agent.evaluations)
    cases = ((("test_cases", at), case) for at, case in enumerate(agent.test_cases or ()))
    for path, part in chain((shared,), cases):
        for key_path, found, may_match in _unfilled_placeholders(part, path):
            if may_match:
                context.warning(
                    key_path,
                    f"'{found}' is not filled in; add 'parameters' if it stands for values",
                )
            else:
                context.error(
                    key_path, f"no response contains '{found}'; add 'parameters' or write text"
                )


def _unfilled_placeholders(
    value: Any, path: KeyPath, *, may_match: bool = True
) -> Iterator[tuple[KeyPath, str, bool]]:
    """Yield the first placeholder of each text, and whether it may still match a response."""
    if isinstance(value, str):
        found = PLACEHOLDER.search(value) if "{{" in value else None
        if found is not None:
            yield path, found[0], may_match
        return
    if isinstance(value, BaseModel):
        may_match = not isinstance(value, NotContainsMetric)
        keys = [key for key in type(value).model_fields if key in value.model_fields_set]
        items: Any = ((key, getattr(value, key)) for key in keys if key not in _UNCHECKED_KEYS)
    elif isinstance(value, dict):
        items = value.items()
    elif isinstance(value, list):
        items = enumerate(value)
    else:
        return
    for key, item in items:
        yield from _unfilled_placeholders(item, (*path, key), may_match=may_match)
