"""What every model shares: frozen, no unknown keys, and named types for ranges."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

NonBlank = Annotated[str, StringConstraints(pattern=r"\S")]
Ratio = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False)]
Seconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Milliseconds = Annotated[int, Field(gt=0)]
Count = Annotated[int, Field(ge=0)]
Json = Any
"""A value as a JSON document holds it."""


class Model(BaseModel):
    """A frozen noun that refuses keys it does not know."""

    model_config = ConfigDict(extra="forbid", frozen=True, use_attribute_docstrings=True)

    not_yet: ClassVar[Mapping[str, str]] = {}
    """Keys of the format that this version refuses, and what they wait for."""

    @model_validator(mode="before")
    @classmethod
    def _refuse_what_does_nothing_yet(cls, data: Any) -> Any:
        if isinstance(data, dict):
            for key, waits_for in cls.not_yet.items():
                if data.get(key) is not None:
                    raise ValueError(f"{key!r} is not supported yet ({waits_for}); remove it")
        return data
