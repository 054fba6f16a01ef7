"""The servers of models behind the tap, and the variables that lead an agent to it."""

from collections.abc import Mapping
from dataclasses import dataclass

from holodeck.models.llm import PROVIDERS, ProviderEnum, ollama_url

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


def find_upstreams(environment: Mapping[str, str]) -> dict[str, Upstream]:
    """Return the server of each route, by its segment in the tap's URLs.

    `environment` is what the agent would see without the tap.
    """
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
    names = {name.lower(): name for name in environment if environment[name]}
    if names.keys() & set(_PROXIES):
        excluded = environment.get("no_proxy") or environment.get("NO_PROXY") or ""
        if _LOOPBACK not in excluded and excluded.strip() != "*":
            listed = ",".join(filter(None, (excluded, _LOOPBACK)))
            variables |= dict.fromkeys(("NO_PROXY", "no_proxy"), listed)
    return variables
