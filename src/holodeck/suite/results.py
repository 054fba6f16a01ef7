"""Results: an agent's answer, its scores, the result of a scenario and of a run."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal
from uuid import uuid4

from pydantic import Field, PlainSerializer

from holodeck.lib.reports.summary import summarize
from holodeck.lib.tools.base import to_json_value
from holodeck.models.base import Count, Ratio
from holodeck.models.results.evidence import Evidence
from holodeck.models.results.outcome import RaisedError
from holodeck.models.test_result import (
    MetricResult,
    Outcome,
    TestReport,
    TestResult,
    ToolInvocation,
)
from holodeck.models.token_usage import TokenUsage as CaseUsage
from holodeck.suite.scenario import Scenario, SuiteModel

if TYPE_CHECKING:
    from pandas import DataFrame

Anything = Annotated[Any, PlainSerializer(to_json_value, when_used="json")]
"""Any value of the agent; JSON holds as much of it as it can."""


class ToolCall(SuiteModel):
    """A tool call that the agent made."""

    name: str
    arguments: dict[str, Anything] = Field(default_factory=dict)
    result: Anything | None = None


class TokenUsage(SuiteModel):
    """Prompt and completion tokens."""

    prompt_tokens: Count = 0
    completion_tokens: Count = 0

    @property
    def total_tokens(self) -> int:
        return self.prompt_tokens + self.completion_tokens


class AgentResult(SuiteModel):
    """What the agent answered and did."""

    output: str
    tool_calls: list[ToolCall] = Field(default_factory=list)
    reasoning_trace: list[str] | None = None
    latency_ms: float = 0.0
    token_usage: TokenUsage | None = None
    raw_response: Anything | None = None

    @property
    def knows_tool_calls(self) -> bool:
        """Whether the adapter reported tool calls, perhaps an empty list; else they are unknown."""
        return bool(self.tool_calls) or "tool_calls" in self.model_fields_set


class ScoreResult(SuiteModel):
    """What a scorer yields for an answer."""

    scenario_id: str
    scorer_name: str
    score: Ratio
    passed: bool
    explanation: str = ""
    details: dict[str, Anything] | None = None
    error: str | None = None
    """Why the scorer could not decide, as `Type: message`; such a row never passes."""
    raised: RaisedError | None = None
    """Where the scorer raised the error, with file and line."""

    def __bool__(self) -> bool:
        """Whether the answer passed."""
        return self.passed


class ScenarioRunResult(SuiteModel):
    """The result of a scenario."""

    scenario: Scenario
    agent_result: AgentResult
    """Its output is empty if the agent never answered."""
    scores: list[ScoreResult] = Field(default_factory=list)
    passed: bool = False
    duration_ms: float = 0.0
    """Time of the agent in the last attempt."""
    error: str | None = None
    """Why there is no verdict, as `Type: message`; None if it has a verdict."""
    raised: RaisedError | None = None
    """Where the adapter raised the error, with file and line."""
    retry_count: int = 0
    """Index of the last attempt, from 0."""
    outcome: Outcome = Outcome.FAILED
    """The verdict, or what made it impossible."""

    @property
    def status(self) -> Literal["PASS", "FAIL", "ERROR"]:
        """What reports show: "ERROR" if there is no verdict."""
        if self.error:
            return "ERROR"
        return "PASS" if self.passed else "FAIL"

    def __bool__(self) -> bool:
        """Whether the scenario passed."""
        return self.passed

    @property
    def mean_score(self) -> float | None:
        """Mean of the scores; None without any."""
        scores = [score.score for score in self.scores]
        return sum(scores) / len(scores) if scores else None

    @property
    def explanations(self) -> list[str]:
        """The error, or what each scorer explains."""
        return [self.error] if self.error else [score.explanation for score in self.scores]


class RunResult(SuiteModel):
    """The result of a suite."""

    run_id: str = Field(default_factory=lambda: str(uuid4()))
    timestamp: datetime = Field(default_factory=lambda: datetime.now(UTC))
    suite_name: str
    scenario_results: list[ScenarioRunResult] = Field(default_factory=list)
    """Of the scenarios that ran, in the suite's order."""
    aggregate_score: float = 0.0
    """Mean over the scenarios of the mean of their scores; errors count 0."""
    pass_rate: float = 0.0
    """Share of the scenarios that passed, 0 to 1."""
    total_duration_ms: float = 0.0
    """Wall-clock time of the run."""
    sum_duration_ms: float = 0.0
    """Sum of all `duration_ms`."""
    model_info: dict[str, Any] | None = None
    not_reached: list[str] = Field(default_factory=list)
    """Names of the scenarios that `fail_fast` left out."""

    def __bool__(self) -> bool:
        """Whether every scenario ran and passed, and there was one."""
        results = self.scenario_results
        return bool(results) and all(result.passed for result in results) and not self.not_reached

    def to_dataframe(self) -> "DataFrame":
        """Return a pandas DataFrame with a row for each scenario.

        It has the columns of `TestReport.to_dataframe()`; what is unknown is `<NA>`.
        """
        return self.to_report().to_dataframe()

    def metrics_dataframe(self) -> "DataFrame":
        """Return a pandas DataFrame with a row for each score of a scorer, likewise."""
        return self.to_report().metrics_dataframe()

    def _repr_html_(self) -> str:
        """Return what a notebook shows: a compact table, failures first."""
        return self.to_report()._repr_html_()

    def to_report(self) -> TestReport:
        """Return the result as a report of test cases."""
        results = [_to_test_result(self, result) for result in self.scenario_results]
        left_out = f"fail_fast left out: {', '.join(self.not_reached)}"
        return TestReport(
            agent_name=self.suite_name,
            agent_config_path="",
            results=results,
            summary=summarize(results, round(self.total_duration_ms)),
            timestamp=self.timestamp.isoformat(),
            holodeck_version="",
            environment={"Run": self.run_id},
            stopped=left_out if self.not_reached else None,
        )

    def compute_aggregates(self) -> None:
        """Compute rate, score and sum from the results; may be called again.

        Without a measured wall-clock time, `total_duration_ms` is the sum.
        """
        results = self.scenario_results
        is_measured = self.total_duration_ms != self.sum_duration_ms
        count = len(results) or 1
        self.pass_rate = sum(result.passed for result in results) / count
        self.aggregate_score = sum(result.mean_score or 0 for result in results) / count
        self.sum_duration_ms = sum(result.duration_ms for result in results)
        if not is_measured:
            self.total_duration_ms = self.sum_duration_ms


def _to_test_result(run: RunResult, result: ScenarioRunResult) -> TestResult:
    scenario, answer = result.scenario, result.agent_result
    usage = answer.token_usage
    return TestResult(
        suite=run.suite_name,
        test_id=scenario.id,
        test_name=scenario.name,
        tags=scenario.tags,
        test_input=scenario.input,
        ground_truth=scenario.expected_output,
        agent_response=answer.output or (None if result.error else ""),
        tool_invocations=[
            ToolInvocation(
                name=call.name,
                args=to_json_value(call.arguments),
                result=to_json_value(call.result),
            )
            for call in answer.tool_calls
        ],
        evidence=Evidence(tool_calls="adapter" if answer.knows_tool_calls else None),
        metric_results=[
            MetricResult(
                metric_name=score.scorer_name,
                score=None if score.error else score.score,
                passed=None if score.error else score.passed,
                error=score.error,
                raised=score.raised,
                reasoning=score.explanation or None,
            )
            for score in result.scores
        ],
        passed=result.outcome.is_pass,
        outcome=result.outcome,
        errors=[result.error] if result.error else [],
        raised=[] if result.raised is None else [result.raised],
        execution_time_ms=round(result.duration_ms),
        agent_time_ms=round(result.duration_ms),
        timestamp=run.timestamp.isoformat(),
        token_usage=usage and CaseUsage.of(usage.prompt_tokens, usage.completion_tokens),
    )
