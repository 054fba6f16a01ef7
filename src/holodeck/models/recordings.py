"""The block `recordings` of an agent.yaml: what requests are compared without, and their age."""

import re
from typing import Annotated

from pydantic import Field, model_validator

from holodeck.errors import ConfigError
from holodeck.lib.support.patterns import compile_pattern, passes_every_text
from holodeck.models.base import Model, NonBlank

_PATH = re.compile(r"\$(?:\.[^.\[\]]+|\[(?:\d+|\*)\])+")


class IgnoreRule(Model):
    """A part of requests that differs from run to run: a pattern of text, or a path."""

    name: NonBlank | None = None
    """What recordings have in its place, such as `today`; by default the path."""
    pattern: NonBlank | None = None
    r"""A regular expression for parts of texts, such as `\d{4}-\d\d-\d\d`."""
    path: NonBlank | None = None
    """Where the value is in the body of a request: `$.metadata.session_id`, `$.messages[0].name`,
    or `$.messages[*].name` for each item."""

    @property
    def replacement(self) -> str:
        """What takes the place of the part."""
        return f"<{self.name or self.path}>"

    @model_validator(mode="after")
    def _names_a_part(self) -> "IgnoreRule":
        if (self.pattern is None) == (self.path is None):
            raise ValueError("write exactly one of 'pattern' and 'path'")
        if self.path is not None and not _PATH.fullmatch(self.path):
            raise ValueError(f"'path' is {self.path!r}; expected such as '$.metadata.session_id'")
        if self.pattern is None:
            return self
        if self.name is None:
            raise ValueError(
                "'name' is missing; write what the pattern stands for, such as 'today'"
            )
        try:
            searched = compile_pattern(self.pattern)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        if passes_every_text(searched) is not None:
            raise ValueError(
                f"'pattern' is {self.pattern!r}, which matches every text, so that all requests"
                " would be the same; write one for the part that differs"
            )
        return self


class RecordingsConfig(Model):
    """How requests are recognized in recordings, and how old these may be."""

    ignore: list[IgnoreRule] = []
    """Parts of requests that differ from run to run."""
    max_age_days: Annotated[int, Field(gt=0)] | None = None
    """In days; an older recording is noted, and with `--strict-recordings` an error."""
