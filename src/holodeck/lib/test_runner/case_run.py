"""Runs of test cases: what they share, a run from the files to the result, and retries."""

import asyncio
import logging
import time
import traceback
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from holodeck.config.loader import ConfigLoader
from holodeck.config.yaml.source import location_of
from holodeck.errors import ConfigError, Refusal
from holodeck.lib.backends.base import (
    NO_APPROVALS,
    AgentBackend,
    backend_in_context,
    capabilities_of,
)
from holodeck.lib.backends.frameworks.turn_trace import outside_of_turns
from holodeck.lib.evaluators.base import BaseEvaluator
from holodeck.lib.file_processor import FileReader
from holodeck.lib.judging.judges import Judges
from holodeck.lib.llm.limiter import time_limit
from holodeck.lib.llm.limits import override_call_limit
from holodeck.lib.llm.request_handler import answering_requests
from holodeck.lib.llm.retry import RetryConfig, backoff_delay
from holodeck.lib.observability import names, span
from holodeck.lib.test_runner.case_state import CaseState
from holodeck.lib.test_runner.grading.checks import EvaluatorSet
from holodeck.lib.test_runner.grading.grade import UNGRADED, ObservationBuilder, build_result, grade
from holodeck.lib.test_runner.grading.scoring import add_events_of_checks
from holodeck.lib.test_runner.messages import histories_of
from holodeck.lib.test_runner.observe import observe
from holodeck.lib.test_runner.options import HasEvents, RunOptions
from holodeck.lib.tools.recorded import recording_tools
from holodeck.lib.ui.activity import activity
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.results.outcome import INTERRUPTED, Outcome
from holodeck.models.test_case import RetryKind, TestCaseModel
from holodeck.models.test_result import TestResult

if TYPE_CHECKING:
    from holodeck.lib.recordings.store import Recordings
    from holodeck.lib.test_runner.events import RunEvents
    from holodeck.lib.test_runner.turns.conversation import ConversationRunner
    from holodeck.lib.test_runner.turns.traced_turns import TurnTraces

logger = logging.getLogger(__name__)

_RETRIED: Sequence[RetryKind] = ("error", "timeout")
"""What a case is run again after, unless it says otherwise with `retry_on`."""


@dataclass(frozen=True)
class FinishedRun:
    """The result of a run of a case, and what it means for further runs."""

    result: TestResult
    failure: RetryKind | None = None
    """What went wrong, if running the case again may help."""
    is_permanent: bool = False
    """Whether every other case will fail like this."""
    refusal: Refusal | None = None
    """What the provider objected to before it answered anything; None if it did not."""


class CaseRun:
    """One run of a test case: its agent is observed, then graded, within a time limit.

    Args:
        setup: What the runs of all cases share.
        index: The index of the case.
        backend: The agent, with the context of the case.
        repetition: Which repetition of the case it is, from 1.
    """

    def __init__(
        self, setup: "CaseSetup", index: int, backend: AgentBackend, repetition: int
    ) -> None:
        self.case = (setup.agent.test_cases or [])[index]
        self.state = CaseState(self.case, setup.histories.get(index, ()))
        if self.case.stubs_of_tools or self.case.is_sealed:
            # What stands in for tools, which few cases need.
            from holodeck.lib.stubs.case_stubs import CaseStubs  # noqa: PLC0415

            self.state.stubs = CaseStubs(self.case)
        model = setup.agent.model
        is_scripted = model is not None and model.protocol == "scripted"
        if self.case.model_replies or self.case.model_faults or is_scripted:
            # What stands in for a model, as above.
            from holodeck.lib.tap.case_requests import CaseRequests  # noqa: PLC0415

            replies = self.case.model_replies or ([] if is_scripted else None)
            self.state.requests = CaseRequests(replies, self.case.model_faults or ())
        if setup.recordings is not None:
            self.state.recording = setup.recordings.of_case(index, repetition)
        self._setup = setup
        self._backend = backend
        self._checks = setup.evaluator_set.checks_of(index)
        self._conversation = setup.runners.get(index)
        self._events = None if setup.events is None else setup.events.events_of(self.case)
        self._started = 0.0

    async def run(self) -> FinishedRun:
        """Run the case. Only cancellation and configuration errors are raised."""
        # but for those of the agent
        recording = self.state.recording
        handlers = {} if recording is None else recording.handlers("judge", "simulator")
        with outside_of_turns(), answering_requests(handlers), recording_tools(recording):
            run = self._run() if self._events is None else self._events.publish_run(self._run)
            result = await run
        state = self.state
        failure: RetryKind | None = "failed" if result.outcome is Outcome.FAILED else state.failure
        if state.misses:
            failure = None
        return FinishedRun(result, failure, state.is_permanent, state.refusal)

    def interrupted_result(self) -> TestResult | None:
        """Return the result of a cancelled run; None if nothing was graded by then."""
        if not self.state.end_late("interrupted", INTERRUPTED):
            return None
        result = self._result(self._elapsed_seconds())
        return result if result.rows else None

    async def _run(self) -> TestResult:
        state, self._started = self.state, time.perf_counter()
        if self._setup.traces is not None:
            self._setup.traces.enter_case()
        with span(names.CASE, {names.CASE_NAME: self.case.name}) as current:
            is_done = False
            try:
                async with time_limit(self._setup.config.case_timeout) as limit:
                    with override_call_limit(self.case.timeout):
                        await self._observe_and_grade()
                    is_done = True
            except TimeoutError as error:
                if limit.expired():
                    self._exceed_time_limit(is_done=is_done)
                else:
                    state.add_error(error)
            except Exception as error:  # noqa: BLE001 - the border: a case that breaks is a row
                logger.debug("case %s: %s", self.case.name, traceback.format_exc())
                state.add_error(error)
            if state.recording is not None and self._setup.recordings is not None:
                self._setup.recordings.save(state.recording)
            result = self._result(self._elapsed_seconds() - state.waited_seconds)
            current.set(
                {
                    names.CASE_STATUS: "pass" if result.passed else "fail",
                    names.CASE_OUTCOME: result.outcome.value,
                }
            )
            if current.is_recorded:
                add_events_of_checks(current, result)
        return result

    async def _observe_and_grade(self) -> None:
        setup = self._setup
        is_followed = self._events is not None or setup.options.on_conversation is not None
        await observe(
            self.state,
            self._backend,
            setup.files,
            setup.agent.name,
            self._conversation,
            self._follow if is_followed else None,
            setup.traces if self.case.checks_spans else None,
        )
        await grade(self.state, self._checks, setup.observations)

    def _follow(self, conversation: HasEvents) -> None:
        if self._events is not None:
            self._events.follow(conversation.events)
        if self._setup.options.on_conversation is not None:
            self._setup.options.on_conversation(conversation)

    def _exceed_time_limit(self, *, is_done: bool) -> None:
        """End the case; whether that is the agent's error depends on what it waited for.

        `is_done` says that the case was finished, but too late as the event loop was blocked.
        """
        state, limit = self.state, self._setup.config.case_timeout or 0.0
        state.failure = "timeout"
        if is_done and (state.agent_seconds or 0.0) < limit:
            state.late_ending = UNGRADED
        reason = f"the case took longer than {limit:g} s"
        if not state.end_late(reason):
            state.errors.append(reason)

    def _result(self, seconds: float) -> TestResult:
        observations = self._setup.observations
        return build_result(self.state, self._checks, observations, round(seconds * 1000))

    def _elapsed_seconds(self) -> float:
        return time.perf_counter() - self._started


@dataclass
class CaseSetup:
    """What the runs of an agent's cases share, apart from the agent itself.

    Raises ConfigError if a check, a script or an earlier conversation is wrong.
    """

    agent: Agent
    config: ExecutionConfig
    """The settings of the run, every value given."""
    config_loader: ConfigLoader
    """Knows the environment variables."""
    files: FileReader
    evaluators: Mapping[str, BaseEvaluator] | None
    """Those of the caller, by metric name."""
    options: RunOptions
    is_injected: bool
    """Whether the caller gave the agent as an object."""

    events: "RunEvents | None" = field(default=None, init=False)
    """Publishes what happens; None if nobody listens."""
    traces: "TurnTraces | None" = field(default=None, init=False)
    """Collects the spans of the agent; None if no case checks any."""
    recordings: "Recordings | None" = field(default=None, init=False)
    """None if nothing is recorded or replayed."""
    runners: "Mapping[int, ConversationRunner]" = field(default_factory=dict, init=False)
    """Those of the cases with a script or a simulated user, by index."""

    def __post_init__(self) -> None:
        agent, config, cases = self.agent, self.config, self.agent.test_cases or []
        self.observations = ObservationBuilder(agent, is_injected=self.is_injected)
        judges = Judges(config, agent.base_dir)
        self.evaluator_set = EvaluatorSet(agent, self.evaluators, judges, config)
        self.histories = histories_of(agent)
        # Events, the engine of conversations and the collectors of spans: most runs need none.
        options = self.options
        if (config.events, options.on_event, options.event_relay) != (None, None, None):
            from holodeck.lib.test_runner.events import RunEvents  # noqa: PLC0415

            self.events = RunEvents(agent, config, self.config_loader)
        if any(case.is_scripted_or_simulated for case in cases):
            from holodeck.lib.test_runner.turns.conversation import build_runners  # noqa: PLC0415

            self.runners = build_runners(agent, self.evaluator_set, self.observations)
        if any(case.checks_spans for case in cases):
            from holodeck.lib.test_runner.turns.traced_turns import TurnTraces  # noqa: PLC0415

            self.traces = TurnTraces(agent, is_injected=self.is_injected)

    @property
    def agent_to_select(self) -> Agent:
        """The agent, whose processes are told where spans go, if they are checked."""
        return self.agent if self.traces is None else self.traces.exporting(self.agent)

    def new_run(
        self, backend: AgentBackend, index: int, case: TestCaseModel, repetition: int
    ) -> CaseRun:
        """Return a new run of the case at that index; repetitions are counted from 1."""
        return CaseRun(self, index, self.backend_for(backend, index, case), repetition)

    def backend_for(self, backend: AgentBackend, index: int, case: TestCaseModel) -> AgentBackend:
        """Return the backend with the context of the case.

        Raises ConfigError if it takes none, or lacks what else the case needs.
        """
        if case.expects_approvals or case.has_stand_ins:
            for key, problem in _problems_with(backend, case):
                raise ConfigError(location_of(self.agent, "test_cases", index, key), problem)
        if case.context is None:
            return backend
        location = location_of(self.agent, "test_cases", index, "context")
        return backend_in_context(backend, case.context, location)

    def lost_result(self, index: int, case: TestCaseModel, reason: str) -> TestResult:
        """Return the result of a case that ended the processes that ran it."""
        state = CaseState(case, self.histories.get(index, ()))
        state.errors.append(reason)
        return build_result(state, self.evaluator_set.checks_of(index), self.observations, 0)

    async def close_models(self) -> None:
        """Close the connections of judges and simulated users, and the process of graders."""
        await self.evaluator_set.close()
        simulators = {runner.simulator for runner in self.runners.values()}
        for simulator in filter(None, simulators):
            await simulator.close()

    async def close_traces(self) -> None:
        """Stop receiving spans, after the agent has ended; note what was wrong with them."""
        if self.traces is not None:
            await self.traces.close()
            for text in self.traces.notes:
                self.evaluator_set.note(text)


def _problems_with(backend: AgentBackend, case: TestCaseModel) -> Iterator[tuple[str, str]]:
    """Yield the keys of a case that an agent cannot do, each with the reason."""
    can = capabilities_of(backend)
    if case.expects_approvals and not can.answers_approvals:
        yield "expect_approval", NO_APPROVALS
    needs = {
        "stubs": (case.stubs is not None, can.stub_problem),
        "tools_in_test": (case.is_sealed, can.seal_problem),
        "model_faults": (case.model_faults is not None, can.model_problem),
        "model_replies": (case.model_replies is not None, can.model_problem),
    }
    for key, (is_given, problem) in needs.items():
        if is_given and problem is not None:
            yield key, problem


async def run_with_retries(
    case: TestCaseModel, run: Callable[[], Awaitable[FinishedRun]], backoff: RetryConfig
) -> FinishedRun:
    """Run a case again after what its `retry_on` names, as often as its `retries` allows.

    The result contains the earlier tries; a case that failed and passed later is flaky.
    """
    retried, earlier = case.retry_on or _RETRIED, list[TestResult]()
    last = await run()
    while last.failure in retried and len(earlier) < (case.retries or 0):
        earlier.append(last.result)
        delay = backoff_delay(len(earlier), backoff)
        logger.info("case %s: %s, run again in %.1f s", case.name, last.result.outcome, delay)
        number = f"attempt {len(earlier) + 1}"
        with activity(number, timed=f"{number} in {{time}}", seconds=delay):
            await asyncio.sleep(delay)
        last = await run()
    if not earlier:
        return last
    elapsed_ms = sum(attempt.execution_time_ms for attempt in (*earlier, last.result))
    result = with_earlier_tries(last.result, earlier)
    result = result.model_copy(update={"execution_time_ms": elapsed_ms})
    return replace(last, result=result)


def with_earlier_tries(result: TestResult, earlier: list[TestResult]) -> TestResult:
    """Return the last result and the earlier results; flaky if it passed after a failure."""
    failed_before = any(attempt.outcome is Outcome.FAILED for attempt in earlier)
    outcome = Outcome.FLAKY if result.passed and failed_before else result.outcome
    return result.model_copy(update={"tries": earlier, "outcome": outcome})
