"""Tools an agent may call."""

from collections.abc import Sequence
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Tag

from holodeck.lib.support.text import did_you_mean
from holodeck.models.base import Json, NonBlank, ReadPath, Seconds
from holodeck.models.tools.config import ToolConfig, ToolName
from holodeck.models.tools.knowledge import HierarchicalDocumentTool, VectorstoreTool
from holodeck.models.tools.mcp import McpTool
from holodeck.models.tools.prompt import PromptTool

__all__ = [
    "TOOL_TYPES",
    "FunctionTool",
    "HierarchicalDocumentTool",
    "McpTool",
    "PromptTool",
    "ToolConfig",
    "ToolName",
    "ToolUnion",
    "VectorstoreTool",
]


class FunctionTool(ToolConfig):
    """A Python function in a file beside `agent.yaml`."""

    type: Literal["function"]
    """Type of the tool."""
    file: ReadPath
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


TOOL_TYPES: dict[str, type[ToolConfig]] = {
    "function": FunctionTool,
    "mcp": McpTool,
    "prompt": PromptTool,
    "vectorstore": VectorstoreTool,
    "hierarchical_document": HierarchicalDocumentTool,
}
"""The model of each `type`."""


def _check_type(data: Any) -> Any:
    if not isinstance(data, dict):
        return data
    found, known = data.get("type"), ", ".join(map(repr, TOOL_TYPES))
    if found is None:
        raise ValueError(f"'type' is missing; write one of {known}")
    if not isinstance(found, str) or found not in TOOL_TYPES:
        raise ValueError(
            f"'type': found {found!r}; expected {known}{did_you_mean(str(found), TOOL_TYPES)}"
        )
    return data


def _class_name(value: Any) -> str | None:
    """Return the name of the model of a tool, which is no key of a tool, unlike `function`."""
    if isinstance(value, dict):
        return TOOL_TYPES[value["type"]].__name__
    return type(value).__name__


ToolUnion = Annotated[
    Annotated[FunctionTool, Tag("FunctionTool")]
    | Annotated[McpTool, Tag("McpTool")]
    | Annotated[PromptTool, Tag("PromptTool")]
    | Annotated[VectorstoreTool, Tag("VectorstoreTool")]
    | Annotated[HierarchicalDocumentTool, Tag("HierarchicalDocumentTool")],
    Discriminator(_class_name),
    BeforeValidator(_check_type),
]
