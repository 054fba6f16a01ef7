"""The agent as a participant of a conversation, and scripts and written turns as engine steps."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from holodeck.errors import ConfigError
from holodeck.lib.backends import base as backend
from holodeck.lib.backends.base import AgentSession
from holodeck.lib.conversation import script_run as script
from holodeck.lib.conversation.messages import AgentRole
from holodeck.lib.conversation.participants import SilentUser
from holodeck.lib.conversation.script_run import (
    ScriptRun,
    Step,
    dropped_result_message,
    running,
    unused_steps,
)
from holodeck.lib.conversation.state import ScenarioState
from holodeck.lib.conversation.types import (
    AgentInput,
    ScenarioResult,
    ScenarioUsageError,
    ScriptStep,
)
from holodeck.lib.processes.threads import call_user_function
from holodeck.lib.support.text import describe, instance_of
from holodeck.lib.test_runner.case_state import CaseState, Send, TakeTurn
from holodeck.lib.test_runner.grading.checks import Check
from holodeck.lib.test_runner.grading.grade import ObservationBuilder, grade_turn
from holodeck.lib.test_runner.messages import (
    conversation_of,
    messages_beyond_turns,
    response_messages,
    to_judge_messages,
)
from holodeck.lib.test_runner.options import OnConversation
from holodeck.models.cases.conversation import StepModel, step_kind, step_value
from holodeck.models.cases.expectations import Expectations
from holodeck.models.cases.messages import Message, text_of
from holodeck.models.test_case import TestCaseModel, TurnModel, check_as_turn
from holodeck.models.test_result import Outcome

BEGINS = "(The conversation begins. Say the first words.)"
"""What the agent is sent where it speaks first: agents answer, and none begins by itself."""
NOTHING_NEW = (
    "the user has said nothing new since the last response; at a step 'user', a simulated user who"
    " is done sends no message, so write 'proceed', which ends then, or 'criteria' for a judge"
)
NO_ANSWER = "the agent has not been called yet"

_CHECKING = ("check", "call")
_ENDING = ("succeed", "fail")

Code = Mapping[int, Callable[..., Any]]
"""The functions that a script calls, by the index of their step."""


@dataclass(frozen=True)
class ConversationLimits:
    """Limits on turns; the time is limited elsewhere."""

    max_turns: int | None = None
    min_turns: int | None = None
    timeout: float | None = None
    call_timeout: float | None = None


class AgentFailedError(Exception):
    """The agent could not be run; its turn says why."""


class AgentParticipant:
    """The agent as a participant, in a session.

    Args:
        state: Knows the conversation so far.
        session: The session with the agent, which knows the messages before the case.
        take_turn: Takes a turn, whose result is then in the state.
    """

    role = AgentRole.AGENT

    def __init__(self, state: CaseState, session: AgentSession, take_turn: TakeTurn) -> None:
        self._state = state
        self._session = session
        self._take_turn = take_turn

    async def call(self, input: AgentInput) -> list[Message]:  # noqa: A002 - the engine's name
        """Return the tool calls and the response of the agent. Raises AgentFailedError."""
        try:
            return await self._answer(input.new_messages)
        except (AgentFailedError, ScenarioUsageError):
            raise
        except Exception as error:
            self._state.add_error(error)
            raise

    async def _answer(self, new_messages: Sequence[Message]) -> list[Message]:
        state = self._state
        earlier, user_text = _split_new_messages(new_messages)
        if earlier:
            try:
                backend.remember(self._session, earlier)
            except ConfigError as error:
                raise ScenarioUsageError(error.field, error.message) from error
        has_begun = any(message["role"] != "system" for message in earlier)
        if not user_text and (state.turns or state.history or has_begun):
            raise ScenarioUsageError("the agent cannot respond", NOTHING_NEW)
        turn = await self._take_turn(TurnModel(input=user_text or BEGINS), self._session.send)
        if turn.outcome is Outcome.AGENT_ERROR:
            raise AgentFailedError(turn.errors[0])
        if turn.errors:  # faults of the agent fail the turn, whatever is checked
            state.turns[-1] = turn.model_copy(update={"outcome": Outcome.FAILED})
        return response_messages(turn, len(state.turns))


class WrittenTurnsAgent:
    """The agent as a participant that takes written turns, with their files and checks.

    Args:
        state: Knows the turns so far.
        turns: The turns, in their order.
        send: Sends a message to the agent.
        take_turn: Takes a turn, whose result is then in the state.
    """

    role = AgentRole.AGENT

    def __init__(
        self, state: CaseState, turns: Sequence[TurnModel], send: Send, take_turn: TakeTurn
    ) -> None:
        self._state = state
        self._turns = iter(turns)
        self._send = send
        self._take_turn = take_turn

    async def call(self, input: AgentInput) -> list[Message]:  # noqa: A002, ARG002 - the engine's name
        """Return the tool calls and the response of the agent. Raises AgentFailedError."""
        turn = await self._take_turn(next(self._turns), self._send)
        if self._state.errors:
            raise AgentFailedError(self._state.errors[-1])
        return response_messages(turn, len(self._state.turns))


async def take_written_turns(
    state: CaseState,
    turns: Sequence[TurnModel],
    send: Send,
    take_turn: TakeTurn,
    on_conversation: OnConversation | None,
) -> None:
    """Take the turns in order, as a script; the first that fails ends the conversation.

    `on_conversation` is called with the conversation before it begins.
    """
    steps = [step for turn in turns for step in (script.user(turn.input), script.agent())]
    conversation = ScriptRun(
        state.case.name or "case",
        state.case.user_input,
        [SilentUser(), WrittenTurnsAgent(state, turns, send, take_turn)],
        steps,
        ConversationLimits(),
        set_id=state.case.suite,
    )
    conversation.before = to_judge_messages(state.history)
    conversation.is_written = True
    if on_conversation is not None:
        on_conversation(conversation)
    with suppress(AgentFailedError):  # the turn says why
        await conversation.run()


def _split_new_messages(new_messages: Sequence[Message]) -> tuple[list[Message], str]:
    """Return the messages that the agent must remember, and what the user says to it now."""
    plain = [message for message in new_messages if text_of(message).strip()]
    answered = [at for at, message in enumerate(plain) if message.get("role") == "assistant"]
    now = plain[answered[-1] + 1 :] if answered else plain
    before = plain[: len(plain) - len(now)] + [
        message for message in now if message.get("role") != "user"
    ]
    user_texts = [text_of(message) for message in now if message.get("role") == "user"]
    earlier = [Message(role=str(message["role"]), content=text_of(message)) for message in before]
    return earlier, "\n\n".join(user_texts)


def script_steps(
    state: CaseState,
    code: Code,
    checks: Mapping[str | int, Sequence[Check]],
    observations: ObservationBuilder,
) -> list[ScriptStep]:
    """Return the steps of the case's script as the engine runs them.

    `code` and `checks` hold the functions and metrics of steps, by their index in the script.
    """

    def engine_step(at: int, written: str | StepModel) -> ScriptStep:
        kind, value = step_kind(written), step_value(written)
        if kind == "call":
            return _name_step(kind, partial(_call, value, code[at]))
        if kind == "check":
            step_checks = checks.get(at, ())
            return _name_step(
                kind,
                lambda run: _check(state, run.messages, at, value, step_checks, observations),
            )
        if kind in _ENDING:
            return _name_step(kind, lambda _: _end(kind, value))
        step = _plain_step(kind, value)
        return _going_on(kind, step) if _is_checked_later(state.case, at) else step

    return [engine_step(at, written) for at, written in enumerate(state.case.script or ())]


def _plain_step(kind: str, value: Any) -> Step:
    match kind:
        case "user":
            return script.user(value)
        case "agent":
            return script.agent(value)
        case "judge":
            return script.judge(value)
        case "message":
            return script.message({"role": value.role, "content": value.content})
        case _:
            return script.proceed(None if value is None else value.turns)


def _is_checked_later(case: TestCaseModel, at: int) -> bool:
    """Whether a later step may still fail the conversation."""
    later = [(step_kind(step), step_value(step)) for step in (case.script or ())[at + 1 :]]
    return any(
        kind in _CHECKING or (kind == "judge" and value is not None) for kind, value in later
    )


def _going_on(kind: str, step: Step) -> ScriptStep:
    """Return the step, after which the script continues even if the judge is content."""

    async def run(state: ScenarioState) -> ScenarioResult | None:
        result = await step(state)
        is_content = result is not None and result.success and result.reason_code is None
        return None if is_content else result

    return _name_step(kind, run)


def _name_step(kind: str, run: Callable[[ScenarioState], Any]) -> ScriptStep:
    """Return a step that messages call by its kind."""

    def step(state: ScenarioState) -> Any:
        return run(state)

    step.__name__ = kind
    return step


async def _check(
    state: CaseState,
    messages: list[Message],
    at: int,
    expectations: Expectations,
    checks: Sequence[Check],
    observations: ObservationBuilder,
) -> ScenarioResult | None:
    """Check the last turn; return the result that ends the script if that does not pass."""
    if not state.turns:
        return ScenarioResult(
            success=False, messages=[], reasoning=NO_ANSWER, reason_code="never_asked"
        )
    further = messages_beyond_turns(messages[len(state.history) :], state.turns)
    conversation = conversation_of(state.history, state.turns, further)
    turn = check_as_turn(expectations, state.turns[-1].input)
    outcome = await grade_turn(
        state, len(state.turns) - 1, turn, checks, observations, conversation
    )
    if outcome in {Outcome.PASSED, Outcome.UNCHECKED}:
        return None
    return ScenarioResult(
        success=False,
        messages=[],
        reasoning=f"the check of step {at + 1} did not pass",
        reason_code="check_failed",
    )


async def _end(kind: str, reason: str | None) -> ScenarioResult:
    if kind == "succeed":
        reason, code = reason or "the script reached 'succeed'", "succeeded"
        return ScenarioResult(success=True, messages=[], reasoning=reason, reason_code=code)
    reason = reason or "the script reached 'fail'"
    return ScenarioResult(success=False, messages=[], reasoning=reason, reason_code="failed")


async def _call(name: str, function: Callable[..., Any], state: ScenarioState) -> Any:
    """Call a function of the user's: it returns nothing, or the result that ends the script."""
    with unused_steps() as unused:
        try:
            returned = await call_user_function(partial(function, state), function)
        except (Exception, asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException as error:  # sys.exit() or pytest.skip() of async code
            raise RuntimeError(describe(error)) from error
    if any(step is not returned for step in unused):
        raise TypeError(f"{name} created a step such as fail() but did not return it; return it")
    run = running.get()
    against = None if run is None else run.failure
    if against is not None and not isinstance(returned, ScenarioResult):
        raise TypeError(f"{name}: {dropped_result_message(against)}")
    if returned is None or returned is True or isinstance(returned, Step | ScenarioResult):
        return returned
    if returned is False:
        raise AssertionError(f"{name} returned False")
    raise TypeError(
        f"{name} returned {instance_of(returned)}; return None, and assert what must hold"
    )
