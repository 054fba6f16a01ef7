"""Run the agent on a test case and note everything that is observed."""

import json
import logging
import time
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Literal

from holodeck.errors import BackendError
from holodeck.lib.backends.base import (
    AgentBackend,
    AgentSession,
    ExecutionResult,
    RequestedCall,
    ToolResult,
    capabilities_of,
    open_session,
)
from holodeck.lib.checks.matching import match_approvals
from holodeck.lib.file_processor import FileReader, LoadedFile, load_file
from holodeck.lib.llm.provider_errors import refusal_behind
from holodeck.lib.llm.request_handler import AGENT, answering_requests
from holodeck.lib.observability import names, set_content, span
from holodeck.lib.support.approvals import ApprovalDecisions
from holodeck.lib.support.stubs import in_place_of_tools
from holodeck.lib.support.text import describe, is_blank, message_of
from holodeck.lib.support.tool_names import tools_named
from holodeck.lib.test_runner.case_state import CaseState, Send, TakeTurn, failure_of
from holodeck.lib.test_runner.messages import to_agent_messages, with_files
from holodeck.lib.test_runner.options import OnConversation
from holodeck.lib.user_code.raised import raised_error
from holodeck.models.cases.messages import Image, MessageWithImages
from holodeck.models.results.evidence import Source, evidence
from holodeck.models.results.outcome import Attempt, Outcome
from holodeck.models.results.turn import Approval, HandledRequest, StubbedCall
from holodeck.models.test_case import FileInput, TurnModel
from holodeck.models.test_result import NO_RESULT, ProcessedFileInput, ToolInvocation, TurnResult

if TYPE_CHECKING:
    from holodeck.lib.test_runner.turns.conversation import ConversationRunner
    from holodeck.lib.test_runner.turns.traced_turns import TurnTraces

logger = logging.getLogger(__name__)

LoadFile = Callable[[FileInput], Awaitable[LoadedFile]]
"""Reads a file for the agent."""

BLOCKED = "not run, because a filter, middleware or a rejected approval kept it from running"
EMPTY_RESPONSE = "the agent returned an empty response"


async def observe(
    state: CaseState,
    backend: AgentBackend,
    files: FileReader,
    agent_name: str,
    conversation: "ConversationRunner | None" = None,
    on_conversation: OnConversation | None = None,
    traces: "TurnTraces | None" = None,
) -> None:
    """Run the agent on the case; what is observed is in the state as soon as it is known.

    `conversation` runs cases with a script or a simulated user. `on_conversation` is called with
    every conversation before it begins. `traces` collects the spans of the agent.
    """
    case = state.case
    load = partial(load_file, files, accepts_images=capabilities_of(backend).accepts_images)
    take_turn: TakeTurn = partial(_take_turn, state, load, agent_name)
    if traces is not None:
        take_turn = traces.traced(take_turn, state)
    if conversation is not None:
        async with _session(state, backend) as session:
            await conversation.run(state, session, take_turn, on_conversation)
        return

    async def send_once(message: str) -> ExecutionResult:
        if state.history:
            return await backend.invoke_once(message, context=to_agent_messages(state.history))
        return await backend.invoke_once(message)

    if case.turns is None and on_conversation is None and not case.expects_approvals:
        await take_turn(case, send_once)
        return
    # The engine of conversations; most cases have a single turn, which nobody follows.
    from holodeck.lib.test_runner.turns.script_steps import take_written_turns  # noqa: PLC0415

    if case.turns is None and not case.expects_approvals:
        await take_written_turns(state, [case], send_once, take_turn, on_conversation)
        return
    async with _session(state, backend) as session:
        turns = case.turns or [case]
        await take_written_turns(state, turns, session.send, take_turn, on_conversation)


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
    """Take a turn; its result is added to the state even if it is cancelled."""
    taken = _Turn(state, turn)
    with span(names.TURN, {names.TURN_INDEX: len(state.turns)}) as current:
        if current.is_recorded:
            taken.conversation_id = state.conversation_id
            current.set({names.CONVERSATION_ID: taken.conversation_id})
        try:
            await taken.read_files(load)
            if not taken.errors:
                await taken.ask(send, agent_name)
        finally:
            taken.end()
    return state.turns[-1]


@dataclass
class _Turn:
    """A turn with the agent while it is taken."""

    state: CaseState
    turn: TurnModel
    files: list[ProcessedFileInput] = field(default_factory=list)
    images: list[Image] = field(default_factory=list)
    answer: ExecutionResult | None = None
    tool_invocations: list[ToolInvocation] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)
    attempts: list[Attempt] = field(default_factory=list)
    agent_seconds: float | None = None
    is_replayed: bool = False
    """Whether responses to the agent were replayed from a recording."""
    approvals: list[Approval] | None = None
    """What the agent asked a person to approve; None if nothing was asked, or expected."""
    conversation_id: str | None = None
    """For spans; None if nothing records them."""

    @property
    def stubbed_calls(self) -> list[StubbedCall]:
        """The calls of this turn that its stubs saw."""
        stubs = self.state.stubs
        before = sum(len(turn.stubbed_calls) for turn in self.state.turns)
        return [] if stubs is None else stubs.calls[before:]

    @property
    def handled_requests(self) -> list[HandledRequest]:
        """The requests of this turn to the model, if that is scripted or has faults."""
        requests = self.state.requests
        before = sum(len(turn.handled_requests) for turn in self.state.turns)
        return [] if requests is None else requests.handled[before:]

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
            message = MessageWithImages(message, self.images)
        attributes = {
            names.OPERATION: names.INVOKE_AGENT,
            names.AGENT_NAME: agent_name,
            names.CONVERSATION_ID: self.conversation_id,
        }
        started = time.perf_counter()
        with span(names.invoke_agent(agent_name), attributes, kind="client") as current:
            set_content(current, names.INPUT_MESSAGES, names.message("user", message))
            replayed_before = self.state.replayed_count
            handlers = {} if self.state.handler is None else {AGENT: self.state.handler}
            try:
                with in_place_of_tools(self.state.stubs), answering_requests(handlers):
                    await self._send(send, message)
            except Exception as error:  # noqa: BLE001 - the user's agent may raise anything
                logger.debug("agent: %s", traceback.format_exc())
                current.fail(type(error).__name__, message_of(error))
                self._add_failure(error)
                return
            finally:
                waited = 0.0 if self.answer is None else self.answer.waited_ms / 1000
                self.is_replayed = self.state.replayed_count > replayed_before
                if not self.is_replayed:  # else the time says nothing
                    self.agent_seconds = time.perf_counter() - started - waited
                    self.state.add_agent_time(self.agent_seconds, waited)
            assert self.answer is not None  # noqa: S101 - it was sent
            response = names.message("assistant", self.answer.response)
            set_content(current, names.OUTPUT_MESSAGES, response)
            usage = self.answer.token_usage
            if usage is not None:
                current.set({names.INPUT_TOKENS: usage.prompt_tokens})
                current.set({names.OUTPUT_TOKENS: usage.completion_tokens})
        self._add_answer(self.answer)

    async def _send(self, send: Send, message: str) -> None:
        """Send the message, and the answers to the approvals that the turn or the case expects."""
        of_turn, turns = self.turn.expected_approvals, self.state.turns
        expected = of_turn or self.state.case.expected_approvals
        before = [asked for turn in turns for asked in turn.approvals or ()] if not of_turn else []
        self.answer, asked = await send(message), list[Approval]()
        if expected or self.answer.pending_approvals:
            self.approvals = asked
        while self.answer.pending_approvals:
            known = [*before, *asked]
            pending = [
                Approval(tool=call["name"], args=call.get("arguments", {}))
                for call in self.answer.pending_approvals
            ]
            met = match_approvals(expected, [*known, *pending])[len(known) :]
            answers = [approval.then for approval in met if approval is not None]
            if len(answers) < len(pending):
                asked += pending
                return
            asked += [
                approval.model_copy(update={"answer": answer})
                for approval, answer in zip(pending, answers, strict=True)
            ]
            rest = await send(ApprovalDecisions(answer == "approve" for answer in answers))
            self.answer = self.answer.followed_by(rest)

    def _note_waiting(self, answer: ExecutionResult) -> None:
        """Note what the agent waits for: its mistake if the case expects other approvals."""
        waiting = [str(asked) for asked in self.approvals or () if asked.answer is None]
        text = f"the agent waits for a person to approve {', '.join(waiting)}"
        if self.turn.expected_approvals or self.state.case.expected_approvals:
            self.faults.append(text)
            return
        tool = answer.pending_approvals[0]["name"]
        self.state.failure = self.state.failure or "error"
        self.errors.append(
            f"{text}; write 'expect_approval: {{tool: {tool}, then: approve}}', or reject, in the"
            " test case"
        )

    def _add_answer(self, answer: ExecutionResult) -> None:
        self.attempts = answer.attempts
        calls = answer.tool_calls or ()
        self._add_tool_calls(calls, answer.tool_results)
        self.faults += [f"invalid tool call: {line}" for line in invalid_tool_calls(answer)]
        if answer.is_error:
            self.state.failure = self.state.failure or "error"
            self.errors.append(f"Agent error: {answer.error_reason or 'no reason given'}")
        elif answer.pending_approvals:
            self._note_waiting(answer)
        elif is_blank(answer.response) and not (
            answer.ends_with_calls and self._checks_only_calls()
        ):
            self.faults.append(EMPTY_RESPONSE)

    def _add_tool_calls(
        self, calls: Sequence[RequestedCall], results: Sequence[ToolResult]
    ) -> None:
        self.tool_invocations = pair_tool_calls(calls, results)
        if self.state.stubs is not None:
            self.tool_invocations = self.state.stubs.marked(
                self.tool_invocations, self.stubbed_calls
            )

    def _checks_only_calls(self) -> bool:
        """Whether tool calls are what is checked; metrics about the answer fail without one."""
        case = self.state.case
        return not case.uses_judge and (self.turn.checks_tool_calls or case.checks_tool_calls)

    def _add_failure(self, error: Exception) -> None:
        state, seen = self.state, getattr(error, "seen", None)
        if isinstance(seen, ExecutionResult):
            seen = self.answer = seen if self.answer is None else self.answer.followed_by(seen)
            if refuse_last_call(seen, message_of(error)):
                self._add_answer(seen)
                return
            self._add_tool_calls(seen.tool_calls or (), seen.tool_results)
        else:
            self.answer = None  # of the part before an approval, which is not all
        self.errors.append(describe(error))
        state.raised += filter(None, [raised_error(error)])
        # what the test case itself made fail says nothing about other cases
        is_staged = any(request.faults or request.problem for request in self.handled_requests)
        is_permanent = isinstance(error, BackendError) and error.permanent and not is_staged
        state.failure = state.failure or (None if is_permanent else failure_of(error))
        state.is_permanent |= is_permanent
        self.attempts = [
            attempt for attempt in getattr(error, "attempts", ()) if isinstance(attempt, Attempt)
        ]
        refusal = error.refusal if isinstance(error, BackendError) else None
        if refusal is None and not self.attempts:  # the user's code sent its own requests
            refusal = refusal_behind(error)
        if (is_permanent or not state.turns) and not is_staged:
            state.refusal = state.refusal or refusal

    def end(self) -> None:
        """Add the turn to the state."""
        state = self.state
        state.turns.append(self._result())
        state.images.append(self.images)
        prefix = "" if state.case.input else f"turn {len(state.turns)}: "
        state.errors += [prefix + error for error in self.errors]
        state.faults += [prefix + fault for fault in self.faults]
        if self.answer is not None:
            state.answers.append(self.answer)

    def _result(self) -> TurnResult:
        is_answered, seconds = self.answer is not None and not self.errors, self.agent_seconds
        answer = self.answer or ExecutionResult("")  # of which nothing is known
        source, problem = answer.source, answer.tool_calls_problem
        calls_source: Source = "tap" if "tool_calls" in answer.tapped else source
        usage_source: Source = "tap" if "token_usage" in answer.tapped else source
        if self.is_replayed:
            calls_source = usage_source = "replay"
        # The result of the case validates its only turn; validating the turn as well would build
        # one more schema in every run.
        turn_result: Callable[..., TurnResult] = (
            TurnResult.model_construct if self.state.case.input else TurnResult
        )
        return turn_result(
            input=self.turn.input,
            outcome=Outcome.AGENT_ERROR if self.errors else None,
            processed_files=self.files,
            agent_response=answer.response if is_answered else None,
            tool_invocations=self.tool_invocations,
            expected_tools=self.turn.expected_tools,
            ground_truth=self.turn.ground_truth,
            agent_time_ms=None if seconds is None else round(seconds * 1000),
            errors=[*self.errors, *self.faults],
            attempts=self.attempts,
            token_usage=answer.token_usage,
            model=answer.model,
            agents=answer.agents,
            tools=answer.tools,
            retrieval_context=answer.retrieval_context,
            approvals=self.approvals,
            model_requests=answer.model_requests,
            stubbed_calls=self.stubbed_calls,
            handled_requests=self.handled_requests,
            evidence=evidence(
                tool_calls=None if problem or answer.tool_calls is None else calls_source,
                token_usage=None if answer.token_usage is None else usage_source,
                tool_calls_problem=problem,
                history="replay" if self.is_replayed else "runner",
                tools=None if answer.tools is None else source,
                latency=None if seconds is None else "runner",
                agents=None if answer.agents is None else source,
            ),
        )


def pair_tool_calls(
    calls: Sequence[RequestedCall], results: Sequence[ToolResult]
) -> list[ToolInvocation]:
    """Return an invocation for each call; results are matched by call id, or name and order."""
    left = list(results)
    invocations = []
    for call in calls:
        at = next((at for at, result in enumerate(left) if _is_result_of(call, result)), None)
        invocations.append(_invocation(call, None if at is None else left.pop(at)))
    return invocations


def _is_result_of(call: RequestedCall, result: ToolResult) -> bool:
    if call.get("call_id") or result.get("call_id"):
        return call.get("call_id") == result.get("call_id")
    return call["name"] == result["name"]


def _invocation(call: RequestedCall, result: ToolResult | None) -> ToolInvocation:
    known = ToolResult(name=call["name"]) if result is None else result
    is_error_unknown = known.get("is_error_unknown", False)
    unknown: list[Literal["args", "error"]] = ["error"] if is_error_unknown else []
    value = known.get("result")
    return ToolInvocation(
        name=call["name"],
        args=call.get("arguments", {}),
        result=value,
        bytes=0 if result is None else len(json.dumps(value, default=str).encode()),
        duration_ms=known.get("duration_ms"),
        error=_error(call, result),
        raised=known.get("raised"),
        agent=call.get("agent"),
        transfer_to=call.get("transfer_to"),
        server=known.get("server"),
        passages=known.get("passages"),
        model_cost=known.get("model_cost"),
        blocked=known.get("blocked", False),
        prevented=known.get("prevented", False),
        unknown=unknown if "arguments" in call else ["args", *unknown],
    )


def _error(call: RequestedCall, result: ToolResult | None) -> str | None:
    if "error" in call:
        return call["error"]
    if result is None:
        return NO_RESULT
    if result.get("blocked"):
        answer = result.get("result")
        return BLOCKED if answer is None else f"{BLOCKED}: {answer}"
    return str(result.get("result", "the tool failed")) if result.get("is_error") else None


def invalid_tool_calls(answer: ExecutionResult) -> list[str]:
    """Return why calls never reached a tool, one line each."""
    calls = answer.tool_calls or ()
    lines = [f"{call['name']}: {call['error']}" for call in calls if "error" in call]
    malformed = {call.get("call_id") for call in calls if "error" in call}
    return lines + [
        f"{result['name']}: {' '.join(str(result.get('result')).split())[:300]}"
        for result in answer.tool_results
        if result.get("refused") and result.get("call_id") not in malformed
    ]


def refuse_last_call(answer: ExecutionResult, error: str) -> bool:
    """Note that the framework ended the turn because it refused the last call.

    It did if the error names the tool of a call without a result, and says of a tool that the agent
    does not have that it was not found, or the framework refused a call of it before.
    """
    answered = {result.get("call_id") for result in answer.tool_results}
    refused = {returned["name"] for returned in answer.tool_results if returned.get("refused")}
    for call in answer.tool_calls or ():
        name, call_id = call["name"], call.get("call_id", "")
        is_unknown = answer.tools is not None and not tools_named(name, answer.tools)
        is_invalid = name in refused or (is_unknown and "not found" in error)
        if call_id not in answered and name in error and is_invalid:
            result = ToolResult(name=name, call_id=call_id, result=error)
            answer.tool_results.append(result | {"is_error": True, "refused": True})
            return True
    return False
