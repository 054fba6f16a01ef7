"""Checking a judge against people: labels to read, results, and their table and JSON."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, ValidationError

from holodeck import errors
from holodeck.errors import ConfigError
from holodeck.lib.judging.agreement import (
    Agreement,
    Proportion,
    area_under_curve,
    best_threshold,
    held_out_accuracy,
)
from holodeck.lib.judging.gate import (
    DEFAULT_LIMITS,
    GateDecision,
    Limits,
    decide_gate,
    labels_needed,
)
from holodeck.lib.suggestions import did_you_mean_or_list
from holodeck.lib.text import one_line, plural
from holodeck.models.base import Json, Model, NonBlank
from holodeck.models.history import Messages
from holodeck.models.token_usage import UsageMeter

DEFAULT_LABELS = Path(__file__).parents[2] / "data" / "judge_labels.jsonl"
"""The forty labels that come with holodeck."""


class LabelledCall(Model):
    """A tool call of the agent."""

    name: NonBlank
    """Name of the tool."""
    arguments: dict[str, Json] = {}
    """The arguments."""
    result: Json = None
    """What the tool returned."""
    error: NonBlank | None = None
    """Why it failed."""


class Label(Model):
    """A response and the verdict of a person, with everything that a metric may read."""

    input: NonBlank
    """The user's input."""
    response: str
    """The response."""
    label: Literal["pass", "fail"]
    """The person's verdict: for a criterion, yes is "pass"."""
    criterion: NonBlank | None = None
    """A question about the response, phrased so that yes is good; None if the label is about the
    metric as a whole."""
    ground_truth: NonBlank | None = None
    """The right answer; the judge sees it if it is given."""
    retrieval_context: Annotated[list[NonBlank], Field(min_length=1)] | None = None
    """Retrieved passages."""
    history: Messages | None = None
    """The messages before the input."""
    tool_calls: list[LabelledCall] | None = None
    """The tool calls of the agent; None if they are unknown, [] if there were none."""
    expected_tools: list[NonBlank] | None = None
    """The tools that the agent should have called."""
    _location: str = PrivateAttr(default="labels")

    @property
    def is_good(self) -> bool:
        return self.label == "pass"

    @property
    def question(self) -> str:
        """Everything but the verdict, as JSON; labels with the same question count once."""
        return self.model_dump_json(exclude={"label"})

    @property
    def location(self) -> str:
        """File and line of the label."""
        return self._location

    def at(self, location: str) -> "Label":
        """Set file and line, and return the label."""
        self._location = location
        return self


def read_labels(path: Path) -> list[Label]:
    """Read the labels of a file, in its order. Raises ConfigError with file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise errors.FileNotFoundError(str(path), f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), f"is not UTF-8 text ({error.reason})") from error
    labels: list[Label] = []
    first_of: dict[str, Label] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        label = _parse_label(line, f"{path}:{number}")
        first = first_of.setdefault(label.question, label)
        if first.label != label.label:
            raise ConfigError(
                label.location,
                f"the label is {label.label!r}, but {first.location} gives the same response"
                f" {first.label!r}; remove one of them",
            )
        labels.append(label)
    if not labels:
        raise ConfigError(str(path), "is empty; write one JSON object per line: " + _EXAMPLE)
    return labels


_EXAMPLE = '{"input": …, "response": …, "criterion": …, "label": "pass" or "fail"}'


def _parse_label(line: str, location: str) -> Label:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(location, f"is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(location, f"is not a JSON object; write {_EXAMPLE}")
    try:
        label = Label.model_validate(data)
    except ValidationError as error:
        raise ConfigError(location, _describe_error(error)) from error
    return label.at(location)


_TEXTS = ("input", "response", "criterion", "ground_truth")


def _describe_error(error: ValidationError) -> str:
    first = error.errors()[0]
    key = ".".join(str(one) for one in first["loc"])
    if first["type"] == "missing":
        return f"{key!r} is missing"
    if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
        return f"unknown key {key!r}{did_you_mean_or_list(key, Label.model_fields)}"
    if key == "label":
        return f"the label is {first['input']!r}; write 'pass' or 'fail'"
    if key in _TEXTS:
        return f"{key!r} is {first['input']!r}; write a text that is not empty"
    return f"{key!r}: {first['msg']}"


def require_enough_labels(labels: Sequence[Label], limits: Limits, location: str) -> None:
    """Raise ConfigError if not even a perfect judge could be shown to be good enough."""
    different = {one.question: one for one in labels}
    good = sum(one.is_good for one in different.values())
    bad = len(different) - good
    more = zip(("pass", "fail"), labels_needed(good, bad, limits), strict=True)
    missing = [f"{count} more with label {kind!r}" for kind, count in more if count]
    if missing:
        raise ConfigError(
            location,
            f"{len(different)} different labels ({good} pass, {bad} fail) are too few: not even a"
            f" judge that agrees on all of them could be shown to have a kappa of at least"
            f" {limits.min_kappa:g} and to pass at most {limits.max_false_passes:.0%} of the bad"
            f" responses; add {' and '.join(missing)}",
        )


def pair_labels(labels: Sequence[Label]) -> list[tuple[Label, Label]]:
    """Pair good and bad responses to the same input by the same criterion, in the file's order."""
    bad: dict[tuple[str, str | None], list[Label]] = {}
    for one in labels:
        if not one.is_good:
            bad.setdefault((one.input, one.criterion), []).append(one)
    pairs = []
    for one in labels:
        unpaired = bad.get((one.input, one.criterion))
        if one.is_good and unpaired:
            pairs.append((one, unpaired.pop(0)))
    return pairs


_WIDTH = 28
_MAX_SHOWN = 20
_IDENTIFIERS = re.compile(r"\b(?=[\w-]*\d)[\w-]{8,}")
"""Request ids and the like: errors that differ only in these count as the same."""


@dataclass(frozen=True)
class Judgement:
    """The judge's verdict on one response; without a score there is an error."""

    label: Label
    score: float | None = None
    passed: bool | None = None
    """None if the verdict is inconclusive or there is an error."""
    reason: str = ""
    error: str | None = None

    @property
    def agrees(self) -> bool:
        return self.passed is self.label.is_good


@dataclass(frozen=True)
class OrderEffect:
    """The choices between a good and a bad response, each pair shown in both orders."""

    pairs: int
    same_choice: Proportion
    """Pairs for which the order did not matter."""
    right_both_times: Proportion
    first_chosen: Proportion
    """The share of choices for the first response; 0.5 is fair."""


@dataclass(frozen=True)
class LengthEffect:
    """The effect of meaningless sentences appended to every response."""

    changed: Proportion
    """The share of verdicts that changed."""
    shift_of_good: float | None
    shift_of_bad: float | None


@dataclass(frozen=True)
class JudgeCheckResult:
    """The result of checking a judge."""

    judge: str
    threshold: float
    judgements: Sequence[Judgement]
    errors: Sequence[str]
    """The errors of all requests."""
    usage: UsageMeter
    repeats: int = 1
    has_wordings: bool = True
    """Whether each repetition used other words; otherwise they were the same."""
    same_each_time: Proportion | None = None
    """Responses with the same verdict each time; None without repeats."""
    order: OrderEffect | None = None
    """None without pairs, and for a quick check."""
    length: LengthEffect | None = None
    """None for a quick check."""

    @property
    def agreement(self) -> Agreement:
        """The agreement on responses with a conclusive verdict."""
        verdicts = [(one.label.is_good, one.passed) for one in self.judgements]
        return Agreement.of([(good, passed) for good, passed in verdicts if passed is not None])

    @property
    def strict_agreement(self) -> Agreement:
        """The agreement on different labels, with an inconclusive verdict or an error as wrong."""
        judged = {one.label.question: one for one in reversed(self.judgements)}
        return Agreement.of(
            [
                (one.label.is_good, not one.label.is_good if one.passed is None else one.passed)
                for one in judged.values()
            ]
        )

    def gate(self, limits: Limits = DEFAULT_LIMITS) -> GateDecision:
        """Return whether this judge may decide runs."""
        return decide_gate(self.strict_agreement, limits)

    @property
    def scores(self) -> list[tuple[bool, float]]:
        return [(one.label.is_good, one.score) for one in self.judgements if one.score is not None]

    @property
    def inconclusive(self) -> int:
        return sum(one.passed is None and one.error is None for one in self.judgements)


def to_json(check: JudgeCheckResult, limits: Limits = DEFAULT_LIMITS) -> dict[str, Any]:
    """Return the result as JSON data."""
    found = check.agreement
    gate = check.gate(limits)
    return {
        "schema_version": 1,
        "judge": check.judge,
        "threshold": check.threshold,
        "answers": len(check.judgements),
        "inconclusive": check.inconclusive,
        "errors": list(check.errors),
        "accuracy": _share(found.accuracy),
        "true_positive_rate": _share(found.true_positive_rate),
        "true_negative_rate": _share(found.true_negative_rate),
        "kappa": found.kappa,
        "kappa_standard_error": found.kappa_error,
        "kappa_if_inconclusive_is_wrong": check.strict_agreement.kappa,
        "area_under_curve": area_under_curve(check.scores),
        "best_threshold": best_threshold(check.scores),
        "best_threshold_held_out_accuracy": _share(held_out_accuracy(check.scores)),
        "gate": {
            "verdict": gate.verdict,
            "min_kappa": limits.min_kappa,
            "max_false_passes": limits.max_false_passes,
            "good_labels": gate.good,
            "bad_labels": gate.bad,
            "kappa_one_sided_95": gate.kappa_bounds,
            "false_passes_one_sided_95": gate.false_pass_bounds,
            "more_labels": gate.more_labels,
        },
        "repeats": check.repeats,
        "same_each_time": _share(check.same_each_time),
        "order": _shares(check.order),
        "length": _shares(check.length),
        "calls": check.usage.requests,
        "prompt_tokens": check.usage.usage.prompt_tokens,
        "completion_tokens": check.usage.usage.completion_tokens,
        "seconds": round(check.usage.seconds, 3),
        "judgements": [
            {
                **one.label.model_dump(exclude_none=True),
                "score": one.score,
                "passed": one.passed,
                "agrees": one.agrees,
                "reason": one.reason,
                "error": one.error,
            }
            for one in check.judgements
        ],
    }


def _shares(effect: OrderEffect | LengthEffect | None) -> dict[str, Any] | None:
    if effect is None:
        return None
    parts = {one.name: getattr(effect, one.name) for one in fields(effect)}
    return {key: _share(one) if isinstance(one, Proportion) else one for key, one in parts.items()}


def _share(share: Proportion | None) -> dict[str, Any] | None:
    if share is None:
        return None
    return {
        "value": share.value,
        "count": share.count,
        "of": share.of,
        "interval_95": share.interval,
    }


def render_table(check: JudgeCheckResult, limits: Limits = DEFAULT_LIMITS) -> str:
    """Render one figure per line, then the responses on which judge and people disagree."""
    found = check.agreement
    kappa = "–" if found.kappa is None else f"{found.kappa:.2f} ± {found.kappa_error:.2f}"
    rows = [
        ("answers", str(len(check.judgements))),
        ("accuracy", _format_share(found.accuracy)),
        ("Cohen's kappa", kappa),
        ("good answers passed", _format_share(found.true_positive_rate)),
        ("bad answers failed", _format_share(found.true_negative_rate)),
        ("good above bad (AUC)", _number(area_under_curve(check.scores))),
        ("best threshold", _threshold(check)),
        ("inconclusive", str(check.inconclusive)),
        ("errors", str(len(check.errors))),
        *_effects(check),
        ("cost", _cost(check.usage)),
        ("may it gate?", describe_gate(check.gate(limits))),
    ]
    lines = [f"Judge {check.judge}", "", *(f"{name:<{_WIDTH}}{text}" for name, text in rows)]
    return "\n".join([*lines, *_differences(check), *_errors(check)]) + "\n"


def describe_gate(gate: GateDecision) -> str:
    """Return in one line whether the judge may gate, and why."""
    if gate.kappa_bounds is None or gate.false_pass_bounds is None:
        return "not known yet: there must be labels of both kinds"
    limits = gate.limits
    (kappa, highest), (fewest, most) = gate.kappa_bounds, gate.false_pass_bounds
    if gate.verdict == "may gate":
        return (
            f"yes: kappa is at least {kappa:.2f} ({limits.min_kappa:.2f} needed), and at most"
            f" {most:.0%} of bad responses pass ({limits.max_false_passes:.0%} allowed)"
        )
    if gate.verdict == "may not gate" and fewest > limits.max_false_passes:
        return (
            f"no: at least {fewest:.0%} of bad responses pass ({limits.max_false_passes:.0%}"
            " allowed)"
        )
    if gate.verdict == "may not gate":
        return f"no: kappa is at most {highest:.2f} ({limits.min_kappa:.2f} needed)"
    more = (
        ""
        if gate.more_labels is None
        else f"; about {plural(gate.more_labels, 'more label')} would decide"
    )
    return (
        f"not known yet: kappa is {kappa:.2f} or more ({limits.min_kappa:.2f} needed), and up to"
        f" {most:.0%} of bad responses pass ({limits.max_false_passes:.0%} allowed){more}"
    )


def _threshold(check: JudgeCheckResult) -> str:
    held_out = held_out_accuracy(check.scores)
    right = "" if held_out is None else f"; accuracy on held-out labels {_format_share(held_out)}"
    return f"{_number(best_threshold(check.scores))} (now {check.threshold:.2f}){right}"


def _effects(check: JudgeCheckResult) -> list[tuple[str, str]]:
    rows = []
    if check.same_each_time is not None:
        times = plural(check.repeats, "time")
        words = "worded differently" if check.has_wordings else "in the same words"
        text = f"{_format_share(check.same_each_time)}, asked {times}, {words}"
        rows.append(("same verdict each time", text))
    if check.order is not None:
        rows += [
            ("same choice in both orders", _format_share(check.order.same_choice)),
            ("first of two chosen", f"{_format_share(check.order.first_chosen)}, 0.50 is fair"),
        ]
    if check.length is not None:
        shifts = (check.length.shift_of_good, check.length.shift_of_bad)
        good, bad = (_number(one, sign=True) for one in shifts)
        changed = f"{_format_share(check.length.changed)}; scores of good {good}, of bad {bad}"
        rows.append(("changed by mere length", changed))
    return rows


def _format_share(share: Proportion) -> str:
    if share.interval is None:
        return "– (none)"
    low, high = share.interval
    return f"{share.value:.2f} ({share.count} of {share.of}; 95 %: {low:.2f} to {high:.2f})"


def _number(value: float | None, *, sign: bool = False) -> str:
    if value is None:
        return "–"
    return f"{value:+.2f}" if sign else f"{value:.2f}"


def _cost(usage: UsageMeter) -> str:
    tokens = plural(usage.usage.total_tokens, "token")
    each = f", {usage.seconds / usage.requests:.2f} s each" if usage.requests else ""
    return f"{plural(usage.requests, 'call')}, {tokens}{each}"


def _differences(check: JudgeCheckResult) -> list[str]:
    others = [one for one in check.judgements if one.passed is not None and not one.agrees]
    lines = [
        f"  people say {one.label.label}, the judge {_number(one.score)}:"
        f" {one_line(one.label.criterion or one.label.input, 60)}"
        f" {one_line(one.label.response, 60)}"
        for one in others[:_MAX_SHOWN]
    ]
    return (
        ["", f"Judge and people disagree on {len(others)}:", *lines, *_more(len(others))]
        if others
        else []
    )


def _errors(check: JudgeCheckResult) -> list[str]:
    alike: dict[str, list[str]] = {}
    for error in check.errors:
        alike.setdefault(_IDENTIFIERS.sub("", error), []).append(one_line(error, 200))
    lines = [f"  {_times(len(texts))}{texts[0]}" for texts in alike.values()]
    return ["", "Errors:", *lines[:_MAX_SHOWN], *_more(len(lines))] if lines else []


def _times(count: int) -> str:
    return f"{count} times: " if count > 1 else ""


def _more(number: int) -> list[str]:
    return [f"  and {number - _MAX_SHOWN} more"] if number > _MAX_SHOWN else []
