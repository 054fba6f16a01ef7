"""The result of a turn of a conversation: files, tool calls, checks and metrics."""

import json
import operator
from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from holodeck.lib.support.text import one_line
from holodeck.models.base import Count, Json, Model
from holodeck.models.cases.stubs import FaultKind, StubKind
from holodeck.models.metrics.base import MetricKind
from holodeck.models.metrics.judge_trust import JudgeTrust, Limits
from holodeck.models.results.evidence import Evidence, Trace, evidence
from holodeck.models.results.outcome import (
    Attempt,
    ModelCost,
    ModelRequest,
    Outcome,
    RaisedError,
    Reason,
    Vote,
)
from holodeck.models.test_case import ExpectedTool, FileInput
from holodeck.models.token_usage import TokenUsage


class ProcessedFileInput(Model):
    """A file as the agent received it."""

    original: FileInput
    markdown_content: str
    metadata: dict[str, Json] | None = None
    cached_path: str | None = None
    processing_time_ms: int | None = None
    error: str | None = None


class MetricResult(Model):
    """The result of one metric: a score, or the reason for an error."""

    metric_name: str
    kind: MetricKind = "standard"
    score: float | None = None
    """None if the metric could not be computed."""
    threshold: float | None = None
    passed: bool | None = None
    """None if the metric has neither a threshold nor a verdict of its own; it is only reported."""
    required: bool = True
    """Whether the metric decides about the case; otherwise it is only reported."""
    inconclusive: bool = False
    """Whether the score is too close to the threshold for a verdict; the case is undecided."""
    scale: str | None = "0-1"
    raw_score: float | None = None
    """The score as the metric's library returns it; None if that is the same."""
    raw_scale: str | None = None
    """The range of `raw_score`, such as `1-5`."""
    error: str | None = None
    raised: RaisedError | None = None
    """Where the user's code raised the error; None if it did not."""
    retry_count: Count = 0
    evaluation_time_ms: int | None = None
    model_used: str | None = None
    """The model that judged."""
    judge_calls: Count = 0
    """Requests that were sent, failed ones included."""
    judge_failed: Count = 0
    """The calls that failed."""
    judge_tokens: TokenUsage | None = None
    judge_ms: int | None = None
    """How long the calls of the judge took, without waiting for a rate limit."""
    judge_trust: JudgeTrust | None = None
    """Whether labels have shown that the judge may decide; None without a judge, and with
    `judge_trust: off`."""
    judge_limits: Limits | None = None
    """What the judge had to reach in its check; None without a check that is up to date."""
    reasoning: str | None = None
    note: str | None = None
    """What to know about how the score came about."""
    judge_prompts: list[str] = []
    """What the judge was asked, the first requests of the metric; long ones are cut."""
    votes: list[Vote] = []
    """What the judge answered, question by question; only of metrics of the type `judge`."""

    @property
    def is_missed(self) -> bool:
        """Whether it fails the case, or leaves it undecided."""
        return self.required and bool(self.error or self.inconclusive or self.passed is False)


class StubUse(Model):
    """What a stub did to a tool call."""

    kind: StubKind
    tool_ran: bool = False
    """Whether the tool ran, whose result was changed or late."""

    def __str__(self) -> str:
        """`stub: truncated, the tool ran`."""
        return f"stub: {self.kind}" + (", the tool ran" if self.tool_ran else "")


class StubbedCall(Model):
    """A call of a tool that has stubs; if the tools are sealed, of any tool."""

    tool: str
    """Its name, as the agent has it."""
    args: dict[str, Json] = {}
    stubs: str | None = None
    """The tool's name in `stubs`; None if it is not there."""
    index: int | None = None
    """Which of these stubs took the call; None if none did."""
    kind: StubKind | None = None
    """What the stub did; None without a stub."""
    tool_ran: bool = False
    """Whether the tool ran, whose result was changed or late."""
    problem: str | None = None
    """Why the stub changed nothing, or why the tool would refuse the call; None for neither."""
    seen: dict[str, Json] = Field(default={}, exclude=True)
    """What the agent got, as fields of its `ToolInvocation`, where its backend may not tell."""


class HandledRequest(Model):
    """A request of the agent to its model, in a case with a scripted model or with faults."""

    reply: int | None = None
    """Which of the `model_replies` answered it, from 0; None if none did."""
    faults: list[FaultKind] = []
    """What went wrong with it, as `model_faults` says."""
    problem: str | None = None
    """Why it has no reply, or why a fault of it changed nothing."""

    def __str__(self) -> str:
        """`scripted reply 2, fault: cut_off`; what the model itself answered is not named."""
        reply = [] if self.reply is None else [f"scripted reply {self.reply + 1}"]
        return ", ".join([*reply, *(f"fault: {fault}" for fault in self.faults)])


NO_RESULT = "no result received"
"""The error of a call whose result the backend did not report."""


class ToolInvocation(Model):
    """One tool call with its result."""

    name: str
    args: dict[str, Json] = {}
    result: Json = None
    bytes: Count = 0
    """Size of the result as JSON."""
    duration_ms: int | None = None
    error: str | None = None
    raised: RaisedError | None = None
    """Where the tool raised the error; None if it did not."""
    agent: str | None = None
    """Name of the agent that requested the call; None if unknown."""
    transfer_to: str | None = None
    """The agent to which the call transferred the conversation; None if it is not known to have
    done so."""
    server: str | None = None
    """Name of the MCP server whose tool it is; None for other tools."""
    passages: list[str] | None = None
    """What the call retrieved, one entry per chunk; None if that is only in `result`."""
    prevented: bool = False
    """Whether the tool did not run, because it has side effects that are not allowed."""
    blocked: bool = False
    """Whether the tool did not run, because a filter, middleware or a rejected approval kept it
    from it; `error` then says so."""
    model_cost: ModelCost | None = None
    """What the model cost that the tool called; its tokens are part of the agent's."""
    unknown: list[Literal["args", "error"]] = []
    """What else of the call its backend cannot see."""
    stub: StubUse | None = Field(default=None, exclude_if=operator.not_)
    """What a stub did to the call; None if none took it."""

    @property
    def full_name(self) -> str:
        """The name with that of the server before it, if the tool belongs to one."""
        return self.name if self.server is None else f"{self.server}-{self.name}"

    @property
    def is_result_known(self) -> bool:
        """Whether the backend reported what the tool returned, or how it failed."""
        return self.error != NO_RESULT


class Approval(Model):
    """A call that the agent waited for a person to approve, and the answer that it got."""

    tool: str
    args: dict[str, Json] = {}
    answer: Literal["approve", "reject"] | None = None
    """None if the test case has no answer to it, so that the turn ended there."""

    @property
    def outcome(self) -> str:
        """What became of it, for people."""
        return {"approve": "approved", "reject": "rejected", None: "not answered"}[self.answer]

    def __str__(self) -> str:
        """`send_email({"to": "a@b.c"})`."""
        return f"{self.tool}({one_line(json.dumps(self.args, ensure_ascii=False), 200)})"


class ToolCheck(Model):
    """One expectation about tool calls, agents, turns or spans, and whether it was met."""

    expectation: str
    passed: bool
    reason: str | None = None
    error: str | None = None
    """Why it could not be decided, such as unknown tool calls; such a check never passes."""
    kind: Literal["tools", "trace"] = "tools"
    """What it is about: `trace` for spans, `tools` for the others."""


class PartResult(Model):
    """What was observed and graded of one turn, or of all turns of a test case."""

    processed_files: list[ProcessedFileInput] = []
    agent_response: str | None = None
    """None if the agent gave no response; of a conversation, the last one."""
    tool_invocations: list[ToolInvocation] = []
    expected_tools: list[str | ExpectedTool] | None = None
    tool_checks: list[ToolCheck] = []
    metric_results: list[MetricResult] = []
    ground_truth: str | None = None
    agent_time_ms: int | None = None
    errors: list[str] = []
    attempts: list[Attempt] = []
    model_requests: list[ModelRequest] = []
    """The agent's requests to models that a tap saw."""
    handled_requests: list[HandledRequest] = Field(default=[], exclude_if=operator.not_)
    """The agent's requests to its model, if that is scripted or has faults; else empty."""
    token_usage: TokenUsage | None = None
    """None if it is unknown."""
    model: str | None = Field(default=None, exclude_if=operator.not_)
    """The model that answered, as the agent reports it; None if unknown or several."""
    agents: list[str] | None = None
    """Names of the agents that spoke, in order; None if unknown in any turn."""
    tools: list[str] | None = None
    """Names of the tools that the backend says the agent can call; None if it does not."""
    retrieval_context: list[str] | None = None
    """The passages that the agent says it retrieved; None if it does not say in every turn."""
    approvals: list[Approval] | None = Field(default=None, exclude_if=lambda asked: asked is None)
    """What the agent asked a person to approve; None if it was not recorded."""
    stubbed_calls: list[StubbedCall] = Field(default=[], exclude_if=operator.not_)
    """The calls that stubs took, and those that they did not of the tools that have some."""
    evidence: Evidence = evidence()
    """Where tool calls, token usage and so on are known from; None if unknown."""
    trace: Trace | None = None
    """The spans of the agent; None if no check needs them, or if the turns have them."""

    def reasons_of_checks(self, calls: Sequence[ToolInvocation]) -> list[Reason]:
        """Return the failed checks and metrics, and the errors that these calls raised."""
        tools = [
            Reason(_check_reason(row), check="trace" if row.kind == "trace" else "expected_tools")
            for row in self.tool_checks
            if not row.passed
        ]
        rows = [
            Reason(_row_reason(row), row.raised, row.metric_name)
            for row in self.metric_results
            if row.is_missed
        ]
        raised = [
            Reason(f"tool {call.name!r} raised {call.raised.error}", call.raised)
            for call in calls
            if call.raised
        ]
        return [*tools, *rows, *raised]


class _TurnHead(Model):
    """What a turn begins with in a report."""

    input: str
    """The user's message."""
    outcome: Outcome | None = None
    """None if the conversation ended before the turn was graded."""


class TurnResult(PartResult, _TurnHead):
    """One turn of a conversation."""

    @property
    def tool_calls(self) -> list[str]:
        """The names of the tools that were called, as far as they are known."""
        return [call.name for call in self.tool_invocations]

    @property
    def tools_matched(self) -> bool | None:
        """Whether the expectations about tools were met; None if unknown or if there are none."""
        return tools_matched(self.tool_checks)

    def detailed_reasons(self) -> list[Reason]:
        """Return why it failed, each with the exception of the user's code if there is one."""
        reasons = self.reasons_of_checks(self.tool_invocations)
        return [reason.beside(self.ground_truth, self.agent_response) for reason in reasons]


def tools_matched(checks: list[ToolCheck]) -> bool | None:
    """Return whether all expectations were met; None if there are none or it is unknown.

    Checks of spans do not count.
    """
    checks = [check for check in checks if check.kind == "tools"]
    if any(not check.passed and check.error is None for check in checks):
        return False
    return None if not checks or any(check.error for check in checks) else True


def _check_reason(check: ToolCheck) -> str:
    if check.error:
        return f"{check.expectation}: {check.error}"
    return check.reason or check.expectation


def _row_reason(row: MetricResult) -> str:
    if row.error:
        return f"{row.metric_name}: {row.error}"
    score = "no score" if row.score is None else f"{row.score:.2f}"
    limit = "" if row.threshold is None else f" (threshold {row.threshold:.2f})"
    limit += " is inconclusive" if row.inconclusive else ""
    return f"{row.metric_name}: {score}{limit}" + (f": {row.reasoning}" if row.reasoning else "")
