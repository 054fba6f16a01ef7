"""The settings of the ways to reach an agent: `backend:` as a mapping."""

from typing import Annotated, Literal

from pydantic import Field, SecretStr, model_validator

from holodeck.models.base import Json, Model, NonBlank, ReadPath, Seconds, ServerAddress
from holodeck.models.config import HostName

PLACEHOLDERS = ("input", "messages", "context", "conversation_id", "session_id", "tap_url")
"""The placeholders of requests."""


def has_placeholder(template: Json, name: str) -> bool:
    """Whether a string of the template holds `{name}`."""
    if isinstance(template, dict):
        return any(has_placeholder(value, name) for value in template.values())
    if isinstance(template, list):
        return any(has_placeholder(item, name) for item in template)
    return isinstance(template, str) and f"{{{name}}}" in template


class ItemPaths(Model):
    """Where a list is in a JSON response, and the paths in each of its items."""

    path: NonBlank
    """Path of the list."""

    @property
    def parts(self) -> dict[str, str]:
        """The paths in each item, by the keys of an item that an agent in Python returns."""
        return {key: text for key, text in self if key != "path" and text is not None}


class ToolCallPaths(ItemPaths):
    """Where the tool calls are in a JSON response, and the paths of their parts in each."""

    name: NonBlank = "name"
    """The name of the tool."""
    arguments: NonBlank | None = None
    """An object, or its JSON as text; unknown without a path."""
    result: NonBlank | None = None
    """What the tool returned. A call with an error need not have it."""
    error: NonBlank | None = None
    """Why the call failed; missing or null in a call that did not."""
    call_id: NonBlank | None = None
    """The ID of the call."""
    agent: NonBlank | None = None
    """The name of the agent that requested the call."""


class PassagePaths(ItemPaths):
    """Where the retrieved passages are in a JSON response, and the paths of their parts in each."""

    text: NonBlank = "text"
    """The text of the passage."""
    source: NonBlank | None = None
    """The name of the document that it is from."""


class HttpAnswerPaths(Model):
    """Paths to the parts of the JSON response, such as `a.b[0].c`. In a stream of server-sent
    events, `token.text` is the text in the events with the name `token`."""

    text: NonBlank = "response"
    """The text of the response."""
    error: NonBlank | None = "error"
    """Why the agent failed, although the status is a success; null, false or nothing if it did
    not."""
    tool_calls: NonBlank | ToolCallPaths | None = None
    """A list of {name, arguments, result?, error?, call_id?, agent?}; or its path and those in its
    items: `{path: actions, name: tool}`."""
    retrieval_context: NonBlank | PassagePaths | None = None
    """The retrieved passages: a list of texts, or of {text, source?}; or its path and those in its
    items: `{path: hits, text: content}`."""
    agents: NonBlank | None = None
    """A list of the names of the agents that spoke, in order."""
    model: NonBlank | None = None
    """The name of the model that answered, by which its price is found."""
    prompt_tokens: NonBlank | None = None
    """Number of prompt tokens."""
    completion_tokens: NonBlank | None = None
    """Number of completion tokens."""


_PARTS = frozenset(HttpAnswerPaths.model_fields)
HttpMethod = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]


def _refuse_body_of_get(method: HttpMethod, request: dict[str, Json]) -> None:
    if method == "GET" and request:
        raise ValueError("a GET request has no body; remove 'request', or write another 'method'")


class HttpSessionStart(Model):
    """The request that begins a session of a service."""

    url: ServerAddress
    """URL of the request."""
    method: HttpMethod = "POST"
    """Method of the request."""
    request: dict[str, Json] = {}
    """JSON body of the request, with the placeholders of `backend.request`, except `{input}`;
    `{messages}` are the messages before the case."""
    id: NonBlank
    """Path of the session's ID in the JSON response."""

    @model_validator(mode="after")
    def _a_get_request_has_no_body(self) -> "HttpSessionStart":
        _refuse_body_of_get(self.method, self.request)
        return self


class HttpSessionEnd(Model):
    """The request that ends a session of a service."""

    url: ServerAddress
    """URL of the request, in which `{session_id}` is replaced."""
    method: HttpMethod = "DELETE"
    """Method of the request."""
    request: dict[str, Json] = {}
    """JSON body of the request; without it, there is no body."""

    @model_validator(mode="after")
    def _names_the_session(self) -> "HttpSessionEnd":
        _refuse_body_of_get(self.method, self.request)
        if not has_placeholder([self.url, self.request], "session_id"):
            raise ValueError("names no session; write '{session_id}' in 'url' or 'request'")
        return self


class HttpSessionConfig(Model):
    """The session that each conversation has at a service."""

    create: HttpSessionStart
    """Begins the session."""
    close: HttpSessionEnd | None = None
    """Ends the session, also after a failure; without it, the service ends it by itself."""


class HttpBackendConfig(Model):
    """An agent behind a URL, called with one request per input."""

    type: Literal["http"]
    """The kind of backend."""
    url: ServerAddress
    """URL that receives each input. Its placeholders are those of `request`."""
    method: HttpMethod = "POST"
    """Method of the request; `GET` has no body."""
    headers: dict[str, SecretStr] = {}
    """Headers of each request, with `{conversation_id}` and `{session_id}`."""
    query: dict[str, Json] = {}
    """Parameters of the URL, with the placeholders of `request`."""
    request: dict[str, Json] = {"input": "{input}"}
    """JSON body, with the placeholders `{input}`, `{conversation_id}` and `{session_id}` (of
    `session.create`). The string `{messages}` becomes the list of all messages so far, and
    `{context}` the `context` of the case."""
    answer: HttpAnswerPaths = HttpAnswerPaths.model_construct()
    """Where to find the parts of the response."""
    session: HttpSessionConfig | None = None
    """How a conversation begins and ends, if the service has sessions."""
    prepare: NonBlank | None = None
    """Function as `module:function`. It gets each request as a mapping with `method`, `url`,
    `query`, `headers` and `body`, and returns it."""
    parse: NonBlank | None = None
    """Function as `module:function` in place of `answer`: from the JSON response, or the list of a
    stream's events, to what an agent in Python returns."""
    tap: bool = False
    """Whether holodeck reads the agent's requests to models on a local proxy, whose base URL is
    `{tap_url}/openai/v1` (or `/azure_openai`, `/anthropic`, `/ollama`) in `request` or
    `headers`."""

    @property
    def message_template(self) -> dict[str, Json]:
        """Everything in which placeholders of a message are replaced."""
        body = {} if self.method == "GET" else self.request
        return {"url": self.url, "query": self.query, "body": body}

    @property
    def functions(self) -> dict[str, str]:
        """The user's functions, as `module:function`, by their keys."""
        named = {"prepare": self.prepare, "parse": self.parse}
        return {key: target for key, target in named.items() if target is not None}

    @property
    def has_memory(self) -> bool:
        """Whether the service gets the earlier messages, or what it knows the conversation by."""
        template = [self.message_template, self._header_texts]
        names = ("messages", "conversation_id", "session_id")
        return any(has_placeholder(template, name) for name in names)

    @property
    def takes_history(self) -> bool:
        """Whether a conversation can begin with earlier messages."""
        begun = None if self.session is None else self.session.create.request
        return has_placeholder([self.message_template, begun], "messages")

    @property
    def _header_texts(self) -> list[str]:
        return [header.get_secret_value() for header in self.headers.values()]

    @model_validator(mode="after")
    def _a_get_request_has_no_body(self) -> "HttpBackendConfig":
        if self.method == "GET" and "request" in self.model_fields_set:
            raise ValueError(
                "a GET request has no body; write 'query: {q: \"{input}\"}', say, in place of"
                " 'request', or another 'method'"
            )
        return self

    @model_validator(mode="after")
    def _names_functions(self) -> "HttpBackendConfig":
        for key, target in self.functions.items():
            if ":" not in target:
                raise ValueError(f"{key!r} is {target!r}; write 'module:function'")
        if self.parse is not None and "answer" in self.model_fields_set:
            raise ValueError("'parse' reads the whole response; remove it, or 'answer'")
        return self

    @model_validator(mode="after")
    def _placeholders_have_values(self) -> "HttpBackendConfig":
        template = [self.message_template, self._header_texts]
        names_session = has_placeholder(template, "session_id")
        if names_session and self.session is None:
            raise ValueError(
                "'{session_id}' needs 'session'; write 'session: {create: {url: …, id: …}}'"
            )
        if self.session is not None and not names_session:
            raise ValueError(
                "'session' needs '{session_id}' in 'url', 'query', 'request' or 'headers', where"
                " the service reads which session a message belongs to"
            )
        tells_url = has_placeholder(template, "tap_url")
        if self.tap and not tells_url:
            raise ValueError(
                "'tap' needs '{tap_url}' in 'request' or 'headers', where the agent reads the base"
                " URL of its model; write 'base_url: \"{tap_url}/openai/v1\"', say"
            )
        if tells_url and not self.tap:
            raise ValueError("'{tap_url}' needs 'tap: true' beside 'url'")
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
    """The agent as `module:attribute`: a function, an object of yours or of an agent framework, a
    class, or a function without parameters that returns the agent."""
    scope: Scope | None = None
    """How often a class, or a function without parameters, makes an agent: `case`, the default, for
    each conversation, `run` once."""
    tap: bool = False
    """Whether holodeck reads the agent's requests to models on a local proxy. The cases then run
    one after the other."""
    tools_run_no_agents: bool = False
    """Says that no tool of the agent runs another agent: tool calls are then known although the
    tracing of the framework is off."""

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
    path from `cwd`."""
    python: ReadPath | None = None
    """Python interpreter of the agent, such as `.venv/bin/python`; by default the one that runs
    holodeck."""
    target: NonBlank | None = None
    """The agent as `module:object`, importable for the interpreter; takes the place of
    `command`."""
    scope: Scope | None = None
    """How often a class, or a function without parameters, makes an agent: `case`, the default, for
    each conversation, `run` once in each process."""
    workers: Annotated[int, Field(ge=1, le=64)] = 1
    """Number of processes. Each loads the agent."""
    cwd: ReadPath | None = None
    """Working folder of the processes, relative to `agent.yaml`; by default its folder."""
    env: dict[str, SecretStr] = {}
    """Environment variables, in addition to those of holodeck."""
    start_timeout: Seconds = 60
    """Seconds until each process must be ready."""
    tap: bool = False
    """Whether holodeck reads the agent's requests to models on a local proxy. Each process then
    takes one message at a time."""
    tools_run_no_agents: bool = False
    """Says that no tool of the agent runs another agent: tool calls are then known although the
    tracing of the framework is off."""

    @model_validator(mode="after")
    def _names_one_agent(self) -> "ProcessBackendConfig":
        if (self.command is None) == (self.target is None):
            raise ValueError(
                "write either 'command', such as [node, agent.js], or 'target', such as"
                " 'support:agent'"
            )
        for key in ("python", "scope", "tools_run_no_agents"):
            if getattr(self, key) and self.target is None:
                raise ValueError(f"{key!r} needs 'target', such as 'support:agent', not 'command'")
        return self


class McpBackendConfig(Model):
    """An MCP server that is tested itself: each input calls one of its tools."""

    type: Literal["mcp"]
    """The kind of backend."""
    command: Annotated[list[NonBlank], Field(min_length=1)] | None = None
    """Program and arguments of a server that speaks through stdin and stdout. A program with a
    slash in its name is a path from `cwd`."""
    url: ServerAddress | None = None
    """URL of a server that speaks streamable HTTP; takes the place of `command`."""
    headers: dict[str, SecretStr] = {}
    """Headers of each request to `url`."""
    cwd: ReadPath | None = None
    """Working folder of the server, relative to `agent.yaml`; by default its folder."""
    env: dict[str, SecretStr] = {}
    """Environment variables of the server, beside the few that it gets (`PATH`, `HOME`, language,
    proxies and certificates)."""

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
    """URL of the agent, or of its card, which ends with `.json`."""
    headers: dict[str, SecretStr] = {}
    """Headers of each request to the host of `url`, and to others that `allowed_hosts` names."""
    allowed_hosts: list[HostName] = []
    """Other hosts that may get the headers, if the card names them, as `host` or `host:port`."""
