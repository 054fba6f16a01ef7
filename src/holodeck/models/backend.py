"""The settings of the ways to reach an agent: `backend:` as a mapping."""

import json
from typing import Annotated, Literal

from pydantic import Field, SecretStr, model_validator

from holodeck.models.base import Json, Model, NonBlank, ReadPath, Seconds, ServerAddress
from holodeck.models.config import HostName


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
    url: ServerAddress
    """URL that receives each input."""
    headers: dict[str, SecretStr] = {}
    """Headers of each request; their values are never printed."""
    request: dict[str, Json] = {"input": "{input}"}
    """JSON body of the request. `{input}` is replaced by the user's input and `{conversation_id}`
    by an ID of the conversation. The string `{messages}` becomes the list of all messages so
    far, and the string `{context}` the `context` of the case."""
    answer: HttpAnswerPaths = HttpAnswerPaths.model_construct()
    """Where to find the parts of the response."""
    tap: bool = False
    """Whether holodeck reads the agent's requests to models on a local proxy. `{tap_url}` in
    `request` or `headers` tells the agent its base URL: `{tap_url}/openai/v1`, `/azure_openai`,
    `/anthropic` or `/ollama`."""

    @model_validator(mode="after")
    def _tap_url_needs_a_tap(self) -> "HttpBackendConfig":
        texts = [
            json.dumps(self.request),
            *(header.get_secret_value() for header in self.headers.values()),
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
    tools_run_no_agents: bool = False
    """Whether no tool of an agent of a framework runs an agent of its own. Tool calls are then
    known even where the tracing of the framework is off, which would show such an agent."""

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
    python: ReadPath | None = None
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
    cwd: ReadPath | None = None
    """Working folder of the processes, relative to `agent.yaml`; by default its folder."""
    env: dict[str, SecretStr] = {}
    """Environment variables, in addition to those of holodeck; their values are never printed."""
    start_timeout: Seconds = 60
    """Seconds until each process must be ready."""
    tap: bool = False
    """Whether holodeck reads the agent's requests to models on a local proxy, to which variables
    such as OPENAI_BASE_URL lead it. Each process then takes one message at a time."""
    tools_run_no_agents: bool = False
    """Whether no tool of an agent of a framework runs an agent of its own. Tool calls are then
    known even where the tracing of the framework is off, which would show such an agent."""

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
        if self.tools_run_no_agents and self.target is None:
            raise ValueError(
                "'tools_run_no_agents' needs 'target', such as 'support:agent', not 'command'"
            )
        return self


class McpBackendConfig(Model):
    """An MCP server that is tested itself: each input calls one of its tools."""

    type: Literal["mcp"]
    """The kind of backend."""
    command: Annotated[list[NonBlank], Field(min_length=1)] | None = None
    """Program and arguments of a server that speaks through stdin and stdout. A program with a
    slash in its name is a path that starts from `cwd`; any other is looked up in PATH."""
    url: ServerAddress | None = None
    """URL of a server that speaks streamable HTTP; takes the place of `command`."""
    headers: dict[str, SecretStr] = {}
    """Headers of each request to `url`; their values are never printed."""
    cwd: ReadPath | None = None
    """Working folder of the server, relative to `agent.yaml`; by default its folder."""
    env: dict[str, SecretStr] = {}
    """Environment variables of the server, in addition to the few of holodeck that it gets (`PATH`,
    `HOME`, language, proxies and certificates); their values are never printed."""

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
    url: ServerAddress
    """URL of the agent, below which its card is at `/.well-known/agent-card.json`; or of the card
    itself, which ends with `.json`."""
    headers: dict[str, SecretStr] = {}
    """Headers of each request; their values are never printed. They are sent to the host of `url`,
    and to others only if `allowed_hosts` names them."""
    allowed_hosts: list[HostName] = []
    """Other hosts that may get the headers, if the card names them, as `host` or `host:port`."""
