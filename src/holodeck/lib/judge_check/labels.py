"""Responses that people have judged: what a label holds, and how far people agree."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PrivateAttr, ValidationError, model_validator

from holodeck import errors
from holodeck.errors import ConfigError
from holodeck.lib.judge_check.gate import labels_needed
from holodeck.lib.judging.agreement import Agreement, Proportion, krippendorff_alpha
from holodeck.lib.support.text import did_you_mean_or_list, load_json
from holodeck.models.base import Json, Model, NonBlank
from holodeck.models.cases.messages import Messages
from holodeck.models.metrics.judge_trust import Limits

DEFAULT_LABELS = Path(__file__).parents[2] / "data" / "judge_labels.jsonl"
"""The forty labels that come with holodeck."""


Verdict = Literal["pass", "fail"]


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
    label: Verdict | None = None
    """The verdict: for a criterion, yes is "pass". Of several people it is what most of them say;
    None if as many say one as the other."""
    labels: Annotated[dict[NonBlank, Verdict | None], Field(min_length=1)] | None = None
    """The verdicts of several people by their names, instead of `label`; null or no entry for a
    person who gave none."""
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

    @model_validator(mode="before")
    @classmethod
    def _decide_by_majority(cls, data: Any) -> Any:
        if not isinstance(data, dict) or not isinstance(data.get("labels"), dict):
            return data
        verdicts = list(data["labels"].values())
        more = verdicts.count("pass") - verdicts.count("fail")
        majority = "pass" if more > 0 else "fail" if more < 0 else None
        if data.get("label") not in (None, majority):
            raise ValueError(
                f"'label' is {data['label']!r}, and most of 'labels' say {majority!r}; remove"
                " 'label', which follows from 'labels'"
            )
        return {**data, "label": majority}

    @model_validator(mode="after")
    def _require_verdict(self) -> "Label":
        if self.label is None and not self.verdicts:
            raise ValueError("'label' is missing; write 'pass' or 'fail'")
        return self

    @property
    def is_good(self) -> bool:
        return self.label == "pass"

    @property
    def verdicts(self) -> Mapping[str, bool]:
        """Whether the response is good by each person who says; empty if nobody is named."""
        named = (self.labels or {}).items()
        return {name: verdict == "pass" for name, verdict in named if verdict is not None}

    @property
    def question(self) -> str:
        """Everything but the verdict, as JSON; labels with the same question count once."""
        return self.model_dump_json(exclude={"label", "labels"})

    @property
    def location(self) -> str:
        """File and line of the label."""
        return self._location

    def at(self, location: str) -> "Label":
        """Set file and line, and return the label."""
        self._location = location
        return self


def read_labels(path: Path) -> list[Label]:
    """Read the labels of a file, in its order. Raises ConfigError with file and line.

    Lines with the `labels` of people about the same response become a label.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        reason = f"cannot be read: {error.strerror}; `holodeck judge label` writes labels"
        raise errors.FileNotFoundError(str(path), reason) from error
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), f"is not UTF-8 text ({error.reason})") from error
    labels: list[Label] = []
    first_of: dict[str, int] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        label = _parse_label(line, f"{path}:{number}")
        at = first_of.setdefault(label.question, len(labels))
        if at == len(labels) or label.labels is None:
            _require_same(labels[at] if at < len(labels) else label, label)
            labels.append(label)
        else:
            labels[at] = _joined(labels[at], label)
    if not labels:
        raise ConfigError(str(path), "is empty; write one JSON object per line: " + _EXAMPLE)
    return labels


def _require_same(first: Label, label: Label) -> None:
    """Raise ConfigError if two lines say different things about the same response."""
    if (first.labels is None) is not (label.labels is None):
        raise ConfigError(
            label.location,
            f"{first.location} is about the same response, and only one of both says whose label it"
            " is; write 'labels: {NAME: …}' in both",
        )
    if first.label != label.label:
        raise ConfigError(
            label.location,
            f"the label is {label.label!r}, but {first.location} gives the same response"
            f" {first.label!r}; remove one of them, or write 'labels: {{NAME: …}}' if two people"
            " disagree",
        )


def _joined(first: Label, label: Label) -> Label:
    """Return a label with the verdicts of two lines. Raises ConfigError if they contradict."""
    if first.labels is None:
        _require_same(first, label)
    before, after = first.labels or {}, label.labels or {}
    for name, verdict in after.items():
        if verdict is not None and before.get(name) not in (None, verdict):
            raise ConfigError(
                label.location,
                f"{name!r} says {verdict!r}, and {before[name]!r} in {first.location}; remove one",
            )
    given = {name: verdict for name, verdict in after.items() if verdict is not None}
    data = first.model_dump(exclude={"label"}) | {"labels": {**before, **given}}
    return Label.model_validate(data).at(first.location)


_EXAMPLE = '{"input": …, "response": …, "criterion": …, "label": "pass" or "fail"}'


def _parse_label(line: str, location: str) -> Label:
    try:
        data = load_json(line)
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
    key = ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        return f"{key!r} is missing"
    if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
        return f"unknown key {key!r}{did_you_mean_or_list(key, Label.model_fields)}"
    if key == "label" or key.startswith("labels."):
        return f"the label is {first['input']!r}; write 'pass' or 'fail'"
    if key in _TEXTS:
        return f"{key!r} is {first['input']!r}; write a text that is not empty"
    message = first["msg"].removeprefix("Value error, ")
    return f"{key!r}: {message}" if key else message


def with_verdict(labels: Sequence[Label], location: str) -> list[Label]:
    """Return the labels without ties. Raises ConfigError if people are of two minds about all."""
    decided = [label for label in labels if label.label is not None]
    if not decided:
        raise ConfigError(location, "as many people say 'pass' as 'fail' of every response")
    return decided


def count_kinds(labels: Iterable[Label]) -> tuple[int, int]:
    """Return how many different labels are good, and how many are bad; a tie is neither."""
    different = {label.question: label.is_good for label in labels if label.label is not None}
    good = sum(different.values())
    return good, len(different) - good


def require_enough_labels(
    labels: Sequence[Label], limits: Limits, location: str, look: int, reused: int
) -> None:
    """Raise ConfigError if not even a perfect judge could be shown to be good enough.

    Args:
        labels: The labels that count.
        limits: What the judge must reach.
        location: Where the labels are written.
        look: Which look at labels of the metric it is.
        reused: How many other labels do not count, because other settings were tried on them.
    """
    good, bad = count_kinds(labels)
    more = zip(("pass", "fail"), labels_needed(good, bad, limits, look), strict=True)
    missing = [f"{count} more with label {kind!r}" for kind, count in more if count]
    if missing:
        raise ConfigError(
            location,
            f"{good + bad} different labels ({good} pass, {bad} fail) are too few"
            f"{_why_so_few(look, reused)}: not even a judge that agrees on all of them could be"
            f" shown to have a kappa of at least {limits.min_kappa:g} and to pass at most"
            f" {limits.max_false_passes:.0%} of the bad responses; add {' and '.join(missing)}",
        )


def _why_so_few(look: int, reused: int) -> str:
    """Return what makes more labels necessary than a first look needs."""
    reasons = [
        f"this is look {look} at labels of this metric" if look > 1 else "",
        f"{reused} more do not count, as other settings of metric or judge were tried on them"
        if reused
        else "",
    ]
    listed = ", and ".join(reason for reason in reasons if reason)
    return f" ({listed})" if listed else ""


@dataclass(frozen=True)
class PeopleAgreement:
    """How far the people agree who labelled the same responses."""

    people: Sequence[str]
    """Their names, in the order of the file."""
    statistic: str
    """`Cohen's kappa` of two people, `Krippendorff's alpha` of more."""
    value: float | None
    """The statistic; None if all labels are the same, or no response has two."""
    same: Proportion
    """The responses that two or more people labelled, and of them those with one verdict."""
    disagreements: Sequence[Label]
    """The others, in the order of the file."""

    @property
    def ties(self) -> int:
        """How many responses as many people pass as fail, so that no majority decides."""
        return sum(label.label is None for label in self.disagreements)


def agreement_of_people(labels: Iterable[Label]) -> PeopleAgreement | None:
    """Return the agreement of people; None if no label names who gave it."""
    different = {label.question: label for label in labels if label.labels}
    rows = [label.verdicts for label in different.values()]
    if not rows:
        return None
    people = list(dict.fromkeys(name for row in rows for name in row))
    several = [label for label in different.values() if len(label.verdicts) > 1]
    disagreements = [label for label in several if len(set(label.verdicts.values())) > 1]
    if len(people) == 2:
        first, second = people
        both = [(row[first], row[second]) for row in rows if first in row and second in row]
        statistic, value = "Cohen's kappa", Agreement.of(both).kappa
    else:
        statistic = "Krippendorff's alpha"
        value = krippendorff_alpha([list(row.values()) for row in rows])
    same = Proportion(len(several) - len(disagreements), len(several))
    return PeopleAgreement(people, statistic, value, same, disagreements)
