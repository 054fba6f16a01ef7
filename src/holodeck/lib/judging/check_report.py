"""The table and the JSON of what a check of a judge found."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import fields
from itertools import groupby
from typing import Any

from holodeck.lib.judging.agreement import (
    Proportion,
    area_under_curve,
    best_threshold,
    held_out_accuracy,
)
from holodeck.lib.judging.check_result import (
    JudgeCheckResult,
    LengthEffect,
    OrderEffect,
    ProbedResponse,
)
from holodeck.lib.judging.gate import DEFAULT_LIMITS, GateDecision, alpha_of
from holodeck.lib.judging.judge_pair import JudgePair, describe_pair, pair_to_json
from holodeck.lib.judging.people import (
    PeopleAgreement,
    describe_people,
    list_disagreements,
    people_to_json,
)
from holodeck.lib.support.text import one_line, plural
from holodeck.models.metrics.judge_trust import Limits
from holodeck.models.token_usage import UsageMeter

_WIDTH = 28
_MAX_SHOWN = 20
_IDENTIFIERS = re.compile(r"\b(?=[\w-]*\d)[\w-]{8,}")
"""Request ids and the like: errors that differ only in these count as the same."""


def to_json(
    check: JudgeCheckResult,
    limits: Limits = DEFAULT_LIMITS,
    people: PeopleAgreement | None = None,
    pair: JudgePair | None = None,
) -> dict[str, Any]:
    """Return the result as JSON data, with the agreement of people and another judge if known."""
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
            "look": gate.look,
            "labels_that_do_not_count": check.uncounted,
            "good_labels": gate.good,
            "bad_labels": gate.bad,
            "kappa_one_sided_95": gate.kappa_bounds,
            "false_passes_one_sided_95": gate.false_pass_bounds,
            "injected_passes_one_sided_95": gate.injected_bounds,
            "more_labels": gate.more_labels,
        },
        "repeats": check.repeats,
        "same_each_time": _share(check.same_each_time),
        "order": _shares(check.order),
        "length": _shares(check.length),
        "injected_passes": _share(check.injected_passes),
        "probes": probes_to_json(check.probed),
        "people": people_to_json(people),
        "against": pair_to_json(pair),
        "calls": check.usage.requests,
        "prompt_tokens": check.usage.usage.prompt_tokens,
        "completion_tokens": check.usage.usage.completion_tokens,
        "seconds": round(check.usage.seconds, 3),
        "judgements": [
            {
                **judgement.label.model_dump(exclude_none=True),
                "score": judgement.score,
                "passed": judgement.passed,
                "agrees": judgement.agrees,
                "reason": judgement.reason,
                "error": judgement.error,
            }
            for judgement in check.judgements
        ],
    }


def _shares(effect: OrderEffect | LengthEffect | None) -> dict[str, Any] | None:
    if effect is None:
        return None
    parts = {field.name: getattr(effect, field.name) for field in fields(effect)}
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


def render_table(
    check: JudgeCheckResult,
    limits: Limits = DEFAULT_LIMITS,
    people: PeopleAgreement | None = None,
    pair: JudgePair | None = None,
) -> str:
    """Render one figure per line, then the responses on which judge and people disagree."""
    found, gate = check.agreement, check.gate(limits)
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
        *([] if people is None else describe_people(people, limits)),
        *_effects(check),
        ("cost", _cost(check.usage)),
        *_look(check, gate),
        ("may it gate?", describe_gate(gate)),
    ]
    lines = [f"Judge {check.judge}", "", *(f"{name:<{_WIDTH}}{text}" for name, text in rows)]
    probes = render_probes(check.probed, check.injected_passes)
    others = [
        *([] if people is None else list_disagreements(people)),
        *([] if pair is None else describe_pair(pair)),
    ]
    return "\n".join([*lines, *_differences(check), *others, *probes, *_errors(check)]) + "\n"


def describe_gate(gate: GateDecision) -> str:
    """Return in one line whether the judge may gate, and why."""
    if gate.kappa_bounds is None or gate.false_pass_bounds is None:
        return "not known yet: there must be labels of both kinds"
    limits = gate.limits
    (kappa, highest), (fewest, most) = gate.kappa_bounds, gate.false_pass_bounds
    fewest_injected, most_injected = gate.injected_bounds or (0.0, None)
    allowed = f"({limits.max_false_passes:.0%} allowed)"
    injected = (
        "" if most_injected is None else f", and {most_injected:.0%} of those with an injection"
    )
    if gate.verdict == "may gate":
        return (
            f"yes: kappa is at least {kappa:.2f} ({limits.min_kappa:.2f} needed), and at most"
            f" {most:.0%} of bad responses pass{injected} {allowed}"
        )
    if gate.verdict == "may not gate" and fewest > limits.max_false_passes:
        return f"no: at least {fewest:.0%} of bad responses pass {allowed}"
    if gate.verdict == "may not gate" and highest < limits.min_kappa:
        return f"no: kappa is at most {highest:.2f} ({limits.min_kappa:.2f} needed)"
    if gate.verdict == "may not gate":
        return (
            f"no: with an injection, at least {fewest_injected:.0%} of bad responses pass {allowed}"
        )
    more = (
        ""
        if gate.more_labels is None
        else f"; about {plural(gate.more_labels, 'more label')} would decide"
    )
    return (
        f"not known yet: kappa is {kappa:.2f} or more ({limits.min_kappa:.2f} needed), and up to"
        f" {most:.0%} of bad responses pass{injected} {allowed}{more}"
    )


def _look(check: JudgeCheckResult, gate: GateDecision) -> list[tuple[str, str]]:
    """Return what the gate demands beyond a first look at all labels."""
    rows = []
    if check.uncounted:
        used = f"{check.counted_agreement.total} of {check.strict_agreement.total}"
        text = f"{used}; other settings of metric or judge were tried on the rest"
        rows.append(("labels that count", text))
    if check.look > 1:
        share = f"{alpha_of(check.look):.2%}"
        text = f"number {check.look}; may err with {share}, so that all together err with 5%"
        rows.append(("look at labels", text))
    if gate.is_repeated:
        rows.append(("look at labels", "the same as before, whose worse result stands"))
    return rows


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
        good, bad = (_number(shift, sign=True) for shift in shifts)
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
    others = [
        judgement
        for judgement in check.judgements
        if judgement.passed is not None and not judgement.agrees
    ]
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


_MAX_PROBES = 20
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
        f"  {_name(one)}: {one_line(one.probe.label.response, 100)}" for one in wrong[:_MAX_PROBES]
    ]
    more = [f"  and {len(wrong) - _MAX_PROBES} more"] if len(wrong) > _MAX_PROBES else []
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
    bad, good = (f"{side.count} of {side.of}" if side.of else "–" for side in _sides(found))
    return name, bad, good, str(_undecided(found))


def _count(share: Proportion) -> dict[str, int]:
    return {"count": share.count, "of": share.of}


def _line(row: Sequence[str]) -> str:
    first, *others = zip(row, _WIDTHS, strict=True)
    return f"{first[0]:<{first[1]}}" + "".join(f"{text:>{width}}" for text, width in others)
