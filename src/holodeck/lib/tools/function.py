"""Tools that are Python functions beside the agent.yaml."""

import inspect
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from holodeck.errors import ConfigError
from holodeck.lib.suggestions import did_you_mean
from holodeck.lib.threads import call_user_function
from holodeck.lib.tools.base import Tool
from holodeck.lib.tools.docstrings import summary
from holodeck.lib.tools.signatures import Signature, signature_of
from holodeck.lib.user_code import import_file
from holodeck.models.tool import FunctionTool


def load_function_tool(config: FunctionTool, base_dir: Path) -> Tool:
    """The tool that the configuration describes; its file is imported, which runs it.

    Arguments are checked against the annotations, whoever wrote the schema. A function that is not
    async runs in a thread of its own. Raises ConfigError.
    """
    where = f"tools.{config.name}"
    module = import_file(Path(config.file), base_dir)
    function = _function(module, config, where)
    signature = _signature(function, config, where)
    schema = signature.schema()
    if config.parameters is not None:
        schema = _as_given(config.parameters, signature, where)
    return Tool(
        name=config.name,
        description=config.description or summary(inspect.getdoc(function)),
        parameters=schema,
        call=partial(_call, function, signature),
        timeout=config.timeout,
    )


async def _call(
    function: Callable[..., Any], signature: Signature, arguments: dict[str, Any]
) -> Any:
    positional, keyword = signature.bind(arguments)
    return await call_user_function(partial(function, *positional, **keyword), function)


def _function(module: Any, config: FunctionTool, where: str) -> Callable[..., Any]:
    """The function of the file. Raises ConfigError if it is none that a tool can be."""
    name, field = config.function, f"{where}.function"
    value = getattr(module, name, None)
    if value is None:
        known = [key for key, one in vars(module).items() if inspect.isfunction(one)]
        hint = did_you_mean(name, known)
        raise ConfigError(field, f"there is no function {name!r} in {config.file}{hint}")
    if not callable(value) or inspect.isclass(value):
        kind = "class" if inspect.isclass(value) else type(value).__name__
        raise ConfigError(field, f"{name!r} in {config.file} is a {kind}, not a function")
    if inspect.isgeneratorfunction(value) or inspect.isasyncgenfunction(value):
        raise ConfigError(field, f"{name!r} in {config.file} yields; a tool returns one value")
    function: Callable[..., Any] = value
    return function


def _signature(function: Callable[..., Any], config: FunctionTool, where: str) -> Signature:
    field = f"{where}.function"
    try:
        signature = signature_of(function)
    except (TypeError, ValueError, NameError) as error:
        raise ConfigError(
            field, f"no schema can be made for {config.function!r} of {config.file}: {error}"
        ) from error
    if "self" in signature.names:
        raise ConfigError(field, f"{config.function!r} takes 'self'; name a function, not a method")
    return signature


def _as_given(
    parameters: dict[str, dict[str, Any]], signature: Signature, where: str
) -> dict[str, Any]:
    """The schema written in the agent.yaml. Raises ConfigError if the function cannot take it."""
    field = f"{where}.parameters"
    strangers = [] if signature.takes_any else [n for n in parameters if n not in signature.names]
    if strangers:
        raise ConfigError(
            field,
            f"the function has no parameter {strangers[0]!r}; it has {', '.join(signature.names)}",
        )
    missing = [name for name in signature.required if name not in parameters]
    if missing:
        raise ConfigError(field, f"{missing[0]!r} is missing, and the function needs it")
    return {
        "type": "object",
        "properties": parameters,
        "required": signature.required,
        "additionalProperties": signature.takes_any,
    }
