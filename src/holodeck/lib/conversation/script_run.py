"""A conversation by a script, from the first step to a result."""

from __future__ import annotations

import asyncio
import inspect
import traceback
import warnings
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from contextvars import ContextVar
from typing import Any, Protocol, runtime_checkable

from holodeck.errors import BackendTimeoutError
from holodeck.lib.conversation.engine import ScriptedConversation
from holodeck.lib.conversation.events import RunFinished, RunStarted
from holodeck.lib.conversation.messages import AgentRole, Message
from holodeck.lib.conversation.participants import HasCriteria, Settings, TimeLimitExceeded
from holodeck.lib.conversation.result_listeners import framework_outcome
from holodeck.lib.conversation.script import STEPS, DroppedStep, Step, proceed, unused_steps
from holodeck.lib.conversation.state import ScenarioState
from holodeck.lib.conversation.terminal import Debugger, SilentUser
from holodeck.lib.conversation.types import (
    Participant,
    ScenarioResult,
    ScenarioUsageError,
    ScriptStep,
    combine_verdicts,
)
from holodeck.lib.exceptions import describe, message_of, with_place
from holodeck.lib.process_exit import process_exit_forbidden
from holodeck.lib.text import one_line

MOST_SHOWN = 160

NO_CONCLUSION = (
    "the script ended without a conclusion; end it with one of:\n"
    "- `scenario.proceed()`: let the conversation go on\n"
    "- `scenario.judge()`: ask the judge for its verdict\n"
    "- `scenario.succeed()` or `scenario.fail()`: say the result"
)
NO_VERDICT = "the judge was asked for its verdict and gave none, so nothing is decided"
BROKEN_BY = {
    AgentRole.USER: "simulator_error",
    AgentRole.AGENT: "agent_error",
    AgentRole.JUDGE: "judge_error",
}


@runtime_checkable
class Opened(Protocol):
    """A party that holds something, such as connections, for as long as a run lasts."""

    def opened(self) -> AbstractAsyncContextManager[None]:
        """What is held open."""
        ...


running: ContextVar[ScriptRun | None] = ContextVar("holodeck_running_conversation", default=None)
"""The run that is under way here."""


class ScriptRun(ScriptedConversation):
    """A conversation that plays a script.

    Args:
        name: What messages and reports call the case.
        description: The situation.
        agents: All who take part.
        script: The steps; without any, everybody speaks in turn.
        config: Limits on turns and time.
        set_id: The set that the case belongs to.
        batch_run_id: The batch that the run belongs to.
    """

    def __init__(
        self,
        name: str,
        description: str,
        agents: Sequence[Participant],
        script: Sequence[ScriptStep] | None,
        config: Settings,
        *,
        set_id: str | None = None,
        batch_run_id: str | None = None,
    ) -> None:
        if script is not None and not isinstance(script, Iterable):
            raise ScenarioUsageError(
                f"case {name!r}", f"script is no list but {script!r}; write script=[…]"
            )
        self.script: list[Any] = list(script or ()) or [proceed()]
        self._is_undecided = False
        """Whether a judge was asked for its verdict and gave none."""
        self.against: ScenarioResult | None = None
        """What the step under way has come to against the agent."""
        self.debugger: Debugger | None = None
        """Who lets a person speak for the user."""
        super().__init__(
            name, description, agents, config, set_id=set_id, batch_run_id=batch_run_id
        )

    async def run(self) -> ScenarioResult:
        """Play the script from its beginning; whatever anybody raises comes through."""
        with process_exit_forbidden():
            if self.debugger is None:
                return await self._run()
            async with self.debugger.seat(self.name):
                return await self._run()

    async def _run(self) -> ScenarioResult:
        self._step_name, self._is_undecided = "", False
        self.has_checkpoints = any(map(_may_ask_judge, self.script))
        self.reset()
        self._dispatcher = self._events.dispatcher()
        token = running.set(self)
        facts = {**self.ids, "name": self.name, "description": self.description}
        self._dispatcher.put(RunStarted(thread_id=self.thread_id, **facts))
        try:
            result = await self._in_time()
        except (asyncio.CancelledError, KeyboardInterrupt) as error:
            self._finished("CANCELLED", self.broken(error))
            self._dispatcher.close()
            raise
        except (SystemExit, GeneratorExit) as error:  # nobody is waited for
            self._finished("ERROR", self.broken(error))
            self._dispatcher.close()
            raise
        except BaseException as error:  # also what ends a test, such as `pytest.skip()`
            broken = self.broken(error)
            self.note_place(error)
            self._finished("CANCELLED" if broken.reason_code == "skipped" else "ERROR", broken)
            await self._dispatcher.delivered()
            raise
        finally:
            running.reset(token)
        self._finished("SUCCESS" if result.success else "FAILED", result)
        await self._dispatcher.delivered()
        return result

    async def judge(
        self,
        criteria: str | Sequence[str] | None = None,
        *,
        content: str | Mapping[str, Any] | None = None,
    ) -> ScenarioResult | None:
        result = await super().judge(criteria, content=content)
        if content is None and criteria is None:
            self._is_undecided = result is None
        return result

    async def _ask(
        self, index: int, *, judgment: bool = False, criteria: list[str] | None = None
    ) -> list[Message] | ScenarioResult:
        if self.debugger is None or self.agents[index].role is not AgentRole.USER:
            said = await super()._ask(index, judgment=judgment, criteria=criteria)
            is_judge = self.agents[index].role is AgentRole.JUDGE and criteria is None
            if is_judge and isinstance(said, ScenarioResult) and said.success:
                return await self._agreed_by_others(index, said, judgment=judgment)
            return said
        await self._dispatcher.catch_up()
        may_pass_on = not isinstance(self.agents[index], SilentUser)
        word = await self.debugger.word(self, may_pass_on=may_pass_on)
        if word is None:
            return await super()._ask(index, judgment=judgment, criteria=criteria)
        if isinstance(word, ScenarioResult):
            return word
        self.add_message({"role": "user", "content": word})  # as a fixed line: the user hears it
        return [self.state.last_message()]

    async def _agreed_by_others(
        self, index: int, said: ScenarioResult, *, judgment: bool
    ) -> list[Message] | ScenarioResult:
        """The verdict of all judges after one is content; no messages if another is not yet so."""
        for other, participant in enumerate(self.agents):
            if participant.role is not AgentRole.JUDGE or participant is self.agents[index]:
                continue
            if isinstance(participant, HasCriteria) and not participant.criteria:
                continue  # it decides at checkpoints only
            self.turns.spoke(other)
            theirs = await super()._ask(other, judgment=judgment)
            if isinstance(theirs, ScenarioResult):
                said = combine_verdicts(said, theirs, len(self.usage_meter.checkpoints))
                if not said.success:
                    return said
            elif isinstance(participant, HasCriteria):
                return []
        return said

    @property
    def waits_for(self) -> AgentRole | None:
        """Whose answer is still to come; None if nobody is asked."""
        participant = self._caller.waits_for
        return None if participant is None else participant.role

    def concluded(self, result: ScenarioResult) -> ScenarioResult:
        """The result with everything that the engine knows."""
        result = super().concluded(result)
        self.against = self.against if result.success else result
        return result

    def broken(self, error: BaseException) -> ScenarioResult:
        """The result of a run that an error broke."""
        why: Any = why_broken(error, self.place, self._caller.author_of(error))
        return self.concluded(ScenarioResult(success=False, messages=[], **why))

    @property
    def step_name(self) -> str:
        """The step under way, such as `step 2 (agent)`; empty before the first."""
        return self._step_name

    def note_place(self, error: BaseException) -> None:
        """Add the case, the step and the party to an error that does not name them."""
        if self.place in str(error):
            return
        participant = self._caller.author_of(error)
        who = "" if participant is None else f": {type(participant).__name__} raised it"
        error.add_note(f"in {self.place}{who}")

    def was_run(self, result: ScenarioResult) -> None:
        """Told of the result of each run, also of one that broke; for those who derive."""

    async def _in_time(self) -> ScenarioResult:
        async with AsyncExitStack() as held:
            for participant in {id(one): one for one in self.agents}.values():
                if isinstance(participant, Opened):
                    await held.enter_async_context(participant.opened())
            async with self.clock.limit(self.config.timeout, f"case {self.name!r}"):
                return await self._played()

    async def _played(self) -> ScenarioResult:
        names = [_name_of(number, step) for number, step in enumerate(self.script, 1)]
        for at, step in enumerate(self.script):
            self._step_name = names[at]
            self.has_steps_left = at + 1 < len(names)
            result = await self._play(step)
            if isinstance(result, ScenarioResult):
                if result.reason_code == "user_left":
                    result = _with_steps_left(result, names[at:])
                return self._with_an_agent(self.concluded(result))
        return self._with_an_agent(await self._after_the_last_step())

    async def _after_the_last_step(self) -> ScenarioResult:
        if self._is_undecided:
            return self._ended(False, NO_VERDICT, "no_conclusion")
        verdict = None if self.left_at is None else await self._last_verdict()
        if verdict is not None:
            return verdict
        if self.usage_meter.checkpoints:
            return self._ended(True, "every checkpoint passed")
        return self._ended(False, NO_CONCLUSION, "no_conclusion")

    def _with_an_agent(self, result: ScenarioResult) -> ScenarioResult:
        """The result; a failure if the user left before the agent was asked anything."""
        if not result.success or self.left_at is None:
            return result
        new = self.history.peek[len(self.before) :]
        has_spoken = any(one.get("role") == "assistant" for one in new)
        if has_spoken or any(map(self.usage_meter.was_called, self._indices(AgentRole.AGENT))):
            return result
        why = f"the user ended the conversation in {self.left_at}: the agent was never asked"
        return self._ended(False, why, "never_asked")

    async def _play(self, step: Any) -> Any:
        if not callable(step):
            raise self.usage_error(f"{step!r} is no step; write a function of the state")
        if step in STEPS:
            raise self.usage_error(
                f"scenario.{step.__name__} makes a step; write {step.__name__}()"
            )
        self.against = None
        with unused_steps() as unused:
            result = step(self.state)
            while isinstance(result, Step) or inspect.isawaitable(result):
                result = await (result(self.state) if isinstance(result, Step) else result)
        self._refuse_generator(result)
        for one in unused:
            made = f"scenario.{one.name}(…)"
            self._warn(f"{made} was made and dropped; write `return {made}` in a step")
        if self.against is not None and not isinstance(result, ScenarioResult):
            self._warn(dropped_result_message(self.against))
        if isinstance(result, bool):
            self._warn(f"it returned {result}, which decides nothing; write `assert …`")
        elif callable(result):
            self._warn(f"it returned {result!r}, which is not called; write it with parentheses")
        return result

    async def _tell(self, callback: Callable[[ScenarioState], Any] | None) -> object:
        told = await super()._tell(callback)
        self._refuse_generator(told)
        if isinstance(told, ScenarioResult):
            self._warn("a callback returned a result, which ends nothing; return it from a step")
        return told

    def _refuse_generator(self, result: object) -> None:
        if isinstance(result, Generator | AsyncGenerator):
            raise self.usage_error("it gave a generator, whose code is never run; write no `yield`")

    def _warn(self, of: str) -> None:
        """Tell of what was meant to decide something, and does not."""
        warnings.warn(f"{self.place}: {of}", DroppedStep, stacklevel=3)

    def _finished(self, status: str, result: ScenarioResult) -> None:
        self.was_run(result)
        self._dispatcher.put(RunFinished(status=status, result=result, **self.ids))


def _may_ask_judge(step: Any) -> bool:
    return not isinstance(step, Step) or step.name == "judge"


def _name_of(number: int, step: Any) -> str:
    name = step.name if isinstance(step, Step) else getattr(step, "__name__", repr(step))
    return f"step {number} ({name})"


def _with_steps_left(result: ScenarioResult, names: Sequence[str]) -> ScenarioResult:
    told = f"{result.reasoning}; steps that did not run: {', '.join(names)}"
    return result.model_copy(update={"reasoning": told})


def dropped_result_message(against: ScenarioResult) -> str:
    """What is told of a step that keeps a result against the agent to itself."""
    why = one_line(against.reasoning or "failed", MOST_SHOWN)
    return f"it came to a result against the agent and dropped it: {why}; write `return await …`"


def why_broken(
    error: BaseException, place: str, participant: Participant | None
) -> dict[str, object]:
    """The fields of a result whose run was broken by an error.

    A failed assertion of a step is a failure of the agent, and so is a test that a step or a party
    fails by means of its framework; everything else is an error.
    """
    meaning = framework_outcome(error)
    if meaning == "failed":
        return {"reason_code": "step_failed", "reasoning": f"{place}: {message_of(error)}"}
    if isinstance(error, AssertionError) and participant is None:
        return {"reason_code": "step_failed", "reasoning": f"{place}: {_assertion(error)}"}
    told = describe(error)
    who = f"{type(participant).__name__} raised " if participant is not None else ""
    reasoning = f"{place}: {who}{with_place(error)}"
    if isinstance(error, ScenarioUsageError | TimeLimitExceeded):
        text = message_of(error)
        reasoning = text if text.startswith(place) else f"{place}: {text}"
    code = _code(error, participant) if meaning is None else meaning
    return {"reason_code": code, "reasoning": reasoning, "error": told}


def _code(error: BaseException, participant: Participant | None) -> str:
    if isinstance(error, BackendTimeoutError):
        return "timeout"
    if isinstance(error, ScenarioUsageError):
        return "config"
    return BROKEN_BY[participant.role] if participant is not None else "step_error"


def _assertion(error: AssertionError) -> str:
    if message_of(error):
        return message_of(error)
    frames = traceback.extract_tb(error.__traceback__)
    line = frames[-1].line if frames else ""
    return f"not so: {line}" if line else "an assertion failed"
