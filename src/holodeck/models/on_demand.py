"""Parts of models whose schemas are built when the first value of them comes.

A schema holds those of all its fields, and pydantic builds it before the first value is checked:
seldom used parts would cost every run what only those who write them need.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

from pydantic import TypeAdapter
from pydantic_core.core_schema import definitions_schema, no_info_plain_validator_function

from holodeck.models.base import models_in

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
    from pydantic.json_schema import JsonSchemaValue
    from pydantic_core import CoreSchema


@dataclass(frozen=True)
class Deferred:
    """What stands in the schema of a model for a type that has its own schema."""

    type: Any

    @cached_property
    def _adapter(self) -> TypeAdapter[Any]:
        for model in models_in(self.type):
            model.model_rebuild()  # else only the adapter could write them down again
        return TypeAdapter(self.type)

    def _validated(self, value: Any) -> Any:
        """The value as the type has it; pydantic puts its errors among those of the model."""
        return self._adapter.validate_python(value)

    def __get_pydantic_core_schema__(
        self, _source: Any, _handler: "GetCoreSchemaHandler"
    ) -> "CoreSchema":
        return no_info_plain_validator_function(self._validated)

    def __get_pydantic_json_schema__(
        self, _schema: "CoreSchema", handler: "GetJsonSchemaHandler"
    ) -> "JsonSchemaValue":
        # what is handed over as it is loses its name among the definitions
        return handler(definitions_schema(self._adapter.core_schema, []))


if TYPE_CHECKING:
    T = TypeVar("T")
    OnDemand = Annotated[T, "built when needed"]
else:

    class OnDemand:
        """`OnDemand[Part]` is the type `Part`, only that its schema waits for the first value."""

        def __class_getitem__(cls, part: Any) -> Any:
            return Annotated[part, Deferred(part)]
