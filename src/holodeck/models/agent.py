"""The agent.yaml as a whole."""

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from pydantic import Field, PrivateAttr, SecretStr, model_validator

from holodeck.models.base import Json, Model, NonBlank
from holodeck.models.config import ExecutionConfig
from holodeck.models.evaluation import EvaluationConfig
from holodeck.models.llm import LLMProvider, ProviderEnum
from holodeck.models.observability import ObservabilityConfig
from holodeck.models.price import PriceTable
from holodeck.models.test_case import TestCaseModel
from holodeck.models.tool import ToolUnion

CHAT = "chat"
OURS = (None, "semantic_kernel", CHAT)
"""Backends that are told everything by the agent.yaml."""
OPENAI_LIKE = (ProviderEnum.OPENAI, ProviderEnum.AZURE_OPENAI)


class Instructions(Model):
    """What the agent is told: a file or the text itself."""

    file: NonBlank | None = None
    """Relative to the agent.yaml."""
    inline: NonBlank | None = None
    """The text, sent word for word."""

    @model_validator(mode="after")
    def _is_one_of_both(self) -> "Instructions":
        if (self.file is None) == (self.inline is None):
            raise ValueError("write exactly one of 'file' and 'inline'")
        return self


class HttpAnswerPaths(Model):
    """Where the parts of the answer stand in the JSON that comes back, as `a.b[0].c`."""

    text: NonBlank = "response"
    """The reply."""
    tool_calls: NonBlank | None = None
    """A list of {name, arguments, result?}."""
    prompt_tokens: NonBlank | None = None
    """Tokens read."""
    completion_tokens: NonBlank | None = None
    """Tokens written."""


class HttpBackendConfig(Model):
    """An agent behind a URL: POST per input."""

    type: Literal["http"]
    """How the agent is reached."""
    url: NonBlank
    """Where each input is posted."""
    headers: dict[str, SecretStr] = {}
    """Headers of each request; their values are never shown."""
    request: dict[str, Json] = {"input": "{input}"}
    """The JSON body. In its strings `{input}` becomes the user's input and `{conversation_id}` an
    id of the conversation; a string `{messages}` becomes the list of everything said so far."""
    answer: HttpAnswerPaths = HttpAnswerPaths()
    """Where the answer's parts are found."""


class Agent(Model):
    """An agent, its tests and its settings."""

    not_yet: ClassVar = {
        "tool_filtering": "tool filtering",
        "deployment": "deployment",
        "embedding_provider": "vector stores",
        "claude": "the Claude agent backend",
        "test_cases_file": "suites",
        "suites": "suites",
    }

    name: NonBlank
    """What reports call the agent."""
    description: NonBlank | None = None
    """For people; nothing else reads it."""
    author: NonBlank | None = None
    """For people; nothing else reads it."""
    model: LLMProvider | None = None
    """The model; needed unless a `backend` brings its own."""
    instructions: Instructions | None = None
    """What the agent is told; needed unless a `backend` brings its own."""
    backend: NonBlank | HttpBackendConfig | None = None
    """How to reach the agent: nothing (Semantic Kernel), `chat` (the endpoint itself),
    `module:attribute`, or an HTTP mapping."""
    response_format: dict[str, Json] | NonBlank | None = None
    """A JSON schema for the answer, or the path of a JSON file that holds one."""
    tools: Annotated[list[ToolUnion], Field(max_length=50)] | None = None
    """What the agent may call."""
    evaluations: EvaluationConfig | None = None
    """Metrics of every case that has none of its own."""
    test_cases: list[TestCaseModel] | None = None
    """What is said to the agent, and what is expected of it."""
    execution: ExecutionConfig | None = None
    """Settings of the run."""
    prices: PriceTable | None = None
    """What the models cost; completed by the `prices` of the configuration files."""
    observability: ObservabilityConfig | None = None
    """Traces of the run."""

    _base_dir: Path | None = PrivateAttr(default=None)
    _locate: Callable[[tuple[str | int, ...]], str] | None = PrivateAttr(default=None)

    @property
    def base_dir(self) -> Path:
        """Where relative paths start: the folder of the agent.yaml, else the working one."""
        return self._base_dir or Path.cwd()

    @property
    def is_placed(self) -> bool:
        """Whether the folder is known that relative paths start from."""
        return self._base_dir is not None

    def placed_in(self, folder: Path) -> "Agent":
        """The same agent, its relative paths starting from `folder`."""
        copy = self.model_copy()
        copy._base_dir = folder  # noqa: SLF001 - a copy of its own class
        return copy

    def located_by(self, locate: Callable[[tuple[str | int, ...]], str]) -> "Agent":
        """The same agent, its values knowing their places in the file."""
        copy = self.model_copy()
        copy._locate = locate  # noqa: SLF001 - a copy of its own class
        return copy

    def place(self, *path: str | int) -> str:
        """Where a value was written, as `agent.yaml:41:7`; `agent` if it was never in a file."""
        return "agent" if self._locate is None else self._locate(path)

    def keeping(self, places: Sequence[int]) -> "Agent":
        """The same agent with these of its cases, in this order; they still know their places."""
        cases, locate = self.test_cases or [], self.place

        def where(path: tuple[str | int, ...]) -> str:
            match path:
                case ("test_cases", int(index), *rest) if index < len(places):
                    return locate("test_cases", places[index], *rest)
            return locate(*path)

        copy = self.model_copy(update={"test_cases": [cases[at] for at in places]})
        return copy if self._locate is None else copy.located_by(where)

    @property
    def brings_its_own_model(self) -> bool:
        """Whether model, instructions and tools are the backend's own business."""
        return self.backend not in OURS

    @model_validator(mode="after")
    def _has_what_its_backend_needs(self) -> "Agent":
        if self.brings_its_own_model:
            if self.tools:
                raise ValueError("'tools' belong to the built-in agent; a 'backend' brings its own")
            return self
        if self.model is None:
            raise ValueError("'model' is missing: write 'model: {provider: local}', say")
        if self.instructions is None:
            raise ValueError("'instructions' is missing: write 'instructions: {inline: …}', say")
        if self.backend == CHAT and self.model.provider not in OPENAI_LIKE:
            raise ValueError(
                f"'backend: chat' does not speak to {self.model.provider.value!r}: write"
                " 'provider: openai' with the 'endpoint' of an OpenAI-compatible server,"
                " or leave 'backend' out"
            )
        return self

    @model_validator(mode="after")
    def _names_are_unique(self) -> "Agent":
        _refuse_twins("tools", [tool.name for tool in self.tools or []])
        cases = self.test_cases or []
        _refuse_twins("test_cases", [case.name for case in cases])
        _refuse_twins("test_cases", [case.id for case in cases], "id")
        return self


def _refuse_twins(where: str, names: Sequence[str | None], key: str = "name") -> None:
    seen: dict[str, int] = {}
    for index, name in enumerate(names):
        if name is None:
            continue
        if name in seen:
            raise ValueError(
                f"'{where}[{index}].{key}': {name!r} is already the {key} of {where}[{seen[name]}];"
                " give each its own"
            )
        seen[name] = index
