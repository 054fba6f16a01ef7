"""Shapes of the user's own agents: functions, objects and classes, and how each is called."""

import inspect
import logging
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import Parameter
from typing import Any, Literal

from holodeck.errors import ConfigError
from holodeck.lib.backends.base import ExecutionResult, Message
from holodeck.lib.backends.parsing import parse_result
from holodeck.lib.exceptions import describe
from holodeck.lib.threads import call_user_function

logger = logging.getLogger(__name__)

METHODS = ("run", "invoke_once", "__call__")
SHAPES = (
    "a function of the input, an object or class with run(input, context) or __call__,"
    " or an AgentBackend"
)
_MAPPING_NAMES = r"(dict|Dict|Mapping|MutableMapping)\b"
_NAMED = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)
_VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
ContextPassing = Literal["left out", "second", "by name"]
"""How a function takes the earlier messages."""


@dataclass(frozen=True)
class AgentFunction:
    """The user's function or method that answers."""

    function: Callable[..., Any]
    context: ContextPassing
    case_context: str | None = None
    """The parameter for the context of the case; None if there is none."""

    async def answer(
        self,
        message: str,
        context: Sequence[Message],
        case_context: Mapping[str, Any] | None = None,
    ) -> ExecutionResult:
        """Return the agent's response; a function that is not async runs in a thread."""
        call = partial(self.function, message)
        if self.case_context is not None:
            call = partial(call, **{self.case_context: case_context})
        if self.context == "second":
            call = partial(call, list(context))
        elif self.context == "by name":
            call = partial(call, context=list(context))
        return parse_result(await call_user_function(call, self.function))


def find_agent_function(agent: Any, location: str) -> AgentFunction:
    """Return the function of an agent. Raises ConfigError for an unknown shape."""
    function = agent if inspect.isroutine(agent) else _method(agent, location)
    name = str(getattr(function, "__qualname__", type(function).__name__))
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise ConfigError(location, f"the signature of {name} cannot be read") from error
    context, case_context = argument_passing(parameters, name, location)
    return AgentFunction(function, context, case_context)


def argument_passing(
    parameters: Sequence[Parameter], name: str, location: str
) -> tuple[ContextPassing, str | None]:
    """Return how a function takes the earlier messages, and its parameter for the case's context.

    Raises ConfigError if the function cannot be called at all.
    """
    case_context = _case_context_parameter(parameters)
    parameters = [one for one in parameters if one.name != case_context]
    positional = [one for one in parameters if one.kind in _POSITIONAL]
    if not positional and not any(one.kind is Parameter.VAR_POSITIONAL for one in parameters):
        raise ConfigError(location, f"{name} takes no input; name {SHAPES}")
    others = [one for one in parameters[1:] if _is_required(one) and one.name != "context"]
    if len(others) > 1 or (others and others[0] not in positional[1:2]):
        raise ConfigError(
            location, f"{name} needs {others[-1].name!r} besides the input and the context"
        )
    if any(
        one.name == "context" and one.kind is not Parameter.POSITIONAL_ONLY
        for one in parameters[1:]
    ):
        return "by name", case_context
    takes_second = positional[1:2] and _is_required(positional[1])
    return "second" if takes_second else "left out", case_context


def is_factory(value: Any) -> bool:
    """Whether it is a function without parameters, which makes an agent instead of being one."""
    is_function = inspect.isfunction(value) or inspect.ismethod(value)
    return is_function and not inspect.signature(value).parameters


async def close_agent(agent: Any) -> None:
    """Call the agent's `aclose` or `close`, if it has one; an error is only logged."""
    methods = [getattr(agent, name, None) for name in ("aclose", "close")]
    method = next(filter(callable, methods), None)
    if method is None:
        return
    try:
        await call_user_function(method, method)
    except Exception as error:  # noqa: BLE001 - a failing clean-up must not lose a response
        logger.warning("closing the agent failed: %s", describe(error))


def _method(agent: Any, location: str) -> Callable[..., Any]:
    for name in METHODS:
        method = getattr(agent, name, None)
        if callable(method):
            # The `__call__` of a partial or a cached function hides its signature.
            function: Callable[..., Any] = agent if name == "__call__" else method
            return function
    raise ConfigError(location, f"a {type(agent).__name__} is not an agent; name {SHAPES}")


def _case_context_parameter(parameters: Sequence[Parameter]) -> str | None:
    """Return the parameter `case_context`, or `context` if it is annotated as a mapping."""
    for one in parameters[1:]:
        if one.kind not in _NAMED:
            continue
        if one.name == "case_context" or (one.name == "context" and _is_mapping(one.annotation)):
            return one.name
    return None


def _is_mapping(annotation: Any) -> bool:
    """Whether the annotation is a mapping, or a union with one."""
    if isinstance(annotation, str):
        pattern = r"(typing\.)?(Optional\[)?(typing\.)?" + _MAPPING_NAMES
        return re.match(pattern, annotation) is not None
    is_union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    members = typing.get_args(annotation) if is_union else (annotation,)
    kinds = [typing.get_origin(member) or member for member in members]
    return any(isinstance(kind, type) and issubclass(kind, Mapping) for kind in kinds)


def _is_required(parameter: Parameter) -> bool:
    return parameter.default is Parameter.empty and parameter.kind not in _VARIADIC
