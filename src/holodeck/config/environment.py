"""What the environment says about the machine: where caches lie, and whether the network is off."""

import os
from collections.abc import Mapping
from pathlib import Path

from holodeck.errors import ConfigError

_YES = frozenset({"1", "true", "yes", "on"})
_PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")
CACHE_MODES = ("auto", "record", "replay", "off")
_NO = frozenset({"0", "false", "no", "off", ""})


def cache_dir() -> Path:
    """The folder for what can be fetched again: HOLODECK_CACHE_DIR, else the user's cache."""
    chosen = os.environ.get("HOLODECK_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser().absolute()
    # Imported here because most commands never ask.
    from platformdirs import user_cache_path  # noqa: PLC0415

    return user_cache_path("holodeck", appauthor=False)


def cache_mode() -> str:
    """How answers in scenarios are kept, by HOLODECK_CACHE_MODE; `auto` if it says nothing.

    Raises ConfigError.
    """
    value = os.environ.get("HOLODECK_CACHE_MODE", "") or "auto"
    if value not in CACHE_MODES:
        raise ConfigError(
            "HOLODECK_CACHE_MODE", f"{value!r} is not one of {', '.join(CACHE_MODES)}"
        )
    return value


def batch_name() -> str | None:
    """The batch that the runs of several processes belong to, by HOLODECK_BATCH_RUN_ID, if any."""
    return os.environ.get("HOLODECK_BATCH_RUN_ID") or None


def events_file() -> Path | None:
    """The file that HOLODECK_EVENTS names for the events of scenarios, if any."""
    chosen = os.environ.get("HOLODECK_EVENTS")
    return Path(chosen) if chosen else None


def offline() -> bool:
    """Whether HOLODECK_OFFLINE forbids downloads. Raises ConfigError for an unclear value."""
    value = os.environ.get("HOLODECK_OFFLINE", "")
    word = value.strip().lower()
    if word not in _YES | _NO:
        raise ConfigError("HOLODECK_OFFLINE", f"{value!r} is neither yes nor no; write 1 or 0")
    return word in _YES


def proxy_for(url: str) -> str | None:
    """The proxy that HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY name for a URL, if any."""
    if not any(os.environ.get(name) or os.environ.get(name.lower()) for name in _PROXIES):
        return None
    # Imported here because most machines have no proxy.
    from urllib.parse import urlsplit  # noqa: PLC0415
    from urllib.request import getproxies, proxy_bypass  # noqa: PLC0415

    parts, proxies = urlsplit(url), getproxies()
    proxy = proxies.get(parts.scheme) or proxies.get("all")
    if proxy is None or proxy_bypass(parts.netloc.rpartition("@")[2]):
        return None
    if "://" not in proxy:
        return f"http://{proxy}"
    if not proxy.startswith("http://"):
        raise ConfigError("HTTPS_PROXY", "only proxies that begin with http:// are supported")
    return proxy


def put(variables: Mapping[str, str]) -> None:
    """Set variables for a library that takes its settings from nowhere else."""
    os.environ.update(variables)


def hub_url() -> str | None:
    """The model hub that HF_ENDPOINT names; None means the public one."""
    return os.environ.get("HF_ENDPOINT") or None
