"""Tools that an agent may call: functions, prompts, MCP servers, and those of `tools/`."""

from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    PrivateAttr,
    SecretStr,
    StringConstraints,
    Tag,
    model_validator,
)

from holodeck.lib.support.text import did_you_mean
from holodeck.models.base import BuiltWhenUsed, Json, NonBlank, ReadPath, Seconds, ServerAddress
from holodeck.models.llm import LLMProvider
from holodeck.models.tools.config import ToolConfig
from holodeck.models.tools.knowledge import HierarchicalDocumentTool, VectorstoreTool

__all__ = ["FunctionTool", "McpTool", "PromptTool", "ToolConfig", "ToolUnion", "VectorstoreTool"]

_SCHEMES = {
    "http": ("https://", "http://"),
    "sse": ("https://", "http://"),
    "websocket": ("wss://", "ws://"),
}


class McpTool(ToolConfig):
    """An MCP server; the model gets all of its tools."""

    type: Literal["mcp"] = "mcp"
    """Type of the tool."""
    description: NonBlank | None = None
    """A note for readers; the model gets the descriptions that the server gives its tools."""
    transport: Literal["stdio", "sse", "websocket", "http"] = "stdio"
    """How the server is reached: `stdio` starts `command`; `http` (streamable HTTP), `sse` and
    `websocket` connect to `url`."""
    command: NonBlank | None = None
    """Program that starts the server, such as `npx`; with a slash in its name, a path relative to
    `agent.yaml`."""
    args: list[str] | None = None
    """Arguments of `command`."""
    env: dict[str, SecretStr] | None = None
    """Environment variables of the server, beside the few that it gets (`PATH`, `HOME`, language,
    proxies and certificates)."""
    env_file: ReadPath | None = None
    """Path of a file with further variables, relative to `agent.yaml`; `env` wins."""
    encoding: NonBlank | None = None
    """Encoding of stdin and stdout of the server; by default UTF-8."""
    url: ServerAddress | None = None
    """URL of the server; `http://` only on this machine, else `https://`."""
    headers: dict[str, SecretStr] | None = None
    """Headers of each request to `url`."""
    timeout: Seconds | None = None
    """Seconds until the server must be ready, with its tools listed; by default 60."""
    sse_read_timeout: Seconds | None = None
    """Seconds in which a server at a URL may send nothing; by default 300."""
    terminate_on_close: bool | None = None
    """Whether an `http` server is told the end of the session; by default true."""
    config: dict[str, Json] | None = None
    """Settings for the server, which gets them as JSON in the variable `MCP_CONFIG`."""
    load_tools: bool = True
    """Whether the model gets the server's tools; false does not start the server."""
    load_prompts: bool = True
    """For files of HoloDeck; the server's prompts are for people, and the model gets none."""
    request_timeout: Seconds = 60
    """Maximum seconds of one call of a tool."""
    is_retrieval: bool = False
    """Whether the results are retrieved passages for metrics (`retrieval_context`); each content
    block is one."""
    registry_name: NonBlank | None = None
    """For files of HoloDeck: the name of the server in the MCP registry; a note."""
    tool_prefix: Annotated[str, StringConstraints(pattern=r"^[0-9A-Za-z_-]{1,32}$")] | None = None
    """Text before the names of the server's tools, such as `docs_`; for servers with tools of the
    same name."""

    _config_dir: Path | None = PrivateAttr(default=None)

    @property
    def retrieves(self) -> bool:
        return self.is_retrieval

    @property
    def own_files(self) -> Sequence[str]:
        return () if self.env_file is None or self.is_shared else (self.env_file,)

    @property
    def is_shared(self) -> bool:
        """Whether it is from a config.yaml, so that its failure does not stop an agent."""
        return self._config_dir is not None

    def base_dir(self, agent_dir: Path) -> Path:
        """The folder from which its paths start: that of the file in which it is written."""
        return self._config_dir or agent_dir

    def of_config_in(self, folder: Path) -> "McpTool":
        """Return it as a server of the config.yaml in a folder."""
        return self.with_private(_config_dir=folder)

    @model_validator(mode="after")
    def _says_where_the_server_is(self) -> "McpTool":
        if self.transport == "stdio" and self.command is None:
            found = "; for a server at a 'url', write 'transport: http'" if self.url else ""
            raise ValueError(
                "'command' is missing; write the program that starts the server, such as"
                f" 'command: npx'{found}"
            )
        if self.transport != "stdio":
            self._check_url()
        return self

    def _check_url(self) -> None:
        schemes = _SCHEMES[self.transport]
        example = f"{schemes[0]}example.com/mcp"
        if self.url is None:
            raise ValueError(
                f"'url' is missing, which 'transport: {self.transport}' needs; write 'url:"
                f" {example}', for example"
            )
        if not self.url.startswith(schemes):
            raise ValueError(
                f"'url' must begin with {' or '.join(schemes)} for 'transport: {self.transport}'"
            )
        if self.url.startswith("http://") and not is_loopback(self.url):
            raise ValueError(
                "'url' begins with http://, which is for this machine only; write https://"
            )


def is_loopback(url: str) -> bool:
    """Whether a URL names this machine."""
    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


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
    """Whether the results are retrieved passages for metrics (`retrieval_context`)."""
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
    Annotated[FunctionTool, BuiltWhenUsed(FunctionTool), Tag("FunctionTool")]
    | Annotated[McpTool, BuiltWhenUsed(McpTool), Tag("McpTool")]
    | Annotated[PromptTool, BuiltWhenUsed(PromptTool), Tag("PromptTool")]
    | Annotated[VectorstoreTool, BuiltWhenUsed(VectorstoreTool), Tag("VectorstoreTool")]
    | Annotated[
        HierarchicalDocumentTool,
        BuiltWhenUsed(HierarchicalDocumentTool),
        Tag("HierarchicalDocumentTool"),
    ],
    Discriminator(_class_name),
    BeforeValidator(_check_type),
]
