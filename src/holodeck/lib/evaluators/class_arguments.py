"""The arguments of a metric class, checked against the signature of the class."""

import inspect
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ConfigDict, PydanticSchemaGenerationError, PydanticUserError, TypeAdapter
from pydantic import ValidationError as PydanticValidationError

from holodeck.errors import ConfigError
from holodeck.lib.registry import load_attribute
from holodeck.lib.suggestions import did_you_mean_or_list
from holodeck.models.library_metrics import python_target


def class_arguments(
    metric_class: type[Any],
    args: Mapping[str, Any],
    *,
    ours: Mapping[str, str],
    base_dir: Path | None,
) -> dict[str, Any]:
    """Return the arguments in the types that the class declares.

    Args:
        metric_class: The class.
        args: The arguments as agent.yaml writes them.
        ours: Arguments that holodeck sets, and what to write instead.
        base_dir: Where the modules of `{python: "module:object"}` are looked up first.

    Raises ConfigError for an unknown, missing or unsuitable argument.
    """
    parameters, takes_any = constructor_parameters(metric_class)
    usable = [name for name in parameters if name not in ours and not name.startswith("_")]
    for name in args:
        if name in ours:
            raise ConfigError(f"args.{name}", f"is set by holodeck; {ours[name]}")
        if name not in usable and not takes_any:
            hint = did_you_mean_or_list(name, usable) or "; it takes none"
            raise ConfigError(
                f"args.{name}", f"{metric_class.__name__} has no argument {name!r}{hint}"
            )
    for name in usable:
        if parameters[name].default is inspect.Parameter.empty and name not in args:
            raise ConfigError(f"args.{name}", f"is missing, which {metric_class.__name__} requires")
    hints = _type_hints(metric_class)
    return {name: _converted(name, args[name], hints, base_dir) for name in args}


def constructor_parameters(metric_class: type[Any]) -> tuple[dict[str, inspect.Parameter], bool]:
    """Return the arguments that a class can be created with, and whether it takes any others.

    What `**kwargs` collects is looked up in the constructors of the base classes.
    """
    found: dict[str, inspect.Parameter] = {}
    for one in metric_class.__mro__:
        constructor = vars(one).get("__init__")
        if constructor is None or one is object:
            continue
        own = dict(list(named_parameters(constructor).items())[1:])
        if found:  # what a base class requires, the class may set itself
            own = {name: one.replace(default=None) for name, one in own.items()}
        found = own | found
        if not takes_any_argument(constructor):
            return found, False
    if not found and metric_class.__init__ is object.__init__:
        return named_parameters(metric_class), False  # a class with `__new__` or none at all
    return found, True


def named_parameters(callable_: Any) -> dict[str, inspect.Parameter]:
    """Return the parameters that can be given by name."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    found = inspect.signature(callable_).parameters
    return {name: one for name, one in found.items() if one.kind in named}


def takes_any_argument(callable_: Any) -> bool:
    """Whether it has a `**kwargs`."""
    found = inspect.signature(callable_).parameters.values()
    return any(one.kind is inspect.Parameter.VAR_KEYWORD for one in found)


def takes_argument(callable_: Any, name: str) -> bool:
    """Whether it can be called with an argument of that name."""
    return name in named_parameters(callable_) or takes_any_argument(callable_)


def _type_hints(metric_class: type[Any]) -> dict[str, Any]:
    try:
        return typing.get_type_hints(metric_class.__init__)
    except (NameError, TypeError):  # a name that only type checkers import
        return {}


def _converted(name: str, value: Any, hints: Mapping[str, Any], base_dir: Path | None) -> Any:
    target = python_target(value)
    if target is not None:
        return load_attribute(target, base_dir, location=f"args.{name}")
    if name not in hints:
        return value
    try:
        return _adapter(hints[name]).validate_python(value)
    except PydanticSchemaGenerationError:  # a type that only Python code can check
        return value
    except PydanticValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        inside = ".".join(str(one) for one in first["loc"] if not str(one).startswith("is-"))
        advice = (
            '; for an object of your own write {python: "module:object"}'
            if first["type"].startswith("is_")
            else ""
        )
        part = f" ({inside})" if inside else ""
        raise ConfigError(f"args.{name}", f"{first['msg']}{part}{advice}") from error


def _adapter(hint: Any) -> TypeAdapter[Any]:
    try:
        return TypeAdapter(hint, config=ConfigDict(arbitrary_types_allowed=True))
    except PydanticUserError as error:
        if error.code != "type-adapter-config-unused":
            raise
        return TypeAdapter(hint)
