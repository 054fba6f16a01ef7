"""How far people agree with each other about the same responses, which no judge can outdo."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holodeck.lib.judging.agreement import Agreement, Proportion, krippendorff_alpha
from holodeck.lib.judging.labels import Label
from holodeck.lib.support.text import one_line, plural
from holodeck.models.metrics.judge_trust import Limits

CEILING = "no judge can be expected to agree with people more than they agree with each other"
_MAX_SHOWN = 20


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
        statistic, value = "Cohen's kappa", _kappa(rows, people)
    else:
        statistic = "Krippendorff's alpha"
        value = krippendorff_alpha([list(row.values()) for row in rows])
    same = Proportion(len(several) - len(disagreements), len(several))
    return PeopleAgreement(people, statistic, value, same, disagreements)


def _kappa(rows: Sequence[Mapping[str, bool]], people: Sequence[str]) -> float | None:
    first, second = people
    both = [row for row in rows if first in row and second in row]
    return Agreement.of([(row[first], row[second]) for row in both]).kappa


def describe_people(found: PeopleAgreement, limits: Limits) -> list[tuple[str, str]]:
    """Return the lines of the table: names and texts."""
    value = "–" if found.value is None else f"{found.value:.2f}"
    share = f"{found.same.count} of {plural(found.same.of, 'response')}"
    rows = [
        ("people", f"{len(found.people)}: {one_line(', '.join(found.people), 80)}"),
        ("people agree", f"{share} with several labels; {found.statistic} {value}"),
        ("the ceiling", CEILING),
    ]
    if found.value is not None and found.value < limits.min_kappa:
        text = (
            f"people themselves stay below the kappa of {limits.min_kappa:.2f} that a judge needs;"
            " make the criterion clearer, or label again together"
        )
        rows.append(("", text))
    if found.ties:
        rows.append(("ties", f"{plural(found.ties, 'response')} without a majority, left out"))
    return rows


def list_disagreements(found: PeopleAgreement) -> list[str]:
    """Return the lines about the responses on which people disagree."""
    lines = [
        f"  {', '.join(_verdicts(label))}: {one_line(label.criterion or label.input, 60)}"
        f" {one_line(label.response, 60)}"
        for label in found.disagreements
    ]
    more = [f"  and {len(lines) - _MAX_SHOWN} more"] if len(lines) > _MAX_SHOWN else []
    title = f"People disagree on {len(lines)}:"
    return ["", title, *lines[:_MAX_SHOWN], *more] if lines else []


def _verdicts(label: Label) -> list[str]:
    return [
        f"{one_line(name, 30)} {'pass' if good else 'fail'}"
        for name, good in label.verdicts.items()
    ]


def people_to_json(found: PeopleAgreement | None) -> dict[str, Any] | None:
    """Return the agreement of people as JSON data."""
    if found is None:
        return None
    return {
        "people": list(found.people),
        "statistic": found.statistic,
        "value": found.value,
        "responses_with_several_labels": found.same.of,
        "responses_with_one_verdict": found.same.count,
        "ties_left_out": found.ties,
        "disagreements": [
            label.model_dump(mode="json", exclude_none=True) for label in found.disagreements
        ],
    }
