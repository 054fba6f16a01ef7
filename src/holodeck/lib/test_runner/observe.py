"""Run the agent on a test case and note everything that is observed."""

import logging
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from holodeck.errors import BackendError, Refusal
from holodeck.lib.backends.base import (
    AgentBackend,
    AgentSession,
    ExecutionResult,
    capabilities_of,
    open_session,
)
from holodeck.lib.file_processor import FileReader, LoadedFile, load_file
from holodeck.lib.observability import names, set_content, span
from holodeck.lib.support.text import describe, is_blank, message_of
from holodeck.lib.test_runner.case_state import CaseState, Send, TakeTurn, failure_of
from holodeck.lib.test_runner.grading.tool_invocations import (
    invalid_tool_calls,
    pair_tool_calls,
    refuse_last_call,
)
from holodeck.lib.test_runner.messages import to_agent_messages, with_files
from holodeck.lib.user_code.raised import raised_error
from holodeck.models.results.evidence import Fact, Source, evidence
from holodeck.models.results.outcome import Attempt, Outcome, RaisedError
from holodeck.models.test_case import FileInput, RetryKind, TestCaseModel, TurnModel
from holodeck.models.test_result import ProcessedFileInput, ToolInvocation, TurnResult

if TYPE_CHECKING:
    from holodeck.lib.spans.agent_traces import AgentTraces
    from holodeck.lib.test_runner.events import OnConversation
    from holodeck.lib.test_runner.turns.conversation import ConversationRunner
    from holodeck.models.cases.history import Image

logger = logging.getLogger(__name__)

LoadFile = Callable[[FileInput], Awaitable[LoadedFile]]
"""Reads a file for the agent."""

EMPTY_RESPONSE = "the agent returned an empty response"


async def observe(
    state: CaseState,
    backend: AgentBackend,
    files: FileReader,
    agent_name: str,
    conversation: "ConversationRunner | None" = None,
    on_conversation: "OnConversation | None" = None,
    traces: "AgentTraces | None" = None,
) -> None:
    """Run the agent on the case; what is observed is in the state as soon as it is known.

    `conversation` runs cases with a script or a simulated user. `on_conversation` is called with
    every conversation before it begins. `traces` collects the spans of the agent.
    """
    case = state.case
    load = partial(load_file, files, accepts_images=capabilities_of(backend).accepts_images)
    take_turn: TakeTurn = partial(_take_turn, state, load, agent_name)
    if traces is not None:
        # Imported here because few cases check spans.
        from holodeck.lib.test_runner.turns.traced_turns import TracedTurns  # noqa: PLC0415

        take_turn = TracedTurns(take_turn, state, traces)
    if conversation is not None:
        async with _session(state, backend) as session:
            await conversation.run(state, session, take_turn, on_conversation)
        return
    if case.turns is None and on_conversation is None:
        await take_turn(case, partial(_send_once, state, backend))
        return
    # Imported here because most runs have one turn, which nobody follows.
    from holodeck.lib.test_runner.turns.script_steps import take_written_turns  # noqa: PLC0415

    if case.turns is None:
        send = partial(_send_once, state, backend)
        await take_written_turns(state, [case], send, take_turn, on_conversation)
        return
    async with _session(state, backend) as session:
        await take_written_turns(state, case.turns, session.send, take_turn, on_conversation)


async def _send_once(state: CaseState, backend: AgentBackend, message: str) -> ExecutionResult:
    if state.history:
        return await backend.invoke_once(message, context=to_agent_messages(state.history))
    return await backend.invoke_once(message)


@asynccontextmanager
async def _session(state: CaseState, backend: AgentBackend) -> AsyncIterator[AgentSession]:
    session = await open_session(backend, to_agent_messages(state.history))
    try:
        yield session
    finally:
        try:
            await session.close()
        except Exception as error:  # noqa: BLE001 - an error of the clean-up must not cost an answer
            logger.warning("closing a conversation failed: %s", describe(error))


async def _take_turn(
    state: CaseState, load: LoadFile, agent_name: str, turn: TurnModel, send: Send
) -> TurnResult:
    """Take one turn; its result is added to the state even if it is cancelled."""
    taken = _Turn(turn)
    with span(names.TURN, {names.TURN_INDEX: len(state.turns)}) as current:
        if current.is_recorded:
            taken.conversation_id = state.conversation_id
            current.set({names.CONVERSATION_ID: taken.conversation_id})
        try:
            await taken.read_files(load)
            if not taken.errors:
                await taken.ask(send, agent_name)
        finally:
            taken.add_to(state)
    return state.turns[-1]


@dataclass
class _Turn:
    """A turn with the agent while it is taken."""

    turn: TurnModel
    files: list[ProcessedFileInput] = field(default_factory=list)
    images: "list[Image]" = field(default_factory=list)
    answer: ExecutionResult | None = None
    tool_invocations: list[ToolInvocation] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    raised: list[RaisedError] = field(default_factory=list)
    failure: RetryKind | None = None
    is_permanent: bool = False
    refusal: Refusal | None = None
    attempts: list[Attempt] = field(default_factory=list)
    agent_seconds: float | None = None
    waited_seconds: float = 0.0
    conversation_id: str | None = None
    """For spans; None if nothing records them."""

    async def read_files(self, load: LoadFile) -> None:
        for file in self.turn.files or []:
            loaded = await load(file)
            processed = loaded.processed
            self.files.append(processed)
            if loaded.image is not None:
                self.images.append(loaded.image)
            if processed.error and file.on_error == "fail":
                self.errors.append(f"File error: {file.shown_path}: {processed.error}")

    async def ask(self, send: Send, agent_name: str) -> None:
        """Send the message to the agent; an exception is noted, not raised."""
        message = with_files(self.turn.input, self.files)
        if self.images:
            # Imported here because few turns have images.
            from holodeck.models.cases.history import MessageWithImages  # noqa: PLC0415

            message = MessageWithImages(message, self.images)
        attributes = {
            names.OPERATION: names.INVOKE_AGENT,
            names.AGENT_NAME: agent_name,
            names.CONVERSATION_ID: self.conversation_id,
        }
        started = time.perf_counter()
        with span(names.invoke_agent(agent_name), attributes, kind="client") as current:
            set_content(current, names.INPUT_MESSAGES, names.message("user", message))
            try:
                self.answer = await send(message)
                self.waited_seconds = self.answer.waited_ms / 1000
            except Exception as error:  # noqa: BLE001 - the user's agent may raise anything
                logger.debug("agent: %s", traceback.format_exc())
                current.fail(type(error).__name__, message_of(error))
                self._add_failure(error)
                return
            finally:
                self.agent_seconds = time.perf_counter() - started - self.waited_seconds
            response = names.message("assistant", self.answer.response)
            set_content(current, names.OUTPUT_MESSAGES, response)
            usage = self.answer.token_usage
            if usage is not None:
                current.set({names.INPUT_TOKENS: usage.prompt_tokens})
                current.set({names.OUTPUT_TOKENS: usage.completion_tokens})
        self._add_answer(self.answer)

    def _add_answer(self, answer: ExecutionResult) -> None:
        self.attempts = answer.attempts
        calls = answer.tool_calls or ()
        self.tool_invocations = pair_tool_calls(calls, answer.tool_results)
        self.faults += [f"invalid tool call: {line}" for line in invalid_tool_calls(answer)]
        if answer.is_error:
            self.failure = "error"
            self.errors.append(f"Agent error: {answer.error_reason or 'no reason given'}")
        elif is_blank(answer.response):
            self.faults.append(EMPTY_RESPONSE)

    def _add_failure(self, error: Exception) -> None:
        seen = getattr(error, "seen", None)
        if isinstance(seen, ExecutionResult) and refuse_last_call(seen, message_of(error)):
            self.answer = seen
            self._add_answer(seen)
            return
        self.errors.append(describe(error))
        self.raised += filter(None, [raised_error(error)])
        self.is_permanent = isinstance(error, BackendError) and error.permanent
        self.failure = None if self.is_permanent else failure_of(error)
        self.attempts = [
            attempt for attempt in getattr(error, "attempts", ()) if isinstance(attempt, Attempt)
        ]
        self.refusal = error.refusal if isinstance(error, BackendError) else None
        if self.refusal is None and not self.attempts:  # the user's code sent its own requests
            # Imported here because most agents do not fail.
            from holodeck.lib.llm.provider_errors import refusal_behind  # noqa: PLC0415

            self.refusal = refusal_behind(error)
        if isinstance(seen, ExecutionResult):
            self.waited_seconds = seen.waited_ms / 1000
            self.answer = seen
            self.tool_invocations = pair_tool_calls(seen.tool_calls or (), seen.tool_results)

    def add_to(self, state: CaseState) -> None:
        state.turns.append(self._result(state.case))
        state.images.append(self.images)
        prefix = "" if state.case.input else f"turn {len(state.turns)}: "
        state.errors += [prefix + error for error in self.errors]
        state.faults += [prefix + fault for fault in self.faults]
        state.raised += self.raised
        state.failure = state.failure or self.failure
        state.is_permanent |= self.is_permanent
        if self.is_permanent or len(state.turns) == 1:
            state.refusal = state.refusal or self.refusal
        if self.answer is not None:
            state.answers.append(self.answer)
        if self.agent_seconds is not None:
            state.agent_seconds = (state.agent_seconds or 0.0) + self.agent_seconds
        state.waited_seconds += self.waited_seconds

    def _result(self, case: TestCaseModel) -> TurnResult:
        answer, seconds = self.answer, self.agent_seconds
        usage = None if answer is None else answer.token_usage
        calls = None if answer is None else answer.tool_calls
        agents = None if answer is None else answer.agents
        tools = None if answer is None else answer.tools
        source = None if answer is None else answer.source
        tapped = frozenset[Fact]() if answer is None else answer.tapped
        problem = None if answer is None else answer.tool_calls_problem
        calls_source: Source | None = "tap" if "tool_calls" in tapped else source
        # The result of the case validates its only turn; validating the turn as well would build
        # one more schema in every run.
        turn_result: Callable[..., TurnResult] = (
            TurnResult.model_construct if case.input else TurnResult
        )
        return turn_result(
            input=self.turn.input,
            outcome=Outcome.AGENT_ERROR if self.errors else None,
            processed_files=self.files,
            agent_response=None if answer is None or self.errors else answer.response,
            tool_invocations=self.tool_invocations,
            expected_tools=self.turn.expected_tools,
            ground_truth=self.turn.ground_truth,
            agent_time_ms=None if seconds is None else round(seconds * 1000),
            errors=[*self.errors, *self.faults],
            attempts=self.attempts,
            token_usage=usage,
            agents=agents,
            tools=tools,
            model_requests=[] if answer is None else answer.model_requests,
            evidence=evidence(
                tool_calls=None if problem or calls is None else calls_source,
                token_usage=None if usage is None else "tap" if "token_usage" in tapped else source,
                tool_calls_problem=problem,
                history="runner",
                tools=None if tools is None else source,
                latency=None if seconds is None else "runner",
                agents=None if agents is None else source,
            ),
        )
