"""The steps of a script."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holodeck.lib.conversation.engine import Conversation
    from holodeck.lib.conversation.state import ScenarioState
    from holodeck.lib.conversation.types import Callback, ScenarioResult

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
