"""A conversation whose turns are written, told as it happens, as one that is played is."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from functools import cached_property
from typing import Any

from holodeck.lib.conversation.events import EventStream, MessageAdded, RunFinished, RunStarted
from holodeck.lib.conversation.roles import Message
from holodeck.lib.conversation.setup import BATCH_RUN_ID, new_id
from holodeck.lib.conversation.types import ScenarioResult
from holodeck.lib.test_runner.transcripts import answer_of
from holodeck.lib.test_runner.turn_run import TurnRun
from holodeck.models.test_case import TestCaseModel, TurnModel


class StaticConversation:
    """Tells of a conversation to those who have subscribed; free where nobody has.

    Args:
        case: Whose conversation it is.
        before: What was said before it.
    """

    def __init__(self, case: TestCaseModel, before: Sequence[Message] = ()) -> None:
        self.before = before
        self.events = EventStream()
        self._dispatcher = self.events.dispatcher()
        self._case = case
        self._turn = 0
        self._told = 0

    @cached_property
    def _ids(self) -> dict[str, Any]:
        """What every event names."""
        return {
            "batch_run_id": BATCH_RUN_ID,
            "scenario_run_id": new_id("scenariorun"),
            "scenario_id": self._case.name or "case",
            "scenario_set_id": self._case.suite or "default",
        }

    @asynccontextmanager
    async def under_way(self) -> AsyncIterator[None]:
        """The time of the conversation; those who listen have heard all of it at its end."""
        self._dispatcher = self.events.dispatcher()
        if self._dispatcher.is_idle:
            yield
            return
        name = self._ids["scenario_id"]
        started = RunStarted(
            name=name, description=self._case.said, thread_id=new_id("thread"), **self._ids
        )
        self._dispatcher.put(started)
        try:
            yield
            await self._dispatcher.catch_up()
        finally:
            over = ScenarioResult(success=True, messages=[])
            self._dispatcher.put(RunFinished(status="SUCCESS", result=over, **self._ids))
            self._dispatcher.close()

    def says(self, turn: TurnModel) -> None:
        """Tell what the user says now."""
        self._tell({"role": "user", "content": turn.input})

    def answered(self, run: TurnRun) -> None:
        """Tell what the agent has done and said."""
        if not self._dispatcher.is_idle and not run.errors:
            for message in answer_of(run.result(), self._turn + 1):
                self._tell(message)
        self._turn += 1

    def _tell(self, message: Message) -> None:
        if self._dispatcher.is_idle:
            return
        said = MessageAdded(index=self._told, message=message, turn=self._turn, **self._ids)
        self._dispatcher.put(said)
        self._told += 1
