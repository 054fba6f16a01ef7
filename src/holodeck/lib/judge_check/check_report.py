"""The table and the JSON of what a check of a judge found."""

import re
from collections.abc import Sequence
from itertools import groupby
from typing import Any

from holodeck.lib.judge_check.check_result import JudgeCheckResult, ProbedResponse
from holodeck.lib.judge_check.gate import DEFAULT_LIMITS, GateDecision, alpha_of
from holodeck.lib.judge_check.judge_pair import JudgePair, describe_pair, pair_to_json
from holodeck.lib.judge_check.labels import Label, PeopleAgreement
from holodeck.lib.judging.agreement import (
    Proportion,
    area_under_curve,
    best_threshold,
    held_out_accuracy,
)
from holodeck.lib.support.text import one_line, plural
from holodeck.models.metrics.judge_trust import Limits
from holodeck.models.token_usage import UsageMeter

CEILING = "no judge can be expected to agree with people more than they agree with each other"
_WIDTH = 28
_MAX_SHOWN = 20
_IDENTIFIERS = re.compile(r"\b(?=[\w-]*\d)[\w-]{8,}")
"""Request ids and the like: errors that differ only in these count as the same."""

Row = tuple[str, str]
"""The name of a figure, and its text."""


def to_json(
    check: JudgeCheckResult,
    limits: Limits = DEFAULT_LIMITS,
    people: PeopleAgreement | None = None,
    pair: JudgePair | None = None,
) -> dict[str, Any]:
    """Return the result as JSON data, with the agreement of people and another judge if known."""
    agreement, gate = check.agreement, check.gate(limits)
    return {
        "schema_version": 1,
        "judge": check.judge,
        "threshold": check.threshold,
        "answers": len(check.judgements),
        "inconclusive": check.inconclusive,
        "errors": list(check.errors),
        "accuracy": _as_json(agreement.accuracy),
        "true_positive_rate": _as_json(agreement.true_positive_rate),
        "true_negative_rate": _as_json(agreement.true_negative_rate),
        "kappa": agreement.kappa,
        "kappa_standard_error": agreement.kappa_error,
        "kappa_if_inconclusive_is_wrong": check.strict_agreement.kappa,
        "area_under_curve": area_under_curve(check.scores),
        "best_threshold": best_threshold(check.scores),
        "best_threshold_held_out_accuracy": _as_json(held_out_accuracy(check.scores)),
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
        "same_each_time": _as_json(check.same_each_time),
        "injected_passes": _as_json(check.injected_passes),
        "probes": [_probe_to_json(probed) for _, probed in _by_probe(check.probed)],
        "people": None if people is None else _people_to_json(people),
        "against": None if pair is None else pair_to_json(pair),
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


def _as_json(share: Proportion | None) -> dict[str, Any] | None:
    if share is None:
        return None
    counts = {"value": share.value, "count": share.count, "of": share.of}
    return {**counts, "interval_95": share.interval}


def _probe_to_json(probed: Sequence[ProbedResponse]) -> dict[str, Any]:
    bad, good = _sides(probed)
    return {
        "kind": probed[0].probe.kind,
        "name": probed[0].probe.name,
        "bad_that_pass": {"count": bad.count, "of": bad.of},
        "good_that_fail": {"count": good.count, "of": good.of},
        "undecided": _undecided(probed),
        "responses": [
            {
                **response.probe.label.model_dump(exclude_none=True),
                "passed_before": response.before.passed,
                "score_before": response.before.score,
                "passed": response.after.passed,
                "score": response.after.score,
                "error": response.after.error,
            }
            for response in probed
        ],
    }


def _people_to_json(people: PeopleAgreement) -> dict[str, Any]:
    return {
        "people": list(people.people),
        "statistic": people.statistic,
        "value": people.value,
        "responses_with_several_labels": people.same.of,
        "responses_with_one_verdict": people.same.count,
        "ties_left_out": people.ties,
        "disagreements": [
            label.model_dump(mode="json", exclude_none=True) for label in people.disagreements
        ],
    }


def render_table(
    check: JudgeCheckResult,
    limits: Limits = DEFAULT_LIMITS,
    people: PeopleAgreement | None = None,
    pair: JudgePair | None = None,
) -> str:
    """Render a figure per line, then the responses on which judge and people disagree."""
    agreement, gate = check.agreement, check.gate(limits)
    kappa = agreement.kappa
    rows = [
        ("answers", str(len(check.judgements))),
        ("accuracy", _shown(agreement.accuracy)),
        ("Cohen's kappa", "–" if kappa is None else f"{kappa:.2f} ± {agreement.kappa_error:.2f}"),
        ("good answers passed", _shown(agreement.true_positive_rate)),
        ("bad answers failed", _shown(agreement.true_negative_rate)),
        ("good above bad (AUC)", _number(area_under_curve(check.scores))),
        ("best threshold", _threshold(check)),
        ("inconclusive", str(check.inconclusive)),
        ("errors", str(len(check.errors))),
        *([] if people is None else describe_people(people, limits)),
        *_repetitions(check),
        ("cost", _cost(check.usage)),
        *_look(check, gate),
        ("may it gate?", describe_gate(gate)),
    ]
    lines = [
        f"Judge {check.judge}",
        "",
        *(f"{name:<{_WIDTH}}{text}" for name, text in rows),
        *_differences(check),
        *([] if people is None else list_disagreements(people)),
        *([] if pair is None else describe_pair(pair)),
        *_probes(check),
        *_errors(check),
    ]
    return "\n".join(lines) + "\n"


def describe_gate(gate: GateDecision) -> str:
    """Return as a line whether the judge may gate, and why."""
    if gate.kappa_bounds is None or gate.false_pass_bounds is None:
        return "not known yet: there must be labels of both kinds"
    limits = gate.limits
    (kappa, highest), (fewest, most) = gate.kappa_bounds, gate.false_pass_bounds
    fewest_injected, most_injected = gate.injected_bounds or (0.0, None)
    allowed = f"({limits.max_false_passes:.0%} allowed)"
    needed = f"({limits.min_kappa:.2f} needed)"
    injected = (
        "" if most_injected is None else f", and {most_injected:.0%} of those with an injection"
    )
    if gate.verdict == "may gate":
        return (
            f"yes: kappa is at least {kappa:.2f} {needed}, and at most"
            f" {most:.0%} of bad responses pass{injected} {allowed}"
        )
    if gate.verdict == "may not gate":
        if fewest > limits.max_false_passes:
            return f"no: at least {fewest:.0%} of bad responses pass {allowed}"
        if highest < limits.min_kappa:
            return f"no: kappa is at most {highest:.2f} {needed}"
        return (
            f"no: with an injection, at least {fewest_injected:.0%} of bad responses pass {allowed}"
        )
    more = ""
    if gate.more_labels is not None:
        more = f"; about {plural(gate.more_labels, 'more label')} would decide"
    return (
        f"not known yet: kappa is {kappa:.2f} or more {needed}, and up to {most:.0%} of bad"
        f" responses pass{injected} {allowed}{more}"
    )


def describe_people(people: PeopleAgreement, limits: Limits) -> list[Row]:
    """Return the rows about people who labelled the same responses."""
    share = f"{people.same.count} of {plural(people.same.of, 'response')}"
    value = f"{people.statistic} {_number(people.value)}"
    rows = [
        ("people", f"{len(people.people)}: {one_line(', '.join(people.people), 80)}"),
        ("people agree", f"{share} with several labels; {value}"),
        ("the ceiling", CEILING),
    ]
    if people.value is not None and people.value < limits.min_kappa:
        text = (
            f"people themselves stay below the kappa of {limits.min_kappa:.2f} that a judge needs;"
            " make the criterion clearer, or label again together"
        )
        rows.append(("", text))
    if people.ties:
        rows.append(("ties", f"{plural(people.ties, 'response')} without a majority, left out"))
    return rows


def list_disagreements(people: PeopleAgreement) -> list[str]:
    """Return the lines about the responses on which people disagree."""
    lines = []
    for label in people.disagreements:
        verdicts = ", ".join(
            f"{one_line(name, 30)} {'pass' if is_good else 'fail'}"
            for name, is_good in label.verdicts.items()
        )
        lines.append(f"{verdicts}: {_shown_response(label)}")
    return _listed(f"People disagree on {len(lines)}:", lines)


def _look(check: JudgeCheckResult, gate: GateDecision) -> list[Row]:
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
    right = "" if held_out is None else f"; accuracy on held-out labels {_shown(held_out)}"
    return f"{_number(best_threshold(check.scores))} (now {check.threshold:.2f}){right}"


def _repetitions(check: JudgeCheckResult) -> list[Row]:
    if check.same_each_time is None:
        return []
    words = "worded differently" if check.has_wordings else "in the same words"
    text = f"{_shown(check.same_each_time)}, asked {plural(check.repeats, 'time')}, {words}"
    return [("same verdict each time", text)]


def _shown(share: Proportion) -> str:
    if share.interval is None:
        return "– (none)"
    low, high = share.interval
    return f"{share.value:.2f} ({share.count} of {share.of}; 95 %: {low:.2f} to {high:.2f})"


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}"


def _cost(usage: UsageMeter) -> str:
    tokens = plural(usage.usage.total_tokens, "token")
    each = f", {usage.seconds / usage.requests:.2f} s each" if usage.requests else ""
    return f"{plural(usage.requests, 'call')}, {tokens}{each}"


def _differences(check: JudgeCheckResult) -> list[str]:
    lines = [
        f"people say {judgement.label.label}, the judge {_number(judgement.score)}:"
        f" {_shown_response(judgement.label)}"
        for judgement in check.judgements
        if judgement.passed is not None and not judgement.agrees
    ]
    return _listed(f"Judge and people disagree on {len(lines)}:", lines)


def _shown_response(label: Label) -> str:
    return f"{one_line(label.criterion or label.input, 60)} {one_line(label.response, 60)}"


def _errors(check: JudgeCheckResult) -> list[str]:
    alike: dict[str, list[str]] = {}
    for error in check.errors:
        alike.setdefault(_IDENTIFIERS.sub("", error), []).append(one_line(error, 200))
    lines = [
        f"{len(texts)} times: {texts[0]}" if len(texts) > 1 else texts[0]
        for texts in alike.values()
    ]
    return _listed("Errors:", lines)


def _listed(title: str, lines: Sequence[str]) -> list[str]:
    """Return the title with the first lines below it; nothing if there are no lines."""
    more = [f"  and {len(lines) - _MAX_SHOWN} more"] if len(lines) > _MAX_SHOWN else []
    shown = [f"  {line}" for line in lines[:_MAX_SHOWN]]
    return ["", title, *shown, *more] if lines else []


def _probes(check: JudgeCheckResult) -> list[str]:
    """Return the lines of a table with a row for each probe, and then the bad ones that pass."""
    injected = check.injected_passes
    if injected is None:
        return []
    columns = ("Verdicts that become wrong", "bad that pass", "good that fail", "undecided")
    table = [columns]
    for name, probed in _by_probe(check.probed):
        bad, good = (f"{side.count} of {side.of}" if side.of else "–" for side in _sides(probed))
        table.append((name, bad, good, str(_undecided(probed))))
    fooled = (
        f"{injected.count} of {injected.of} bad responses pass with one injection or another;"
        " inconclusive counts as wrong"
    )
    wrong = [
        f"{_name(response)}: {one_line(response.probe.label.response, 100)}"
        for response in check.probed
        if response.becomes_wrong and not response.probe.label.is_good
    ]
    rows = [f"{name:<28}{bad:>15}{good:>16}{undecided:>11}" for name, bad, good, undecided in table]
    return ["", *rows, fooled, *_listed("Bad responses that now pass:", wrong)]


def _by_probe(probed: Sequence[ProbedResponse]) -> list[tuple[str, list[ProbedResponse]]]:
    return [(name, list(responses)) for name, responses in groupby(probed, key=_name)]


def _name(response: ProbedResponse) -> str:
    return f"{response.probe.kind}: {response.probe.name}"


def _sides(probed: Sequence[ProbedResponse]) -> tuple[Proportion, Proportion]:
    """Return the bad variants that pass and the good ones that fail, of those that count."""
    sides: tuple[list[bool], list[bool]] = ([], [])
    for response in probed:
        if response.is_counted:
            sides[response.probe.label.is_good].append(response.becomes_wrong)
    bad, good = (Proportion(sum(side), len(side)) for side in sides)
    return bad, good


def _undecided(probed: Sequence[ProbedResponse]) -> int:
    return sum(response.after.passed is None for response in probed)
