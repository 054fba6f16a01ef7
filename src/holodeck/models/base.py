"""The base of all models (frozen, no unknown keys), named types for ranges, and models as JSON."""

import ast
import inspect
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from functools import cache
from itertools import pairwise
from math import isfinite
from pkgutil import resolve_name
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Self, Union, get_args, get_origin

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    StringConstraints,
    model_validator,
)
from pydantic.fields import FieldInfo
from pydantic_core import core_schema

from holodeck.models import RENDERERS

if TYPE_CHECKING:
    from pydantic import GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema

NonBlank = Annotated[str, StringConstraints(pattern=r"\S")]


class PathUse(Enum):
    """What a run does at a path."""

    READ = "read"
    WRITTEN = "written"


class NetworkUse(Enum):
    """What a run does at an address."""

    SERVER = "server"
    """Requests go there."""


Use = PathUse | NetworkUse
ServerAddress = Annotated[NonBlank, NetworkUse.SERVER]
"""A URL, host or connection string that requests go to; `--untrusted` checks it."""
ReadPath = Annotated[NonBlank, PathUse.READ]
"""The path of a file or folder that a run reads."""
WrittenPath = Annotated[NonBlank, PathUse.WRITTEN]
"""The path of a file or folder that a run writes; see `lib.safe_paths.written_path`."""
Ratio = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
AbsoluteTolerance = Annotated[float, Field(ge=0, allow_inf_nan=False)]
RelativeTolerance = Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Milliseconds = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
KeyPath = tuple[str | int, ...]
"""The keys and indexes that lead to a value in a document."""
Json = Any
"""A value as a JSON document holds it."""
MAX_TURNS = 10
"""The turns after which a scripted or simulated conversation ends if `max_turns` is not given."""


class InvalidKeys(ValueError):
    """Several keys of a mapping are invalid; each message begins with its key in quotes."""

    def __init__(self, messages: Sequence[str]) -> None:
        self.messages = messages
        super().__init__("\n".join(messages))


@dataclass(frozen=True)
class ValidAs:
    """Metadata of a value that stays as it is written, but must be valid for a model."""

    model: type[BaseModel]
    convert: Callable[[Any], object]
    """Makes the model of the value, or raises ValueError."""

    def __get_pydantic_core_schema__(
        self, source: Any, handler: GetCoreSchemaHandler
    ) -> "CoreSchema":
        return core_schema.no_info_after_validator_function(self._validate, handler(source))

    def _validate(self, value: Any) -> Any:
        self.convert(value)
        return value


@dataclass(frozen=True)
class BuiltWhenUsed:
    """Metadata of a model in another one: its validator is built for the first value of it.

    Otherwise, pydantic builds the validators of all models at once, and an agent.yaml uses few of
    the metrics and tools: they take two thirds of the time of building the one of `Agent`.
    """

    model: type[BaseModel]

    def __get_pydantic_core_schema__(self, _source: Any, _: GetCoreSchemaHandler) -> "CoreSchema":
        return core_schema.no_info_plain_validator_function(self.model.model_validate)

    def __get_pydantic_json_schema__(
        self, _: "CoreSchema", handler: "GetJsonSchemaHandler"
    ) -> "JsonSchemaValue":
        self.model.model_rebuild()
        # As a part of another schema, so that it becomes a reference.
        return handler(core_schema.definitions_schema(self.model.__pydantic_core_schema__, []))


class Model(BaseModel):
    """A frozen model that rejects unknown keys."""

    model_config = ConfigDict(extra="forbid", frozen=True, defer_build=True)

    not_supported_yet: ClassVar[Mapping[str, str]] = {}
    """Unknown keys that the format has, and what to know about each."""
    other_names: ClassVar[Mapping[str, str]] = {}
    """What libraries call keys of the format, which is accepted as well."""
    names_in: ClassVar[tuple[str, ...]] = ()
    """Fields whose texts, or whose keys, are names of tools, arguments and agents."""
    parts_in: ClassVar[tuple[str, ...]] = ()
    """Fields that hold models with `names_in`."""

    @classmethod
    def _prepare(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Return what is validated in place of a mapping as written."""
        return data

    def with_private(self, **values: Any) -> Self:
        """Return a copy with these private attributes, for methods of its own class."""
        copy = self.model_copy()
        for name, value in values.items():
            setattr(copy, name, value)
        return copy

    def renamed(self, names: Mapping[str, str]) -> Self:
        """Return a part of a test case with other names of tools, arguments and agents."""
        own = {key: _rename(getattr(self, key), names) for key in self.names_in}
        inner = {key: own.get(key, getattr(self, key)) for key in self.parts_in}
        update = own | {key: _rename_parts(value, names) for key, value in inner.items()}
        return self.model_copy(update={key: value for key, value in update.items() if value})

    @model_validator(mode="before")
    @classmethod
    def _read_keys(cls, data: Any) -> Any:
        """Accept other names of keys, and reject true and false where a number is expected.

        `min_pass: true` would be 1, and a threshold of `false` 0, which everything reaches. One
        validator does all: each is a step of its own for every value of every model.
        """
        if not isinstance(data, dict):
            return data
        data = cls._prepare(data)
        if cls.other_names:
            data = _with_our_names(data, cls.other_names)
        booleans = []
        for key in _number_keys(cls):  # a comprehension takes longer, and this is called often
            value = data.get(key)
            if value is True or value is False:
                booleans.append(f"{key!r}: found {str(value).lower()}; expected a number")
        if booleans:
            raise InvalidKeys(booleans)
        return data

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: "CoreSchema", handler: "GetJsonSchemaHandler"
    ) -> "JsonSchemaValue":
        """Add the docstrings of fields; they are parsed only here, because that takes 0.1 s."""
        for field in cls.model_fields.values():
            if isinstance(field.default, BaseModel):  # is part of the schema
                type(field.default).model_rebuild()
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema).get("properties", {})
        for name, text in _docstrings(cls).items():
            key = cls.model_fields[name].alias or name
            help_of_setting = properties[key].get("description")
            properties[key]["description"] = (
                f"{help_of_setting} {text}" if help_of_setting else text
            )
        _add_other_names(handler.resolve_ref_schema(schema), cls.other_names)
        return schema


def _with_our_names(data: dict[str, Any], other_names: Mapping[str, str]) -> dict[str, Any]:
    """Return the mapping with the keys of the format in place of what libraries call them."""
    both = [other for other, key in other_names.items() if other in data and key in data]
    if both:
        ours = other_names[both[0]]
        raise InvalidKeys([f"{both[0]!r} is another name of {ours!r}; write one of them"])
    return {other_names.get(key, key): value for key, value in data.items()}


def _add_other_names(schema: "JsonSchemaValue", other_names: Mapping[str, str]) -> None:
    for other, key in other_names.items():
        about = {"description": f"Another name of `{key}`."}
        schema["properties"][other] = {**schema["properties"][key], **about}
        if key in schema.get("required", ()):
            schema["required"].remove(key)
            schema.setdefault("allOf", []).append(
                {"anyOf": [{"required": [key]}, {"required": [other]}]}
            )


@cache
def _number_keys(model: type[BaseModel]) -> tuple[str, ...]:
    """Return the keys that accept a number but not true and false."""
    fields = model.model_fields.items()
    kinds = {field.alias or name: set(_types_in(field.annotation)) for name, field in fields}
    return tuple(key for key, of in kinds.items() if of & {int, float} and not of & {bool, Any})


def _types_in(annotation: Any) -> Iterator[Any]:
    """Yield the types that a value may have."""
    if get_origin(annotation) in {Union, UnionType}:
        for argument in get_args(annotation):
            yield from _types_in(argument)
    elif get_origin(annotation) is Annotated:
        yield from _types_in(get_args(annotation)[0])
    else:
        yield annotation


def _rename_parts(value: Any, names: Mapping[str, str]) -> Any:
    """Return a value with the models in it renamed."""
    match value:
        case list():
            return [_rename_parts(item, names) for item in value]
        case dict():
            return {key: _rename_parts(item, names) for key, item in value.items()}
    return value.renamed(names) if isinstance(value, Model) else value


def _rename(value: Any, names: Mapping[str, str]) -> Any:
    """Return a name, the names in a list, or the keys of a mapping as `names` has them."""
    match value:
        case str():
            return names.get(value, value)
        case list():
            return [names.get(item, item) if isinstance(item, str) else item for item in value]
        case dict():
            return {names.get(key, key): item for key, item in value.items()}
    return value


def render(report: BaseModel, form: str) -> Any:
    """Return what a report becomes in one of the forms of `RENDERERS`."""
    return resolve_name(RENDERERS[form])(report)


def models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models named anywhere in an annotation, or in a field."""
    if isinstance(annotation, FieldInfo):
        for part in (annotation.annotation, *annotation.metadata):
            yield from models_in(part)
    elif isinstance(annotation, ValidAs):
        yield annotation.model
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from models_in(argument)


def walk(value: Any, path: KeyPath = ()) -> Iterator[tuple[KeyPath, Any]]:
    """Yield a value and what is in its models, mappings and lists, each after its path.

    Texts and numbers are left out, as most values are some and there is nothing in them.
    """
    yield path, value
    items: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, BaseModel | Mapping):
        items = (vars(value) if isinstance(value, BaseModel) else value).items()
    elif isinstance(value, list | tuple):
        items = enumerate(value)
    for key, item in items:
        if item and type(item) not in {str, int, float, bool}:
            yield from walk(item, (*path, key))


def paths_used(value: Any, use: PathUse) -> Iterator[tuple[KeyPath, str]]:
    """Yield each path of this use in a value, after the keys to it."""
    for path, part in walk(value):
        for key in keys_used(type(part), use) if isinstance(part, BaseModel) else ():
            if isinstance(getattr(part, key), str):
                yield (*path, key), getattr(part, key)


@cache
def keys_used(model: type[BaseModel], use: Use) -> tuple[str, ...]:
    """Return the fields of a model that hold a path or an address of this use."""
    fields = model.model_fields.items()
    return tuple(name for name, field in fields if is_used(field, use))


def is_used(field: FieldInfo, use: Use) -> bool:
    """Whether the field holds a path or an address of this use."""
    return use in field.metadata or _has_metadata(field.annotation, use)


def _has_metadata(annotation: Any, wanted: Any) -> bool:
    found = getattr(annotation, "__metadata__", ())
    return wanted in found or any(_has_metadata(part, wanted) for part in get_args(annotation))


def _docstrings(model: type[BaseModel]) -> dict[str, str]:
    """Return the docstring below each field of a model and its bases."""
    found: dict[str, str] = {}
    for base in reversed(model.__mro__):
        if issubclass(base, Model) and base is not Model:
            found |= _docstrings_in(base.__module__)[base.__name__]
    return {name: text for name, text in found.items() if name in model.model_fields}


@cache
def _docstrings_in(module: str) -> Mapping[str, Mapping[str, str]]:
    """Return the docstrings of the fields of each class at the top level of a module."""
    tree = ast.parse(inspect.getsource(resolve_name(module)))
    return {
        node.name: {
            above.target.id: inspect.cleandoc(below.value.value)
            for above, below in pairwise(node.body)
            if isinstance(above, ast.AnnAssign)
            and isinstance(above.target, ast.Name)
            and isinstance(below, ast.Expr)
            and isinstance(below.value, ast.Constant)
            and isinstance(below.value.value, str)
        }
        for node in tree.body
        if isinstance(node, ast.ClassDef)
    }


_MAX_DEPTH = 100
_REPLACEMENT = "\ufffd"


def model_json(
    model: BaseModel, *, indent: int | None = None, exclude_defaults: bool = False
) -> str:
    """Return a model as JSON; what JSON has no form for is escaped, null or text.

    Values that are nested too deeply to be read back are cut off.
    """
    with suppress(ValueError, RecursionError):  # a lone surrogate; a value that contains itself
        text = model.model_dump_json(indent=indent, exclude_defaults=exclude_defaults)
        if _REPLACEMENT not in text:  # pydantic replaces a lone surrogate in a key
            return text
    values = _to_json(model, _MAX_DEPTH, exclude_defaults=exclude_defaults)
    return json.dumps(values, indent=indent, default=str)


def _to_json(value: Any, depth: int, *, exclude_defaults: bool) -> Any:
    if depth == 0 and isinstance(value, BaseModel | dict | list | tuple):
        return "(nested too deep to be recorded)"
    if isinstance(value, BaseModel):
        fields = {
            name: getattr(value, name)
            for name, field in type(value).model_fields.items()
            if not (exclude_defaults and getattr(value, name) == field.get_default())
        }
        return _to_json(fields, depth, exclude_defaults=exclude_defaults)
    if isinstance(value, dict):
        return {
            str(key): _to_json(item, depth - 1, exclude_defaults=exclude_defaults)
            for key, item in value.items()
        }
    if isinstance(value, list | tuple):
        return [_to_json(item, depth - 1, exclude_defaults=exclude_defaults) for item in value]
    return None if isinstance(value, float) and not isfinite(value) else value
