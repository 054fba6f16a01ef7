"""Tools an agent may call."""

from collections.abc import Sequence
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, StringConstraints

from holodeck.models.base import Json, Model, NonBlank, Seconds

ToolName = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z_]+$", max_length=64)]
TOOL_TYPES_TO_COME = ("vectorstore", "mcp", "prompt", "hierarchical_document")


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


class FunctionTool(ToolConfig):
    """A Python function in a file beside `agent.yaml`."""

    type: Literal["function"]
    """Type of the tool."""
    file: NonBlank
    """Path of the Python file, relative to `agent.yaml`."""
    function: NonBlank
    """Name of the function in the file; it can be async."""
    description: NonBlank | None = None
    """Description for the model; by default the first paragraph of the docstring."""
    parameters: dict[str, dict[str, Json]] | None = None
    """JSON schema of each parameter; by default derived from signature and docstring."""
    is_retrieval: bool = False
    """Whether the results are retrieved passages, which metrics receive as `retrieval_context`."""
    timeout: Seconds | None = None
    """Maximum seconds of one call; null applies only the agent's time limit."""

    @property
    def retrieves(self) -> bool:
        return self.is_retrieval

    @property
    def own_files(self) -> Sequence[str]:
        return (self.file,)


def _check_type(data: Any) -> Any:
    found = data.get("type") if isinstance(data, dict) else None
    if found in TOOL_TYPES_TO_COME:
        raise ValueError(f"tool type {found!r} is not supported yet; use 'function'")
    return data


ToolUnion = Annotated[FunctionTool, BeforeValidator(_check_type)]
