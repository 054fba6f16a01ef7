"""Answers that people have judged: one JSON object a line."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from pydantic import ValidationError

from holodeck import errors
from holodeck.errors import ConfigError
from holodeck.lib.suggestions import did_you_mean_or_list
from holodeck.models.base import Model, NonBlank

SHIPPED = Path(__file__).parents[2] / "data" / "judge_labels.jsonl"
"""Forty answers that come with holodeck."""


class Label(Model):
    """An answer, and what a person said about it."""

    input: NonBlank
    """What the user said."""
    response: str
    """What was answered."""
    criterion: NonBlank
    """The question about the answer, put so that yes is good."""
    label: Literal["pass", "fail"]
    """What a person answered: yes (pass) or no (fail)."""
    ground_truth: NonBlank | None = None
    """The right answer, shown to the judge if it is there."""

    @property
    def is_good(self) -> bool:
        return self.label == "pass"


def read_labels(path: Path) -> list[Label]:
    """The labels of a file, in its order. Raises ConfigError with file and line."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise errors.FileNotFoundError(str(path), f"cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(str(path), f"is not UTF-8 text ({error.reason})") from error
    lines = text.split("\n")
    labels = [
        _label(line, f"{path}:{number}") for number, line in enumerate(lines, 1) if line.strip()
    ]
    if not labels:
        raise ConfigError(str(path), "is empty; write one JSON object a line: " + _EXAMPLE)
    return labels


_EXAMPLE = '{"input": …, "response": …, "criterion": …, "label": "pass" or "fail"}'


def _label(line: str, where: str) -> Label:
    try:
        data = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigError(where, f"is not JSON: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(where, f"is no object; write {_EXAMPLE}")
    try:
        return Label.model_validate(data)
    except ValidationError as error:
        raise ConfigError(where, _in_words(error)) from error


def _in_words(error: ValidationError) -> str:
    first = error.errors()[0]
    key = str(first["loc"][0])
    if first["type"] == "missing":
        return f"{key!r} is missing"
    if first["type"] == "extra_forbidden":
        return f"{key!r} is not known{did_you_mean_or_list(key, Label.model_fields)}"
    if key == "label":
        return f"the label is {first['input']!r}; write 'pass' or 'fail'"
    return f"{key!r} is {first['input']!r}; write text that is not empty"


LEAST_LABELS = 20
"""A gate on agreement needs so many different labels; with fewer, luck passes it."""
LEAST_OF_EACH = 5
"""So many of them have to be good answers, and as many bad ones."""


def refuse_too_few(labels: Sequence[Label], where: str) -> None:
    """Raise ConfigError for labels that are too few to decide about a judge by its agreement."""
    different = {(one.input, one.response, one.criterion, one.ground_truth): one for one in labels}
    good = sum(one.is_good for one in different.values())
    bad = len(different) - good
    if len(different) >= LEAST_LABELS and min(good, bad) >= LEAST_OF_EACH:
        return
    missing = [
        f"{LEAST_OF_EACH - count} more with label {kind!r}"
        for kind, count in (("pass", good), ("fail", bad))
        if count < LEAST_OF_EACH
    ]
    if len(different) < LEAST_LABELS:
        missing.append(f"{LEAST_LABELS - len(different)} more in all")
    raise ConfigError(
        where,
        f"--min-kappa needs {LEAST_LABELS} different labels or more, at least {LEAST_OF_EACH} of"
        f" each kind; found {len(different)} labels ({good} pass, {bad} fail);"
        f" add {' and '.join(missing)}",
    )


def pairs_of(labels: Sequence[Label]) -> list[tuple[Label, Label]]:
    """A good and a bad answer to the same input by the same criterion, in the file's order."""
    bad: dict[tuple[str, str], list[Label]] = {}
    for one in labels:
        if not one.is_good:
            bad.setdefault((one.input, one.criterion), []).append(one)
    pairs = []
    for one in labels:
        left = bad.get((one.input, one.criterion))
        if one.is_good and left:
            pairs.append((one, left.pop(0)))
    return pairs
