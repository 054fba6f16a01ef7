"""Tools that are prompts."""

from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from holodeck.models.base import Json, NonBlank, ReadPath, Seconds
from holodeck.models.llm import LLMProvider
from holodeck.models.tools.config import ToolConfig

ParameterName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][\w-]*$")]


class PromptTool(ToolConfig):
    """A prompt that is filled with the arguments and answered by a model."""

    type: Literal["prompt"]
    """Type of the tool."""
    description: NonBlank
    """Description for the model."""
    template: NonBlank | None = None
    """The prompt, with a `{{name}}` for each parameter."""
    file: ReadPath | None = None
    """Path of a file with the prompt, relative to `agent.yaml`; it may begin with front matter."""
    parameters: Annotated[dict[ParameterName, dict[str, Json]], Field(min_length=1)]
    """JSON schema of each parameter; one with a `default` is optional."""
    model: LLMProvider | None = None
    """The model that answers; by default the agent's."""
    timeout: Seconds | None = None
    """Maximum seconds of one call; null applies only the agent's time limit."""

    @property
    def own_files(self) -> Sequence[str]:
        return () if self.file is None else (self.file,)

    @model_validator(mode="after")
    def _has_one_prompt(self) -> "PromptTool":
        if (self.template is None) == (self.file is None):
            raise ValueError("write exactly one of 'template' and 'file'")
        return self
