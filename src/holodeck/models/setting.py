"""What a setting of a run is, and the types of values that settings have in common with cases."""

import re
from dataclasses import dataclass
from typing import Annotated, Any

from pydantic import AfterValidator, BeforeValidator, Field, GetJsonSchemaHandler
from pydantic_core import CoreSchema

_PLACE = re.compile(r"local|ray|ray://[^/\s]+:[0-9]{1,5}")
_HOST = re.compile(r"([\w.-]+|\[[0-9A-Fa-f:.]+\])(:[0-9]{1,5})?")


def _validate_host(value: str) -> str:
    if not _HOST.fullmatch(value):
        raise ValueError(
            f"found {value!r}; expected a host such as 'files.example' or 'localhost:8080'"
        )
    return value


def _validate_place(value: str) -> str:
    if not _PLACE.fullmatch(value):
        raise ValueError(f"found {value!r}; expected local, ray, or ray://host:port")
    return value


HostName = Annotated[str, AfterValidator(_validate_host)]
"""A host, also with a port; an IPv6 address in brackets."""
Repetitions = Annotated[int, Field(ge=1, le=1000)]
PassesNeeded = Annotated[int, Field(ge=1, le=1000)]
RateNeeded = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]


def _split_at_commas(value: Any) -> Any:
    """Return the items of a text, as a variable holds them; anything else unchanged."""
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


PlaceName = Annotated[str, AfterValidator(_validate_place)]
VariableName = Annotated[str, Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
VariableNames = Annotated[list[VariableName], BeforeValidator(_split_at_commas)]
HostNames = Annotated[list[HostName], BeforeValidator(_split_at_commas)]


def validate_min_pass(
    repeat: int | None, min_pass: int | None, min_pass_rate: float | None
) -> None:
    """Raise ValueError if both kinds of bar are set, or the bar cannot be reached."""
    if min_pass is not None and min_pass_rate is not None:
        raise ValueError("'min_pass' and 'min_pass_rate' are both set; remove one of them")
    if repeat is not None and min_pass is not None and min_pass > repeat:
        raise ValueError(
            f"'min_pass' is {min_pass}, but 'repeat' is {repeat}: that many cannot pass"
        )


LIMITS, REPEATS, RUN = "Limits", "Retries and repeats", "Run"
OUTPUT, CACHE = "Output", "Cache"
COMMAND_LINE = "command line"
"""The source of values that the caller of a run sets without a flag."""


@dataclass(frozen=True)
class Setting:
    """Default and help of a setting; its flag and its variable are made from its field's name."""

    default: Any
    help: str
    """At most 48 characters together with the default, so that `--help` needs one line. The
    docstring of the field follows it in the reference."""
    group: str | None = None
    """The heading of the flag in the help, see `lib.ui.help`; None for a setting without a flag."""
    metavar: str = "N"
    """The placeholder of the value in the help."""
    flag: str | None = None
    """The flag, if it has another name than the field."""
    short: str | None = None
    """The flag of a single letter."""
    aliases: tuple[str, ...] = ()
    """Older flags that work but are not in the help."""
    rival: str | None = None
    """An alternative field; the one from the stronger source wins."""
    reaches_out: bool = False
    """Whether it opens further networks to a run, so that `--untrusted` refuses it in files."""
    none_is_no_limit: bool = False
    """Whether a None that is given in Python means no limit, and not the default."""

    def flags(self, field: str) -> tuple[str, ...]:
        """Return the flags of the setting in a field, the long one first; () without any."""
        if self.group is None:
            return ()
        long = self.flag or f"--{field.replace('_', '-')}"
        return (long,) if self.short is None else (long, self.short)

    @staticmethod
    def variable(field: str) -> str:
        """Return the environment variable of a field."""
        return f"HOLODECK_{field.upper()}"

    def __get_pydantic_json_schema__(
        self, schema: CoreSchema, handler: GetJsonSchemaHandler
    ) -> dict[str, Any]:
        """Return the schema of the field with help and default."""
        return {**handler(schema), "description": self.help, "default": self.default}
