"""How the user's agents are called: their functions, what these receive, and what they return.

The worker of a process backend loads this module in environments without holodeck, so it imports
little and runs on Python 3.9.
"""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import Parameter
from typing import Any, Literal

from holodeck.lib.support.text import instance_of

METHODS = ("run", "invoke_once", "__call__")
SHAPES = (
    "a function of the input, an object or class with run(input, context) or __call__,"
    " or an AgentBackend"
)
ANSWER_KEYS = ("response", "output", "text")
RESULT_KEYS = (
    *ANSWER_KEYS,
    *("tool_calls", "tool_results", "retrieval_context", "usage", "token_usage", "model", "agents"),
    *("metadata", "tool_calls_problem", "ends_with_calls", "left_out", "pending_approvals"),
)
"""Keys of a mapping that an agent returns; holodeck does not read `metadata`."""
ContextPassing = Literal["left out", "second", "by name"]
"""How a function takes the earlier messages."""

_MAPPING_NAMES = r"(dict|Dict|Mapping|MutableMapping)\b"
_NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


class UnusableAgent(Exception):
    """An object that cannot be called as an agent; the message says why."""


@dataclass(frozen=True)
class AgentCall:
    """The user's function or method that answers, and what its parameters receive."""

    function: Callable[..., Any]
    context: ContextPassing
    case_context: str | None = None
    """The parameter for the context of the case; None if there is none."""

    def bind(
        self,
        message: str,
        context: object,
        case_context: Mapping[str, Any] | None = None,
    ) -> Callable[[], Any]:
        """Return the call with a message, with what `context` passes, and the case's context."""
        call = partial(self.function, message)
        if self.case_context is not None:
            call = partial(call, **{self.case_context: case_context})
        if self.context == "second":
            call = partial(call, context)
        elif self.context == "by name":
            call = partial(call, context=context)
        return call


def find_method(agent: Any) -> Callable[..., Any]:
    """Return the function that answers: the agent itself, or its method. Raises UnusableAgent."""
    if inspect.isroutine(agent):
        return agent
    for name in METHODS:
        method = getattr(agent, name, None)
        if callable(method):
            # The `__call__` of a partial or a cached function hides its signature.
            function: Callable[..., Any] = agent if name == "__call__" else method
            return function
    if agent is None:
        raise UnusableAgent(f"None is not an agent; name {SHAPES}")
    raise UnusableAgent(f"{instance_of(agent)} is not an agent; name {SHAPES}")


def find_call(agent: Any) -> AgentCall:
    """Return how the agent is called. Raises UnusableAgent."""
    function = find_method(agent)
    name = str(getattr(function, "__qualname__", type(function).__name__))
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise UnusableAgent(f"the signature of {name} cannot be read") from error
    return AgentCall(function, *argument_passing(parameters, name))


def argument_passing(
    parameters: Sequence[Parameter], name: str
) -> tuple[ContextPassing, str | None]:
    """Return how a function takes the earlier messages, and its parameter for the case's context.

    Raises UnusableAgent if the function cannot be called at all.
    """
    case_context = _case_context_parameter(parameters)
    parameters = [parameter for parameter in parameters if parameter.name != case_context]
    positional = [parameter for parameter in parameters if parameter.kind in _POSITIONAL]
    if not positional and not any(
        parameter.kind is Parameter.VAR_POSITIONAL for parameter in parameters
    ):
        raise UnusableAgent(f"{name} takes no input; name {SHAPES}")
    others = [
        parameter
        for parameter in parameters[1:]
        if _is_required(parameter) and parameter.name != "context"
    ]
    if len(others) > 1 or (others and others[0] not in positional[1:2]):
        raise UnusableAgent(f"{name} needs {others[-1].name!r} besides the input and the context")
    if any(
        parameter.name == "context" and parameter.kind is not Parameter.POSITIONAL_ONLY
        for parameter in parameters[1:]
    ):
        return "by name", case_context
    takes_second = positional[1:2] and _is_required(positional[1])
    return "second" if takes_second else "left out", case_context


def is_factory(value: Any) -> bool:
    """Whether it is a function without parameters, which makes an agent and is none itself."""
    is_function = inspect.isfunction(value) or inspect.ismethod(value)
    return is_function and not inspect.signature(value).parameters


def is_async(call: Callable[..., Any]) -> bool:
    """Whether a function, or a callable object, is written with `async def`."""
    if inspect.isclass(call):
        return False
    functions = (call, getattr(call, "__call__", None))  # noqa: B004 - asks for the method itself
    return any(
        inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function)
        for function in functions
    )


def _case_context_parameter(parameters: Sequence[Parameter]) -> str | None:
    """Return the parameter `case_context`, or `context` if it is annotated as a mapping."""
    for parameter in parameters[1:]:
        if parameter.kind not in _NAMED:
            continue
        if parameter.name == "case_context" or (
            parameter.name == "context" and _is_mapping(parameter.annotation)
        ):
            return parameter.name
    return None


def _is_mapping(annotation: Any) -> bool:
    """Whether the annotation is a mapping, or a union with a mapping."""
    if isinstance(annotation, str):
        pattern = r"(typing\.)?(Optional\[)?(typing\.)?" + _MAPPING_NAMES
        return re.match(pattern, annotation) is not None
    unions = (typing.Union, getattr(types, "UnionType", typing.Union))
    is_union = typing.get_origin(annotation) in unions
    members = typing.get_args(annotation) if is_union else (annotation,)
    kinds = [typing.get_origin(member) or member for member in members]
    return any(isinstance(kind, type) and issubclass(kind, Mapping) for kind in kinds)


def _is_required(parameter: Parameter) -> bool:
    return parameter.default is Parameter.empty and parameter.kind not in _VARIADIC
