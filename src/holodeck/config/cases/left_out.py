"""`--skip-invalid`: suite files that are wrong are left out and listed, instead of ending all."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field

from holodeck.errors import ConfigError

_PLACE = re.compile(r"(?P<file>.*?)(:\d+:\d+(: .*)?)?", re.DOTALL)


@dataclass
class LeftOutSuites:
    """The suite files that were read, and the wrong ones among them."""

    read: set[str] = field(default_factory=set)
    errors: dict[str, ConfigError] = field(default_factory=dict)
    """File → what is wrong with it."""

    def take(self, error: ConfigError) -> bool:
        """Whether the error is about a suite file, which is left out from now on."""
        match = _PLACE.fullmatch(error.field)
        file = match["file"] if match else error.field
        if file not in self.read or file in self.errors:
            return False
        self.errors[file] = error
        return True


_current: ContextVar[LeftOutSuites | None] = ContextVar("holodeck_left_out", default=None)


@contextmanager
def skip_invalid_suites() -> Iterator[LeftOutSuites]:
    """Leave out suite files that are wrong within the block."""
    left_out = LeftOutSuites()
    token = _current.set(left_out)
    try:
        yield left_out
    finally:
        _current.reset(token)


def current_left_out() -> LeftOutSuites | None:
    """What is left out; None where a wrong file ends all."""
    return _current.get()
