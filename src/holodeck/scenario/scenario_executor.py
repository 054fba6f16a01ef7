"""Running scenarios: `run`, `arun`, and the executor that both use."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from holodeck.config.environment import batch_name
from holodeck.lib.conversation.events import Listener
from holodeck.lib.conversation.result_listeners import notify_result_listeners
from holodeck.lib.conversation.script_run import ScriptRun
from holodeck.lib.conversation.state import ScenarioState
from holodeck.lib.conversation.terminal import ConversationPrinter, add_debug_user, debugger_for
from holodeck.lib.conversation.types import (
    CriterionStatus,
    Participant,
    ScenarioResult,
    ScriptStep,
    rows_of,
)
from holodeck.scenario.background_loop import run_on_background_loop
from holodeck.scenario.config import ScenarioConfig
from holodeck.scenario.events import listeners_of

_PASSED = CriterionStatus.PASSED

__all__ = ["ScenarioExecutor", "ScenarioState", "arun", "run"]


class ScenarioExecutor(ScriptRun):
    """Builds and plays one scenario; `run` and `arun` are the short way.

    Args:
        name: What reports call the scenario.
        description: The situation; what the simulated user goes by.
        agents: All who take part: the agent under test, the user, the judge.
        script: The steps; without any, everybody speaks in turn.
        max_turns: The most turns that are played without a script.
        verbose: Whether the conversation is shown on stderr as it happens; 2 adds the name to each
            line. Unless given, it is where stderr is a terminal.
        cache_key: What answers of models are kept under, to be used again.
        debug: Whether a person at the terminal is asked before the user speaks.
        event_bus: Who is told of what happens: a function of an event.
        set_id: The set that the scenario belongs to.
        min_turns: The least turns before a judge is asked.
        timeout: Seconds that the whole scenario may take.
        call_timeout: Seconds that one answer of anybody may take.
        cache_mode: `auto`, `record`, `replay` or `off`.
        cache_dir: The folder of the kept answers.
        events: Who else is told: a function, the path of a file for lines of JSON, or a list.
        batch_run_id: The batch that the run belongs to; if not given, what HOLODECK_BATCH_RUN_ID
            says, else one for the process.
    """

    config: ScenarioConfig

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
        min_turns: int | None = None,
        timeout: float | None = None,
        call_timeout: float | None = None,
        cache_mode: str | None = None,
        cache_dir: str | Path | None = None,
        events: Any = None,
        batch_run_id: str | None = None,
    ) -> None:
        config = ScenarioConfig.current(
            max_turns=max_turns,
            verbose=verbose,
            cache_key=cache_key,
            cache_mode=cache_mode,
            cache_dir=cache_dir,
            debug=debug,
            events=events,
            min_turns=min_turns,
            timeout=timeout,
            call_timeout=call_timeout,
        )
        debugger = debugger_for(name) if config.debug else None
        participants = agents if debugger is None else add_debug_user(agents)
        batch = batch_name() if batch_run_id is None else batch_run_id
        super().__init__(
            name, description, participants, script, config, set_id=set_id, batch_run_id=batch
        )
        self.debugger = debugger
        self.event_bus = event_bus
        for listener in [*([event_bus] if event_bus else []), *listeners_of(config.events)]:
            self.events.subscribe(listener)
        if config.is_shown:
            self.events.subscribe(ConversationPrinter(is_named=(config.verbose or 0) >= 2))

    def _judged(self, result: ScenarioResult) -> ScenarioResult:
        missed = [row.criterion for row in rows_of(result) if row.status is not _PASSED]
        if result.success and missed:
            raise self.usage_error(
                f"a ScenarioResult says success=True, and that {missed[0]!r} did not pass;"
                " write success=False, or leave it out of the criteria"
            )
        return super()._judged(result)

    def was_run(self, result: ScenarioResult) -> None:
        """Tell whoever wants to know of every scenario of this process."""
        notify_result_listeners(self.name, result)


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
    """Play a scenario on an event loop of its own, so that agents that block hold up no other.

    The parameters are those of ScenarioExecutor.

    Raises:
        ConfigError: The scenario is written wrong.
        BackendTimeoutError: A time limit is over.
        Exception: What an agent, a step or a callback raises, such as AssertionError.
    """
    return await run_on_background_loop(
        ScenarioExecutor(
            name,
            description,
            agents,
            script,
            max_turns=max_turns,
            verbose=verbose,
            cache_key=cache_key,
            debug=debug,
            set_id=set_id,
            **more,
        )
    )


run.__qualname__ = "scenario.run"
"""Of its coroutine, too: what Python says of one that was never awaited names it."""


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
    """Play a scenario on the caller's event loop, for clients that are bound to it.

    Otherwise as `run`; an agent that blocks holds up the others.
    """
    executor = ScenarioExecutor(
        name,
        description,
        agents,
        script,
        max_turns=max_turns,
        verbose=verbose,
        cache_key=cache_key,
        debug=debug,
        set_id=set_id,
        **more,
    )
    return await executor.run()


arun.__qualname__ = "scenario.arun"
