"""What a run found out: metric rows, test results, the report."""

from collections.abc import Iterator
from pkgutil import resolve_name
from typing import Any, ClassVar, Literal

from pydantic import Field, model_validator

from holodeck.models.base import Count, Json, Model
from holodeck.models.evidence import Evidence, evidence
from holodeck.models.history import EarlierMessage
from holodeck.models.metric import MetricKind
from holodeck.models.on_demand import OnDemand
from holodeck.models.outcome import (
    Attempt,
    ConversationEnd,
    CriterionRow,
    ModelCost,
    RaisedError,
    Reason,
)
from holodeck.models.outcome import Outcome as Outcome  # noqa: PLC0414 - public here
from holodeck.models.price import Cost
from holodeck.models.selection import Selection
from holodeck.models.test_case import ExpectedTool, FileInput
from holodeck.models.token_usage import TokenUsage

UNCHECKED = "nothing is checked: add evaluations, criteria, expected_tools or forbidden_tools"


StopKind = Literal["fail_fast", "run_timeout", "refused", "budget"]
"""What ended a run before every case had run."""
SkipKind = Literal["skip"] | StopKind
"""What kept a case from being run: its own `skip`, or what ended the run."""


class ProcessedFileInput(Model):
    """A file as the agent saw it."""

    original: FileInput
    markdown_content: str
    metadata: dict[str, Json] | None = None
    cached_path: str | None = None
    processing_time_ms: int | None = None
    error: str | None = None


class MetricResult(Model):
    """One row per metric and test: scored, or an error with its reason."""

    metric_name: str
    kind: MetricKind = "standard"
    score: float | None = None
    """None where the metric could not be computed."""
    threshold: float | None = None
    passed: bool | None = None
    """None: the metric is reported only, it has neither threshold nor verdict of its own."""
    required: bool = True
    """False: the metric is reported only, whatever it says, be it an error."""
    inconclusive: bool = False
    """Whether the score is too close to the threshold for a verdict; the case is undecided."""
    scale: str | None = "0-1"
    raw_score: float | None = None
    """The score as the metric's library gives it; None where that is the same."""
    raw_scale: str | None = None
    """What `raw_score` lies between, such as `1-5`."""
    error: str | None = None
    raised: OnDemand[RaisedError] | None = None
    """Where the user's code raised the error; None where it did not."""
    retry_count: Count = 0
    evaluation_time_ms: int | None = None
    model_used: str | None = None
    """The model that judged."""
    judge_calls: Count = 0
    """Requests that were sent, whatever came of them."""
    judge_failed: Count = 0
    """Those of the calls that were not answered."""
    judge_tokens: TokenUsage | None = None
    judge_ms: int | None = None
    """How long asking the judge took, without the wait for a slot."""
    reasoning: str | None = None


class ToolInvocation(Model):
    """One tool call, paired with its result."""

    name: str
    args: dict[str, Json] = {}
    result: Json = None
    bytes: Count = 0
    """Size of the result as JSON."""
    duration_ms: int | None = None
    error: str | None = None
    raised: OnDemand[RaisedError] | None = None
    """Where the tool raised the error; None where it did not."""


class ToolCheck(Model):
    """One expectation about tools and whether it held."""

    expectation: str
    passed: bool
    reason: str | None = None
    error: str | None = None
    """Why it could not be decided, such as unknown tool calls; such a row never passes."""


class TurnResult(Model):
    """One turn of a conversation, as it went."""

    input: str
    """What the user said."""
    outcome: Outcome | None = None
    """None where the conversation broke off before the turn was graded."""
    processed_files: list[OnDemand[ProcessedFileInput]] = []
    agent_response: str | None = None
    """None where the agent gave no answer."""
    tool_invocations: list[ToolInvocation] = []
    expected_tools: list[OnDemand[str | ExpectedTool]] | None = None
    tool_checks: list[ToolCheck] = []
    metric_results: list[MetricResult] = []
    ground_truth: str | None = None
    agent_time_ms: int | None = None
    errors: list[str] = []
    attempts: list[OnDemand[Attempt]] = []
    token_usage: TokenUsage | None = None
    """None if it is unknown."""
    evidence: Evidence = evidence()
    """Who saw tool calls, token usage and so on; None where nobody did."""

    @property
    def tool_calls(self) -> list[str]:
        """The names of the tools that were called, as far as they are known."""
        return [call.name for call in self.tool_invocations]

    @property
    def tools_matched(self) -> bool | None:
        """Whether the expectations about tools held; None if there are none or it is unknown."""
        return tools_matched(self.tool_checks)


def tools_matched(checks: list[ToolCheck]) -> bool | None:
    """Whether all the expectations held; None if there are none, or if it is unknown."""
    if any(not one.passed and one.error is None for one in checks):
        return False
    return None if not checks or any(one.error for one in checks) else True


class Spread(Model):
    """How a metric's scores lie over the repetitions of a case; None where there are too few."""

    metric_name: str
    scored: Count = 0
    """Rows with a score."""
    mean: float | None = None
    least: float | None = None
    most: float | None = None
    deviation: float | None = None
    """The standard deviation of the sample."""


class Repeats(Model):
    """The repetitions of a case, each on its own, and the bar they had to reach."""

    planned: Count
    needed: Count
    """So many had to pass."""
    passed: Count
    interval: tuple[float, float] | None = None
    """By Wilson, 95 %: where the share of passes lies; None where nothing was run."""
    spread: list[Spread] = []
    runs: list["TestResult"] = []
    """The repetitions that were run, in their order."""

    def __str__(self) -> str:
        """`4 of 5 repetitions passed, 3 needed`, and how many were not run."""
        left = self.planned - len(self.runs)
        cut = f", {left} not run" if left else ""
        return f"{self.passed} of {len(self.runs)} repetitions passed, {self.needed} needed{cut}"


class TestResult(Model):
    """One test case, as it went.

    Of a conversation, `test_input` is everything the user said (of a simulated one, what it is
    about), `agent_response` the last answer, and files, tool calls, tokens and times are those of
    all turns together. Of a repeated case, answers, tool calls and metrics stand in the runs of
    `repeats`; times and tokens are the sums.
    """

    __test__: ClassVar[bool] = False

    test_name: str | None = None
    test_id: str | None = None
    suite: str | None = None
    tags: list[str] = []
    history: list[OnDemand[EarlierMessage]] = []
    """What was said before the case."""
    test_input: str
    processed_files: list[OnDemand[ProcessedFileInput]] = []
    agent_response: str | None = None
    tool_calls: list[str] = []
    """The names of the tools that were called; `evidence` says whether they are known at all."""
    tool_invocations: list[ToolInvocation] = []
    expected_tools: list[OnDemand[str | ExpectedTool]] | None = None
    tools_matched: bool | None = None
    """None if nothing is expected, or if it is unknown."""
    tool_checks: list[ToolCheck] = []
    metric_results: list[MetricResult] = []
    ground_truth: str | None = None
    passed: bool
    outcome: Outcome
    execution_time_ms: int
    agent_time_ms: int | None = None
    errors: list[str] = []
    raised: list[OnDemand[RaisedError]] = []
    """Where the user's code raised what stands in `errors`."""
    attempts: list[OnDemand[Attempt]] = []
    timestamp: str
    token_usage: TokenUsage | None = None
    """None if it is unknown."""
    evidence: Evidence = evidence()
    """Who saw tool calls, token usage and so on; None where nobody did."""
    cost: OnDemand[Cost] | None = None
    """None where the configuration has no `prices`."""
    turns: list[OnDemand[TurnResult]] = []
    """The turns of a conversation, as far as it came; empty for a case of one input."""
    tries: list["TestResult"] = []
    """What came of earlier tries of the case, the first one first; their times are part of
    `execution_time_ms`, their tokens and judges are their own."""
    repeats: OnDemand[Repeats] | None = None
    """None for a case that is not repeated."""
    skipped_by: SkipKind | None = None
    """What kept the case from being run; None for one that was."""
    skip_reason: str | None = None
    """Why the case was not run; None for one that was."""
    messages: list[Json] = []
    """Everything that was said, as OpenAI has messages; empty where `turns` tell all of it."""
    criteria: list[OnDemand[CriterionRow]] = []
    """What the judge made of the criteria."""
    ending: OnDemand[ConversationEnd] | None = None
    """How a simulated conversation ended, and what kept its judge from judging."""
    judge_cost: OnDemand[ModelCost] | None = None
    """Of judging the criteria."""
    simulator_cost: OnDemand[ModelCost] | None = None
    """Of playing the user."""

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        yield ("test_name", self.test_name)
        yield ("outcome", self.outcome.value)
        if not self.passed:
            yield ("reasons", self.reasons())

    @property
    def single_runs(self) -> list["TestResult"]:
        """Every time that the agent was put to the case, the earlier tries included."""
        if self.repeats is not None:
            return [one for run in self.repeats.runs for one in run.single_runs]
        return [*self.tries, self]

    @property
    def rows(self) -> list[MetricResult]:
        """Every row, those of the turns first, and those of each repetition."""
        if self.repeats is not None:
            return [row for run in self.repeats.runs for row in run.rows]
        of_turns = [row for turn in self.turns for row in turn.metric_results]
        return of_turns + self.metric_results

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> "TestResult":
        if self.passed != self.outcome.is_pass:
            raise ValueError(f"passed={self.passed} contradicts outcome={self.outcome}")
        if (self.skip_reason is not None) != (self.outcome is Outcome.SKIPPED):
            raise ValueError(f"skip_reason contradicts outcome={self.outcome}")
        return self

    def reasons(self) -> list[str]:
        """Why the test did not pass, or not each time, one line each; empty for one that did."""
        return [str(one) for one in self.explained()]

    def explained(self) -> list[Reason]:
        """The reasons, each with what the user's code raised, if anything."""
        if self.outcome is Outcome.PASSED:
            return []
        if self.repeats is not None:
            return [Reason(str(self.repeats)), *_of_parts("repetition", self.repeats.runs)]
        if self.outcome is Outcome.FLAKY:
            return _of_parts("try", self.tries)
        if self.skip_reason is not None:
            return [Reason(self.skip_reason)]
        found = [self._explained_error(line) for line in self.errors]
        for number, turn in enumerate(self.turns, 1):
            found += [one.after(f"turn {number}: ") for one in _reasons(turn)]
        found += _reasons(self)
        found += [Reason(_criterion_reason(row)) for row in self.criteria if row.is_missed]
        if self.outcome is Outcome.UNCHECKED:
            found.append(Reason(UNCHECKED))
        return found

    def _explained_error(self, line: str) -> Reason:
        if self.ending is not None and line == self.ending.reasoning:
            return Reason(line, self.ending.raised)
        fitting = (one for one in self.raised if line.endswith(one.error))
        return Reason(line, next(fitting, None))


def _of_parts(kind: str, parts: list[TestResult]) -> list[Reason]:
    return [
        reason.after(f"{kind} {number}: ")
        for number, part in enumerate(parts, 1)
        for reason in part.explained()
    ]


def _reasons(part: TestResult | TurnResult) -> list[Reason]:
    """What the checks of a case or a turn found wrong, and the tools that raised."""
    missed = [
        f"{check.expectation}: {check.error}" if check.error else check.reason or check.expectation
        for check in part.tool_checks
        if not check.passed
    ]
    rows = [
        Reason(_row_reason(row), row.raised)
        for row in part.metric_results
        if row.required and (row.error or row.inconclusive or row.passed is False)
    ]
    calls = [] if isinstance(part, TestResult) and part.turns else part.tool_invocations
    raised = [
        Reason(f"tool {one.name!r} raised {one.raised.error}", one.raised)
        for one in calls
        if one.raised
    ]
    return [*map(Reason, missed), *rows, *raised]


def _criterion_reason(row: CriterionRow) -> str:
    why = f": {row.reasoning}" if row.reasoning else ""
    return f"criterion {row.criterion!r}: {row.status}{why}"


def _row_reason(row: MetricResult) -> str:
    if row.error:
        return f"{row.metric_name}: {row.error}"
    score = "no score" if row.score is None else f"{row.score:.2f}"
    limit = "" if row.threshold is None else f" (threshold {row.threshold:.2f})"
    limit += " is inconclusive" if row.inconclusive else ""
    return f"{row.metric_name}: {score}{limit}" + (f": {row.reasoning}" if row.reasoning else "")


class ReportSummary(Model):
    """The run in numbers."""

    total_tests: Count
    passed: Count
    """Every test that passed in the end, the flaky ones included."""
    failed: Count
    """Every test that ran and did not pass; `outcomes` says why."""
    flaky: Count = 0
    """Those of the passed ones that did not pass every time."""
    skipped: Count = 0
    """Every test that was not run."""
    pass_rate: float = Field(ge=0, le=100)
    """Of the tests that ran."""
    total_duration_ms: Count
    """Sum over the tests."""
    wall_time_ms: Count = 0
    outcomes: dict[str, int] = {}
    metrics_evaluated: dict[str, int] = {}
    """Metric → rows with a score."""
    metrics_errored: dict[str, int] = {}
    average_scores: dict[str, float] = {}
    """Metric → mean over its rows with a score, zeros included."""
    standard_errors: dict[str, float] = {}
    """Metric → standard error of that mean; only for metrics with two rows or more."""
    token_usage: TokenUsage = TokenUsage()
    """Of the agent, as far as it is known."""
    unknown_token_usage: Count = 0
    """Tests that ran and whose token usage is unknown; `token_usage` lacks theirs."""
    judge_calls: Count = 0
    judge_usage: TokenUsage = TokenUsage()
    """Of the judges."""
    pass_at_k: dict[int, float] = {}
    """k → the chance that one of k runs of a case passes, a mean over the repeated cases; only
    where each of them ran all its repetitions and every one was decided."""
    pass_all_k: dict[int, float] = {}
    """k → the chance that all of k runs of a case pass (pass^k), likewise."""
    cost: OnDemand[Cost] | None = None
    """Of all tests; None where the configuration has no `prices`."""
    simulator_calls: Count = 0
    simulator_usage: TokenUsage = TokenUsage()
    """Of the simulated users."""

    @model_validator(mode="after")
    def _adds_up(self) -> "ReportSummary":
        if self.passed + self.failed + self.skipped != self.total_tests:
            raise ValueError("passed + failed + skipped is not total_tests")
        if self.flaky > self.passed:
            raise ValueError("more tests are flaky than passed")
        return self


_RENDERERS = {
    "markdown": "holodeck.lib.test_runner.reporter:generate_markdown_report",
    "json": "holodeck.lib.test_runner.reports:generate_json_report",
}
"""Format → function from a report to its text; a name only, as models import nothing of lib."""


class TestReport(Model):
    """Every result of a run and its summary."""

    __test__: ClassVar[bool] = False

    schema_version: Literal[1] = 1
    agent_name: str
    agent_config_path: str
    results: list[TestResult]
    summary: ReportSummary
    timestamp: str
    holodeck_version: str
    environment: dict[str, str] = {}
    interrupted: bool = False
    """Whether the run was stopped before every case had run."""
    stopped: str | None = None
    """Why the run gave up before every case had run; None if it did not."""
    stopped_by: StopKind | None = None
    """What made it give up, in a word."""
    planned_tests: Count | None = None
    """How many cases the run set out to run."""
    selection: OnDemand[Selection] | None = None
    """What was chosen of the cases; None if the run set out to run them all."""
    notes: list[str] = []
    """What a reader must know to trust the verdicts."""

    @property
    def ran(self) -> int:
        """How many tests were run."""
        return self.summary.total_tests - self.summary.skipped

    @property
    def passed(self) -> bool:
        """Whether the run passed as a whole, for which `holodeck test` exits with 0.

        Every test passed or was skipped on purpose, at least one ran, and nothing ended the run
        early.
        """
        is_whole = not self.interrupted and self.stopped is None and self.ran > 0
        return is_whole and all(
            one.passed or one.outcome is Outcome.SKIPPED for one in self.results
        )

    def to_markdown(self) -> str:
        """Return the report as Markdown, as `holodeck test --output report.md` writes it."""
        return self._rendered("markdown")

    def to_json(self) -> str:
        """Return the report as JSON, as `holodeck test --output report.json` writes it."""
        return self._rendered("json")

    def _rendered(self, report_format: str) -> str:
        render = resolve_name(_RENDERERS[report_format])
        return str(render(self))

    def _repr_markdown_(self) -> str:
        """Return what a notebook shows."""
        return self.to_markdown()

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        counts = ", ".join(f"{count} {word}" for word, count in self.summary.outcomes.items())
        yield from (("agent_name", self.agent_name), ("passed", self.passed), ("outcomes", counts))

    @model_validator(mode="after")
    def _counts_its_results(self) -> "TestReport":
        if self.summary.total_tests != len(self.results):
            raise ValueError("the summary does not count the results")
        return self
