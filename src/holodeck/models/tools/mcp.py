"""MCP servers whose tools an agent may call: `tools: [{type: mcp, …}]`."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import PrivateAttr, SecretStr, StringConstraints, model_validator

from holodeck.models.base import Json, NonBlank, ReadPath, Seconds, ServerAddress
from holodeck.models.tools.config import ToolConfig

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
    """Program that starts the server, such as `npx`, `uvx`, `docker` or `python`. A program with a
    slash in its name is a path relative to `agent.yaml`; any other is looked up in PATH."""
    args: list[str] | None = None
    """Arguments of `command`."""
    env: dict[str, SecretStr] | None = None
    """Environment variables of the server; their values are never printed. Of holodeck's own, it
    gets only those that say where programs, folders, proxies and certificates are."""
    env_file: ReadPath | None = None
    """Path of a file with further variables, relative to `agent.yaml`; `env` wins."""
    encoding: NonBlank | None = None
    """Encoding of stdin and stdout of the server; by default UTF-8."""
    url: ServerAddress | None = None
    """URL of the server; `http://` only on this machine, else `https://`."""
    headers: dict[str, SecretStr] | None = None
    """Headers of each request to `url`; their values are never printed."""
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
    """Whether the results are retrieved passages, which metrics receive as `retrieval_context`;
    each content block is one."""
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
        copy = self.model_copy()
        copy._config_dir = folder  # noqa: SLF001 - a copy of its own class
        return copy

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
    # Imported here because few tools have a URL.
    from ipaddress import ip_address  # noqa: PLC0415

    host = urlsplit(url).hostname or ""
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False
