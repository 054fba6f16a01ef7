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
SEMANTIC_KERNEL = "semantic_kernel"
_BY_NAME = (Parameter.POSITIONAL_OR_KEYWORD, Parameter.KEYWORD_ONLY)
_MAPPINGS = r"(dict|Dict|Mapping|MutableMapping)\b"
ContextPassing = Literal["left out", "second", "by name"]
_POSITIONAL = (Parameter.POSITIONAL_ONLY, Parameter.POSITIONAL_OR_KEYWORD)


@dataclass(frozen=True)
class AgentFunction:
    """The function or method that answers."""

    function: Callable[..., Any]
    context: ContextPassing
    """How the earlier messages are passed."""
    case_context: str | None = None
    """The parameter that gets the context of the case; None if there is none."""

    async def answer(
        self,
        message: str,
        context: Sequence[Message],
        case_context: Mapping[str, Any] | None = None,
    ) -> ExecutionResult:
        """What it answers; one that is not async runs in a thread of its own."""
        call = partial(self.function, message)
        if self.case_context is not None:
            call = partial(call, **{self.case_context: case_context})
        if self.context == "second":
            call = partial(call, list(context))
        elif self.context == "by name":
            call = partial(call, context=list(context))
        return parse_result(await call_user_function(call, self.function))


def find_agent_function(agent: Any, where: str) -> AgentFunction:
    """How an agent is asked. Raises ConfigError if it has no shape that is known."""
    function = agent if inspect.isroutine(agent) else _method(agent, where)
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as error:
        raise ConfigError(where, f"the signature of {_name(function)} is hidden") from error
    way, own = argument_passing(parameters, _name(function), where)
    return AgentFunction(function, way, own)


def argument_passing(
    parameters: Sequence[Parameter], name: str, where: str
) -> tuple[ContextPassing, str | None]:
    """How a function so called is passed the earlier messages, and which parameter gets the context
    of the case. Raises ConfigError if it cannot be called at all.
    """
    own = _case_parameter(parameters)
    others = [one for one in parameters if one.name != own]
    return _way_of_context(others, name, where), own


def is_factory(value: Any) -> bool:
    """Whether it is a function that takes nothing, and so makes an agent instead of being one."""
    is_function = inspect.isfunction(value) or inspect.ismethod(value)
    return is_function and not inspect.signature(value).parameters


async def close_agent(agent: Any) -> None:
    """Call the agent's `aclose` or `close`, if it has one; what that raises is only logged."""
    methods = [getattr(agent, name, None) for name in ("aclose", "close")]
    method = next(filter(callable, methods), None)
    if method is None:
        return
    try:
        await call_user_function(method, method)
    except Exception as error:  # noqa: BLE001 - an answer must not be lost to a clean-up
        logger.warning("closing the agent failed: %s", describe(error))


def _method(agent: Any, where: str) -> Callable[..., Any]:
    for name in METHODS:
        method = getattr(agent, name, None)
        if callable(method):
            # The `__call__` of a partial or a cached function does not say what it takes.
            found: Callable[..., Any] = agent if name == "__call__" else method
            return found
    kind = type(agent)
    if any(one.__module__.partition(".")[0] == SEMANTIC_KERNEL for one in kind.__mro__):
        raise ConfigError(where, semantic_kernel_hint(kind.__name__))
    raise ConfigError(where, f"a {kind.__name__} is no agent; name {SHAPES}")


def semantic_kernel_hint(kind: str) -> str:
    """What to write in place of a bare agent of Semantic Kernel; `kind` is the name of its class.

    Only a chat agent has a kernel and a history that a thread run can keep.
    """
    start = f"found a {kind} of Semantic Kernel, which has no run() and cannot be called; write"
    if kind != "ChatCompletionAgent":
        return f"{start} a function of the input around it that returns the answer, and name that"
    return (
        f"{start} a class with 'async def run(self, message)' around it that returns"
        " 'await self.thread.send(message)', where self.thread is"
        " AgentThreadRun(agent, kernel, arguments), and name the class;"
        " docs/guide/backends.md has an example"
    )


def _case_parameter(parameters: Sequence[Parameter]) -> str | None:
    """The parameter for the context of the case: by its name, or `context` if it is a mapping."""
    for one in parameters[1:]:
        if one.kind not in _BY_NAME:
            continue
        if one.name == "case_context" or (one.name == "context" and _is_mapping(one.annotation)):
            return one.name
    return None


def _is_mapping(annotation: Any) -> bool:
    """Whether a parameter annotated so takes a mapping, or a mapping and None."""
    if isinstance(annotation, str):
        return re.match(r"(typing\.)?(Optional\[)?(typing\.)?" + _MAPPINGS, annotation) is not None
    arms = typing.get_args(annotation) if _is_union(annotation) else (annotation,)
    kinds = [typing.get_origin(arm) or arm for arm in arms]
    return any(isinstance(kind, type) and issubclass(kind, Mapping) for kind in kinds)


def _is_union(annotation: Any) -> bool:
    return typing.get_origin(annotation) in (typing.Union, types.UnionType)


def _way_of_context(parameters: Sequence[Parameter], name: str, where: str) -> ContextPassing:
    positional = [p for p in parameters if p.kind in _POSITIONAL]
    takes_rest = any(p.kind is Parameter.VAR_POSITIONAL for p in parameters)
    if not positional and not takes_rest:
        raise ConfigError(where, f"{name} takes no input; name {SHAPES}")
    others = [p for p in parameters[1:] if _is_required(p) and p.name != "context"]
    if len(others) > 1 or (others and others[0] not in positional[1:2]):
        raise ConfigError(
            where, f"{name} needs {others[-1].name!r} besides the input and the context"
        )
    if any(p.name == "context" and p.kind is not Parameter.POSITIONAL_ONLY for p in parameters[1:]):
        return "by name"
    second = positional[1:2]
    return "second" if second and _is_required(second[0]) else "left out"


def _is_required(parameter: Parameter) -> bool:
    return parameter.default is Parameter.empty and parameter.kind not in {
        Parameter.VAR_POSITIONAL,
        Parameter.VAR_KEYWORD,
    }


def _name(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__qualname__", type(function).__name__))
