"""Tools that are Python functions beside the agent.yaml."""

import functools
import inspect
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from inspect import Parameter
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, Field, PydanticUserError, ValidationError, create_model
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema
from pydantic_core import CoreSchema, ErrorDetails, PydanticUndefined

from holodeck.errors import ConfigError
from holodeck.lib.suggestions import did_you_mean
from holodeck.lib.threads import call_user_function
from holodeck.lib.tools.base import Tool, ToolArgumentError
from holodeck.lib.user_code import import_file
from holodeck.models.tool import FunctionTool

_GOOGLE_HEADING = re.compile(r"(Args|Arguments|Parameters|Params):\s*")
_GOOGLE_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(?P<text>.*)")
_NUMPY_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?::.*)?(?P<text>)")
_NUMPY_RULE = re.compile(r"-{3,}\s*")
_SPHINX_ENTRY = re.compile(r":param\s+(?:[^:]*\s)?\*{0,2}(\w+)\s*:\s*(.*)")
_SPHINX_FIELD = re.compile(r":\w+[^:]*:")


def docstring_summary(docstring: str | None) -> str:
    """The first paragraph on one line; "" if there is none."""
    lines: list[str] = []
    for line in _lines(docstring):
        if not line.strip() or _SPHINX_FIELD.match(line) or _GOOGLE_HEADING.fullmatch(line):
            break
        lines.append(line.strip())
    return " ".join(lines)


def docstring_parameters(docstring: str | None) -> dict[str, str]:
    """What is said of each parameter."""
    lines = _lines(docstring)
    found = _sphinx(lines)
    for i, line in enumerate(lines):
        if _GOOGLE_HEADING.fullmatch(line):
            found |= _entries(_indented(lines[i + 1 :]), _GOOGLE_ENTRY)
        elif line.strip() == "Parameters" and _NUMPY_RULE.fullmatch("".join(lines[i + 1 : i + 2])):
            found |= _numpy(lines[i + 2 :])
    return found


def _lines(docstring: str | None) -> list[str]:
    return inspect.cleandoc(docstring).splitlines() if docstring else []


def _indented(lines: Iterable[str]) -> list[str]:
    """The lines up to the first that starts at the margin, without their common indent."""
    block: list[str] = []
    for line in lines:
        if line.strip() and not line.startswith((" ", "\t")):
            break
        block.append(line)
    return inspect.cleandoc("\n" + "\n".join(block)).splitlines()


def _entries(lines: Iterable[str], entry: re.Pattern[str]) -> dict[str, str]:
    """Entries at the margin, each with the indented lines that continue it."""
    texts: dict[str, list[str]] = {}
    current: list[str] = []
    for line in lines:
        if line.startswith((" ", "\t")):
            current.append(line.strip())
        elif match := entry.fullmatch(line.rstrip()):
            current = texts[match[1]] = [match["text"]]
    return {name: " ".join(filter(None, text)) for name, text in texts.items()}


def _numpy(lines: list[str]) -> dict[str, str]:
    """The entries before the next underlined heading."""
    rules = [i for i, line in enumerate(lines) if _NUMPY_RULE.fullmatch(line)]
    return _entries(lines[: rules[0] - 1] if rules else lines, _NUMPY_ENTRY)


def _sphinx(lines: Iterable[str]) -> dict[str, str]:
    texts: dict[str, list[str]] = {}
    current: list[str] | None = None
    for line in lines:
        if match := _SPHINX_ENTRY.match(line):
            current = texts[match[1]] = [match[2].strip()]
        elif not line.strip() or _SPHINX_FIELD.match(line):
            current = None
        elif current is not None:
            current.append(line.strip())
    return {name: " ".join(filter(None, text)) for name, text in texts.items()}


class UntitledSchema(GenerateJsonSchema):
    """Leaves out the titles, which only repeat the names."""

    def field_title_should_be_set(self, schema: CoreSchema | Any) -> bool:  # noqa: ARG002
        return False


def without_references(schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with every `$ref` replaced by what it stands for.

    Where a type contains itself, the inner one may be anything.
    """
    defined = schema.get("$defs", {})
    return {key: _expanded(value, defined, ()) for key, value in schema.items() if key != "$defs"}


def _expanded(node: Any, defined: dict[str, Any], within: tuple[str, ...]) -> Any:
    if isinstance(node, list):
        return [_expanded(item, defined, within) for item in node]
    if not isinstance(node, dict):
        return node
    rest = {k: _expanded(v, defined, within) for k, v in node.items() if k not in {"$ref", "$defs"}}
    name = str(node.get("$ref", "")).removeprefix("#/$defs/")
    if name in within or name not in defined:
        return rest
    return _expanded(defined[name], defined, (*within, name)) | rest


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
    said = docstring_parameters(inspect.getdoc(function))
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
        description=config.description or docstring_summary(inspect.getdoc(function)),
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
