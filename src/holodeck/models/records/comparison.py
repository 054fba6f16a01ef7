"""The comparison of two agents that ran the same test cases."""

from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from typing import Literal

from pydantic import Field

from holodeck.models.base import Count, Model, render
from holodeck.models.results.outcome import Outcome
from holodeck.models.test_result import TestReport
from holodeck.models.token_usage import TokenUsage


class PairVerdict(StrEnum):
    """On which of two agents a test case passed."""

    BOTH = "both"
    ONLY_FIRST = "only_first"
    """A regression, if the second agent is to replace the first."""
    ONLY_SECOND = "only_second"
    NEITHER = "neither"
    UNDECIDED = "undecided"
    """At least one agent has no verdict: an error, nothing checked, or not run."""
    SKIPPED = "skipped"
    """The case has `skip`."""
    NOT_RUN = "not_run"
    """The run ended before either agent ran the case."""

    @property
    def is_decided(self) -> bool:
        return self not in {PairVerdict.UNDECIDED, PairVerdict.SKIPPED, PairVerdict.NOT_RUN}


class Divergence(Model):
    """The first step at which two trajectories part."""

    repetition: Count | None = None
    """The repetition, from 1; None if the case is not repeated."""
    turn: Count
    """From 1."""
    call: Count
    """The tool call in the turn, from 1."""
    kind: Literal["missing", "tool", "order", "arguments", "error", "result"]
    """What differs: a call that one agent lacks, the tool, only the order of the calls in the turn,
    the arguments, whether the tool failed, or its result."""
    first: str
    """What the first agent did, such as `called lookup_order(id=7)`."""
    second: str


class AgentsDivergence(Model):
    """The first turn in which other agents spoke."""

    repetition: Count | None = None
    """The repetition, from 1; None if the case is not repeated."""
    turn: Count
    """From 1."""
    first: list[str]
    """The names of those that spoke on the first side, in order."""
    second: list[str]


class Trajectories(Model):
    """Whether the tool calls of two agents are the same, and their hand-offs."""

    state: Literal["same", "parted", "unknown"]
    divergence: Divergence | None = None
    """Where they part first; None unless they do."""
    reason: str | None = None
    """Why they cannot be compared; None if they can."""
    compared: Count = 0
    """How many repetitions were compared; 1 for a case that is not repeated."""
    parted: Count = 0
    """How many of these repetitions part."""
    unknown_results: Count = 0
    """Results of tools that were not compared: one agent does not report them, or got them of a
    stub and the other of the tool."""
    agents: Literal["same", "parted"] | None = None
    """Whether the same agents spoke, in every repetition; None if that is unknown of one side, or
    if neither side hands off. A single agent may have another name."""
    agents_divergence: AgentsDivergence | None = None
    """Where the agents that spoke part first; None unless they do."""


class Difference(Model):
    """A number of both agents; None where it is unknown."""

    first: float | None = None
    second: float | None = None

    @property
    def delta(self) -> float | None:
        """How much more it is of the second agent; None if one of the numbers is unknown."""
        if self.first is None or self.second is None:
            return None
        return self.second - self.first


class Preference(Model):
    """Which of two answers a judge prefers."""

    winner: Literal["first", "second", "none", "undecided"]
    """`none` if the choice changed with the order of the answers, `undecided` if the judge gave no
    readable verdict."""
    reason: str
    """The judge's reason, or why there is no verdict."""


class Preferences(Model):
    """Which answers a judge prefers, over all pairs."""

    criteria: str
    judge: str
    first: Count
    """How many answers of the first side are preferred in both orders."""
    second: Count
    none: Count
    undecided: Count
    left_out: Count
    """Pairs of conversations, and pairs without two answers."""
    p_value: float | None = Field(default=None, ge=0, le=1)
    """The two-sided sign test of `first` and `second`; None if both are 0."""
    judge_calls: Count
    judge_tokens: TokenUsage


class Pair(Model):
    """One test case on two agents. Numbers of a repeated case are means over its repetitions."""

    index: Count
    """The index of the case."""
    name: str | None = None
    id: str | None = None
    suite: str | None = None
    input: str
    first_at: Count | None = None
    """The position of its result in the report of the first side; None if there is none."""
    second_at: Count | None = None
    verdict: PairVerdict
    first: Outcome | None = None
    """How the case ended on the first agent; None if it did not."""
    second: Outcome | None = None
    first_reasons: list[str] = []
    """Why the case did not pass on the first agent."""
    second_reasons: list[str] = []
    trajectories: Trajectories
    preference: Preference | None = None
    """Which answer a judge prefers; None if it was not asked."""
    scores: dict[str, Difference] = {}
    """Metric → its scores."""
    cost: Difference = Difference()
    """What the agents cost, without judges and simulated users."""
    tokens: Difference = Difference()
    latency_ms: Difference = Difference()
    """How long the agents took, without metrics."""


class ComparedAgent(Model):
    """One of the two agents."""

    name: str
    source: str
    """Its file, or what the command line says instead."""
    run: str | None = None
    """The record of its run; None without a record."""
    report: TestReport


class Total(Model):
    """A number of both agents over the pairs for which it is known of both."""

    first: float
    second: float
    pairs: Count
    """How many pairs it is about."""
    unknown: Count = 0
    """How many decided pairs lack it."""
    interval: tuple[float, float] | None = None
    """The 95 % interval of the mean difference of scores, by a paired bootstrap; None for other
    numbers, and for fewer than two pairs."""


class Significance(Model):
    """What the pairs say about agents that are equally good in truth."""

    only_first: Count
    only_second: Count
    p_value: float | None = Field(default=None, ge=0, le=1)
    """The exact McNemar test, two-sided; None if no pair differs."""
    regressions: tuple[float, float] | None = None
    """The 95 % Wilson interval of the rate of cases that pass only on the first agent; None if no
    pair is decided."""


COMPARISON_FORMATS = ("markdown", "json", "html")


class ComparisonReport(Model):
    """The same test cases on two agents, in pairs."""

    schema_version: Literal[1] = 1
    first: ComparedAgent
    second: ComparedAgent
    pairs: list[Pair]
    significance: Significance
    preferences: Preferences | None = None
    """Which answers a judge prefers; None if it was not asked."""
    currency: str | None = None
    """Of the costs; None if the configuration has no `prices`."""
    scores: dict[str, Total] = {}
    """Metric → the means of its scores."""
    cost: Total | None = None
    """None if it is unknown for every pair."""
    tokens: Total | None = None
    latency_ms: Total | None = None
    is_of_runs: bool = False
    """Whether two runs of an agent are compared, not two agents in one run."""
    only_in_first: list[str] = []
    """Cases that only the first of two compared runs has."""
    only_in_second: list[str] = []
    new_failures: list[str] = []
    """Those of `only_in_second` that fail."""
    changes: list[str] = []
    """What else differs between two compared runs, such as the model."""

    @property
    def counts(self) -> Counter[PairVerdict]:
        """How many pairs have each verdict."""
        return Counter(pair.verdict for pair in self.pairs)

    @property
    def regressions(self) -> list[Pair]:
        """The cases that pass on the first agent and fail on the second."""
        return [pair for pair in self.pairs if pair.verdict is PairVerdict.ONLY_FIRST]

    @property
    def is_complete(self) -> bool:
        """Whether every pair that is not skipped is decided, and nothing ended the run early."""
        reports = (self.first.report, self.second.report)
        is_whole = not any(report.interrupted or report.stopped for report in reports)
        decided = [pair for pair in self.pairs if pair.verdict is not PairVerdict.SKIPPED]
        return is_whole and bool(decided) and all(pair.verdict.is_decided for pair in decided)

    def __bool__(self) -> bool:
        """Whether the comparison is complete and no case regressed, as `--fail-on regression`."""
        return self.is_complete and not (self.regressions or self.new_failures)

    def to_markdown(self) -> str:
        """Return the comparison as Markdown, as `holodeck test --against … -o report.md` does."""
        return self.rendered("markdown")

    def to_json(self) -> str:
        """Return the comparison as JSON, as `holodeck test --against … -o report.json` does."""
        return self.rendered("json")

    def rendered(self, report_format: str) -> str:
        """Return the comparison in one of COMPARISON_FORMATS."""
        return str(render(self, f"comparison {report_format}"))

    def _repr_markdown_(self) -> str:
        """Return what a notebook shows."""
        return self.to_markdown()

    def __repr_args__(self) -> Iterator[tuple[str | None, object]]:
        counts = ", ".join(f"{count} {verdict}" for verdict, count in self.counts.items())
        yield from (("first", self.first.name), ("second", self.second.name), ("pairs", counts))
