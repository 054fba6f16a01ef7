"""What every entry of `tools` has, and which tools the model is offered."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from holodeck.models.base import Model, NonBlank, Ratio

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


class ToolFilterConfig(Model):
    """Offers the model only the tools that fit the user's message."""

    enabled: bool = False
    """Whether tools are filtered."""
    top_k: Annotated[int, Field(ge=1, le=50)] = 5
    """Maximum number of tools per message; tools that are always offered may exceed it."""
    similarity_threshold: Ratio = 0.3
    """Least score of a tool: the cosine of the embeddings, or the share of the best keyword
    score."""
    always_include: list[NonBlank] = []
    """Tools that are always offered, each by its name or by the name of its entry in `tools`."""
    always_include_top_n_used: Annotated[int, Field(ge=0, le=20)] = 3
    """Number of the tools called most in the conversation that stay offered."""
    search_method: Literal["semantic", "bm25", "hybrid"] = "semantic"
    """How tools are compared with the message: by meaning, by keywords, or by both."""
