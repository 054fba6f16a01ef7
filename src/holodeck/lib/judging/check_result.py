"""What a check of a judge found: verdicts, effects, and how variants of responses fared."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from holodeck.lib.judging.agreement import Agreement, Proportion
from holodeck.lib.judging.gate import (
    DEFAULT_LIMITS,
    GateDecision,
    decide_gate,
    with_injections,
    worst_verdict,
)
from holodeck.lib.judging.labels import Label
from holodeck.lib.judging.probes import Probe
from holodeck.models.metrics.judge_trust import Limits
from holodeck.models.token_usage import UsageMeter


@dataclass(frozen=True)
class Judgement:
    """The judge's verdict on one response; without a score there is an error."""

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
class OrderEffect:
    """The choices between a good and a bad response, each pair shown in both orders."""

    pairs: int
    same_choice: Proportion
    """Pairs for which the order did not matter."""
    right_both_times: Proportion
    first_chosen: Proportion
    """The share of choices for the first response; 0.5 is fair."""


@dataclass(frozen=True)
class LengthEffect:
    """The effect of meaningless sentences appended to every response."""

    changed: Proportion
    """The share of verdicts that changed."""
    shift_of_good: float | None
    shift_of_bad: float | None


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
        """Whether a bad variant passes or a good one fails, and the verdict was right before."""
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
    order: OrderEffect | None = None
    """None without pairs, and for a quick check."""
    length: LengthEffect | None = None
    """None for a quick check."""
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
        counted = [one for one in self.probed if self._is_counted(one.before)]
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
            (one.label.is_good, not one.label.is_good if one.passed is None else one.passed)
            for one in judged.values()
        ]
    )


def _injected_passes(probed: Sequence[ProbedResponse]) -> Proportion | None:
    agreed: dict[int, bool] = {}
    for one in probed:
        if one.probe.kind == "injection":
            at = one.probe.original
            agreed[at] = agreed.get(at, True) and one.after.agrees
    return Proportion(list(agreed.values()).count(False), len(agreed)) if probed else None
