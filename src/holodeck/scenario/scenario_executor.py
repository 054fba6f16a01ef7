"""Running scenarios: `run`, `arun`, and the executor that both use."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

from holodeck.config.secrets import collect
from holodeck.errors import ConfigError
from holodeck.lib.conversation.debugger import add_debug_user, debugger_for
from holodeck.lib.conversation.events import EventFile, Listener
from holodeck.lib.conversation.messages import is_unanswered
from holodeck.lib.conversation.participants import ConversationTimeLimitExceeded
from holodeck.lib.conversation.printer import ConversationPrinter
from holodeck.lib.conversation.result_listeners import notify_result_listeners
from holodeck.lib.conversation.script_run import ScriptRun
from holodeck.lib.conversation.state import ScenarioState
from holodeck.lib.conversation.types import (
    CriterionStatus,
    Participant,
    ScenarioResult,
    ScriptStep,
    rows_of,
)
from holodeck.lib.processes.threads import BackgroundRun, join_at_exit
from holodeck.lib.secrets.redact import Redactor
from holodeck.lib.support.environment import batch_name, events_file
from holodeck.scenario.config import ScenarioConfig
from holodeck.scenario.connected_agent import resolve_agents
from holodeck.scenario.evaluators import ScenarioEvaluator, evaluate_run
from holodeck.scenario.spans import ScenarioTracing, set_up_from_settings

__all__ = ["ScenarioExecutor", "ScenarioState", "arun", "run"]

_GRACE_S = 0.1
"""Seconds after a limit at which a run is abandoned that its own event loop could not stop."""


class ScenarioExecutor(ScriptRun):
    """Builds and runs a scenario; `run` and `arun` are the short way.

    Args:
        name: The name of the scenario in reports.
        description: The situation; the simulated user follows it.
        agents: All participants: the agent under test, the user, the judge.
        script: The steps; without any, all participants speak in turn.
        max_turns: The most turns that are played without a script.
        verbose: Whether to show the conversation on stderr as it happens; 2 adds the name to each
            line. The default is to show it if stderr is a terminal.
        cache_key: The key under which responses of models are cached.
        debug: Whether a person at the terminal may speak for the user.
        event_bus: A listener: a function of an event.
        set_id: The set that the scenario belongs to.
        batch_run_id: The batch that the run belongs to; the default is HOLODECK_BATCH_RUN_ID, else
            one for the process.
        metadata: Values for the event that the run has started.
        fields: Values that `state.fields` has, such as expected answers.
        parameters: Arguments of agents that are connected functions.
        evaluators: Evaluators that run after the verdict; see `scenario.evaluator`.
        settings: Further settings of ScenarioConfig: `min_turns`, `timeout`, `call_timeout`,
            `cache_mode`, `cache_dir`, `events`.
    """

    config: ScenarioConfig
    _tracing: ScenarioTracing | None = None

    def __init__(  # noqa: PLR0913, PLR0917 - as documented
        self,
        name: str,
        description: str,
        agents: Sequence[Participant] = (),
        script: Sequence[ScriptStep] | None = None,
        max_turns: int | None = None,
        verbose: bool | int | None = None,
        cache_key: str | None = None,
        debug: bool | None = None,
        event_bus: Listener | None = None,
        set_id: str | None = None,
        *,
        batch_run_id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        fields: Mapping[str, Any] | None = None,
        parameters: Mapping[str, Any] | None = None,
        evaluators: Sequence[ScenarioEvaluator] = (),
        **settings: Any,
    ) -> None:
        config = ScenarioConfig.current(
            max_turns=max_turns, verbose=verbose, cache_key=cache_key, debug=debug, **settings
        )
        debugger = debugger_for(name) if config.debug else None
        if isinstance(agents, Iterable):
            agents = resolve_agents(list(agents), parameters)
        participants = agents if debugger is None else add_debug_user(agents)
        batch = batch_name() if batch_run_id is None else batch_run_id
        super().__init__(
            name, description, participants, script, config, set_id=set_id, batch_run_id=batch
        )
        self.metadata = None if metadata is None else dict(metadata)
        self.fields = dict(fields or {})
        self.evaluators = [*(evaluators or ())]
        self.debugger = debugger
        self.event_bus = event_bus
        for listener in [*([event_bus] if event_bus else []), *_listeners_of(config.events)]:
            self.events.subscribe(listener)
        if config.is_shown:
            self.events.subscribe(ConversationPrinter(is_named=(config.verbose or 0) >= 2))

    async def _run_script(self) -> ScenarioResult:
        if self.config.observability is not None:
            set_up_from_settings(self.config.observability)
        self._tracing = ScenarioTracing(self)
        self.span_store = self._tracing.store
        with self._tracing.collect():
            result = self._require_answers(await super()._run_script())
            result = await evaluate_run(self.evaluators, self.state, result)
            self._tracing.finish(result)
        return result

    async def _run_step(self, step: Any) -> Any:
        with nullcontext() if self._tracing is None else self._tracing.in_turn():
            return await super()._run_step(step)

    def _span_around(self, participant: Participant) -> AbstractContextManager[object]:
        return nullcontext() if self._tracing is None else self._tracing.around(participant)

    def _accept_verdict(self, result: ScenarioResult) -> ScenarioResult:
        passed = CriterionStatus.PASSED
        missed = [row.criterion for row in rows_of(result) if row.status is not passed]
        if result.success and missed:
            raise self.usage_error(
                f"a ScenarioResult has success=True, but {missed[0]!r} did not pass;"
                " write success=False, or leave it out of the criteria"
            )
        return super()._accept_verdict(result)

    def _require_answers(self, result: ScenarioResult) -> ScenarioResult:
        """Return the result, or a failure if a response of the agent shows nothing."""
        if not result.success or not is_unanswered(self.history.peek):
            return result
        reasoning = "the agent returned an empty response"
        update = {"success": False, "reasoning": reasoning, "reason_code": "empty_response"}
        return result.model_copy(update=update)

    def on_result(self, result: ScenarioResult) -> None:
        """Notify the listeners to all scenarios of this process."""
        notify_result_listeners(self.name, result)


def _listeners_of(events: Any) -> list[Listener]:
    """Return the listeners given as `events=`, and the file named by HOLODECK_EVENTS.

    Raises ConfigError for anything but functions and paths.
    """
    chosen = events if isinstance(events, Sequence) and not isinstance(events, str) else [events]
    listeners: list[Listener] = []
    for listener in [*chosen, events_file()]:
        if isinstance(listener, str | Path):
            path = Path(listener).expanduser().absolute()
            listeners.append(EventFile(path, Redactor(collect()).redact_report))
        elif callable(listener):
            listeners.append(listener)
        elif listener is not None:
            problem = f"{listener!r} is not a listener; write a function or the path of a file"
            raise ConfigError("events", problem)
    return listeners


async def run(  # noqa: PLR0913, PLR0917 - as documented
    name: str,
    description: str,
    agents: Sequence[Participant] = (),
    max_turns: int | None = None,
    verbose: bool | int | None = None,
    cache_key: str | None = None,
    debug: bool | None = None,
    script: Sequence[ScriptStep] | None = None,
    set_id: str | None = None,
    **more: Any,
) -> ScenarioResult:
    """Run a scenario on an event loop of its own, so that agents that block delay no other.

    The parameters are those of ScenarioExecutor.

    Raises:
        ConfigError: The scenario is invalid.
        BackendTimeoutError: A time limit has passed.
        Exception: What an agent, a step or a callback raises, such as AssertionError.
    """
    scenario = ScenarioExecutor(
        name, description, agents, script, max_turns, verbose, cache_key, debug,
        set_id=set_id, **more,
    )  # fmt: skip
    background = BackgroundRun(lambda: _run_contained(scenario), "holodeck-scenario")
    outcome = asyncio.wrap_future(background.outcome)
    try:
        while True:
            done, _ = await asyncio.wait([outcome], timeout=_longest_wait(scenario))
            if done:
                return outcome.result()
            left = scenario.limits.seconds_left()
            if left is not None and left[0] < -_GRACE_S / 2:
                error = ConversationTimeLimitExceeded(left[1])
                scenario.on_result(scenario.error_result(error))
                scenario.note_location(error)
                raise error
    finally:
        if not outcome.done():  # the caller was cancelled, or the run cannot be stopped in time
            outcome.cancel()
            join_at_exit(background.thread)
        background.cancel()


run.__qualname__ = "scenario.run"
"""Of its coroutine as well: Python's warning that it was never awaited names it."""


async def _run_contained(scenario: ScenarioExecutor) -> ScenarioResult:
    try:
        return await scenario.run()
    except (SystemExit, asyncio.CancelledError, GeneratorExit) as error:
        # Raised as it is, sys.exit() of an adapter would end the caller's event loop.
        raise RuntimeError(scenario.error_result(error).reasoning) from error


def _longest_wait(scenario: ScenarioExecutor) -> float | None:
    """Return the seconds until the next limit can have passed; None without limits."""
    config, left = scenario.config, scenario.limits.seconds_left()
    known = [limit for limit in (config.call_timeout, config.timeout) if limit is not None]
    known += [max(0.0, left[0])] if left is not None else []
    return min(known) + _GRACE_S if known else None


async def arun(  # noqa: PLR0913, PLR0917 - as documented
    name: str,
    description: str,
    agents: Sequence[Participant] = (),
    max_turns: int | None = None,
    verbose: bool | int | None = None,
    cache_key: str | None = None,
    debug: bool | None = None,
    script: Sequence[ScriptStep] | None = None,
    set_id: str | None = None,
    **more: Any,
) -> ScenarioResult:
    """Run a scenario on the caller's event loop, for clients that are bound to it.

    Otherwise as `run`; an agent that blocks delays the others.
    """
    scenario = ScenarioExecutor(
        name, description, agents, script, max_turns, verbose, cache_key, debug,
        set_id=set_id, **more,
    )  # fmt: skip
    return await scenario.run()


arun.__qualname__ = "scenario.arun"
