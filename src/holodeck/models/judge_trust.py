"""What checks of judges have shown, in a small file to commit: no answers, only figures."""

from typing import Literal

from holodeck.models.base import Count, Model, NonBlank

CHECKS_FILE = "judge_checks.json"
"""The file beside the agent.yaml."""

CRITERIA = "criteria"
"""The name of what judges the `criteria` of test cases, where a metric is named."""

TrustMode = Literal["require", "warn", "off"]
"""What an untrusted judge means: an inconclusive verdict, a note in the report, or nothing."""
JudgeTrust = Literal["checked", "not checked", "stale", "not good enough", "not known yet"]
"""Whether labels have shown that the judge of a metric may gate: only `checked` says so. `stale`
means that the judge, the metric or the wording has changed since the check."""


class MetricCheck(Model):
    """What a check of the judge of one metric has shown."""

    metric: NonBlank
    """The metric's name, or `criteria`."""
    judge: NonBlank
    """Provider and name of the judge."""
    fingerprint: NonBlank
    """A hash of everything else that shapes the judge's prompt: the settings of metric and judge,
    and the wording."""
    verdict: Literal["may gate", "may not gate", "not known yet"]
    """What the labels decide."""
    good_labels: Count
    """Different labels "pass"."""
    bad_labels: Count
    """Different labels "fail"."""
    unlabelled: list[str] = []
    """Criteria of the metric without a label, which keep it from being trusted."""
    min_kappa: float
    """The limit of Cohen's kappa in the check."""
    max_false_passes: float
    """The limit of the share of bad responses that pass."""
    kappa: tuple[float, float] | None = None
    """One-sided 95 % bounds of Cohen's kappa."""
    false_passes: tuple[float, float] | None = None
    """One-sided 95 % bounds of the share of bad responses that pass."""
    injected_passes: tuple[float, float] | None = None
    """The same, of bad responses with an injection; None without `--probe`."""
    checked: str
    """The day of the check."""
    holodeck_version: str
    """The version that checked."""

    @property
    def trust(self) -> JudgeTrust:
        """What the check says, as long as nothing has changed."""
        if self.verdict == "may not gate":
            return "not good enough"
        if self.verdict == "not known yet" or self.unlabelled:
            return "not known yet"
        return "checked"


class JudgeChecks(Model):
    """The content of the file."""

    schema_version: Literal[1] = 1
    """The version of this format."""
    metrics: list[MetricCheck] = []
    """One entry per metric and judge."""
