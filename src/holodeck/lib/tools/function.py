"""Tools that are Python functions beside the agent.yaml: loading, schemas and arguments."""

import functools
import inspect
from collections.abc import Callable
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
from holodeck.lib.processes.threads import call_user_function
from holodeck.lib.support.text import did_you_mean, instance_of
from holodeck.lib.tools.base import Tool, ToolArgumentError
from holodeck.lib.user_code.code_root import CodeFolders, import_file
from holodeck.models.tool import FunctionTool


def load_function_tool(config: FunctionTool, base_dir: CodeFolders) -> Tool:
    """Return the tool of a configuration; its file is imported, which runs it.

    Arguments are checked against the annotations, even where the agent.yaml gives the schema. A
    function that is not async runs in a thread of its own. Raises ConfigError.
    """
    location = f"tools.{config.name}"
    module = import_file(Path(config.file), base_dir)
    function = _function(module, config, f"{location}.function")
    signature = _signature(function, config, f"{location}.function")
    schema = signature.schema()
    if config.parameters is not None:
        schema = _given_schema(config.parameters, signature, f"{location}.parameters")

    async def call(arguments: dict[str, Any]) -> Any:
        positional, keyword = signature.bind(arguments)
        return await call_user_function(partial(function, *positional, **keyword), function)

    return Tool(
        name=config.name,
        description=config.description or docstring_summary(inspect.getdoc(function)),
        parameters=schema,
        call=call,
        check=signature.bind,
        timeout=config.timeout,
    )


def _function(module: Any, config: FunctionTool, location: str) -> Callable[..., Any]:
    name, file = config.function, config.file
    value = getattr(module, name, None)
    if value is None:
        known = [key for key, value in vars(module).items() if inspect.isfunction(value)]
        raise ConfigError(
            location, f"there is no function {name!r} in {file}{did_you_mean(name, known)}"
        )
    if not callable(value) or inspect.isclass(value):
        kind = "a class" if inspect.isclass(value) else instance_of(value)
        raise ConfigError(location, f"{name!r} in {file} is {kind}, not a function")
    if inspect.isgeneratorfunction(value) or inspect.isasyncgenfunction(value):
        raise ConfigError(location, f"{name!r} in {file} yields; a tool returns one value")
    function: Callable[..., Any] = value
    return function


def _signature(function: Callable[..., Any], config: FunctionTool, location: str) -> "Signature":
    try:
        signature = signature_of(function)
    except (TypeError, ValueError, NameError) as error:
        raise ConfigError(
            location, f"no schema can be made for {config.function!r} of {config.file}: {error}"
        ) from error
    if "self" in signature.names:
        raise ConfigError(
            location, f"{config.function!r} takes 'self'; name a function, not a method"
        )
    return signature


def _given_schema(
    parameters: dict[str, dict[str, Any]], signature: "Signature", location: str
) -> dict[str, Any]:
    """Return the schema of the agent.yaml. Raises ConfigError if the function cannot take it."""
    unknown = [] if signature.takes_any else [n for n in parameters if n not in signature.names]
    if unknown:
        raise ConfigError(
            location,
            f"the function has no parameter {unknown[0]!r}; it has {', '.join(signature.names)}",
        )
    missing = [name for name in signature.required_names if name not in parameters]
    if missing:
        raise ConfigError(location, f"{missing[0]!r} is missing, and the function needs it")
    return {
        "type": "object",
        "properties": parameters,
        "required": signature.required_names,
        "additionalProperties": signature.takes_any,
    }


_VARIADIC = (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)


@dataclass(frozen=True)
class Signature:
    """The parameters of a function."""

    model: type[BaseModel]
    """Has a field for each parameter, named `p0`, `p1`, … by position, with its name as alias."""
    parameters: tuple[Parameter, ...]
    takes_any: bool
    """Whether it has `**kwargs`."""

    @property
    def names(self) -> list[str]:
        return [parameter.name for parameter in self.parameters]

    @property
    def required_names(self) -> list[str]:
        return [p.name for p in self.parameters if p.default is Parameter.empty]

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of the arguments, of type object and without references."""
        raw = self.model.model_json_schema(by_alias=True, schema_generator=_UntitledSchema)
        definitions = raw.pop("$defs", {})
        schema = {key: _expand(value, definitions, ()) for key, value in raw.items()}
        return {"properties": {}, **{key: schema[key] for key in schema if key != "title"}}

    def bind(self, arguments: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return positional and keyword arguments, converted to the annotated types.

        Raises ToolArgumentError, which tells the model all that is wrong.
        """
        try:
            checked = self.model.model_validate(arguments, by_alias=True)
        except ValidationError as error:
            problems = [self._problem(problem) for problem in error.errors(include_url=False)]
            raise ToolArgumentError("; ".join(problems)) from error
        positional: list[Any] = []
        keyword: dict[str, Any] = dict(checked.model_extra or {})
        for index, parameter in enumerate(self.parameters):
            is_given = f"p{index}" in checked.model_fields_set
            if parameter.kind is Parameter.POSITIONAL_ONLY:
                value = getattr(checked, f"p{index}") if is_given else parameter.default
                positional.append(value)
            elif is_given:
                keyword[parameter.name] = getattr(checked, f"p{index}")
        return positional, keyword

    def _problem(self, error: ErrorDetails) -> str:
        location = ".".join(str(part) for part in error["loc"])
        if error["type"] == "missing":
            return f"{location} is missing"
        if error["type"] == "extra_forbidden" and len(error["loc"]) == 1:
            names = self.names
            known = f"; it takes {', '.join(names) or 'none'}"
            return f"{location} is not an argument{did_you_mean(location, names, known)}"
        found = repr(error["input"])
        return f"{location}: {error['msg']}, not {found if len(found) < 200 else found[:200] + '…'}"


def signature_of(function: Callable[..., Any]) -> Signature:
    """Return what a function takes. Raises TypeError, ValueError or NameError with the reason."""
    parameters = inspect.signature(function).parameters.values()
    hints = _hints(function)
    named = [parameter for parameter in parameters if parameter.kind not in _VARIADIC]
    takes_any = any(parameter.kind is Parameter.VAR_KEYWORD for parameter in parameters)
    descriptions = docstring_parameters(inspect.getdoc(function))
    fields: dict[str, Any] = {
        f"p{index}": (
            hints.get(parameter.name, Any),
            _field(parameter, descriptions.get(parameter.name)),
        )
        for index, parameter in enumerate(named)
    }
    config = ConfigDict(extra="allow" if takes_any else "forbid", arbitrary_types_allowed=False)
    try:
        model = create_model("Arguments", __config__=config, **fields)
        signature = Signature(model, tuple(named), takes_any)
        signature.schema()
    except PydanticUserError as error:
        raise TypeError(error.message.partition(". Set `")[0]) from error
    return signature


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
    default = parameter.default
    if default is not Parameter.empty:
        # The function has the default; here it only says that the argument is optional.
        options["default_factory"] = lambda: PydanticUndefined
    if type(default) in {str, int, bool} or (
        type(default) is float and abs(default) < float("inf")
    ):
        options["json_schema_extra"] = {"default": default}
    field: FieldInfo = Field(**options)
    return field


class _UntitledSchema(GenerateJsonSchema):
    """Leaves out the titles, which only repeat the names."""

    def field_title_should_be_set(self, schema: CoreSchema | Any) -> bool:  # noqa: ARG002
        return False


def _expand(node: Any, definitions: dict[str, Any], within: tuple[str, ...]) -> Any:
    """Replace every `$ref` by its definition; a type inside itself becomes anything."""
    if isinstance(node, list):
        return [_expand(item, definitions, within) for item in node]
    if not isinstance(node, dict):
        return node
    rest = {
        key: _expand(value, definitions, within)
        for key, value in node.items()
        if key not in {"$ref", "$defs"}
    }
    name = str(node.get("$ref", "")).removeprefix("#/$defs/")
    if name in within or name not in definitions:
        return rest
    return _expand(definitions[name], definitions, (*within, name)) | rest


def docstring_summary(docstring: str | None) -> str:
    """Return the first paragraph on one line; "" if there is none."""
    import docstring_parser

    summary = docstring_parser.parse(docstring or "").description or ""
    return " ".join(summary.partition("\n\n")[0].split())


def docstring_parameters(docstring: str | None) -> dict[str, str]:
    """Return the descriptions of parameters, in the style of Sphinx, Google or NumPy."""
    import docstring_parser

    parameters = docstring_parser.parse(docstring or "").params
    return {
        parameter.arg_name.lstrip("*"): " ".join((parameter.description or "").split())
        for parameter in parameters
    }
