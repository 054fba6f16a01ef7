"""The agent as a participant of a conversation, and the steps of a script as engine steps."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from holodeck.lib.backends import base as backend
from holodeck.lib.backends.base import AgentSession
from holodeck.lib.conversation import script
from holodeck.lib.conversation.messages import AgentRole, Message, text_of
from holodeck.lib.conversation.script import Step, unused_steps
from holodeck.lib.conversation.script_run import dropped_result_message, running
from holodeck.lib.conversation.state import ScenarioState
from holodeck.lib.conversation.types import (
    AgentInput,
    ScenarioResult,
    ScenarioUsageError,
    ScriptStep,
)
from holodeck.lib.exceptions import describe
from holodeck.lib.test_runner.conversation_grading import check_last_turn
from holodeck.lib.test_runner.grading import Check
from holodeck.lib.test_runner.history import History, to_turns
from holodeck.lib.test_runner.observer import Observer
from holodeck.lib.test_runner.transcripts import answer_of
from holodeck.lib.test_runner.turn_run import Ask, TurnRun
from holodeck.lib.threads import call_user_function
from holodeck.models.expectations import Expectations
from holodeck.models.script import Proceed, ScriptMessage, StepModel, kind_of, value_of
from holodeck.models.test_case import TestCaseModel, TurnModel, asked_of
from holodeck.models.test_result import Outcome, TurnResult

BEGINS = "(The conversation begins. Say the first words.)"
"""What the agent is sent where it speaks first: all agents answer, none begins by itself."""
NOTHING_NEW = (
    "the user has said nothing new since it answered; a simulated user who is done at a step 'user'"
    " says nothing more, so write 'proceed', which ends then, or 'criteria' for a judge"
)

TakeTurn = Callable[[TurnModel, Ask], Awaitable[TurnRun]]
"""Says a turn in a session; what goes wrong is noted in the turn."""


class AgentFailedError(Exception):
    """The agent could not be run; its turn says why."""


class AgentParticipant:
    """Plays the agent, in one session.

    Args:
        session: The conversation with the agent.
        take_turn: Says a turn and notes what comes back.
        history: What was said before the session, which knows it.
    """

    role = AgentRole.AGENT

    def __init__(self, session: AgentSession, take_turn: TakeTurn, history: History = ()) -> None:
        self.history = history
        self._session = session
        self._take_turn = take_turn
        self.turns: list[TurnResult] = []
        """What was said to the agent so far, and what it did."""
        self.broken_by: Exception | None = None
        """What kept the agent from being run that none of its turns tells of."""

    async def call(self, input: AgentInput) -> list[Message]:  # noqa: A002 - the engine's name
        """What the agent did and answered. Raises AgentIsBrokenError."""
        try:
            return await self._answer(input.new_messages)
        except (AgentFailedError, ScenarioUsageError):
            raise
        except Exception as error:
            self.broken_by = error
            raise

    async def _answer(self, unheard: Sequence[Message]) -> list[Message]:
        earlier, said = _split(unheard)
        if earlier:
            self._remember(earlier)
        has_begun = any(one["role"] != "system" for one in earlier)
        if not said and (self.turns or self.history or has_begun):
            raise ScenarioUsageError("the agent is asked", NOTHING_NEW)
        run = await self._take_turn(TurnModel(input=said or BEGINS), self._session.send)
        turn = run.result()
        self.turns.append(turn)
        if run.errors:
            raise AgentFailedError(run.errors[0])
        return answer_of(turn, len(self.turns))

    def _remember(self, messages: list[backend.Message]) -> None:
        if not isinstance(self._session, backend.AcceptsHistory):
            raise ScenarioUsageError(
                "the agent's backend",
                "cannot be told of lines that a script says in its place; give its sessions a"
                " method remember(messages), or leave 'agent: …' and 'message' out",
            )
        self._session.remember(messages)


def _split(unheard: Sequence[Message]) -> tuple[list[backend.Message], str]:
    """What the agent is to remember, and what the user says to it now."""
    plain = [one for one in unheard if text_of(one).strip()]
    answered = [at for at, one in enumerate(plain) if one.get("role") == "assistant"]
    now = plain[answered[-1] + 1 :] if answered else plain
    before = plain[: len(plain) - len(now)] + [one for one in now if one.get("role") != "user"]
    said = [text_of(one) for one in now if one.get("role") == "user"]
    earlier = [backend.Message(role=str(one["role"]), content=text_of(one)) for one in before]
    return earlier, "\n\n".join(said)


Code = Mapping[int, Callable[..., Any]]
"""The functions that a script calls, by the number of their step."""


def _message(written: ScriptMessage) -> Step:
    return script.message({"role": written.role, "content": written.content})


def _proceed(written: Proceed | None) -> Step:
    return script.proceed(None if written is None else written.turns)


_PLAIN: Mapping[str, Callable[[Any], Step]] = {
    "user": script.user,
    "agent": script.agent,
    "judge": script.judge,
    "message": _message,
    "proceed": _proceed,
}


NO_ANSWER = "the agent has not been asked until then"
_SUCCEED, _FAIL = "succeed", "fail"
_ENDINGS = {_SUCCEED: "the script says that it went well", _FAIL: "the script says so"}


@dataclass
class ScriptSteps:
    """The steps of one run of a case."""

    case: TestCaseModel
    code: Code
    agent: AgentParticipant
    checks: Mapping[str | int, Sequence[Check]]
    observer: Observer
    made: list[ScriptStep] = field(init=False)

    def __post_init__(self) -> None:
        self.made = [self._step(at, one) for at, one in enumerate(self.case.script or ())]

    def _step(self, at: int, written: str | StepModel) -> ScriptStep:
        kind, value = kind_of(written), value_of(written)
        if kind in _PLAIN:
            step = _PLAIN[kind](value)
            return _going_on(kind, step) if self._looks_after(at) else step
        if kind == "call":
            return _named(kind, lambda state: _called(value, self.code[at], state))
        if kind == "check":
            return _named(kind, lambda _: self._checked(at, value))
        reason = value or _ENDINGS[kind]
        return _named(kind, lambda _: _ended(kind, reason))

    def _looks_after(self, at: int) -> bool:
        """Whether a later step looks at the conversation."""
        later = (self.case.script or ())[at + 1 :]
        return any(_looks(kind_of(one), value_of(one)) for one in later)

    async def _checked(self, at: int, check: Expectations) -> ScenarioResult | None:
        """Check the last answer; the result that ends the script if that does not pass."""
        turns = self.agent.turns
        if not turns:
            return ScenarioResult(
                success=False, messages=[], reasoning=NO_ANSWER, reason_code="never_asked"
            )
        asked = asked_of(check, turns[-1].input)
        checks, before = self.checks.get(at, ()), to_turns(self.agent.history)
        outcome = await check_last_turn(asked, turns, checks, self.observer, self.case.name, before)
        if outcome in {Outcome.PASSED, Outcome.UNCHECKED}:
            return None
        return ScenarioResult(
            success=False,
            messages=[],
            reasoning=f"the check of step {at + 1} did not pass",
            reason_code="check_failed",
        )


def _looks(kind: str, value: Any) -> bool:
    return kind in {"check", "call"} or (kind == "judge" and value is not None)


def _going_on(name: str, step: Step) -> ScriptStep:
    """The step without a judge's consent: what is still to be looked at may yet say no."""

    async def play(state: ScenarioState) -> ScenarioResult | None:
        result = await step(state)
        is_consent = result is not None and result.success and result.reason_code is None
        return None if is_consent else result

    return _named(name, play)


def _named(name: str, play: Callable[[ScenarioState], Any]) -> ScriptStep:
    """A step that messages call by its name."""

    def step(state: ScenarioState) -> Any:
        return play(state)

    step.__name__ = name
    return step


async def _ended(kind: str, reason: str) -> ScenarioResult:
    is_success = kind == _SUCCEED
    code = "succeeded" if is_success else "failed"
    return ScenarioResult(success=is_success, messages=[], reasoning=reason, reason_code=code)


async def _called(name: str, function: Callable[..., Any], state: ScenarioState) -> Any:
    """What a function of the user's says: nothing, or the result that ends the script."""
    with unused_steps() as unused:
        try:
            said = await call_user_function(partial(function, state), function)
        except (Exception, asyncio.CancelledError, KeyboardInterrupt):
            raise
        except BaseException as error:  # sys.exit() or pytest.skip() of one that is async
            raise RuntimeError(describe(error)) from error
    if any(one is not said for one in unused):
        raise TypeError(f"{name} made a step such as fail() and dropped it; return it")
    talk = running.get()
    against = None if talk is None else talk.against
    if against is not None and not isinstance(said, ScenarioResult):
        raise TypeError(f"{name}: {dropped_result_message(against)}")
    if said is None or said is True or isinstance(said, Step | ScenarioResult):
        return said
    if said is False:
        raise AssertionError(f"{name} said no")
    raise TypeError(
        f"{name} returned a {type(said).__name__}; return nothing, and assert what must hold"
    )
