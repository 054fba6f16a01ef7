"""Requests of agents to models, their responses, the servers of models, and the way to the tap."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from holodeck.lib.llm.errors import OWN_ERROR
from holodeck.lib.llm.request_handler import Headers, StreamedResponse, in_pieces
from holodeck.models.llm import PROVIDERS, SCRIPTED_URL, ProviderEnum, ollama_url

_LOOPBACK = "127.0.0.1"
_PROXIES = ("http_proxy", "all_proxy")


@dataclass(frozen=True)
class Route:
    """A kind of server: its segment in the tap's URLs, and how clients are told where it is."""

    provider: ProviderEnum
    variable: str
    """The environment variable with the server's base URL."""
    suffix: str = ""
    """What clients expect at the end of the base URL."""
    aliases: tuple[str, ...] = ()
    """Variables that some clients prefer; they lead to the tap only if they are set."""


ROUTES = (
    Route(ProviderEnum.OPENAI, "OPENAI_BASE_URL", "/v1", ("OPENAI_API_BASE",)),
    Route(ProviderEnum.AZURE_OPENAI, "AZURE_OPENAI_ENDPOINT"),
    Route(ProviderEnum.ANTHROPIC, "ANTHROPIC_BASE_URL"),
    Route(ProviderEnum.OLLAMA, "OLLAMA_HOST"),
)


@dataclass(frozen=True)
class Upstream:
    """The server that the requests of a route go on to."""

    route: Route
    url: str
    """Its base URL, without a slash at the end."""

    def url_of(self, path: str) -> str:
        """Return the URL for a path as the agent's client wrote it, below the tap's base URL."""
        suffix = self.route.suffix
        if path.startswith(suffix) and path[len(suffix) :][:1] in {"", "/", "?"}:
            path = path[len(suffix) :]
        return self.url + path


def find_upstreams(
    environment: Mapping[str, str], *, is_scripted: bool = False
) -> dict[str, Upstream]:
    """Return the server of each route, by its segment in the tap's URLs.

    `environment` is what the agent would see without the tap. With a scripted model, nothing is
    behind the tap.
    """
    if is_scripted:
        return {route.provider.value: Upstream(route, SCRIPTED_URL) for route in ROUTES}
    found = {}
    for route in ROUTES:
        names = (route.variable, *route.aliases)
        url = next((environment[name] for name in names if environment.get(name)), None)
        if url is not None and route.provider is ProviderEnum.OLLAMA:
            url = ollama_url(url)
        url = url or PROVIDERS[route.provider].url
        if url is not None:
            found[route.provider.value] = Upstream(route, url.rstrip("/"))
    return found


def tap_variables(
    root: str, upstreams: Mapping[str, Upstream], environment: Mapping[str, str]
) -> dict[str, str]:
    """Return the variables that lead an agent to the tap whose URLs begin with `root`.

    A proxy of the environment must not receive what goes to the tap.
    """
    variables: dict[str, str] = {}
    for segment, upstream in upstreams.items():
        route = upstream.route
        url = f"{root}/{segment}{route.suffix}"
        aliases = [name for name in route.aliases if environment.get(name)]
        variables |= dict.fromkeys((route.variable, *aliases), url)
        keys = PROVIDERS[route.provider].api_key
        if upstream.url == SCRIPTED_URL and not any(environment.get(key) for key in keys):
            variables |= dict.fromkeys(keys[:1], "scripted")  # clients refuse to be without
    names = {name.lower(): name for name in environment if environment[name]}
    if names.keys() & set(_PROXIES):
        excluded = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
        if _LOOPBACK not in excluded and excluded.strip() != "*":
            listed = ",".join(filter(None, (excluded, _LOOPBACK)))
            variables |= dict.fromkeys(("NO_PROXY", "no_proxy"), listed)
    return variables


_HOP_BY_HOP = frozenset(
    b"connection keep-alive proxy-authenticate proxy-authorization proxy-connection te trailer"
    b" transfer-encoding upgrade".split()
)


@dataclass(frozen=True)
class Request:
    """A request that an agent sent to a model, read to its end."""

    upstream: Upstream
    """The server that the agent means."""
    method: str
    path: str
    """The path below the base URL of the server, with the query: `/chat/completions`."""
    headers: Headers
    body: bytes


NO_REPLY = 417
"""The status of a request that a scripted model does not answer; clients do not send it again."""


class UpstreamError(Exception):
    """The body of a response broke off; the agent's client must notice."""


def end_to_end(headers: Headers) -> Headers:
    """Return the headers without those that concern one connection only."""
    named = {
        option.strip().lower()
        for name, value in headers
        if name.lower() == b"connection"
        for option in value.split(b",")
    }
    dropped = _HOP_BY_HOP | named
    return [(name, value) for name, value in headers if name.lower() not in dropped]


def header(headers: Headers, name: bytes) -> str | None:
    """Return the value of a header; None if it is missing."""
    return next((value.decode("latin-1") for key, value in headers if key.lower() == name), None)


def error_response(status: int, code: str, message: str) -> StreamedResponse:
    """Return a response of the tap itself."""
    return whole_response(status, "application/json", error_content(code, message))


def whole_response(status: int, content_type: str, content: bytes) -> StreamedResponse:
    """Return a response whose body is known."""
    headers = [
        (b"content-type", content_type.encode()),
        (b"content-length", str(len(content)).encode()),
    ]
    return StreamedResponse(status, headers, in_pieces(content))


def error_content(code: str, message: str) -> bytes:
    """Return an error as JSON, in the format of OpenAI's errors."""
    error = {"message": message, "type": OWN_ERROR, "param": None, "code": code}
    return json.dumps({"error": error}).encode()
