"""Which of an agent's tools the model is offered."""

from typing import Annotated, Literal

from pydantic import Field

from holodeck.models.base import Model, NonBlank, Ratio


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
