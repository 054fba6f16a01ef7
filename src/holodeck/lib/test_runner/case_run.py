"""One test case from its files to its verdict."""

import asyncio
import logging
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, TypeVar

from holodeck.errors import Refusal
from holodeck.lib.backends.base import AgentBackend, AgentSession, ExecutionResult, open_session
from holodeck.lib.exceptions import describe, raised_by
from holodeck.lib.files.processor import FileProcessor
from holodeck.lib.llm.limiter import time_limit
from holodeck.lib.llm.limits import override_call_limit
from holodeck.lib.observability import names, span
from holodeck.lib.test_runner.conversation_grading import (
    finished_turn,
    grade_turns,
    turn_messages,
    whole_conversation,
)
from holodeck.lib.test_runner.conversation_outcome import UNGRADED, ConversationOutcome
from holodeck.lib.test_runner.grading import CaseChecks, grade
from holodeck.lib.test_runner.history import History, to_agent_messages, to_judge_messages, to_turns
from holodeck.lib.test_runner.observer import AgentOutput, Observer
from holodeck.lib.test_runner.tool_checks import check_tools
from holodeck.lib.test_runner.transcripts import messages_of
from holodeck.lib.test_runner.turn_run import ANSWERED_NOTHING, Ask, TurnRun, failure_of
from holodeck.lib.test_runner.verdict import combine_outcomes, decide_outcome
from holodeck.models.evidence import evidence
from holodeck.models.outcome import RaisedError
from holodeck.models.test_case import RetryKind, TestCaseModel, TurnModel
from holodeck.models.test_result import (
    MetricResult,
    Outcome,
    TestResult,
    ToolCheck,
    TurnResult,
    tools_matched,
)
from holodeck.models.token_usage import sum_of

if TYPE_CHECKING:
    from holodeck.lib.conversation.script_run import ScriptRun
    from holodeck.lib.test_runner.conversation import ConversationRunner
    from holodeck.lib.test_runner.conversation_display import OnConversation
    from holodeck.lib.test_runner.events import CaseEvents, StaticConversation

__all__ = ["ANSWERED_NOTHING", "CaseRun"]

T = TypeVar("T")

logger = logging.getLogger(__name__)


@dataclass
class CaseRun:
    """A case under way: what it is run with, and what has been seen so far."""

    case: TestCaseModel
    backend: AgentBackend
    files: FileProcessor
    checks: CaseChecks
    observer: Observer
    history: History = ()
    """What was said before the case."""
    agent_name: str = "agent"
    time_limit_s: float | None = None
    """Seconds for the whole case, files and metrics included; None for no limit."""
    play: "ConversationRunner | None" = None
    """What is played where the user is simulated; None where what they say is written."""
    on_conversation: "OnConversation | None" = None
    """Told of the conversation before it begins."""
    events: "CaseEvents | None" = None
    """Tells what happens; None where nobody listens."""

    runs: list[TurnRun] = field(default_factory=list)
    """The turns so far; a case of one input is one."""
    turns: list[TurnResult] = field(default_factory=list)
    """The turns of a conversation, graded."""
    tool_checks: list[ToolCheck] = field(default_factory=list)
    rows: list[MetricResult] = field(default_factory=list)
    broken: list[str] = field(default_factory=list)
    """What ended the case besides what went wrong in a turn."""
    raised: list[RaisedError] = field(default_factory=list)
    """Where the user's code raised what stands in `broken`."""
    failure: RetryKind | None = None
    """What that was, where another try may help."""

    cut_off: TestResult | None = None
    """What the case had come to when it was cancelled, if any metric was computed by then."""
    conversation_outcome: ConversationOutcome = field(default_factory=ConversationOutcome)
    """How the conversation ended, and what the judge made of it."""
    _is_done: bool = field(default=False, init=False)
    """Whether it came to its end, be it too late as somebody held the event loop."""

    @property
    def is_permanent(self) -> bool:
        """Whether every other case will fail like this one: a wrong key, a spent quota."""
        return any(run.is_permanent for run in self.runs)

    @property
    def refusal(self) -> Refusal | None:
        """What the provider objected to before it answered anything; None if it did not."""
        early = (run.refusal for at, run in enumerate(self.runs) if at == 0 or run.is_permanent)
        return next(filter(None, early), None)

    def failure_in(self, result: TestResult) -> RetryKind | None:
        """What went wrong, where another try may help."""
        if result.outcome is Outcome.FAILED:
            return "failed"
        in_turns = (run.failure for run in self.runs if run.failure is not None)
        return self.failure or next(in_turns, None)

    @property
    def errors(self) -> list[str]:
        """What kept the agent from being run to the end."""
        return self._told(lambda run: run.errors) + self.broken

    async def result(self) -> TestResult:
        """Run the case. Only cancellation and configuration errors come out of it."""
        return await (self._run() if self.events is None else self.events.around(self._run))

    async def _run(self) -> TestResult:
        started = time.perf_counter()
        with span(names.CASE, {names.CASE_NAME: self.case.name}) as current:
            try:
                async with time_limit(self.time_limit_s) as limit:
                    with override_call_limit(self.case.timeout):
                        await self._steps()
                    self._is_done = True
            except asyncio.CancelledError:
                self._note_interruption(_ms(time.perf_counter() - started))
                raise
            except TimeoutError as error:
                self.failure = "timeout"
                if not limit.expired():
                    self._note(error)
                else:
                    self._note_time(f"the case took longer than {self.time_limit_s:g} s")
            except Exception as error:  # noqa: BLE001 - the border: a case that breaks is a row
                logger.debug("case %s: %s", self.case.name, traceback.format_exc())
                self._note(error)
            waited = sum(run.waited_seconds for run in self.runs)
            result = self._as_result(_ms(time.perf_counter() - started - waited))
            current.set({names.CASE_STATUS: "pass" if result.passed else "fail"})
        return result

    def _note(self, error: Exception) -> None:
        """What ended the case besides what went wrong in a turn."""
        self.failure = failure_of(error)
        self.broken.append(describe(error))
        self.raised += filter(None, [raised_by(error)])

    def _note_time(self, words: str) -> None:
        """Time ran out; whether that is the agent's error depends on who was waited for."""
        agents_s = sum(run.agent_seconds or 0.0 for run in self.runs)
        if self._is_done and agents_s < (self.time_limit_s or 0.0):
            self.conversation_outcome = replace(self.conversation_outcome, ending=UNGRADED)
        late = self.conversation_outcome.out_of_time(words)
        if late is None:
            self.broken.append(words)
        else:
            self.conversation_outcome = late

    def _note_interruption(self, elapsed_ms: int) -> None:
        """Keep what was computed, if anything was, and nothing but more of that was to come."""
        conversation_outcome = self.conversation_outcome.cut_off
        if conversation_outcome is None:
            return
        self.conversation_outcome = conversation_outcome
        result = self._as_result(elapsed_ms)
        self.cut_off = result if result.rows else None

    def _keep(self, until_now: ConversationOutcome) -> None:
        self.conversation_outcome = until_now

    async def _steps(self) -> None:
        if self.play is not None:
            async with self._session() as session:
                participant = self.play.agent_in(session, self._take_turn, self.history)
                try:
                    self.conversation_outcome = await self.play.run(
                        participant, self.checks.of_steps, self.observer, self._attend, self._keep
                    )
                finally:  # also where nobody waits any more, with what is checked until then
                    under_way = [run.result() for run in self.runs[len(participant.turns) :]]
                    self.turns = [finished_turn(turn) for turn in [*participant.turns, *under_way]]
            if participant.broken_by is not None:
                self._note(participant.broken_by)
            await self._grade_play()
        elif self.case.turns is not None:
            await self._converse(self.case.turns)
            await self._grade_conversation()
        else:
            await self._say_input()
            await self._grade_answer()

    async def _ask_once(self, message: str) -> ExecutionResult:
        if self.history:
            return await self.backend.invoke_once(message, context=to_agent_messages(self.history))
        return await self.backend.invoke_once(message)

    async def _take_turn(self, turn: TurnModel, ask: Ask) -> TurnRun:
        run = TurnRun(turn, self.files, self.agent_name)
        self.runs.append(run)
        await run.run(ask)
        return run

    async def _say_input(self) -> None:
        """Say the one input; it is told as a conversation of one turn."""
        talk = self._written_talk()
        async with talk.under_way():
            talk.says(self.case)
            talk.answered(await self._take_turn(self.case, self._ask_once))

    def _attend(self, talk: "ScriptRun | StaticConversation") -> None:
        if self.events is not None:
            self.events.follow(talk.events)
        if self.on_conversation is not None:
            self.on_conversation(talk)

    def _written_talk(self) -> "StaticConversation | _Untold":
        if self.events is None and self.on_conversation is None:
            return _Untold()
        # Imported here because nobody listens to most runs.
        from holodeck.lib.test_runner.events import StaticConversation  # noqa: PLC0415

        talk = StaticConversation(self.case, to_judge_messages(self.history))
        self._attend(talk)
        return talk

    async def _converse(self, turns: list[TurnModel]) -> None:
        """Say one turn after the other in one session; the first that breaks ends it."""
        talk = self._written_talk()
        async with self._session() as session, talk.under_way():
            for turn in turns:
                talk.says(turn)
                talk.answered(await self._take_turn(turn, session.send))
                if self.errors:
                    return

    @asynccontextmanager
    async def _session(self) -> AsyncIterator[AgentSession]:
        session = await open_session(self.backend, to_agent_messages(self.history))
        try:
            yield session
        finally:
            await _close(session)

    async def _grade_answer(self) -> None:
        [run] = self.runs
        if run.answer is None:
            return
        self.tool_checks = check_tools(self.case, run.invocations, run.evidence)
        if not self.errors:
            took = None if run.agent_seconds is None else run.agent_seconds * 1000
            before = to_turns(self.history)
            said = (*before, *turn_messages(run.result())) if before else ()
            seen = AgentOutput(
                run.answer.response, run.invocations, run.processed, took, run.evidence, said
            )
            await self._grade_end(seen)
            await self._judge(one.result() for one in self.runs)

    async def _grade_conversation(self) -> None:
        if self.errors:
            return
        held, before = [run.result() for run in self.runs], to_turns(self.history)
        self.turns = await self._graded(
            grade_turns(
                self.case, held, self.checks.of_turns, self.observer, before, self._keep_turns
            )
        )
        await self._grade_whole()
        await self._judge(self.turns)

    async def _grade_play(self) -> None:
        """Grade a simulated conversation; what broke off is not graded."""
        if (
            self.errors
            or not self.turns
            or Outcome.METRIC_ERROR in self.conversation_outcome.outcomes
        ):
            return
        await self._grade_whole()

    async def _grade_whole(self) -> None:
        seen = whole_conversation(self.turns, to_turns(self.history))
        self.tool_checks = check_tools(self.case, seen.invocations, seen.evidence)
        await self._grade_end(seen)

    async def _judge(self, turns: Iterable[TurnResult]) -> None:
        if self.checks.criteria is not None:
            said = [*to_judge_messages(self.history), *messages_of(turns)]
            self.conversation_outcome = await self.checks.criteria.decided(said, self._keep)

    async def _grade_end(self, seen: AgentOutput) -> None:
        observation = self.observer.observation(self.case, seen, self.case.name)
        grading = grade(self.checks.at_end, observation, self._keep_rows)
        self.rows = await self._graded(grading)

    def _keep_rows(self, rows: list[MetricResult]) -> None:
        self.rows = rows

    def _keep_turns(self, turns: list[TurnResult]) -> None:
        self.turns = turns

    async def _graded(self, grading: Awaitable[T]) -> T:
        """What grading gives; if time runs out meanwhile, the agent is not to blame."""
        before = self.conversation_outcome
        self.conversation_outcome = replace(before, ending=UNGRADED)
        found = await grading
        self.conversation_outcome = before
        return found

    def _told(self, part: Callable[[TurnRun], list[str]]) -> list[str]:
        """What the turns say, each by its number where there are several."""
        if self.case.input:
            return [line for run in self.runs for line in part(run)]
        return [
            f"turn {number}: {line}"
            for number, run in enumerate(self.runs, 1)
            for line in part(run)
        ]

    def _outcome(self, faults: list[str]) -> Outcome:
        if self.errors:
            return Outcome.AGENT_ERROR
        of_answer = faults if self.case.input else []
        at_end = decide_outcome(of_answer, self.tool_checks, self.rows, self.checks.at_end)
        of_turns = [one.outcome for one in self.turns if one.outcome is not None]
        outcome = combine_outcomes([at_end, *of_turns, *self.conversation_outcome.outcomes])
        self.conversation_outcome = self.conversation_outcome.decided_as(outcome)
        return combine_outcomes([outcome, *self.conversation_outcome.outcomes])

    def _as_result(self, elapsed_ms: int) -> TestResult:
        faults = self._told(lambda run: run.faults)
        outcome = self._outcome(faults)
        calls = [call for run in self.runs for call in run.invocations]
        took = [run.agent_seconds for run in self.runs if run.agent_seconds is not None]
        seen = reduce(and_, [run.evidence for run in self.runs]) if self.runs else evidence()
        return TestResult(
            test_name=self.case.name,
            test_id=self.case.id,
            suite=self.case.suite,
            tags=self.case.tags,
            history=list(self.history),
            test_input=self.case.said,
            processed_files=[file for run in self.runs for file in run.processed],
            agent_response=self.runs[-1].response if self.runs and not self.errors else None,
            tool_calls=[call.name for call in calls],
            tool_invocations=calls,
            expected_tools=self.case.expected_tools,
            tools_matched=tools_matched(self.tool_checks),
            tool_checks=self.tool_checks,
            metric_results=self.rows,
            ground_truth=self.case.ground_truth,
            passed=outcome is Outcome.PASSED,
            outcome=outcome,
            execution_time_ms=elapsed_ms,
            agent_time_ms=_ms(sum(took)) if took else None,
            errors=[*self.errors, *faults, *self.conversation_outcome.errors],
            raised=[*(one for run in self.runs for one in run.raised), *self.raised],
            attempts=[tried for run in self.runs for tried in run.attempts],
            timestamp=datetime.now(UTC).isoformat(timespec="milliseconds"),
            token_usage=sum_of(run.answer.token_usage for run in self.runs if run.answer),
            evidence=self.observer.completed(seen),
            turns=[] if self.case.input else self.turns or [run.result() for run in self.runs],
            messages=self.conversation_outcome.messages,
            criteria=self.conversation_outcome.criteria,
            ending=self.conversation_outcome.ending,
            judge_cost=self.conversation_outcome.judge_cost,
            simulator_cost=self.conversation_outcome.simulator_cost,
        )


class _Untold:
    """A conversation that nobody listens to."""

    def under_way(self) -> nullcontext[None]:
        return nullcontext()

    def says(self, turn: TurnModel) -> None:
        """Nobody is told."""

    def answered(self, run: TurnRun) -> None:
        """Nobody is told."""


async def _close(session: AgentSession) -> None:
    """Let go of a session; what that raises must not cost an answer."""
    try:
        await session.close()
    except Exception as error:  # noqa: BLE001 - a clean-up of anybody's may raise what it likes
        logger.warning("closing a conversation failed: %s", describe(error))


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
