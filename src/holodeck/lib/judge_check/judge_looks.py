"""Which labels prove something about a judge, and how often people have looked at them.

Every look at labels is a chance for a judge to pass by luck, and so is every setting that is chosen
by them. So looks are counted, and a label counts only for the settings with which it was shown
first.
"""

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass, replace

from holodeck.lib.judging.agreement import Agreement
from holodeck.lib.judging.check_result import JudgeCheckResult
from holodeck.lib.judging.gate import labels_needed
from holodeck.lib.judging.labels import Label, count_kinds
from holodeck.models.metrics.judge_trust import JudgeChecks, Limits, LookLog, RecordedLook


@dataclass(frozen=True)
class PlannedLook:
    """A look at labels, before the judge is asked."""

    counted: Sequence[Label]
    """The labels that count, which the judge was not shown with other settings."""
    number: int = 1
    """Which look at labels of the metric it is."""
    earlier: Agreement | None = None
    """What the same look showed before; None if it is new."""

    def result(self, found: JudgeCheckResult) -> JudgeCheckResult:
        """Return the result of the check as that of this look."""
        counted = frozenset(label.question for label in self.counted)
        return replace(found, look=self.number, counted=counted, earlier=self.earlier)


@dataclass(frozen=True)
class LookKeeper:
    """Counts the looks at labels of one metric and judge.

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

    def add(self, planned: PlannedLook, found: JudgeCheckResult, limits: Limits) -> LookLog:
        """Return the looks with this one; one that could not let any judge gate costs nothing.

        A look that is repeated does not replace what it showed first, unless requests failed.
        """
        shown = {
            _hash(judgement.label.question): self.settings_of(judgement.label)
            for judgement in found.judgements
        }
        log = self.log.model_copy(update={"shown": {**shown, **self.log.shown}})
        if planned.earlier is not None or not could_gate(planned, limits):
            return log
        this = (self.settings, _hash_labels(planned.counted))
        counts = None if found.errors else astuple(found.counted_agreement)
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


def could_gate(planned: PlannedLook, limits: Limits) -> bool:
    """Return whether a judge that agrees on all labels that count may gate after the look."""
    return not any(labels_needed(*count_kinds(planned.counted), limits, planned.number))


def find_log(checks: JudgeChecks, metric: str, judge: str) -> LookLog:
    """Return the looks at labels of a metric and judge; none if there were none."""
    logs = (log for log in checks.looks if (log.metric, log.judge) == (metric, judge))
    return next(logs, LookLog(metric=metric, judge=judge))


def with_log(checks: JudgeChecks, log: LookLog) -> JudgeChecks:
    """Return the checks with a log in place of that of the same metric and judge."""
    others = [
        other for other in checks.looks if (other.metric, other.judge) != (log.metric, log.judge)
    ]
    looks = sorted([*others, log], key=lambda one: (one.metric, one.judge))
    return checks.model_copy(update={"looks": looks})


def _hash_labels(labels: Sequence[Label]) -> str:
    """Return a hash of different labels in any order; a corrected verdict is another label."""
    texts = {f"{label.question}\0{label.label}" for label in labels}
    return _hash("\0".join(sorted(texts)))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:12]
