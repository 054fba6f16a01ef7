"""Two judges on the same labels: is one better, or is the difference noise?"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from holodeck.errors import ConfigError
from holodeck.lib.judge_check.check_result import JudgeCheckResult
from holodeck.lib.judge_check.labels import Label
from holodeck.lib.judging.agreement import (
    MIN_DIFFERING,
    SIGNIFICANT,
    Proportion,
    mcnemar_p_value,
)
from holodeck.lib.support.text import load_json, plural


class _SavedJudgement(BaseModel):
    """What is read of a judgement in the JSON of a check; the rest is its label."""

    model_config = ConfigDict(extra="allow")

    passed: bool | None = None


class _SavedCheck(BaseModel):
    """What is read of the JSON of a check."""

    schema_version: int
    judge: str
    judgements: list[_SavedJudgement]


@dataclass(frozen=True)
class SavedVerdicts:
    """The verdicts of a judge in the JSON of an earlier check."""

    judge: str
    agrees: Mapping[tuple[str, str], bool]
    """Question and verdict of people → whether the judge agreed."""


@dataclass(frozen=True)
class JudgePair:
    """How two judges agree with people about the same responses."""

    judge: str
    other: str
    agreement: Proportion
    """The labels that the judge agrees with, of those that both judged."""
    other_agreement: Proportion
    only_judge: int
    """The labels with which only the judge agrees."""
    only_other: int
    left_out: int
    """The labels that only a single judge has judged."""

    @property
    def discordant(self) -> int:
        """The labels with which either agrees and the other does not."""
        return self.only_judge + self.only_other

    @property
    def p_value(self) -> float:
        """How likely so large a difference is between equally good judges."""
        return mcnemar_p_value(self.only_judge, self.only_other)


def read_verdicts(path: Path, labels: Sequence[Label]) -> SavedVerdicts:
    """Read what `holodeck judge check --json` wrote about some of these labels.

    Raises ConfigError.
    """
    try:
        check = _SavedCheck.model_validate(load_json(path.read_text(encoding="utf-8")))
        verdicts = dict(_verdict(judgement) for judgement in check.judgements)
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:  # also ValidationError and UnicodeDecodeError
        reason = error.errors()[0]["msg"] if isinstance(error, ValidationError) else str(error)
        raise ConfigError(
            str(path),
            f"is not the result of a check ({reason}); write it with"
            " 'holodeck judge check LABELS --json FILE'",
        ) from error
    if not any(_key(label) in verdicts for label in labels):
        raise ConfigError(
            str(path), "is about none of these labels; check both judges on the same file"
        )
    return SavedVerdicts(check.judge, verdicts)


def _verdict(judgement: _SavedJudgement) -> tuple[tuple[str, str], bool]:
    written = judgement.model_extra or {}
    label = Label.model_validate(
        {key: value for key, value in written.items() if key in Label.model_fields}
    )
    return _key(label), judgement.passed is label.is_good


def _key(label: Label) -> tuple[str, str]:
    return label.question, str(label.label)


def compare_judges(check: JudgeCheckResult, other: SavedVerdicts) -> JudgePair:
    """Compare the judge of a check with another, on the labels that both judged.

    An inconclusive verdict and an error count as wrong, as they do for the gate.
    """
    agrees = {_key(judgement.label): judgement.agrees for judgement in reversed(check.judgements)}
    both = [key for key in agrees if key in other.agrees]
    pairs = [(agrees[key], other.agrees[key]) for key in both]
    return JudgePair(
        check.judge,
        other.judge,
        Proportion(sum(mine for mine, _ in pairs), len(pairs)),
        Proportion(sum(theirs for _, theirs in pairs), len(pairs)),
        pairs.count((True, False)),
        pairs.count((False, True)),
        len(agrees) + len(other.agrees) - 2 * len(both),
    )


def describe_pair(pair: JudgePair) -> list[str]:
    """Return the lines of the report."""
    names = (pair.judge, pair.other)
    if pair.judge == pair.other:
        names = (f"{pair.judge} (now)", f"{pair.other} (--against)")
    width = max(map(len, names))
    shares = (pair.agreement, pair.other_agreement)
    rows = [
        f"  {name:<{width}}  agrees with {share.count} of {share.of} labels ({share.value:.2f})"
        for name, share in zip(names, shares, strict=True)
    ]
    counts = (
        f"  only {names[0]} is right {plural(pair.only_judge, 'time')}, only {names[1]}"
        f" {plural(pair.only_other, 'time')}; exact McNemar test: p = {pair.p_value:.3g}"
    )
    left = f"; {plural(pair.left_out, 'label')} of only one are left out" if pair.left_out else ""
    return [
        "",
        f"Two judges on {plural(pair.agreement.of, 'label')}{left}:",
        *rows,
        counts,
        f"  {_sentence(pair, names)}",
    ]


def _sentence(pair: JudgePair, names: tuple[str, str]) -> str:
    """Return whether the difference is noise."""
    if not pair.discordant:
        return "Both are right about the same responses, so nothing sets them apart."
    if pair.p_value <= SIGNIFICANT:
        better = names[pair.only_other > pair.only_judge]
        return (
            f"{better} agrees with people more often, and that is more than noise"
            f" (p ≤ {SIGNIFICANT})."
        )
    if pair.discordant < MIN_DIFFERING:
        return (
            f"With {plural(pair.discordant, 'label')} on which they differ, no difference could be"
            f" told from noise; {MIN_DIFFERING} are the least."
        )
    return f"The difference may be noise (p > {SIGNIFICANT})."


def pair_to_json(pair: JudgePair) -> dict[str, Any]:
    """Return the comparison as JSON data."""
    return {
        "judge": pair.other,
        "labels": pair.agreement.of,
        "labels_left_out": pair.left_out,
        "agreed": pair.agreement.count,
        "other_agreed": pair.other_agreement.count,
        "only_this_judge_agrees": pair.only_judge,
        "only_the_other_agrees": pair.only_other,
        "mcnemar_exact_p_value": pair.p_value,
    }
