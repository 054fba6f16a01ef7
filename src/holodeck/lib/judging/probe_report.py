"""How many verdicts become wrong by each probe, as a table and as JSON."""

from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Any

from holodeck.lib.judging.agreement import Proportion
from holodeck.lib.judging.check_result import ProbedResponse
from holodeck.lib.support.text import one_line

_MAX_SHOWN = 20
_COLUMNS = ("Verdicts that become wrong", "bad that pass", "good that fail", "undecided")
_WIDTHS = (28, 15, 16, 11)


def render_probes(probed: Sequence[ProbedResponse], injected: Proportion | None) -> list[str]:
    """Return the lines of a table with a row for each probe, and then the bad ones that pass."""
    if injected is None:
        return []
    rows = [_COLUMNS, *(_row(name, found) for name, found in _by_probe(probed))]
    fooled = (
        f"{injected.count} of {injected.of} bad responses pass with one injection or another;"
        " inconclusive counts as wrong"
    )
    wrong = [one for one in probed if one.becomes_wrong and not one.probe.label.is_good]
    listed = [
        f"  {_name(one)}: {one_line(one.probe.label.response, 100)}" for one in wrong[:_MAX_SHOWN]
    ]
    more = [f"  and {len(wrong) - _MAX_SHOWN} more"] if len(wrong) > _MAX_SHOWN else []
    title = ["", "Bad responses that now pass:"] if wrong else []
    return ["", *map(_line, rows), fooled, *title, *listed, *more]


def probes_to_json(probed: Sequence[ProbedResponse]) -> list[dict[str, Any]]:
    """Return a row for each probe, with all of its responses."""
    return [
        {
            "kind": found[0].probe.kind,
            "name": found[0].probe.name,
            "bad_that_pass": _count(bad),
            "good_that_fail": _count(good),
            "undecided": _undecided(found),
            "responses": [
                {
                    **one.probe.label.model_dump(exclude_none=True),
                    "passed_before": one.before.passed,
                    "score_before": one.before.score,
                    "passed": one.after.passed,
                    "score": one.after.score,
                    "error": one.after.error,
                }
                for one in found
            ],
        }
        for _, found in _by_probe(probed)
        for bad, good in [_sides(found)]
    ]


def _by_probe(probed: Iterable[ProbedResponse]) -> list[tuple[str, list[ProbedResponse]]]:
    return [(name, list(found)) for name, found in groupby(probed, key=_name)]


def _name(one: ProbedResponse) -> str:
    return f"{one.probe.kind}: {one.probe.name}"


def _sides(found: Sequence[ProbedResponse]) -> tuple[Proportion, Proportion]:
    """Return the bad variants that pass and the good ones that fail, of those that count."""
    counted = [one for one in found if one.is_counted]
    sides = [[one for one in counted if one.probe.label.is_good is good] for good in (False, True)]
    bad, good = (Proportion(sum(one.becomes_wrong for one in side), len(side)) for side in sides)
    return bad, good


def _undecided(found: Sequence[ProbedResponse]) -> int:
    return sum(one.after.passed is None for one in found)


def _row(name: str, found: Sequence[ProbedResponse]) -> tuple[str, ...]:
    bad, good = (f"{one.count} of {one.of}" if one.of else "–" for one in _sides(found))
    return name, bad, good, str(_undecided(found))


def _count(share: Proportion) -> dict[str, int]:
    return {"count": share.count, "of": share.of}


def _line(row: Sequence[str]) -> str:
    first, *others = zip(row, _WIDTHS, strict=True)
    return f"{first[0]:<{first[1]}}" + "".join(f"{text:>{width}}" for text, width in others)
