"""The addresses of servers that an agent.yaml names, and the hosts in them."""

import re
from dataclasses import dataclass
from functools import cached_property
from urllib.parse import unquote, urlsplit

from holodeck.config.yaml.source import KeyPath
from holodeck.models.llm import PROVIDERS, ProviderEnum
from holodeck.models.tool import is_loopback

_PAIRS = re.compile(r"\w+=")
"""The beginning of a connection string of the form `Name=value;Name=value`."""
_NO_HOST = re.compile(r"(?i)(?:accountkey|applicationid|instrumentationkey|\s*)")
"""Names in a connection string whose values name no host."""
_HOST = re.compile(r"[a-z0-9._:-]+")


@dataclass(frozen=True)
class Address:
    """The address of a server that requests go to."""

    path: KeyPath
    text: str
    provider: ProviderEnum | None = None
    """Whose model the server is expected to serve; None for other servers."""

    @cached_property
    def hosts(self) -> tuple[str, ...]:
        """The hosts in it; empty if they cannot be told for certain."""
        return hosts_in(self.text)

    @property
    def shown(self) -> str:
        return ", ".join(self.hosts) or "an address that cannot be read"

    @property
    def is_local(self) -> bool:
        """Whether the server is on this machine."""
        urls = [f"//[{host}]" if ":" in host else f"//{host}" for host in self.hosts]
        return bool(urls) and all(map(is_loopback, urls))

    @property
    def is_providers_own(self) -> bool:
        """Whether only the provider serves models there, and nobody on the way can read."""
        if self.provider is None or not self.hosts or not self.text.startswith("https:"):
            return False
        facts = PROVIDERS[self.provider]
        domains = (*hosts_in(facts.url or ""), *facts.own_domains)
        return all(
            any(f".{host}".endswith(f".{domain}") for domain in domains) for host in self.hosts
        )


def hosts_in(text: str) -> tuple[str, ...]:
    """Return the hosts that a URL or a connection string names, in lower case.

    Empty if clients could disagree about one of them.
    """
    is_plain = text.isascii() and text.isprintable() and not {" ", "\\"} & set(text)
    urls = [text if "://" in text else f"//{text}"]
    if _PAIRS.match(text):
        pairs = [pair.partition("=")[::2] for pair in text.split(";")]
        urls = [value for name, value in pairs if not _NO_HOST.fullmatch(name)]
        if not all("://" in url for url in urls):  # such as `Server=tcp:x` or `EndpointSuffix=x`
            return ()
    hosts = [_host_of(url) for url in urls] if is_plain else []
    return () if "" in hosts else tuple(dict.fromkeys(hosts))


def _host_of(url: str) -> str:
    """Return the host of a URL; empty if it cannot be told."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
    except ValueError:
        return ""
    others = unquote(parts.query).lower()
    names_another = "," in parts.netloc or (
        ("host" in others or "service" in others) and not parts.scheme.startswith("http")
    )
    return host if _HOST.fullmatch(host) and not names_another else ""
