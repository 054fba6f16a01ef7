"""Variables of the process; nothing else reads or sets them."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

from holodeck.errors import ConfigError

_YES = frozenset({"1", "true", "yes", "on"})
_PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")
CACHE_MODES = ("auto", "record", "replay", "off")
_NO = frozenset({"0", "false", "no", "off", ""})


def cache_dir() -> Path:
    """Return the cache folder: HOLODECK_CACHE_DIR, else the user's cache."""
    chosen = os.environ.get("HOLODECK_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser().absolute()
    # Imported here because most commands do not need it.
    from platformdirs import user_cache_path

    return user_cache_path("holodeck", appauthor=False)


def data_dir() -> Path:
    """Return the folder for what holodeck remembers about this user."""
    # Imported here because most commands do not need it.
    from platformdirs import user_data_path

    return user_data_path("holodeck", appauthor=False)


def cache_mode() -> str:
    """Return the cache mode of scenarios: HOLODECK_CACHE_MODE, else `auto`. Raises ConfigError."""
    value = os.environ.get("HOLODECK_CACHE_MODE", "") or "auto"
    if value not in CACHE_MODES:
        raise ConfigError(
            "HOLODECK_CACHE_MODE", f"found {value!r}; expected one of {', '.join(CACHE_MODES)}"
        )
    return value


def batch_name() -> str | None:
    """Return HOLODECK_BATCH_RUN_ID, the batch of runs in several processes, if it is set."""
    return os.environ.get("HOLODECK_BATCH_RUN_ID") or None


def events_file() -> Path | None:
    """Return the file for the events of scenarios that HOLODECK_EVENTS names, if any."""
    chosen = os.environ.get("HOLODECK_EVENTS")
    return Path(chosen) if chosen else None


def offline() -> bool:
    """Whether HOLODECK_OFFLINE forbids downloads. Raises ConfigError for an invalid value."""
    return _is_switched_on("HOLODECK_OFFLINE")


def is_trusting() -> bool:
    """Whether HOLODECK_TRUST is `--trust`. Raises ConfigError for an invalid value."""
    return _is_switched_on("HOLODECK_TRUST")


def _is_switched_on(name: str) -> bool:
    """Return the switch of a variable of the process, which no `.env` file can set."""
    value = os.environ.get(name, "")
    word = value.strip().lower()
    if word not in _YES | _NO:
        raise ConfigError(name, f"found {value!r}; expected 1 or 0")
    return word in _YES


def proxy_for(url: str) -> str | None:
    """Return the proxy for a URL by HTTPS_PROXY, HTTP_PROXY, ALL_PROXY and NO_PROXY, if any."""
    if not any(os.environ.get(name) or os.environ.get(name.lower()) for name in _PROXIES):
        return None
    # Imported here because most machines have no proxy.
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


def set_variables(variables: Mapping[str, str]) -> None:
    """Set variables for a library that cannot be configured otherwise."""
    os.environ.update(variables)


def replace_variables(variables: Mapping[str, str]) -> None:
    """Let the process have these variables and no others."""
    for name in os.environ.keys() - variables.keys():
        del os.environ[name]
    os.environ.update(variables)


def process_variables() -> dict[str, str]:
    """Return a copy of the variables of the process."""
    return dict(os.environ)


@contextmanager
def variables_set(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the process in the block, for code of the user that reads them."""
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def hub_url() -> str | None:
    """Return the model hub that HF_ENDPOINT names; None means the public hub."""
    return os.environ.get("HF_ENDPOINT") or None
