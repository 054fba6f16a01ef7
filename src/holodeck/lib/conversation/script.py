"""The steps of a script, as values: what each does once it is its turn."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holodeck.lib.conversation.engine import ScriptedConversation
    from holodeck.lib.conversation.state import ScenarioState
    from holodeck.lib.conversation.types import Callback, ScenarioResult

Content = str | Mapping[str, Any]
_unused: ContextVar[list[Step] | None] = ContextVar("holodeck_unused_steps", default=None)


class DroppedStep(UserWarning):
    """What a step made or returned was meant to decide something, and does not."""


class Step:
    """A step of a script: called with the state, it gives an awaitable of a result or None."""

    def __init__(
        self, name: str, play: Callable[[ScriptedConversation], Awaitable[ScenarioResult | None]]
    ) -> None:
        self.name = name
        self._play = play
        unused = _unused.get()
        if unused is not None:
            unused.append(self)

    def __call__(self, state: ScenarioState) -> Awaitable[ScenarioResult | None]:
        unused = _unused.get()
        if unused is not None and self not in unused:
            unused.append(self)
        return self._played(state, unused)

    async def _played(
        self, state: ScenarioState, unused: list[Step] | None
    ) -> ScenarioResult | None:
        if unused is not None and self in unused:
            unused.remove(self)
        talk: Any = state._executor  # noqa: SLF001 - the state is the steps' way to the engine
        return await self._play(talk)

    def __repr__(self) -> str:
        return f"<step {self.name}>"


@contextmanager
def unused_steps() -> Iterator[list[Step]]:
    """The steps made or applied inside the block that nobody has awaited."""
    unused: list[Step] = []
    token = _unused.set(unused)
    try:
        yield unused
    finally:
        _unused.reset(token)


def message(message: Mapping[str, Any]) -> Step:
    """Add a message; one of the user or of the agent takes their turn."""
    return Step("message", lambda talk: talk.message(message))


def user(content: Content | None = None) -> Step:
    """The user says `content`, or what comes to the simulated user's mind."""
    return Step("user", lambda talk: talk.user(content))


def agent(content: Content | None = None) -> Step:
    """The agent answers; or `content` stands in for its answer."""
    return Step("agent", lambda talk: talk.agent(content))


def judge(criteria: str | Sequence[str] | None = None, *, content: Content | None = None) -> Step:
    """The judge gives its verdict: on its own criteria, or on those of a checkpoint.

    `content` asks nobody; it is added as a message of the assistant.
    """
    return Step("judge", lambda talk: talk.judge(criteria, content=content))


def proceed(
    turns: int | None = None,
    on_turn: Callback | None = None,
    on_step: Callback | None = None,
    on_turn_end: Callback | None = None,
) -> Step:
    """Let everybody speak in turn, until there is a result or `turns` are used up."""
    return Step("proceed", lambda talk: talk.proceed(turns, on_turn, on_step, on_turn_end))


def succeed(reasoning: str | None = None) -> Step:
    """End the case: it passed."""
    return Step("succeed", lambda talk: talk.succeed(reasoning))


def fail(reasoning: str | None = None) -> Step:
    """End the case: it failed."""
    return Step("fail", lambda talk: talk.fail(reasoning))


STEPS = (message, user, agent, judge, proceed, succeed, fail)
"""What makes steps; none of them is one."""
