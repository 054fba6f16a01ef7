"""A function's signature as the JSON Schema of its arguments, and as their check."""

import functools
import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from inspect import Parameter
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails, PydanticUndefined

from holodeck.lib.suggestions import did_you_mean
from holodeck.lib.tools.base import ToolArgumentError
from holodeck.lib.tools.docstrings import parameters as described_in
from holodeck.lib.tools.schemas import UntitledSchema, without_references

_VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


@dataclass(frozen=True)
class Signature:
    """What a function takes."""

    model: type[BaseModel]
    """One field per parameter, named `p0`, `p1`, … after its place; the alias is its own name."""
    parameters: tuple[Parameter, ...]
    takes_any: bool
    """Whether it has `**kwargs`."""

    @property
    def names(self) -> list[str]:
        return [parameter.name for parameter in self.parameters]

    @property
    def required(self) -> list[str]:
        """The parameters without a default."""
        return [p.name for p in self.parameters if p.default is Parameter.empty]

    def schema(self) -> dict[str, Any]:
        """The JSON Schema of the arguments, of type object and without references."""
        raw = self.model.model_json_schema(by_alias=True, schema_generator=UntitledSchema)
        schema = without_references(raw)
        return {"properties": {}, **{key: schema[key] for key in schema if key != "title"}}

    def bind(self, arguments: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Positional and keyword arguments, converted to what the annotations want.

        Raises ToolArgumentError, which tells the model everything that is wrong.
        """
        try:
            checked = self.model.model_validate(arguments, by_alias=True)
        except ValidationError as error:
            problems = [self._problem(one) for one in error.errors(include_url=False)]
            raise ToolArgumentError("; ".join(problems)) from error
        return self._split(checked)

    def _split(self, checked: BaseModel) -> tuple[list[Any], dict[str, Any]]:
        positional: list[Any] = []
        keyword: dict[str, Any] = dict(checked.model_extra or {})
        for i, parameter in enumerate(self.parameters):
            if parameter.kind is Parameter.POSITIONAL_ONLY:
                positional.append(_value(checked, i, parameter))
            elif f"p{i}" in checked.model_fields_set:
                keyword[parameter.name] = getattr(checked, f"p{i}")
        return positional, keyword

    def _problem(self, error: ErrorDetails) -> str:
        place = ".".join(str(part) for part in error["loc"])
        if error["type"] == "missing":
            return f"{place} is missing"
        if error["type"] == "extra_forbidden" and len(error["loc"]) == 1:
            return f"{place} is not an argument{_hint(place, self.names)}"
        found = repr(error["input"])
        return f"{place}: {error['msg']}, not {found if len(found) < 200 else found[:200] + '…'}"


def _value(checked: BaseModel, index: int, parameter: Parameter) -> Any:
    name = f"p{index}"
    return getattr(checked, name) if name in checked.model_fields_set else parameter.default


def _hint(name: str, known: Iterable[str]) -> str:
    known = list(known)
    return did_you_mean(name, known, f"; it takes {', '.join(known) or 'none'}")


def signature_of(function: Callable[..., Any]) -> Signature:
    """What the function takes. Raises TypeError, ValueError or NameError with the reason."""
    signature = inspect.signature(function)
    hints = _hints(function)
    taken = [p for p in signature.parameters.values() if p.kind not in _VARIADIC]
    takes_any = any(p.kind is Parameter.VAR_KEYWORD for p in signature.parameters.values())
    said = described_in(inspect.getdoc(function))
    fields: dict[str, Any] = {
        f"p{i}": (hints.get(p.name, Any), _field(p, said.get(p.name))) for i, p in enumerate(taken)
    }
    config = ConfigDict(extra="allow" if takes_any else "forbid", arbitrary_types_allowed=False)
    try:
        model = create_model("Arguments", __config__=config, **fields)
        result = Signature(model, tuple(taken), takes_any)
        result.schema()
    except PydanticUserError as error:
        raise TypeError(error.message.partition(". Set `")[0]) from error
    return result


def _hints(function: Callable[..., Any]) -> dict[str, Any]:
    plain = inspect.unwrap(function)
    while isinstance(plain, functools.partial):
        plain = plain.func
    if not (inspect.isfunction(plain) or inspect.ismethod(plain)):
        plain = type(plain).__call__
    return get_type_hints(plain, include_extras=True)


def _field(parameter: Parameter, description: str | None) -> FieldInfo:
    options: dict[str, Any] = {"alias": parameter.name}
    if description:
        options["description"] = description
    if parameter.default is not Parameter.empty:
        # The function has the default; here it only says that the argument may be left out.
        options["default_factory"] = lambda: PydanticUndefined
    if _is_plain(parameter.default):
        options["json_schema_extra"] = {"default": parameter.default}
    field: FieldInfo = Field(**options)
    return field


def _is_plain(value: Any) -> bool:
    """Whether a schema can show the default as it is."""
    return type(value) in {str, int, bool} or (type(value) is float and abs(value) < float("inf"))
