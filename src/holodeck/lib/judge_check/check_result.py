"""What a check of a judge found, and which of its labels prove something.

Every look at labels is a chance for a judge to pass by luck, and so is every setting that is chosen
by them. So looks are counted, and a label counts only for the settings with which it was shown
first.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace

from holodeck.lib.judge_check.gate import (
    DEFAULT_LIMITS,
    GateDecision,
    decide_gate,
    labels_needed,
    with_injections,
    worst_verdict,
)
from holodeck.lib.judge_check.labels import Label, count_kinds
from holodeck.lib.judge_check.probes import Probe
from holodeck.lib.judging.agreement import Agreement, Proportion
from holodeck.models.metrics.judge_trust import JudgeChecks, Limits, LookLog, RecordedLook
from holodeck.models.token_usage import UsageMeter


@dataclass(frozen=True)
class Judgement:
    """The judge's verdict on a response; without a score there is an error."""

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
class ProbedResponse:
    """The verdicts on a response and on its variant."""

    probe: Probe
    before: Judgement
    after: Judgement

    @property
    def is_counted(self) -> bool:
        """Whether the verdict was right before, so that it can become wrong."""
        return self.before.agrees and self.after.passed is not None

    @property
    def becomes_wrong(self) -> bool:
        """Whether a verdict that was right before is wrong for the variant."""
        return self.is_counted and not self.after.agrees


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
    probed: Sequence[ProbedResponse] = ()
    """The variants of the responses; empty without probes."""
    look: int = 1
    """Which look at labels of the metric it is."""
    counted: frozenset[str] | None = None
    """The questions of the labels that decide about the gate; None for all."""
    earlier: Agreement | None = None
    """What the same look showed before, which repeating it does not improve; None if it is new."""

    @property
    def agreement(self) -> Agreement:
        """The agreement on responses with a conclusive verdict."""
        verdicts = [(judgement.label.is_good, judgement.passed) for judgement in self.judgements]
        return Agreement.of([(good, passed) for good, passed in verdicts if passed is not None])

    @property
    def strict_agreement(self) -> Agreement:
        """The agreement on different labels, with an inconclusive verdict or an error as wrong."""
        return _strict_agreement(self.judgements)

    @property
    def counted_agreement(self) -> Agreement:
        """The same on the labels that decide about the gate."""
        return _strict_agreement(
            [judgement for judgement in self.judgements if self._is_counted(judgement)]
        )

    @property
    def uncounted(self) -> int:
        """How many different labels do not decide, as other settings were tried on them."""
        return self.strict_agreement.total - self.counted_agreement.total

    @property
    def labelled_criteria(self) -> list[str] | None:
        """The criteria with labels of both kinds that count, in their order; None if there are
        such labels about all criteria together."""
        counted = [judgement.label for judgement in self.judgements if self._is_counted(judgement)]
        kinds = dict.fromkeys((label.criterion, label.is_good) for label in counted)
        both = [text for text, is_good in kinds if is_good and (text, False) in kinds]
        return None if None in both else [text for text in both if text is not None]

    def _is_counted(self, judgement: Judgement) -> bool:
        return self.counted is None or judgement.label.question in self.counted

    def gate(self, limits: Limits = DEFAULT_LIMITS) -> GateDecision:
        """Return whether this judge may decide runs."""
        decision = decide_gate(self.counted_agreement, limits, self.look)
        if self.earlier is not None:
            before = decide_gate(self.earlier, limits, self.look)
            if worst_verdict(before.verdict, decision.verdict) != decision.verdict:
                decision = replace(before, is_repeated=True)
        counted = [response for response in self.probed if self._is_counted(response.before)]
        fooled = _injected_passes(counted)
        return decision if fooled is None else with_injections(decision, fooled)

    @property
    def injected_passes(self) -> Proportion | None:
        """The bad responses that one injection or another gets through; None without probes.

        As in `strict_agreement`, an inconclusive verdict and an error count as wrong.
        """
        return _injected_passes(self.probed)

    @property
    def scores(self) -> list[tuple[bool, float]]:
        return [
            (judgement.label.is_good, judgement.score)
            for judgement in self.judgements
            if judgement.score is not None
        ]

    @property
    def inconclusive(self) -> int:
        return sum(
            judgement.passed is None and judgement.error is None for judgement in self.judgements
        )


def _strict_agreement(judgements: Sequence[Judgement]) -> Agreement:
    judged = {judgement.label.question: judgement for judgement in reversed(judgements)}
    return Agreement.of(
        [
            (
                judgement.label.is_good,
                not judgement.label.is_good if judgement.passed is None else judgement.passed,
            )
            for judgement in judged.values()
        ]
    )


def _injected_passes(probed: Sequence[ProbedResponse]) -> Proportion | None:
    agreed: dict[int, bool] = {}
    for response in probed:
        if response.probe.kind == "injection":
            at = response.probe.original
            agreed[at] = agreed.get(at, True) and response.after.agrees
    return Proportion(list(agreed.values()).count(False), len(agreed)) if probed else None


@dataclass(frozen=True)
class PlannedLook:
    """A look at labels, before the judge is asked."""

    counted: Sequence[Label]
    """The labels that count, which the judge was not shown with other settings."""
    number: int = 1
    """Which look at labels of the metric it is."""
    earlier: Agreement | None = None
    """What the same look showed before; None if it is new."""

    def result(self, check: JudgeCheckResult) -> JudgeCheckResult:
        """Return the result of the check as that of this look."""
        counted = frozenset(label.question for label in self.counted)
        return replace(check, look=self.number, counted=counted, earlier=self.earlier)


@dataclass(frozen=True)
class LookKeeper:
    """Counts the looks at labels of a metric and judge.

    Args:
        log: The looks so far.
        settings: The hash of the settings of metric and judge.
        fingerprint: The fingerprint of the judge.
        settings_of: Returns the hash of the settings that matter for a label.
    """

    log: LookLog
    settings: str
    fingerprint: str
    settings_of: Callable[[Label], str]

    def plan(self, labels: Sequence[Label]) -> PlannedLook:
        """Return the look at these labels."""
        counted = [label for label in labels if self._is_counted(label)]
        sets = list(dict.fromkeys((look.settings, look.labels) for look in self.log.looks))
        this = (self.settings, _hash_labels(counted))
        number = sets.index(this) + 1 if this in sets else len(sets) + 1
        look = self._find(this)
        counts = None if look is None else look.counts
        return PlannedLook(counted, number, None if counts is None else Agreement(*counts))

    def add(self, planned: PlannedLook, check: JudgeCheckResult, limits: Limits) -> LookLog:
        """Return the looks with this; a look that could not let any judge gate costs nothing.

        A look that is repeated does not replace what it showed first, unless requests failed.
        """
        shown = {
            _hash(judgement.label.question): self.settings_of(judgement.label)
            for judgement in check.judgements
        }
        log = self.log.model_copy(update={"shown": {**shown, **self.log.shown}})
        cannot_gate = any(labels_needed(*count_kinds(planned.counted), limits, planned.number))
        if planned.earlier is not None or cannot_gate:
            return log
        this = (self.settings, _hash_labels(planned.counted))
        counts = None if check.errors else astuple(check.counted_agreement)
        look = RecordedLook(
            settings=this[0], labels=this[1], fingerprint=self.fingerprint, counts=counts
        )
        before = self._find(this)
        looks = [look if other is before else other for other in log.looks]
        return log.model_copy(update={"looks": [*looks, *([look] if before is None else [])]})

    def _is_counted(self, label: Label) -> bool:
        settings = self.settings_of(label)
        return self.log.shown.get(_hash(label.question), settings) == settings

    def _find(self, this: tuple[str, str]) -> RecordedLook | None:
        key = (*this, self.fingerprint)
        looks = self.log.looks
        return next(
            (look for look in looks if (look.settings, look.labels, look.fingerprint) == key), None
        )


def find_log(checks: JudgeChecks, metric: str, judge: str) -> LookLog:
    """Return the looks at labels of a metric and judge; none if there were none."""
    logs = (log for log in checks.looks if (log.metric, log.judge) == (metric, judge))
    return next(logs, LookLog(metric=metric, judge=judge))


def _hash_labels(labels: Sequence[Label]) -> str:
    """Return a hash of different labels in any order; a corrected verdict is another label."""
    texts = {f"{label.question}\0{label.label}" for label in labels}
    return _hash("\0".join(sorted(texts)))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
