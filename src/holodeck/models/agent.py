"""The model of an agent.yaml."""

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar, Literal, Protocol

from pydantic import Field, PrivateAttr, SecretStr, model_validator
from pydantic_core import PydanticCustomError

from holodeck.models.base import Json, Model, NonBlank, OnDemand, Seconds
from holodeck.models.config import ExecutionConfig
from holodeck.models.evaluation import EvaluationConfig
from holodeck.models.llm import LLMProvider, ProviderEnum
from holodeck.models.observability import ObservabilityConfig
from holodeck.models.price import PriceTable
from holodeck.models.test_case import TestCaseModel
from holodeck.models.tool import ToolUnion

KeyPath = tuple[str | int, ...]


class Locator(Protocol):
    """Maps the values of an agent to the places in files where they are written."""

    def location(self, path: KeyPath) -> str:
        """Return file, line and column of a value, such as `agent.yaml:41:7`."""
        ...

    def source_path(self, path: KeyPath) -> KeyPath:
        """Return the path of a value in the file where it is written."""
        ...


@dataclass(frozen=True)
class SelectionLocator:
    """The locator of an agent with only some of its test cases."""

    original: Locator
    """The locator of the agent with all its cases."""
    indexes: Sequence[int]
    """The original index of each selected case."""

    def location(self, path: KeyPath) -> str:
        """Return file, line and column of a value, such as `agent.yaml:41:7`."""
        return self.original.location(self._original_path(path))

    def source_path(self, path: KeyPath) -> KeyPath:
        """Return the path of a value in the file where it is written."""
        return self.original.source_path(self._original_path(path))

    def _original_path(self, path: KeyPath) -> KeyPath:
        match path:
            case ("test_cases", int(index), *rest) if index < len(self.indexes):
                return ("test_cases", self.indexes[index], *rest)
        return path


UNLOCATED = "agent"
"""The location of a value that is not in a file."""
AGENT_KEYS = ("name", "backend", "model", "instructions", "tools", "response_format")
"""The keys that describe the agent itself, not its tests."""


@dataclass(frozen=True)
class ReplacedAgentLocator:
    """The locator of an agent with keys from another agent."""

    keys: Collection[str]
    """The keys that `agent` locates."""
    agent: Locator | None
    """None for an agent that is not in a file."""
    others: Locator | None

    def location(self, path: KeyPath) -> str:
        """Return file, line and column of a value, such as `agent.yaml:41:7`."""
        locator = self._locator_of(path)
        return UNLOCATED if locator is None else locator.location(path)

    def source_path(self, path: KeyPath) -> KeyPath:
        """Return the path of a value in the file where it is written."""
        locator = self._locator_of(path)
        return path if locator is None else locator.source_path(path)

    def _locator_of(self, path: KeyPath) -> Locator | None:
        return self.agent if path and path[0] in self.keys else self.others


CHAT = "chat"
BUILT_IN_BACKENDS = (None, "semantic_kernel", CHAT)
"""Backends that take model, instructions and tools from the agent.yaml."""
IN_PYTHON = "(a Python object)"
"""`backend` of an agent that is a Python object, which the executor gets as an argument."""
OPENAI_COMPATIBLE = (ProviderEnum.OPENAI, ProviderEnum.AZURE_OPENAI)


DUPLICATE_NAME = "duplicate_name"
"""The type of the validation error about two items with the same name."""


class Instructions(Model):
    """The system prompt, as a file or inline."""

    file: NonBlank | None = None
    """Path relative to `agent.yaml`."""
    inline: NonBlank | None = None
    """The text, sent unchanged."""

    @model_validator(mode="after")
    def _has_exactly_one_key(self) -> "Instructions":
        if (self.file is None) == (self.inline is None):
            raise ValueError("write exactly one of 'file' and 'inline'")
        return self


class HttpAnswerPaths(Model):
    """Paths to the parts of the JSON response, such as `a.b[0].c`."""

    text: NonBlank = "response"
    """The text of the response."""
    tool_calls: NonBlank | None = None
    """A list of {name, arguments, result?, is_error?, agent?}."""
    agents: NonBlank | None = None
    """A list of the names of the agents that spoke, in order."""
    prompt_tokens: NonBlank | None = None
    """Number of prompt tokens."""
    completion_tokens: NonBlank | None = None
    """Number of completion tokens."""


TAP_URL = "{tap_url}"
_PARTS = frozenset(HttpAnswerPaths.model_fields)


class HttpBackendConfig(Model):
    """An agent behind a URL, called with one POST request per input."""

    type: Literal["http"]
    """The kind of backend."""
    url: NonBlank
    """URL that receives each input."""
    headers: dict[str, SecretStr] = {}
    """Headers of each request; their values are never printed."""
    request: dict[str, Json] = {"input": "{input}"}
    """JSON body of the request. `{input}` is replaced by the user's input and `{conversation_id}`
    by an ID of the conversation. The string `{messages}` becomes the list of all messages so
    far, and the string `{context}` the `context` of the case."""
    answer: HttpAnswerPaths = HttpAnswerPaths()
    """Where to find the parts of the response."""
    tap: bool = False
    """Whether holodeck reads the agent's requests to models on a local proxy. `{tap_url}` in
    `request` or `headers` tells the agent its base URL: `{tap_url}/openai/v1`, `/azure_openai`,
    `/anthropic` or `/ollama`."""

    @model_validator(mode="after")
    def _tap_url_needs_a_tap(self) -> "HttpBackendConfig":
        texts = [
            json.dumps(self.request),
            *(one.get_secret_value() for one in self.headers.values()),
        ]
        tells_url = any(TAP_URL in text for text in texts)
        if self.tap and not tells_url:
            raise ValueError(
                f"'tap' needs '{TAP_URL}' in 'request' or 'headers', where the agent reads the base"
                f" URL of its model; write 'base_url: \"{TAP_URL}/openai/v1\"', say"
            )
        if tells_url and not self.tap:
            raise ValueError(f"'{TAP_URL}' needs 'tap: true' beside 'url'")
        return self

    @model_validator(mode="after")
    def _request_has_no_misplaced_key(self) -> "HttpBackendConfig":
        """Reject a request that contains `answer` or its keys, which are indented too far."""
        for key, value in self.request.items():
            is_answer = key == "answer" and isinstance(value, dict) and value.keys() <= _PARTS
            is_part = key in _PARTS - {"text"} and isinstance(value, str) and "{" not in value
            is_headers = key == "headers" and isinstance(value, dict)
            if is_answer or is_part or is_headers:
                own = f"answer.{key}" if is_part else key
                raise ValueError(
                    f"'request.{key}' would be sent to the agent; 'backend.{own}' is probably"
                    " meant: indent it less"
                )
        return self


Scope = Literal["case", "run"]


class PythonBackendConfig(Model):
    """An agent in Python, in the process of holodeck."""

    type: Literal["python"]
    """The kind of backend."""
    target: NonBlank
    """The agent as `module:attribute`, in a Python file beside `agent.yaml` or installed: a
    function, an object of a class of yours or of an agent framework, a class, or a function
    without parameters that returns the agent."""
    scope: Scope | None = None
    """How long an agent lives that a class or a function without parameters makes: `case`, the
    default, makes one for each conversation, `run` one for all."""
    tap: bool = False
    """Whether holodeck reads the agent's requests to models on a local proxy, to which variables
    such as OPENAI_BASE_URL lead it. The cases then run one after the other."""

    @model_validator(mode="after")
    def _names_an_attribute(self) -> "PythonBackendConfig":
        if ":" not in self.target:
            raise ValueError(f"'target' is {self.target!r}; write 'module:attribute'")
        return self


class ProcessBackendConfig(Model):
    """An agent in processes of its own, which speak JSON Lines through stdin and stdout."""

    type: Literal["process"]
    """The kind of backend."""
    command: Annotated[list[NonBlank], Field(min_length=1)] | None = None
    """Program and arguments of an agent in any language. A program with a slash in its name is a
    path that starts from `cwd`; any other is looked up in PATH."""
    python: NonBlank | None = None
    """Python interpreter of the agent, such as `.venv/bin/python`, relative to `agent.yaml`; by
    default the one that runs holodeck. It need not have holodeck installed."""
    target: NonBlank | None = None
    """The agent as `module:object`, in a Python file beside `agent.yaml` or installed for the
    interpreter; takes the place of `command`."""
    scope: Scope | None = None
    """How long an agent lives that a class or a function without parameters makes: `case`, the
    default, makes one for each conversation, `run` one for each process."""
    workers: Annotated[int, Field(ge=1, le=64)] = 1
    """Number of processes. Each loads the agent."""
    cwd: NonBlank | None = None
    """Working folder of the processes, relative to `agent.yaml`; by default its folder."""
    env: dict[str, SecretStr] = {}
    """Environment variables, in addition to those of holodeck; their values are never printed."""
    start_timeout: Seconds = 60
    """Seconds until each process must be ready."""
    tap: bool = False
    """Whether holodeck reads the agent's requests to models on a local proxy, to which variables
    such as OPENAI_BASE_URL lead it. Each process then takes one message at a time."""

    @model_validator(mode="after")
    def _names_one_agent(self) -> "ProcessBackendConfig":
        if (self.command is None) == (self.target is None):
            raise ValueError(
                "write either 'command', such as [node, agent.js], or 'target', such as"
                " 'support:agent'"
            )
        if self.python is not None and self.target is None:
            raise ValueError("'python' needs 'target', such as 'support:agent', not 'command'")
        if self.scope is not None and self.target is None:
            raise ValueError("'scope' needs 'target', such as 'support:agent', not 'command'")
        return self


class McpBackendConfig(Model):
    """An MCP server that is tested itself: each input calls one of its tools."""

    type: Literal["mcp"]
    """The kind of backend."""
    command: Annotated[list[NonBlank], Field(min_length=1)] | None = None
    """Program and arguments of a server that speaks through stdin and stdout. A program with a
    slash in its name is a path that starts from `cwd`; any other is looked up in PATH."""
    url: NonBlank | None = None
    """URL of a server that speaks streamable HTTP; takes the place of `command`."""
    headers: dict[str, SecretStr] = {}
    """Headers of each request to `url`; their values are never printed."""
    cwd: NonBlank | None = None
    """Working folder of the server, relative to `agent.yaml`; by default its folder."""
    env: dict[str, SecretStr] = {}
    """Environment variables of the server, in addition to those of holodeck; their values are never
    printed."""

    @model_validator(mode="after")
    def _names_one_server(self) -> "McpBackendConfig":
        if (self.command is None) == (self.url is None):
            raise ValueError(
                "write either 'command', such as [python, server.py], or 'url', such as"
                " http://127.0.0.1:8000/mcp"
            )
        others = ("headers",) if self.url is None else ("cwd", "env")
        for name in others:
            if name in self.model_fields_set:
                needs = "url" if self.url is None else "command"
                raise ValueError(f"{name!r} needs {needs!r}")
        return self


class A2aBackendConfig(Model):
    """An agent that speaks A2A 1.0."""

    type: Literal["a2a"]
    """The kind of backend."""
    url: NonBlank
    """URL of the agent, below which its card is at `/.well-known/agent-card.json`; or of the card
    itself, which ends with `.json`."""
    headers: dict[str, SecretStr] = {}
    """Headers of each request; their values are never printed."""


class Agent(Model):
    """An agent, its tests and its settings."""

    not_supported_yet: ClassVar = {
        "tool_filtering": "tool filtering",
        "deployment": "deployment",
        "embedding_provider": "vector stores",
        "claude": "the Claude agent backend",
    }

    name: NonBlank
    """Name of the agent in reports."""
    description: NonBlank | None = None
    """A note for readers; holodeck ignores it."""
    author: NonBlank | None = None
    """A note for readers; holodeck ignores it."""
    model: LLMProvider | None = None
    """The model; required unless `backend` is Python code or a URL."""
    instructions: Instructions | None = None
    """The system prompt; required unless `backend` is Python code or a URL."""
    backend: (
        NonBlank
        | Annotated[
            PythonBackendConfig
            | HttpBackendConfig
            | ProcessBackendConfig
            | McpBackendConfig
            | A2aBackendConfig,
            Field(discriminator="type"),
        ]
        | None
    ) = None
    """How holodeck reaches the agent: unset for Semantic Kernel, `chat` for a chat endpoint,
    `module:attribute` for Python code, or a mapping for a URL, a process, an MCP server
    or Python code."""
    response_format: dict[str, Json] | NonBlank | None = None
    """JSON schema of the response, or the path of a JSON file that contains it."""
    tools: Annotated[list[OnDemand[ToolUnion]], Field(max_length=50)] | None = None
    """Tools that the agent can call."""
    evaluations: EvaluationConfig | None = None
    """Metrics for every test case without its own `evaluations`."""
    test_cases: list[TestCaseModel] | None = None
    """The test cases."""
    execution: OnDemand[ExecutionConfig] | None = None
    """Settings of the run."""
    prices: OnDemand[PriceTable] | None = None
    """Prices of the models, in addition to `prices` in the configuration files."""
    observability: OnDemand[ObservabilityConfig] | None = None
    """Traces of the run."""

    _base_dir: Path | None = PrivateAttr(default=None)
    _own_dir: Path | None = PrivateAttr(default=None)
    _locator: Locator | None = PrivateAttr(default=None)

    @property
    def base_dir(self) -> Path:
        """The folder of the agent.yaml, else the working folder; relative paths start from it."""
        return self._base_dir or Path.cwd()

    @property
    def own_dir(self) -> Path:
        """Where relative paths of the agent itself start, such as those of its tools.

        It differs from `base_dir` only if the agent runs the test cases of another file.
        """
        return self._own_dir or self.base_dir

    @property
    def has_base_dir(self) -> bool:
        """Whether `base_dir` is set, and not only the working folder."""
        return self._base_dir is not None

    def with_base_dir(self, folder: Path) -> "Agent":
        """Return the agent with relative paths starting from `folder`."""
        copy = self.model_copy()
        copy._base_dir = folder  # noqa: SLF001 - a copy of its own class
        return copy

    def with_locator(self, locator: Locator | None) -> "Agent":
        """Return the agent with the locations of its values; None if they are not in a file."""
        copy = self.model_copy()
        copy._locator = locator  # noqa: SLF001 - a copy of its own class
        return copy

    def with_agent_of(self, other: "Agent", keys: Collection[str] = AGENT_KEYS) -> "Agent":
        """Return these tests and settings with the agent that `keys` of `other` describe."""
        copy = self.model_copy(update={key: getattr(other, key) for key in AGENT_KEYS})
        copy._own_dir = other.own_dir  # noqa: SLF001 - a copy of its own class
        locators = other._locator, self._locator  # noqa: SLF001
        copy._locator = ReplacedAgentLocator(keys, *locators)  # noqa: SLF001
        return copy

    def location(self, *path: str | int) -> str:
        """Return the location of a value, such as `agent.yaml:41:7`; `agent` without a file."""
        return UNLOCATED if self._locator is None else self._locator.location(path)

    def source_path(self, *path: str | int) -> KeyPath:
        """Return the path of a value in the file where it is written, such as a suite file."""
        return path if self._locator is None else self._locator.source_path(path)

    def with_cases(self, indexes: Sequence[int]) -> "Agent":
        """Return the agent with the cases at these indexes, in this order; locations are kept."""
        cases = self.test_cases or []
        copy = self.model_copy(update={"test_cases": [cases[at] for at in indexes]})
        return (
            copy
            if self._locator is None
            else copy.with_locator(SelectionLocator(self._locator, indexes))
        )

    @property
    def has_own_model(self) -> bool:
        """Whether the backend has its own model, instructions and tools."""
        return self.backend not in BUILT_IN_BACKENDS

    @property
    def target(self) -> str | None:
        """The user's code that is the agent, as `module:attribute`; None for other agents."""
        if isinstance(self.backend, ProcessBackendConfig | PythonBackendConfig):
            return self.backend.target
        return self.backend if isinstance(self.backend, str) and ":" in self.backend else None

    @property
    def judge_model(self) -> LLMProvider | None:
        """The default model for judges and simulated users; None without one."""
        shared = self.evaluations.model if self.evaluations else None
        return shared or self.model

    def simulator_model(self, case: TestCaseModel) -> LLMProvider | None:
        """Return the model that simulates the user of a case; None without one."""
        own = None if case.simulate is None else case.simulate.model
        return own or self.judge_model

    @model_validator(mode="after")
    def _has_what_its_backend_needs(self) -> "Agent":
        if self.has_own_model:
            if self.tools:
                raise ValueError(
                    "'tools' are for the built-in agent; remove them, as a 'backend' has its own"
                )
            return self
        if self.model is None:
            raise ValueError("'model' is missing; write 'model: {provider: local}', for example")
        if self.instructions is None:
            raise ValueError(
                "'instructions' is missing; write 'instructions: {inline: …}', for example"
            )
        if self.backend == CHAT and self.model.provider not in OPENAI_COMPATIBLE:
            raise ValueError(
                f"'backend: chat' does not support the provider {self.model.provider.value!r};"
                " write 'provider: openai' with the 'endpoint' of an OpenAI-compatible server,"
                " or leave 'backend' out"
            )
        return self

    @model_validator(mode="after")
    def _names_are_unique(self) -> "Agent":
        _require_unique("tools", "name", [tool.name for tool in self.tools or []])
        cases = self.test_cases or []
        named = [None if case.name is None else (case.suite, case.name) for case in cases]
        _require_unique("test_cases", "name", named)
        _require_unique("test_cases", "id", [case.id for case in cases])
        return self


def _require_unique(list_name: str, key: str, names: Iterable[object]) -> None:
    """Raise an error of the type DUPLICATE_NAME if two items have the same name."""
    seen: dict[object, int] = {}
    for index, name in enumerate(names):
        if name is None:
            continue
        if name in seen:
            text = name[1] if isinstance(name, tuple) else name
            message = (
                "'{list_name}[{second}].{key}': {name} is already the {key} of"
                " {list_name}[{first}]; use a different one"
            )
            context = {"list_name": list_name, "key": key, "name": repr(text)}
            raise PydanticCustomError(
                DUPLICATE_NAME, message, {**context, "first": seen[name], "second": index}
            )
        seen[name] = index
