"""The results of a run: test results with their repetitions, and the report."""

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from pydantic import Field, model_validator

from holodeck.lib.support.text import one_line
from holodeck.models.base import Count, Json, Model, render
from holodeck.models.cases.messages import EarlierMessage
from holodeck.models.results.origin import MergedRun, PromptVersion, RunOrigin, Selection
from holodeck.models.results.outcome import (
    ConversationEnd,
    CriterionRow,
    ModelCost,
    Outcome,
    RaisedError,
    Reason,
    RecordingUse,
    StopKind,
)
from holodeck.models.results.turn import (
    NO_RESULT,
    MetricResult,
    PartResult,
    ProcessedFileInput,
    ToolCheck,
    ToolInvocation,
    TurnResult,
    tools_matched,
)
from holodeck.models.token_usage import Cost, TokenUsage

if TYPE_CHECKING:
    from pandas import DataFrame


__all__ = [
    "NO_RESULT",
    "UNCHECKED",
    "MetricResult",
    "Outcome",
    "PartResult",
    "ProcessedFileInput",
    "Repeats",
    "ReportSummary",
    "SkipKind",
    "Spread",
    "TestReport",
    "TestResult",
    "ToolCheck",
    "ToolInvocation",
    "TurnResult",
    "tools_matched",
]

_MAX_INPUT = 50
UNCHECKED = "nothing is checked: add evaluations, criteria, expected_tools or forbidden_tools"


SkipKind = Literal["skip"] | StopKind
"""Why a case was not run: its own `skip`, or what stopped the run."""


class Spread(Model):
    """The spread of a metric's scores over the repetitions of a case; None if there are too few."""

    metric_name: str
    scored: Count = 0
    """How many repetitions have a score."""
    mean: float | None = None
    least: float | None = None
    most: float | None = None
    deviation: float | None = None
    """The standard deviation of the sample."""


class Repeats(Model):
    """The repetitions of a case, and how many of them had to pass."""

    planned: Count
    needed: Count
    """How many had to pass."""
    passed: Count
    interval: tuple[float, float] | None = None
    """The 95 % Wilson interval of the pass rate; None if nothing was run."""
    spread: list[Spread] = []
    runs: list["TestResult"] = []
    """The repetitions that were run, in order."""

    def __str__(self) -> str:
        """`4 of 5 repetitions passed, 3 needed`, and how many were not run."""
        left = self.planned - len(self.runs)
        cut = f", {left} not run" if left else ""
        return f"{self.passed} of {len(self.runs)} repetitions passed, {self.needed} needed{cut}"


def _outcome_of(values: Mapping[str, Any]) -> Outcome:
    """Return the outcome of a result that was made without one, by `passed` and `errors`."""
    if values.get("passed"):
        return Outcome.PASSED
    return Outcome.AGENT_ERROR if values.get("errors") else Outcome.FAILED


def case_label(name: str | None, test_input: str) -> str:
    """Return the name of a case, else the beginning of its input in quotes."""
    return name or f"'{one_line(test_input, _MAX_INPUT)}'"


class CaseIdentity(Model):
    """Which test case a result is about."""

    test_name: str | None = None
    """None only before the case has run: results in reports and records are `named`."""
    test_id: str | None = None
    suite: str | None = None
    agent_name: str | None = None
    """The agent that was tested, in a report about several; None in a report about one."""
    tags: list[str] = []
    location: str | None = None
    """Where the case is written, such as `agent.yaml:41:7`; None if it is not in a file."""
    history: list[EarlierMessage] = []
    """The messages before the case."""
    test_input: str

    @property
    def title(self) -> str:
        """The name, else the beginning of the input in quotes."""
        return case_label(self.test_name, self.test_input)

    @property
    def written_name(self) -> str | None:
        """The name as the file has it; None for a case without a name."""
        return None if self.test_name == case_label(None, self.test_input) else self.test_name


class TestResult(PartResult, CaseIdentity):
    """The result of one test case.

    For a conversation, `test_input` is everything the user said (for a simulated one, what it is
    about), `agent_response` is the last response, and files, tool calls, tokens and times are those
    of all turns. For a repeated case, the runs in `repeats` have the responses, tool calls and
    metrics; times and tokens are sums.
    """

    __test__: ClassVar[bool] = False

    tool_calls: list[str] = []
    """The names of the called tools; `evidence` says whether they are known at all."""
    tools_matched: bool | None = None
    """None if nothing is expected, or if it is unknown."""
    passed: bool
    outcome: Outcome = Field(default_factory=_outcome_of)
    """If not given, as `passed` and `errors` say."""
    execution_time_ms: int
    raised: list[RaisedError] = []
    """Where the user's code raised what is in `errors`."""
    timestamp: str
    cost: Cost | None = None
    """None if the configuration has no `prices`."""
    turns: list[TurnResult] = []
    """The turns of a conversation until it ended; empty for a case of one input."""
    tries: list["TestResult"] = []
    """The results of earlier tries of the case, in order. `execution_time_ms` includes their times,
    but tokens and judge calls are only in the tries themselves."""
    repeats: Repeats | None = None
    """None if the case is not repeated."""
    skipped_by: SkipKind | None = None
    """Why the case was not run, as one word; None if it was."""
    skip_reason: str | None = None
    """Why the case was not run; None if it was."""
    recording: RecordingUse | None = Field(default=None, exclude_if=lambda use: use is None)
    """What was replayed and recorded; None without recordings."""
    todo: str | None = None
    """What is still to be written in the case, which cannot pass until then; None if nothing is."""
    messages: list[Json] = []
    """The conversation as OpenAI messages; empty if `turns` contain all of it."""
    criteria: list[CriterionRow] = []
    """The verdicts of the judge on the criteria."""
    ending: ConversationEnd | None = None
    """How a scripted or simulated conversation ended, or why the judge of a case failed."""
    judge_cost: ModelCost | None = None
    """The cost of judging the criteria."""
    simulator_cost: ModelCost | None = None
    """The cost of the simulated user."""

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        yield ("test_name", self.test_name)
        yield ("outcome", self.outcome.value)
        if not self.passed:
            yield ("reasons", self.reasons())

    def named(self) -> "TestResult":
        """Return the result with a name, also of its runs; secrets must be gone from the input."""
        if self.test_name:  # that of its runs, too
            return self
        update: dict[str, Any] = {"test_name": self.title}
        if self.repeats is not None:
            runs = [run.named() for run in self.repeats.runs]
            update["repeats"] = self.repeats.model_copy(update={"runs": runs})
        if self.tries:
            update["tries"] = [run.named() for run in self.tries]
        return self.model_copy(update=update)

    @property
    def input(self) -> str:
        """What the user said, by the name that turns have for it."""
        return self.test_input

    @property
    def is_unreached(self) -> bool:
        """Whether the run, or its suite, ended before the case was run."""
        return self.skipped_by not in {None, "skip"}

    @property
    def parts(self) -> Sequence["TestResult | TurnResult"]:
        """The turns; of a case of one input, the result itself."""
        return self.turns or [self]

    @property
    def group(self) -> str:
        """Where the case belongs: its agent, in a report about several, and its suite."""
        return " › ".join(filter(None, (self.agent_name, self.suite)))

    @property
    def single_runs(self) -> list["TestResult"]:
        """Every run of the case, with repetitions and earlier tries."""
        if self.repeats is not None:
            return [single_run for run in self.repeats.runs for single_run in run.single_runs]
        return [*self.tries, self]

    @property
    def rows(self) -> list[MetricResult]:
        """The results of all metrics: of the turns first, then of the case; of every repetition."""
        if self.repeats is not None:
            return [row for run in self.repeats.runs for row in run.rows]
        of_turns = [row for turn in self.turns for row in turn.metric_results]
        return of_turns + self.metric_results

    @property
    def judge_costs(self) -> list[ModelCost]:
        """What the judges of metrics and criteria cost, in every single run."""
        runs = self.single_runs
        of_metrics = [
            ModelCost(calls=row.judge_calls, tokens=row.judge_tokens or TokenUsage())
            for run in runs
            for row in run.rows
            if row.judge_calls or row.judge_tokens is not None
        ]
        return of_metrics + [run.judge_cost for run in runs if run.judge_cost is not None]

    @property
    def simulator_costs(self) -> list[ModelCost]:
        """What the simulated users cost, in every single run."""
        costs = [run.simulator_cost for run in self.single_runs]
        return [cost for cost in costs if cost is not None]

    @model_validator(mode="after")
    def _is_consistent(self) -> "TestResult":
        if self.passed != self.outcome.is_pass:
            raise ValueError(f"passed={self.passed} contradicts outcome={self.outcome}")
        if (self.skip_reason is not None) != (self.outcome is Outcome.SKIPPED):
            raise ValueError(f"skip_reason contradicts outcome={self.outcome}")
        return self

    def __bool__(self) -> bool:
        """Whether the case passed."""
        return self.passed

    def reasons(self) -> list[str]:
        """Return why the test did not always pass, one line each."""
        return [str(reason) for reason in self.detailed_reasons()]

    def detailed_reasons(self) -> list[Reason]:
        """Return the reasons, each with the exception of the user's code if there is one."""
        if self.outcome is Outcome.PASSED:
            return []
        if self.repeats is not None:
            return [Reason(str(self.repeats)), *_of_parts("repetition", self.repeats.runs)]
        if self.outcome is Outcome.FLAKY:
            return _of_parts("try", self.tries)
        if self.skip_reason is not None:
            return [Reason(self.skip_reason)]
        errors = [self._reason_of_error(line) for line in self.errors]
        checks = self.reasons_of_checks(() if self.turns else self.tool_invocations)
        for row in self.criteria:
            if row.is_missed:
                why = f": {row.reasoning}" if row.reasoning else ""
                text = f"criterion {row.criterion!r}: {row.status}{why}"
                checks.append(Reason(text, check="criteria"))
        if self.outcome is Outcome.UNCHECKED:
            place = "" if self.location is None else f" at {self.location}"
            todo = Reason(f"todo{place}: {self.todo}", check="todo")
            checks.append(Reason(UNCHECKED) if self.todo is None else todo)
        answer = self.ground_truth, self.agent_response
        return [
            *(reason.beside(*answer) for reason in errors),
            *_of_parts("turn", self.turns),
            *(reason.beside(*answer) for reason in checks),
        ]

    def _reason_of_error(self, line: str) -> Reason:
        if self.ending is not None and line == self.ending.reasoning:
            return Reason(line, self.ending.raised)
        matching = (error for error in self.raised if line.endswith(error.error))
        return Reason(line, next(matching, None))


def _of_parts(kind: str, parts: Sequence[TestResult | TurnResult]) -> list[Reason]:
    return [
        reason.with_prefix(f"{kind} {number}: ")
        for number, part in enumerate(parts, 1)
        for reason in part.detailed_reasons()
    ]


class ReportSummary(Model):
    """The totals of a run."""

    total_tests: Count
    passed: Count
    """Tests that passed in the end, flaky ones included."""
    failed: Count
    """Tests that ran and did not pass; `outcomes` says why."""
    flaky: Count = 0
    """Passed tests that did not pass every time."""
    skipped: Count = 0
    """Tests that were not run."""
    pass_rate: float = Field(ge=0, le=100)
    """The percentage of the tests that ran."""
    total_duration_ms: Count
    """The sum over the tests."""
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
    """The tokens of the agent, as far as they are known."""
    unknown_token_usage: Count = 0
    """Tests that ran and whose token usage is unknown; `token_usage` lacks theirs."""
    judge_calls: Count = 0
    judge_usage: TokenUsage = TokenUsage()
    """The tokens of the judges."""
    pass_at_k: dict[int, float] = {}
    """k → the probability that one of k runs of a case passes, as a mean over the repeated cases;
    empty unless each of them ran all its repetitions and all were decided."""
    pass_all_k: dict[int, float] = {}
    """k → the probability that all of k runs of a case pass (pass^k), likewise."""
    cost: Cost | None = None
    """The cost of all tests; None if the configuration has no `prices`."""
    recordings: RecordingUse | None = Field(default=None, exclude_if=lambda use: use is None)
    """What was replayed and recorded, with the oldest day; None without recordings."""
    simulator_calls: Count = 0
    simulator_usage: TokenUsage = TokenUsage()
    """The tokens of the simulated users."""

    @model_validator(mode="after")
    def _adds_up(self) -> "ReportSummary":
        if self.passed + self.failed + self.skipped != self.total_tests:
            raise ValueError("passed + failed + skipped is not total_tests")
        if self.flaky > self.passed:
            raise ValueError("more tests are flaky than passed")
        return self


class TestReport(Model):
    """The results of a run and their summary."""

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
    """Why the run stopped before every case had run; None if it did not."""
    stopped_by: StopKind | None = None
    """What stopped the run, as one word."""
    planned_tests: Count | None = None
    """How many cases the run was about."""
    selection: Selection | None = None
    """Which cases were selected; None for all."""
    notes: list[str] = []
    """What readers must know to judge the results."""
    prompts: list[PromptVersion] = []
    """The versions of the instructions and of the prompt tools."""
    origin: RunOrigin | None = None
    """Where the results come from; None if that is unknown, and in `merged` reports."""
    merged: list[MergedRun] = []
    """The runs that were joined; empty for one run."""

    def config_path_of(self, result: TestResult) -> str:
        """Return the agent.yaml of a result."""
        run = self._run_of(result)
        return self.agent_config_path if run is None else run.agent_config_path

    def origin_of(self, result: TestResult) -> RunOrigin | None:
        """Return where a result comes from; of shards, the first one. None if it is unknown."""
        run = self._run_of(result)
        return self.origin if run is None else run.origin

    def _run_of(self, result: TestResult) -> MergedRun | None:
        name = result.agent_name
        return next((run for run in self.merged if name in {None, run.label}), None)

    @property
    def ran(self) -> int:
        """How many tests ran."""
        return self.summary.total_tests - self.summary.skipped

    @property
    def is_whole(self) -> bool:
        """Whether nothing ended the run before each of its tests was run or skipped on purpose."""
        is_ended = self.interrupted or self.stopped is not None
        return not (is_ended or any(result.is_unreached for result in self.results))

    @property
    def passed(self) -> bool:
        """Whether the run passed as a whole, for which `holodeck test` exits with 0.

        Every test passed or was skipped on purpose, at least one ran, and nothing ended the run
        early.
        """
        is_whole = not self.interrupted and self.stopped is None and self.ran > 0
        return is_whole and self.summary.failed == 0

    def __bool__(self) -> bool:
        """Whether the run passed: `assert holodeck.run("agent.yaml")` fails for a red run."""
        return self.passed

    def to_markdown(self) -> str:
        """Return the report as Markdown, as `holodeck test --output report.md` writes it."""
        return str(render(self, "markdown"))

    def to_json(self) -> str:
        """Return the report as JSON, as `holodeck test --output report.json` writes it."""
        return str(render(self, "json"))

    def to_dataframe(self) -> "DataFrame":
        """Return a pandas DataFrame with a row for each test case.

        What is unknown is `<NA>`, never 0 or empty. Raises MissingExtra without pandas.
        """
        return render(self, "cases")

    def metrics_dataframe(self) -> "DataFrame":
        """Return a pandas DataFrame with a row for each result of a metric, likewise."""
        return render(self, "metrics")

    def _repr_html_(self) -> str:
        """Return what a notebook shows: a compact table, failures first."""
        return str(render(self, "notebook"))

    def __repr_args__(self) -> Iterator[tuple[str | None, Any]]:
        counts = ", ".join(f"{count} {word}" for word, count in self.summary.outcomes.items())
        yield from (("agent_name", self.agent_name), ("passed", self.passed), ("outcomes", counts))

    @model_validator(mode="after")
    def _counts_its_results(self) -> "TestReport":
        if self.summary.total_tests != len(self.results):
            raise ValueError("the summary does not count the results")
        return self
