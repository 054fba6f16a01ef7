"""Events of the cases of a run, also of those that run in workers.

A case has up to two streams of events: its own, and that of its conversation if that is shown. The
order within a case is that in which they happened.
"""

import json
import logging
from asyncio import CancelledError
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from holodeck.config.loader import ConfigLoader
from holodeck.config.secrets import collect
from holodeck.lib.conversation.debugger import Debugger
from holodeck.lib.conversation.events import (
    BATCH_RUN_ID,
    TYPES,
    CriterionJudged,
    Event,
    EventDispatcher,
    EventFile,
    EventStream,
    ListenerThread,
    MessageAdded,
    RunFinished,
    RunStarted,
    new_id,
    values_of,
)
from holodeck.lib.conversation.printer import ConversationPrinter
from holodeck.lib.conversation.script_run import ScriptRun
from holodeck.lib.conversation.types import (
    CriterionResult,
    CriterionStatus,
    ScenarioResult,
    criteria_by_status,
)
from holodeck.lib.processes.channel import Head
from holodeck.lib.secrets.redact import Redactor
from holodeck.lib.support.environment import batch_name
from holodeck.lib.support.text import describe
from holodeck.lib.test_runner.options import HasEvents, OnConversation, RunOptions
from holodeck.models.agent import Agent
from holodeck.models.cases.messages import Message
from holodeck.models.config import ExecutionConfig
from holodeck.models.results.outcome import CriterionRow
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import MetricResult, Outcome, TestResult, ToolCheck

logger = logging.getLogger(__name__)

_ERRORS = {Outcome.AGENT_ERROR, Outcome.METRIC_ERROR}


class CaseResult(ScenarioResult):
    """The result of a case in the form of a scenario's result."""

    outcome: Outcome | None = None
    """None for a case without a result."""
    optional_criteria: list[str] = []
    """The criteria that are reported only."""
    metrics: list[MetricResult] = []
    tool_checks: list[ToolCheck] = []

    @property
    def status(self) -> str:
        return "flaky" if self.outcome is Outcome.FLAKY else super().status


class RunEvents:
    """Publishes the events of all cases of a run; each listener has a thread.

    Args:
        agent: The agent under test.
        settings: The settings of the run, which may name a file for events.
        loader: Knows the environment variables, whose secrets no file may contain.

    Raises:
        ConfigError: The file cannot be written.
    """

    def __init__(self, agent: Agent, settings: ExecutionConfig, loader: ConfigLoader) -> None:
        self._run_id: str | None = None
        self._agent_name = agent.name
        path = settings.path_of("events", agent.base_dir)
        self._file: EventFile | None = None
        if path is not None:
            redactor = Redactor(collect(agent, loader.environment(agent.base_dir)))
            self._file = EventFile(path, redactor.redact_report, settings.source_of("events"))
        self._dispatcher = EventDispatcher([])

    def open(self, options: RunOptions) -> None:
        """Start publishing to the file and to those who follow the run."""
        self._run_id, relay = options.run_id(), options.event_relay
        listeners = (self._file, options.on_event)
        self._dispatcher = EventDispatcher(
            [ListenerThread(listener) for listener in listeners if listener is not None],
            () if relay is None else (relay,),
        )

    def publish(self, event: Event) -> None:
        """Publish an event of a case that another process runs."""
        self._dispatcher.put(replace(_in_own_batch(event), run_id=self._run_id))

    async def close(self) -> None:
        """Deliver what has happened, without waiting for a listener that hangs."""
        await self._dispatcher.drain()
        self._dispatcher = EventDispatcher([])

    def events_of(self, case: TestCaseModel) -> "CaseEvents | None":
        """Return what publishes the events of a run of a case; None without listeners."""
        if self._dispatcher.is_idle:
            return None
        return CaseEvents(case, self._dispatcher, self._agent_name, self._run_id)


class CaseEvents:
    """Publishes the events of a run of a case, from its first message to its outcome."""

    def __init__(
        self, case: TestCaseModel, dispatcher: EventDispatcher, agent_name: str, run_id: str | None
    ) -> None:
        self._case = case
        self._dispatcher = dispatcher
        self._judged = 0
        self._ids: dict[str, Any] = {
            "batch_run_id": _batch(),
            "scenario_run_id": new_id("scenariorun"),
            "scenario_id": case.name or "case",
            "scenario_set_id": case.suite or "default",
            "agent_name": agent_name,
            "case_id": case.id,
            "run_id": run_id,
        }

    def follow(self, conversation: EventStream) -> None:
        """Publish the messages and verdicts of a conversation of the case."""
        conversation.relay(self._relay)

    async def publish_run(self, run: Callable[[], Awaitable[TestResult]]) -> TestResult:
        """Run the case, and publish its start and its end."""
        facts = {"name": self._ids["scenario_id"], "description": self._case.user_input}
        self._dispatcher.put(RunStarted(thread_id=new_id("thread"), **facts, **self._ids))
        try:
            result = await run()
        except BaseException as error:
            self._publish_end(*_ended_by(error))
            raise
        for row in result.criteria[self._judged :]:  # not published by a conversation
            self._dispatcher.put(CriterionJudged(verdict=_verdict(row), **self._ids))
        self._publish_end(_STATUS[result.outcome], scenario_result_of(result))
        return result

    def _relay(self, event: Event) -> None:
        if isinstance(event, CriterionJudged):
            self._judged += 1
        if isinstance(event, MessageAdded | CriterionJudged):
            self._dispatcher.put(replace(event, **self._ids))

    def _publish_end(self, status: str, result: CaseResult) -> None:
        run = self._ids["scenario_run_id"]
        named = result.model_copy(
            update={"scenario_run_id": run, "batch_run_id": self._ids["batch_run_id"]}
        )
        self._dispatcher.put(RunFinished(status=status, result=named, **self._ids))


_STATUS = {
    Outcome.PASSED: "SUCCESS",
    Outcome.FLAKY: "SUCCESS",
    Outcome.FAILED: "FAILED",
    Outcome.UNCHECKED: "FAILED",
    Outcome.SKIPPED: "CANCELLED",
    Outcome.AGENT_ERROR: "ERROR",
    Outcome.METRIC_ERROR: "ERROR",
}


def scenario_result_of(result: TestResult) -> CaseResult:
    """Return the result of a case in the form of a scenario's result."""
    reasons = "\n".join(result.reasons())
    verdicts = [_verdict(row) for row in result.criteria]
    judge, user = result.judge_cost, result.simulator_cost
    costs = {"Judge": judge, "User": user}
    known = {role: cost for role, cost in costs.items() if cost is not None}
    usage = {role: cost.tokens for role, cost in known.items()}
    return CaseResult(
        success=result.passed,
        messages=[],
        reasoning=reasons or None,
        optional_criteria=[row.criterion for row in result.criteria if not row.required],
        criteria=verdicts,
        total_time=result.execution_time_ms / 1000,
        agent_time=None if result.agent_time_ms is None else result.agent_time_ms / 1000,
        reason_code=result.ending.code if result.ending else None,
        error=reasons if result.outcome in _ERRORS else None,
        token_usage=usage | ({"Agent": result.token_usage} if result.token_usage else {}),
        model_calls={role: cost.calls for role, cost in known.items()},
        failed_calls={role: cost.failed for role, cost in known.items() if cost.failed},
        outcome=result.outcome,
        metrics=result.rows,
        tool_checks=result.tool_checks,
        **criteria_by_status(verdicts),
    )


def _verdict(row: CriterionRow) -> CriterionResult:
    return CriterionResult(
        criterion=row.criterion,
        status=CriterionStatus(row.status),
        reasoning=row.reasoning,
        is_checkpoint=row.is_checkpoint,
    )


def _batch() -> str:
    return batch_name() or BATCH_RUN_ID


def _in_own_batch(event: Event) -> Event:
    """Return an event of another process as of the batch of this process."""
    event = replace(event, batch_run_id=_batch())
    if isinstance(event, RunFinished):
        result = event.result.model_copy(update={"batch_run_id": event.batch_run_id})
        event = replace(event, result=result)
    return event


def _ended_by_error(began: RunStarted, error: BaseException) -> RunFinished:
    """Return the end of a run that an error ended."""
    names = {key.name for key in fields(Event)} - {"timestamp"}
    ids = {name: getattr(began, name) for name in names}
    named = {"scenario_run_id": began.scenario_run_id, "batch_run_id": began.batch_run_id}
    status, result = _ended_by(error)
    return RunFinished(status=status, result=result.model_copy(update=named), **ids)


def _ended_by(error: BaseException) -> tuple[str, CaseResult]:
    """Return the status and the result of a case that raised an error."""
    is_cancelled = isinstance(error, CancelledError | KeyboardInterrupt)
    result = CaseResult(success=False, messages=[], error=describe(error))
    return "CANCELLED" if is_cancelled else "ERROR", result


def show_conversations(
    clean: Callable[[str], str] | None = None, *, debug: bool = False
) -> OnConversation:
    """Return what shows every conversation on stderr.

    Args:
        clean: What hides secrets; None for what knows none by name.
        debug: Whether a person at the terminal may speak for a user whose turns are not written.
    """
    debugger = Debugger() if debug else None

    def listen(conversation: HasEvents) -> None:
        conversation.events.subscribe(
            ConversationPrinter(has_end=False, clean=clean, before=conversation.before)
        )
        if isinstance(conversation, ScriptRun) and not conversation.is_written:
            conversation.debugger = debugger

    return listen


OF_CASE, OF_CONVERSATION = "case", "conversation"
"""The streams."""
BEFORE = "before"
"""In the stream of a conversation, what comes first: the messages before it."""
_KINDS = {name: kind for kind, name in TYPES.items()}


class EventSender:
    """Sends the events of the cases of a worker.

    Args:
        send: Sends a message with its body.
        current_run: Returns the number of the run of a case that the present task belongs to.
    """

    def __init__(self, send: Callable[[Head, bytes], None], current_run: Callable[[], int]) -> None:
        self._send = send
        self._current_run = current_run

    def send_event(self, event: Event) -> None:
        """Send an event of the present case."""
        self._send_event(self._current_run(), OF_CASE, event)

    def follow(self, conversation: HasEvents) -> None:
        """Send the events of a conversation of the present case."""
        run = self._current_run()
        before = json.dumps(list(conversation.before), default=str).encode()
        self._send(["event", run, OF_CONVERSATION, BEFORE], before)
        conversation.events.relay(lambda event: self._send_event(run, OF_CONVERSATION, event))

    def _send_event(self, run: int, stream: str, event: Event) -> None:
        try:
            body = json.dumps(values_of(event), default=str).encode()
        except (TypeError, ValueError, RecursionError):  # of a message that the agent's code made
            logger.exception("%s cannot be sent to listeners", type(event).__name__)
            return
        self._send(["event", run, stream, TYPES[type(event)]], body)


@dataclass
class _RemoteConversation:
    """A conversation in a worker."""

    before: Sequence[Message]
    events: EventStream = field(default_factory=EventStream)


class FollowedRun:
    """Publishes the events of a run of a case that a worker runs.

    Args:
        events: Publishes the events of the case; None if nobody listens to them.
        on_conversation: Called with the conversation before it begins.
    """

    def __init__(self, events: RunEvents | None, on_conversation: OnConversation | None) -> None:
        self._events = events
        self._on_conversation = on_conversation
        self._conversation: EventDispatcher | None = None
        self._open: dict[str, RunStarted] = {}
        """What has begun but not ended, by its stream."""

    def handle(self, stream: str, kind: str, body: bytes) -> None:
        """Publish what a worker sent. Raises ValueError if it is no event."""
        if kind != BEFORE:
            self._publish(stream, _event_of(kind, body))
        elif self._on_conversation is not None:
            conversation = _RemoteConversation(json.loads(body))
            self._on_conversation(conversation)
            self._conversation = conversation.events.dispatcher()

    def _publish(self, stream: str, event: Event) -> None:
        if isinstance(event, RunStarted):
            self._open[stream] = event
        if isinstance(event, RunFinished):
            self._open.pop(stream, None)
        if stream == OF_CASE and self._events is not None:
            self._events.publish(event)
        if stream == OF_CONVERSATION and self._conversation is not None:
            self._conversation.put(_in_own_batch(event))

    async def close(self, error: BaseException | None = None) -> None:
        """Let the listeners of the conversation catch up, for a moment at most.

        What the worker began and did not end, ended by this error.
        """
        for stream, began in list(self._open.items()):
            self._publish(stream, _ended_by_error(began, error or CancelledError()))
        conversation, self._conversation = self._conversation, None
        if conversation is not None:
            await conversation.drain()


def _event_of(kind: str, body: bytes) -> Event:
    """Return the event that was sent. Raises ValueError."""
    values: dict[str, Any] = json.loads(body)
    event_type = _KINDS.get(kind)
    if event_type is None or not values.keys() <= {key.name for key in fields(event_type)}:
        raise ValueError(f"no event: {kind!r}")
    try:
        if event_type is CriterionJudged:
            values["verdict"] = CriterionResult.model_validate(values["verdict"])
        if event_type is RunFinished:
            values["result"] = CaseResult.model_validate({"messages": [], **values["result"]})
        return event_type(**values)
    except (KeyError, TypeError) as error:
        raise ValueError(f"no event: {kind!r} without a field") from error
