"""The steps of a script, and its run from the first step to the result."""

from __future__ import annotations

import asyncio
import inspect
import traceback
import warnings
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack, contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from holodeck.errors import BackendTimeoutError
from holodeck.lib.conversation.engine import Conversation
from holodeck.lib.conversation.events import RunFinished, RunStarted
from holodeck.lib.conversation.messages import AgentRole
from holodeck.lib.conversation.participants import (
    ConversationSettings,
    ConversationTimeLimitExceeded,
    HasCriteria,
    SilentUser,
)
from holodeck.lib.conversation.result_listeners import framework_outcome
from holodeck.lib.conversation.state import ScenarioState
from holodeck.lib.conversation.types import (
    Callback,
    JudgmentRequest,
    Participant,
    ScenarioResult,
    ScenarioUsageError,
    ScriptStep,
    combine_verdicts,
)
from holodeck.lib.processes.process_exit import process_exit_forbidden
from holodeck.lib.support.text import describe, message_of, one_line
from holodeck.lib.user_code.raised import with_location
from holodeck.models.cases.messages import Message

if TYPE_CHECKING:
    from holodeck.lib.conversation.debugger import Debugger

Content = str | Mapping[str, Any]
_unused: ContextVar[list[Step] | None] = ContextVar("holodeck_unused_steps", default=None)


class DroppedStep(UserWarning):
    """A step made or returned something that looks like a decision but has no effect."""


class Step:
    """A step of a script: called with the state, it returns an awaitable of a result or None."""

    def __init__(
        self, name: str, run: Callable[[Conversation], Awaitable[ScenarioResult | None]]
    ) -> None:
        self.name = name
        self._run = run
        unused = _unused.get()
        if unused is not None:
            unused.append(self)

    def __call__(self, state: ScenarioState) -> Awaitable[ScenarioResult | None]:
        unused = _unused.get()
        if unused is not None and self not in unused:
            unused.append(self)
        return self._run_once(state, unused)

    async def _run_once(
        self, state: ScenarioState, unused: list[Step] | None
    ) -> ScenarioResult | None:
        if unused is not None and self in unused:
            unused.remove(self)
        conversation: Any = state._executor  # noqa: SLF001 - steps reach the engine by the state
        return await self._run(conversation)

    def __repr__(self) -> str:
        return f"<step {self.name}>"


@contextmanager
def unused_steps() -> Iterator[list[Step]]:
    """Collect the steps made or applied inside the block that were not awaited."""
    unused: list[Step] = []
    token = _unused.set(unused)
    try:
        yield unused
    finally:
        _unused.reset(token)


def message(message: Mapping[str, Any]) -> Step:
    """Add a message; one of the user or of the agent takes their turn."""
    return Step("message", lambda conversation: conversation.message(message))


def user(content: Content | None = None) -> Step:
    """Add `content` as the user's message, or let the user speak."""
    return Step("user", lambda conversation: conversation.user(content))


def agent(content: Content | None = None) -> Step:
    """Let the agent answer, or add `content` in place of its answer."""
    return Step("agent", lambda conversation: conversation.agent(content))


def judge(
    criteria: str | Sequence[str] | None = None,
    additional_context: str | None = None,
    *,
    content: Content | None = None,
) -> Step:
    """Ask the judge for its verdict: on its own criteria, or on those of a checkpoint.

    `additional_context` is what it should know besides the conversation, such as the output of a
    command. `content` is added as a message of the assistant, and the judge is not called.
    """
    return Step(
        "judge",
        lambda conversation: conversation.judge(criteria, additional_context, content=content),
    )


def proceed(
    turns: int | None = None,
    on_turn: Callback | None = None,
    on_step: Callback | None = None,
    on_turn_end: Callback | None = None,
) -> Step:
    """Let all participants speak in turn, until there is a result or `turns` are used up."""
    return Step(
        "proceed",
        lambda conversation: conversation.proceed(turns, on_turn, on_step, on_turn_end),
    )


def succeed(reasoning: str | None = None) -> Step:
    """End the case: it passed."""
    return Step("succeed", lambda conversation: conversation.succeed(reasoning))


def fail(reasoning: str | None = None) -> Step:
    """End the case: it failed."""
    return Step("fail", lambda conversation: conversation.fail(reasoning))


STEPS = (message, user, agent, judge, proceed, succeed, fail)
"""The functions that make steps; none of them is a step itself."""

_MAX_REASONING = 160
NO_CONCLUSION = (
    "the script ended without a conclusion; end it with one of:\n"
    "- `scenario.proceed()`: let the conversation go on\n"
    "- `scenario.judge()`: ask the judge for its verdict\n"
    "- `scenario.succeed()` or `scenario.fail()`: say the result"
)
NO_VERDICT = "the judge was asked for its verdict and gave none, so nothing is decided"
_ERROR_CODES = {
    AgentRole.USER: "simulator_error",
    AgentRole.AGENT: "agent_error",
    AgentRole.JUDGE: "judge_error",
}


@runtime_checkable
class HoldsResources(Protocol):
    """A participant that holds something, such as connections, during a run."""

    def keep_open(self) -> AbstractAsyncContextManager[None]: ...


running: ContextVar[ScriptRun | None] = ContextVar("holodeck_running_conversation", default=None)
"""The run that the current task belongs to."""


class ScriptRun(Conversation):
    """A conversation that follows a script; without steps, all participants speak in turn."""

    metadata: Mapping[str, Any] | None = None
    """Values for the event that the run has started."""
    is_written = False
    """Whether the script has all messages of the user, so that no person can speak for them."""

    def __init__(
        self,
        name: str,
        description: str,
        agents: Sequence[Participant],
        script: Sequence[ScriptStep] | None,
        config: ConversationSettings,
        *,
        set_id: str | None = None,
        batch_run_id: str | None = None,
    ) -> None:
        if script is not None and not isinstance(script, Iterable):
            raise ScenarioUsageError(
                f"case {name!r}", f"script is not a list but {script!r}; write script=[…]"
            )
        self.script: list[Any] = list(script or ()) or [proceed()]
        self.debugger: Debugger | None = None
        """Lets a person speak for the user."""
        super().__init__(
            name, description, agents, config, set_id=set_id, batch_run_id=batch_run_id
        )

    async def run(self) -> ScenarioResult:
        """Run the script from its beginning; exceptions of participants and steps propagate."""
        with process_exit_forbidden():
            if self.debugger is None:
                return await self._run()
            async with self.debugger.terminal(self.name):
                return await self._run()

    async def _run(self) -> ScenarioResult:
        self.step_name = ""
        self.has_checkpoints = any(
            not isinstance(step, Step) or step.name == "judge" for step in self.script
        )
        self.reset()
        self._dispatcher = self.events.dispatcher()
        token = running.set(self)
        facts = {**self.ids, "name": self.name, "description": self.description}
        started = RunStarted(thread_id=self.thread_id, metadata=self.metadata, **facts)
        self._dispatcher.put(started)
        try:
            result = await self._run_script()
        except (asyncio.CancelledError, KeyboardInterrupt, SystemExit, GeneratorExit) as error:
            is_cancelled = isinstance(error, asyncio.CancelledError | KeyboardInterrupt)
            self._finish("CANCELLED" if is_cancelled else "ERROR", self.error_result(error))
            self._dispatcher.close()  # there is no time to wait for listeners
            raise
        except BaseException as error:  # also what ends a test, such as `pytest.skip()`
            broken = self.error_result(error)
            self.note_location(error)
            self._finish("CANCELLED" if broken.reason_code == "skipped" else "ERROR", broken)
            await self._dispatcher.drain()
            raise
        finally:
            running.reset(token)
        self._finish("SUCCESS" if result.success else "FAILED", result)
        await self._dispatcher.drain()
        return result

    def _finish(self, status: str, result: ScenarioResult) -> None:
        self.on_result(result)
        self._dispatcher.put(RunFinished(status=status, result=result, **self.ids))

    def on_result(self, result: ScenarioResult) -> None:
        """Called with the result of each run, also if an error ended it; for subclasses."""

    async def _run_script(self) -> ScenarioResult:
        async with AsyncExitStack() as stack:
            for participant in {id(agent): agent for agent in self.agents}.values():
                if isinstance(participant, HoldsResources):
                    await stack.enter_async_context(participant.keep_open())
            async with self.limits.limit(self.config.timeout, f"case {self.name!r}"):
                return self._require_agent_turn(await self._run_steps())

    async def _run_steps(self) -> ScenarioResult:
        names = [
            f"step {number} ({getattr(step, 'name', getattr(step, '__name__', repr(step)))})"
            for number, step in enumerate(self.script, 1)
        ]
        for index, step in enumerate(self.script):
            self.step_name = names[index]
            self.has_steps_left = index + 1 < len(names)
            result = await self._run_step(step)
            if isinstance(result, ScenarioResult):
                if result.reason_code == "user_left":
                    left = ", ".join(names[index:])
                    reasoning = f"{result.reasoning}; steps that did not run: {left}"
                    result = result.model_copy(update={"reasoning": reasoning})
                return self.complete(result)
        if self._is_undecided:
            return self._result(False, NO_VERDICT, "no_conclusion")
        verdict = None if self.ended_at is None else await self._final_verdict()
        if verdict is not None:
            return verdict
        if self.usage.checkpoints:
            return self._result(True, "every checkpoint passed")
        return self._result(False, NO_CONCLUSION, "no_conclusion")

    def _require_agent_turn(self, result: ScenarioResult) -> ScenarioResult:
        """Return the result, or a failure if the user left before the agent was called."""
        if not result.success or self.ended_at is None:
            return result
        new = self.history.peek[len(self.before) :]
        has_spoken = any(message.get("role") == "assistant" for message in new)
        if has_spoken or any(map(self.usage.was_called, self._indexes_of_role(AgentRole.AGENT))):
            return result
        why = f"the user ended the conversation in {self.ended_at}: the agent was never called"
        return self._result(False, why, "never_asked")

    async def _run_step(self, step: Any) -> Any:
        if not callable(step):
            raise self.usage_error(f"{step!r} is not a step; write a function of the state")
        if step in STEPS:
            raise self.usage_error(
                f"scenario.{step.__name__} makes a step; write {step.__name__}()"
            )
        self.failure = None
        with unused_steps() as unused:
            result = step(self.state)
            while isinstance(result, Step) or inspect.isawaitable(result):
                result = await (result(self.state) if isinstance(result, Step) else result)
        self._reject_generator(result)
        for unused_step in unused:
            made = f"scenario.{unused_step.name}(…)"
            self._warn(f"{made} was created but not used; write `return {made}` in a step")
        if self.failure is not None and not isinstance(result, ScenarioResult):
            self._warn(dropped_result_message(self.failure))
        if isinstance(result, bool):
            self._warn(f"it returned {result}, which decides nothing; write `assert …`")
        elif callable(result):
            self._warn(f"it returned {result!r}, which is not called; write it with parentheses")
        return result

    async def _notify(self, callback: Callable[[ScenarioState], Any] | None) -> object:
        returned = await super()._notify(callback)
        self._reject_generator(returned)
        if isinstance(returned, ScenarioResult):
            self._warn("a callback returned a result, which ends nothing; return it from a step")
        return returned

    def _reject_generator(self, returned: object) -> None:
        if inspect.isgenerator(returned) or inspect.isasyncgen(returned):
            raise self.usage_error("it is a generator, whose code never runs; remove `yield`")

    def _warn(self, message: str) -> None:
        warnings.warn(f"{self.location}: {message}", DroppedStep, stacklevel=3)

    async def _call(
        self, index: int, request: JudgmentRequest | None = None
    ) -> list[Message] | ScenarioResult:
        role = self.agents[index].role
        if self.debugger is not None and role is AgentRole.USER:
            await self._dispatcher.catch_up()
            may_skip = not isinstance(self.agents[index], SilentUser)
            typed = await self.debugger.next_input(self, may_skip=may_skip)
            if isinstance(typed, ScenarioResult):
                return typed
            if typed is not None:
                # Without an author, as fixed content: the simulated user gets it as well.
                self.add_message({"role": "user", "content": typed})
                return [self.state.last_message()]
        returned = await super()._call(index, request)
        is_checkpoint = request is not None and request.criteria is not None
        is_judge = role is AgentRole.JUDGE and not is_checkpoint
        if is_judge and isinstance(returned, ScenarioResult) and returned.success:
            return await self._ask_other_judges(index, returned, request)
        return returned

    async def _ask_other_judges(
        self, index: int, verdict: ScenarioResult, request: JudgmentRequest | None
    ) -> list[Message] | ScenarioResult:
        """Return the verdict of all judges after one passed the case; [] if one is undecided."""
        for other, participant in enumerate(self.agents):
            if participant.role is not AgentRole.JUDGE or participant is self.agents[index]:
                continue
            if isinstance(participant, HasCriteria) and not participant.criteria:
                continue  # it decides at checkpoints only
            self.turns.mark_spoken(other)
            returned = await super()._call(other, request)
            if isinstance(returned, ScenarioResult):
                verdict = combine_verdicts(verdict, returned, len(self.usage.checkpoints))
                if not verdict.success:
                    return verdict
            elif isinstance(participant, HasCriteria):
                return []
        return verdict

    @property
    def pending_role(self) -> AgentRole | None:
        """The role of the participant whose answer is awaited; None if there is none."""
        participant = self._caller.pending
        return None if participant is None else participant.role

    def error_result(self, error: BaseException) -> ScenarioResult:
        """Return the result of a run that an error ended.

        A failed assertion of a step is a failure of the agent, and so is a test that a step or a
        participant fails by means of its test framework. Everything else is an error.
        """
        outcome = framework_outcome(error)
        participant = self._caller.author_of(error)
        text = message_of(error)
        if outcome == "failed" or (isinstance(error, AssertionError) and participant is None):
            if outcome != "failed" and not text:
                frames = traceback.extract_tb(error.__traceback__)
                line = frames[-1].line if frames else ""
                text = f"assertion failed: {line}" if line else "an assertion failed"
            fields = {"reason_code": "step_failed", "reasoning": f"{self.location}: {text}"}
            return self.complete(ScenarioResult(success=False, messages=[], **fields))
        if isinstance(error, ScenarioUsageError | ConversationTimeLimitExceeded):
            reasoning = text if text.startswith(self.location) else f"{self.location}: {text}"
        else:
            who = f"{type(participant).__name__} raised " if participant is not None else ""
            reasoning = f"{self.location}: {who}{with_location(error)}"
        code = _error_code(error, participant) if outcome is None else outcome
        fields = {"reason_code": code, "reasoning": reasoning, "error": describe(error)}
        return self.complete(ScenarioResult(success=False, messages=[], **fields))

    def note_location(self, error: BaseException) -> None:
        """Add the case, the step and the participant to an error that does not name them."""
        if self.location in str(error):
            return
        participant = self._caller.author_of(error)
        who = "" if participant is None else f": {type(participant).__name__} raised it"
        error.add_note(f"in {self.location}{who}")


def dropped_result_message(failure: ScenarioResult) -> str:
    """Return the warning about a step that does not return a result against the agent."""
    why = one_line(failure.reasoning or "failed", _MAX_REASONING)
    return f"it came to a result against the agent and dropped it: {why}; write `return await …`"


def _error_code(error: BaseException, participant: Participant | None) -> str:
    if isinstance(error, BackendTimeoutError):
        return "timeout"
    if isinstance(error, ScenarioUsageError):
        return "config"
    return _ERROR_CODES[participant.role] if participant is not None else "step_error"
