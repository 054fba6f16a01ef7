"""Environment variables: the process's own, those of `.env` files, and `${VAR}` in texts."""

import os
import re
from collections.abc import Iterator, Mapping
from io import StringIO
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


def set_variables(variables: Mapping[str, str]) -> None:
    """Set variables for a library that takes its settings from nowhere else."""
    os.environ.update(variables)


def hub_url() -> str | None:
    """The model hub that HF_ENDPOINT names; None means the public one."""
    return os.environ.get("HF_ENDPOINT") or None


_REFERENCE = re.compile(r"(\$\$\{)|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


PROCESS_LAYER = "environment"
"""The name of the layer of real variables."""


class Environment(Mapping[str, str]):
    """Variables by name; each knows where it was found. The process's own are never changed."""

    def __init__(self, layers: list[tuple[str, Mapping[str, str]]]) -> None:
        """`layers` are named mappings, the strongest first."""
        self._layers = layers

    @classmethod
    def beside(
        cls, folder: Path | None = None, real: Mapping[str, str] | None = None
    ) -> "Environment":
        """Real variables over the `.env` of `folder`, of the working folder and of the user."""
        real = os.environ if real is None else real
        files = _dotenv_files(folder, real)
        return cls([(PROCESS_LAYER, real), *((str(path), _dotenv(path)) for path in files)])

    def __getitem__(self, name: str) -> str:
        for _, layer in self._layers:
            if name in layer:
                return layer[name]
        raise KeyError(name)

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys(name for _, layer in self._layers for name in layer))

    def __len__(self) -> int:
        return len(list(iter(self)))

    def source_of(self, name: str) -> str | None:
        """`environment` or the path of a `.env` file; None for a variable that is not set."""
        return next((source for source, layer in self._layers if name in layer), None)

    def substitute(self, text: str) -> str:
        """`text` with `${VAR}` and `${VAR:-default}` replaced, once; `$${` gives `${`.

        The default also stands in for a variable that is set and empty. Raises ValueError for a
        variable that is not set and has no default.
        """
        return _REFERENCE.sub(self._replacement, text)

    def _replacement(self, match: re.Match[str]) -> str:
        escaped, name, default = match.groups()
        if escaped:
            return match[0][1:]
        value = self.get(name)
        if default is not None:
            return value or default
        if value is None:
            raise ValueError(
                f"${{{name}}}: the variable {name} is not set; set it, write it into a .env file"
                f" beside the agent.yaml, or give a default: ${{{name}:-text}}"
            )
        return value


def user_folders(real: Mapping[str, str]) -> list[Path]:
    """Where a user's own configuration may lie, the strongest first."""
    home = Path(real["HOME"]) if real.get("HOME") else Path.home()
    xdg = real.get("XDG_CONFIG_HOME")
    return [home / ".holodeck", (Path(xdg) if xdg else home / ".config") / "holodeck"]


def _dotenv_files(folder: Path | None, real: Mapping[str, str]) -> list[Path]:
    folders = [*([folder] if folder else []), Path.cwd(), *user_folders(real)]
    paths = {(place / ".env").resolve(): None for place in folders}
    return [path for path in paths if path.is_file()]


def _dotenv(path: Path) -> dict[str, str]:
    # Imported here because most projects have no such file.
    from dotenv import dotenv_values  # noqa: PLC0415

    from holodeck.config.source import read_bytes  # noqa: PLC0415
    from holodeck.config.yaml_nodes import decode_text  # noqa: PLC0415

    text = decode_text(read_bytes(path, str(path)), str(path))
    values = dotenv_values(stream=StringIO(text))
    return {name: value for name, value in values.items() if value is not None}
