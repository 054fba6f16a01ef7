"""What every entry of `tools` has."""

from collections.abc import Sequence
from typing import Annotated

from pydantic import StringConstraints

from holodeck.models.base import Model, NonBlank

ToolName = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z_]+$", max_length=64)]


class ToolConfig(Model):
    """What every entry of `tools` has."""

    type: str
    """Type of the tool."""
    name: ToolName
    """Name of the tool for the model: letters, digits and underscores."""
    description: NonBlank | None = None
    """Description for the model."""
    defer_loading: bool = True
    """Whether the tool is offered only to messages that it fits, where `tool_filtering` is on."""
    side_effects: bool = False
    """Whether a call changes something that remains; such a tool runs only with
    `--allow-side-effects`."""

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
