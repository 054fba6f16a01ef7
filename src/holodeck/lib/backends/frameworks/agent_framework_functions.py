"""Workflows of Microsoft Agent Framework that are functions with `@workflow`.

The function calls agents, models and tools as it likes, and nothing reports them: they are unknown.
"""

import inspect
import typing
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from holodeck.lib.backends.frameworks.agent_framework_messages import to_messages
from holodeck.lib.backends.frameworks.agent_framework_workflows import pending_turn, response_of
from holodeck.lib.backends.frameworks.base import (
    FrameworkAdapter,
    FrameworkError,
    FrameworkSession,
    TurnRecord,
)

if TYPE_CHECKING:
    from holodeck.lib.backends.base import Message


def adapt_function(value: object, options: Mapping[str, Any]) -> "FunctionalWorkflowAdapter | None":
    """Return the adapter of a function with `@workflow`; None for any other object.

    Raises FrameworkError for one that was built, because it serves a single conversation.
    """
    kinds = {base.__name__ for base in type(value).__mro__}  # older versions have none of them
    if kinds & {"FunctionalWorkflow", "FunctionalWorkflowAgent"}:
        raise FrameworkError(
            "the workflow was built for one conversation, which test cases would share; name the"
            " function with @workflow, on which build() was called"
        )
    if "FunctionalWorkflowDefinition" not in kinds:
        return None
    return FunctionalWorkflowAdapter(value, options)


class FunctionalWorkflowAdapter(FrameworkAdapter):
    """A function with `@workflow`, of which each turn builds a workflow."""

    objects = ("FunctionalWorkflowDefinition",)
    reads = frozenset()

    def __init__(self, definition: Any, options: Mapping[str, Any]) -> None:
        self._definition = definition
        self._options = options

    async def open(self, context: Sequence["Message"]) -> "FunctionalWorkflowConversation":
        return FunctionalWorkflowConversation(self._definition, self._options, context)


class FunctionalWorkflowConversation(FrameworkSession):
    """A conversation with a function, which gets all messages if it takes a list of them."""

    traced_as = "Microsoft Agent Framework"

    def __init__(
        self, definition: Any, options: Mapping[str, Any], context: Sequence["Message"]
    ) -> None:
        self.turn = TurnRecord(tool_calls=None)
        self._definition = definition
        self._options = options
        self._takes_messages = takes_messages(definition.__wrapped__)
        self._history: list[Any] = []
        self.remember(context)

    async def send(self, message: str) -> TurnRecord:
        import agent_framework

        self.turn = TurnRecord(tool_calls=None)
        history = [*self._history, agent_framework.Message("user", [message])]
        given = history if self._takes_messages else message
        result = await self._definition.build().run(given, **self._options)
        pending_turn(result.get_request_info_events())
        self.turn.response = response_of(result.get_outputs())
        said = agent_framework.Message("assistant", [str(self.turn.response)])
        self._history = [*history, said]
        return self.turn

    def remember(self, messages: Sequence["Message"]) -> None:
        if messages and not self._takes_messages:
            raise FrameworkError(
                f"the workflow {self._definition.name!r} takes one message, and no earlier ones;"
                " give its parameter the type list[Message]"
            )
        self._history += to_messages(messages)


def takes_messages(function: Any) -> bool:
    """Whether the parameter of a function with `@workflow` is a list of messages."""
    try:
        hints = typing.get_type_hints(function)
    except Exception:  # noqa: BLE001 - a name in a hint that exists only for a type checker
        hints = {}
    for name, parameter in inspect.signature(function).parameters.items():
        kind = hints.get(name, parameter.annotation)
        if name != "ctx" and getattr(kind, "__name__", "") != "RunContext":
            return typing.get_origin(kind) in {list, Sequence}
    return False
