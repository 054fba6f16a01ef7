"""Tools an agent may call."""

from typing import Annotated, Any, ClassVar, Literal

from pydantic import StringConstraints, model_validator

from holodeck.models.base import Json, Model, NonBlank, Seconds

ToolName = Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z_]+$", max_length=64)]
TOOL_TYPES_TO_COME = ("vectorstore", "mcp", "prompt", "hierarchical_document")


class FunctionTool(Model):
    """A Python function in a file beside `agent.yaml`."""

    not_supported_yet: ClassVar = {"defer_loading": "it belongs to tool filtering"}

    type: Literal["function"]
    """Type of the tool."""
    name: ToolName
    """Name of the tool for the model: letters, digits and underscores."""
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

    @model_validator(mode="before")
    @classmethod
    def _type_is_supported(cls, data: Any) -> Any:
        found = data.get("type") if isinstance(data, dict) else None
        if found in TOOL_TYPES_TO_COME:
            raise ValueError(f"tool type {found!r} is not supported yet; use 'function'")
        return data


ToolUnion = FunctionTool
