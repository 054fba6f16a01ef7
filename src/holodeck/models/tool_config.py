"""What every entry of `tools` has."""

from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import StringConstraints

from holodeck.models.base import Model, NonBlank

ToolName = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z_]+$", max_length=64)]


class ToolConfig(Model):
    """What every entry of `tools` has."""

    not_supported_yet: ClassVar = {"defer_loading": "it belongs to tool filtering"}

    type: str
    """Type of the tool."""
    name: ToolName
    """Name of the tool for the model: letters, digits and underscores."""
    description: NonBlank | None = None
    """Description for the model."""

    @property
    def retrieves(self) -> bool:
        """Whether its results are passages, which metrics receive as `retrieval_context`."""
        return False

    @property
    def own_files(self) -> Sequence[str]:
        """The files that define the tool, relative to `agent.yaml`."""
        return ()

    @property
    def is_shared(self) -> bool:
        """Whether it is from a config.yaml, so that its failure does not stop an agent."""
        return False
