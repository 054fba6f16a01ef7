"""Command-line options for the settings, made from the fields of ExecutionConfig."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any, TypeVar, get_args

import click
from pydantic import TypeAdapter, ValidationError

from holodeck.config.settings import conflict_message
from holodeck.config.yaml.validation_errors import expected_value
from holodeck.lib.support.text import quote
from holodeck.lib.ui.help import GroupedOption
from holodeck.models.config import COMMAND_LINE, ExecutionConfig, SettingField, setting_fields

F = TypeVar("F", bound=Callable[..., Any])


class SettingType(click.ParamType):
    """A value that the setting's own field accepts."""

    name = "number"

    def __init__(self, declared: SettingField) -> None:
        self._declared = declared

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        """Built on first use, because most options are not given."""
        return TypeAdapter(self._declared.annotation)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            return self._adapter.validate_python(value)
        except ValidationError as error:
            self.fail(f"found {quote(str(value))}; expected {expected_value(error)}", param, ctx)


def cli_options(without: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Return a decorator that adds an option for every setting with a flag, except `without`.

    The command gets each as an argument with the name of the field; None if it is not given.
    """

    def decorate(command: F) -> F:
        for declared in reversed(setting_fields().values()):
            if declared.flags and declared.field not in without:
                command = option(declared)(command)
        return command

    return decorate


def option(declared: SettingField) -> Callable[[F], F]:
    """Return the option of a setting; a switch also has an opposite, as in `--no-quiet`."""
    setting = declared.setting
    is_plain = setting.default is None or setting.default is False
    default = "." if is_plain else f" [default: {format_default(setting.default)}]"
    names = list(declared.flags)
    attributes: dict[str, Any] = {"type": SettingType(declared), "metavar": setting.metavar}
    if bool in get_args(declared.annotation):  # a switch
        long, *short = names
        on = " " if setting.has_only_off_flag else long  # or click takes `/` for a prefix
        names = [*short, f"{on}/{off_flag(long)}"]
        attributes = {"default": None}
    return click.option(
        *names,
        declared.field,
        cls=GroupedOption,
        group=setting.group or "Other",
        aliases=setting.aliases,
        help=setting.help.removesuffix(".") + default,
        **attributes,
    )


def off_flag(flag: str) -> str:
    """`--no-quiet` for `--quiet`."""
    return f"--no-{flag.removeprefix('--')}"


def cli_config(values: Mapping[str, Any]) -> ExecutionConfig:
    """Return the settings among a command's arguments, each with its flag as source."""
    given = {field: values[field] for field in setting_fields() if values.get(field) is not None}
    sources = {}
    for field, value in given.items():
        flag = next(iter(setting_fields()[field].flags), COMMAND_LINE)
        sources[field] = off_flag(flag) if value is False else flag
    try:
        return ExecutionConfig(**given).with_sources(sources)
    except ValidationError as error:
        raise click.UsageError(conflict_message(error)) from error


def format_default(default: Any) -> str:
    """Return a default as help and documentation show it."""
    if default is None:
        return "none"
    if isinstance(default, bool):
        return "on" if default else "off"
    return default if isinstance(default, str) else f"{default:g}"
