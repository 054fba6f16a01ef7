"""What the keys of a test case hold, for formats that know nothing but text."""

import typing
from collections.abc import Iterator
from typing import Any, Literal

from pydantic import BaseModel

from holodeck.models.suite import WrittenCase
from holodeck.models.test_case import TurnModel

Kind = Literal["text", "list", "scalar", "mapping"]


def value_kind(key: str) -> Kind:
    """What a key of a case holds; what stands below one (`context.user`) is text."""
    if "." in key:
        return "text"
    kinds = set(_kinds(WrittenCase.model_fields[key].annotation))
    order: tuple[Kind, ...] = ("list", "mapping", "text", "scalar")
    return next((one for one in order if one in kinds), "scalar")


def case_keys() -> list[str]:
    """The keys that a test case may have."""
    return list(WrittenCase.model_fields)


def text_keys() -> frozenset[str]:
    """Keys of cases and turns whose value, or each item of it, is text."""
    fields = {**WrittenCase.model_fields, **TurnModel.model_fields}
    plain = {name for name, field in fields.items() if set(_kinds(field.annotation)) == {"text"}}
    lists = {name for name, field in fields.items() if _is_list_of_text(field.annotation)}
    return frozenset(plain | lists)


def _is_list_of_text(annotation: Any) -> bool:
    kinds = set(_kinds(annotation))
    return kinds == {"list", "text"}


def _kinds(annotation: Any) -> Iterator[Kind]:
    """What is named in an annotation; of a list also what its items are."""
    origin = typing.get_origin(annotation) or annotation
    if origin is list:
        yield "list"
        for part in typing.get_args(annotation):
            yield from _kinds(part)
    elif origin is dict or _is_model(origin):
        yield "mapping"
    elif origin is str:
        yield "text"
    elif origin in (int, float, bool):
        yield "scalar"
    elif origin is not Literal:
        for part in typing.get_args(annotation):
            yield from _kinds(part)


def _is_model(origin: Any) -> bool:
    return isinstance(origin, type) and issubclass(origin, BaseModel)
