"""The arguments of a metric class, by the signature of its constructor."""

import inspect
from collections.abc import Mapping
from typing import Any

from holodeck.errors import ConfigError
from holodeck.lib.support.text import did_you_mean_or_list
from holodeck.lib.user_code.code_root import CodeFolders
from holodeck.lib.user_code.registry import load_attribute
from holodeck.models.metrics.base import python_target


def class_arguments(
    metric_class: type[Any],
    args: Mapping[str, Any],
    *,
    ours: Mapping[str, str],
    base_dir: CodeFolders | None,
) -> dict[str, Any]:
    """Return the arguments, with the objects that `{python: "module:object"}` names.

    Args:
        metric_class: The class.
        args: The arguments as agent.yaml writes them.
        ours: Arguments that holodeck sets, and what to write instead.
        base_dir: Where the modules of the user's objects are looked up first.

    Raises ConfigError for an unknown or missing argument.
    """
    name = metric_class.__name__
    parameters = named_parameters(metric_class)
    usable = [key for key in parameters if key not in ours and not key.startswith("_")]
    for key in args:
        if key in ours:
            raise ConfigError(f"args.{key}", f"is set by holodeck; {ours[key]}")
        if not takes_argument(metric_class, key):
            hint = did_you_mean_or_list(key, usable) or "; it takes none"
            raise ConfigError(f"args.{key}", f"{name} has no argument {key!r}{hint}")
    for key in usable:
        if parameters[key].default is inspect.Parameter.empty and key not in args:
            raise ConfigError(f"args.{key}", f"is missing, which {name} requires")
    targets = {key: python_target(value) for key, value in args.items()}
    return {
        key: value
        if (target := targets[key]) is None
        else load_attribute(target, base_dir, location=f"args.{key}")
        for key, value in args.items()
    }


def named_parameters(callable_: Any) -> dict[str, inspect.Parameter]:
    """Return the parameters that an argument can name."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(callable_).parameters
    return {name: item for name, item in parameters.items() if item.kind in named}


def takes_argument(callable_: Any, name: str) -> bool:
    """Whether it can be called with an argument of that name."""
    kinds = {parameter.kind for parameter in inspect.signature(callable_).parameters.values()}
    return name in named_parameters(callable_) or inspect.Parameter.VAR_KEYWORD in kinds
