"""What checks of judges have shown, in a small file to commit: no responses, only figures."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from holodeck.models.base import Count, Model, NonBlank

CHECKS_FILE = "judge_checks.json"
"""The file beside the agent.yaml."""

CRITERIA = "criteria"
"""The name of what judges the `criteria` of test cases, where a metric is named."""

TrustMode = Literal["require", "warn", "off"]
"""What an untrusted judge means: an inconclusive verdict, a note in the report, or nothing."""
JudgeTrust = Literal[
    "checked",
    "not checked",
    "stale",
    "not good enough",
    "not known yet",
    "checked with looser limits",
]
"""Whether labels have shown that the judge of a metric may gate: only `checked` says so. `stale`
means that the judge, the metric or the wording has changed since the check."""
Share = Annotated[float, Field(gt=0, lt=1)]
DEFAULT_MIN_KAPPA = 0.6
DEFAULT_MAX_FALSE_PASSES = 0.1
_BY_STRICTNESS: tuple[TrustMode, ...] = ("off", "warn", "require")


@dataclass(frozen=True)
class Limits:
    """What a judge must reach before its verdicts decide a run."""

    min_kappa: float = DEFAULT_MIN_KAPPA
    """Cohen's kappa must be at least this; above 0 and below 1."""
    max_false_passes: float = DEFAULT_MAX_FALSE_PASSES
    """At most this share of the bad responses may pass; above 0 and below 1."""

    def __str__(self) -> str:
        return f"kappa ≥ {self.min_kappa:g}, false passes ≤ {self.max_false_passes * 100:g} %"

    def reach(self, floor: "Limits") -> bool:
        """Whether these limits are at least as strict as others."""
        return self.min_kappa >= floor.min_kappa and self.max_false_passes <= floor.max_false_passes


class TrustRule(Model):
    """What an untrusted judge means, and the limits that a check must have used."""

    mode: TrustMode
    """An inconclusive verdict (`require`), a note in the report (`warn`) or nothing (`off`)."""
    min_kappa: Share | None = None
    """The check must have shown at least this kappa; by default 0.6."""
    max_false_passes: Share | None = None
    """The check must have shown that at most this share of bad responses passes; by default 0.1."""


TrustSetting = TrustMode | TrustRule
"""A mode, or a mode with limits."""


def strictest_mode(settings: Sequence[TrustSetting]) -> TrustMode:
    """Return the strictest of the modes, of which there is at least one."""
    modes = [_as_rule(setting).mode for setting in settings]
    return max(modes, key=_BY_STRICTNESS.index)


def strictest_limits(settings: Sequence[TrustSetting]) -> Limits:
    """Return the strictest of the limits that are written; the default of one that is not."""
    rules = [_as_rule(setting) for setting in settings]
    kappas = [rule.min_kappa for rule in rules if rule.min_kappa is not None]
    shares = [rule.max_false_passes for rule in rules if rule.max_false_passes is not None]
    return Limits(
        max(kappas, default=DEFAULT_MIN_KAPPA), min(shares, default=DEFAULT_MAX_FALSE_PASSES)
    )


def _as_rule(setting: TrustSetting) -> TrustRule:
    return setting if isinstance(setting, TrustRule) else TrustRule(mode=setting)


class MetricCheck(Model):
    """What a check of the judge of a metric has shown."""

    metric: NonBlank
    """The metric's name, or `criteria`."""
    judge: NonBlank
    """Provider and name of the judge."""
    fingerprint: NonBlank
    """A hash of everything else that shapes the judge's prompt and verdict: the settings of metric
    and judge, endpoint or weights, the wording and the code that scores."""
    verdict: Literal["may gate", "may not gate", "not known yet"]
    """What the labels decide."""
    good_labels: Count
    """Different labels "pass" that count."""
    bad_labels: Count
    """Different labels "fail" that count."""
    labelled: list[str] | None = None
    """The criteria that have labels of both kinds, the only ones that are trusted; None if the
    labels are about the whole metric."""
    limits: Limits
    """What the judge had to reach."""
    look: Annotated[int, Field(ge=1)] = 1
    """Which look at labels of this metric it was."""
    kappa: tuple[float, float] | None = None
    """One-sided bounds of Cohen's kappa, which hold with 95 % over all looks."""
    false_passes: tuple[float, float] | None = None
    """The same of the share of bad responses that pass."""
    injected_passes: tuple[float, float] | None = None
    """The same, of bad responses with an injection; None without `--probe`."""
    checked: str
    """The day of the check."""
    holodeck_version: str
    """The version that checked."""

    def trust(self, criteria: Sequence[str], floor: Limits) -> JudgeTrust:
        """Return what the check says about these criteria, as long as nothing has changed."""
        if self.verdict == "may not gate":
            return "not good enough"
        is_labelled = self.labelled is None or set(criteria) <= set(self.labelled)
        if self.verdict == "not known yet" or not is_labelled:
            return "not known yet"
        return "checked" if self.limits.reach(floor) else "checked with looser limits"


class RecordedLook(Model):
    """A look at what a judge says about a set of labels."""

    settings: NonBlank
    """A hash of the settings of metric and judge that people tune."""
    labels: NonBlank
    """A hash of the labels that count."""
    fingerprint: NonBlank
    """The fingerprint of the judge."""
    counts: tuple[Count, Count, Count, Count] | None = None
    """True positives, false positives, true negatives and false negatives; None if requests
    failed."""


class LookLog(Model):
    """The looks at what a judge says about the labels of a metric."""

    metric: NonBlank
    judge: NonBlank
    shown: dict[str, str] = {}
    """A hash of each label that the judge was shown → a hash of the settings at the first time."""
    looks: list[RecordedLook] = []
    """Each is about other settings, other labels or another fingerprint; in their order."""


class JudgeChecks(Model):
    """The content of the file."""

    schema_version: Literal[1] = 1
    """The version of this format."""
    metrics: list[MetricCheck] = []
    """One entry per metric and judge."""
    looks: list[LookLog] = []
    """One entry per metric and judge."""
