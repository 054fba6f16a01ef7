"""How often a case is repeated and how often it must pass, in cases and settings."""

from typing import Annotated

from pydantic import Field

Repetitions = Annotated[int, Field(ge=1, le=1000)]
PassesNeeded = Annotated[int, Field(ge=1, le=1000)]
RateNeeded = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]


def require_reachable_bar(
    repeat: int | None, min_pass: int | None, min_pass_rate: float | None
) -> None:
    """Raise ValueError if both kinds of bar are set, or the bar cannot be reached."""
    if min_pass is not None and min_pass_rate is not None:
        raise ValueError("'min_pass' and 'min_pass_rate' are both set; remove one of them")
    if repeat is not None and min_pass is not None and min_pass > repeat:
        raise ValueError(
            f"'min_pass' is {min_pass}, but 'repeat' is {repeat}: that many cannot pass"
        )
