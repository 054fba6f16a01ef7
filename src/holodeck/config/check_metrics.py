"""Metrics that no answer can fail, and metrics that decide nothing: found before anything runs."""

from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel

from holodeck.config.findings import Findings
from holodeck.config.source import KeyPath
from holodeck.errors import ConfigError
from holodeck.lib.evaluators.build import can_fail
from holodeck.lib.patterns import compiled, passes_every_text
from holodeck.models.agent import Agent
from holodeck.models.evaluation import MetricSettings, NotContainsMetric, RegexMetric
from holodeck.models.judged_metrics import GEvalMetric, JudgeMetric
from holodeck.models.test_case import PLACEHOLDER

ONLY_REPORTED = "or 'required: false' to only report it"
_UNSEEN = "\"'“”‘’\u200b\u200c\u200d\u2060\ufeff"
"""Quotes that were written twice, and signs without a width."""
NOT_THE_AGENTS = frozenset({"input", "ground_truth", "expected_output"})
"""What of a case does not come from the agent."""


def check_metric(metric: MetricSettings, place: KeyPath, findings: Findings) -> None:
    """Find what makes a metric pass every answer; one that is only reported may."""
    if not metric.required:
        return
    _check_threshold(metric, place, findings)
    if isinstance(metric, RegexMetric):
        _check_pattern(metric, place, findings)
    elif isinstance(metric, NotContainsMetric):
        _check_forbidden_texts(metric, place, findings)
    elif isinstance(metric, JudgeMetric):
        for index, criterion in enumerate(metric.criteria):
            if not isinstance(criterion, str) and criterion.threshold == 0:
                _refuse_zero((*place, "criteria", index, "threshold"), findings)
        _check_sight(metric.inputs, "response", (*place, "inputs"), findings)
    elif isinstance(metric, GEvalMetric):
        sees = metric.evaluation_params
        _check_sight(sees, "actual_output", (*place, "evaluation_params"), findings)


def _check_threshold(metric: MetricSettings, place: KeyPath, findings: Findings) -> None:
    if metric.threshold != 0:
        return
    if metric.user_code is None:
        _refuse_zero((*place, "threshold"), findings)
    else:
        findings.warning(
            (*place, "threshold"),
            f"every score reaches 0, so only 'passed' decides; write more than 0, {ONLY_REPORTED}",
        )


def _refuse_zero(path: KeyPath, findings: Findings) -> None:
    findings.error(path, f"every score reaches 0; write more than 0, {ONLY_REPORTED}")


def _check_pattern(metric: RegexMetric, place: KeyPath, findings: Findings) -> None:
    path = (*place, "pattern")
    try:
        pattern = compiled(metric.pattern, ignore_case=metric.ignore_case)
    except ConfigError:
        return  # said where the metric is built
    passes = passes_every_text(pattern, whole=metric.fullmatch)
    if passes == "every":
        findings.error(path, f"{metric.pattern!r} matches every text, so no answer can fail")
    elif passes == "not blank":
        findings.warning(
            path, f"{metric.pattern!r} matches every text that is not blank; a blank one fails"
        )


def _check_forbidden_texts(metric: NotContainsMetric, place: KeyPath, findings: Findings) -> None:
    for index, text in enumerate(metric.expected_texts() or ()):
        path = (*place, "value") if metric.values is None else (*place, "values", index)
        check_forbidden_text(text, metric, path, findings)


def check_forbidden_text(
    text: str, metric: NotContainsMetric, path: KeyPath, findings: Findings
) -> None:
    """Find a text that 'not_contains' looks for and that hardly any answer contains."""
    if text.endswith("\n"):
        findings.error(
            path,
            "ends with a line break, which few answers contain after it; write '|-' instead of"
            " '|', or '>-' instead of '>'",
        )
    elif text != text.strip() and not metric.normalize_whitespace:
        findings.warning(
            path,
            f"{text!r} begins or ends with white space, which the answer must contain, too; remove"
            " it, or use 'regex' with \\b for whole words",
        )
    elif text.strip(_UNSEEN) != text:
        findings.warning(
            path,
            f"{text!r} begins or ends with quotes or a sign that nobody sees, which the answer must"
            " contain, too; remove them if they are not meant",
        )


def _check_sight(sees: Sequence[str], answer: str, path: KeyPath, findings: Findings) -> None:
    if NOT_THE_AGENTS.issuperset(sees):
        findings.error(
            path, f"the judge never sees the answer; add {answer!r} to {', '.join(sees)}"
        )


def check_undecided(metrics: Sequence[MetricSettings], path: KeyPath, findings: Findings) -> None:
    """Find metrics that give no verdict, beside checks that do."""
    for index, metric in enumerate(metrics):
        if metric.enabled and metric.required and not can_fail(metric) and metric.threshold is None:
            findings.warning(
                (*path, index),
                f"{metric.label!r} decides nothing without a threshold; write one, {ONLY_REPORTED}",
            )


_NO_MATTER = frozenset({"forbidden_tools", "description"})
"""Keys that are looked at elsewhere, or only by people."""


def check_placeholders(agent: Agent, findings: Findings) -> None:
    """Find them in every text of the cases and of the metrics."""
    parts: list[tuple[KeyPath, Any]] = [(("evaluations",), agent.evaluations)]
    parts += [(("test_cases", at), case) for at, case in enumerate(agent.test_cases or ())]
    for path, part in parts:
        for key_path, found, may_match in _unfilled_placeholders(part, path):
            if may_match:
                findings.warning(
                    key_path,
                    f"'{found}' is not filled in; add 'parameters' if it stands for values",
                )
            else:
                findings.error(
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
    elif isinstance(value, BaseModel):
        forbids = isinstance(value, NotContainsMetric)
        for key in type(value).model_fields:
            if key in value.model_fields_set and key not in _NO_MATTER:
                yield from _unfilled_placeholders(
                    getattr(value, key), (*path, key), may_match=not forbids
                )
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _unfilled_placeholders(one, (*path, key), may_match=may_match)
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from _unfilled_placeholders(one, (*path, index), may_match=may_match)
