"""Environment variables: the process's own, those of `.env` files, and `${VAR}` in texts."""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from io import StringIO
from pathlib import Path

from holodeck.errors import ConfigError
from holodeck.lib.trust import is_untrusted

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
    from platformdirs import user_cache_path  # noqa: PLC0415

    return user_cache_path("holodeck", appauthor=False)


def data_dir() -> Path:
    """Return the folder for what holodeck remembers about this user."""
    # Imported here because most commands do not need it.
    from platformdirs import user_data_path  # noqa: PLC0415

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
    """Return the file for the events of scenarios, if HOLODECK_EVENTS names one."""
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
    """Return the model hub that HF_ENDPOINT names; None means the public one."""
    return os.environ.get("HF_ENDPOINT") or None


_REFERENCE = re.compile(r"(\$\$\{)|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


PROCESS_LAYER = "environment"
"""The source of variables of the process."""


class Environment(Mapping[str, str]):
    """Environment variables and those of `.env` files, each with its source; read-only."""

    def __init__(
        self,
        layers: list[tuple[str, Mapping[str, str]]],
        users_sources: Collection[str] = (PROCESS_LAYER,),
    ) -> None:
        """`layers` are pairs of source and variables, the strongest first.

        `users_sources` are those that the user has set, and no folder with an agent.
        """
        self._layers = layers
        self._users_sources = users_sources

    @classmethod
    def beside(
        cls, folder: Path | None = None, real: Mapping[str, str] | None = None
    ) -> "Environment":
        """Read the `.env` files of `folder`, the working folder and the user.

        Environment variables (`real`, else those of the process) take precedence.
        """
        real = os.environ if real is None else real
        files = _dotenv_files(folder, real)
        users = [str((one / ".env").resolve()) for one in user_folders(real)]
        layers = [(PROCESS_LAYER, real), *((str(path), _dotenv(path)) for path in files)]
        return cls(layers, [PROCESS_LAYER, *users])

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
        """Return `environment` or the path of a `.env` file; None if the variable is not set."""
        return next((source for source, layer in self._layers if name in layer), None)

    def is_users(self, name: str) -> bool:
        """Whether the user has set the variable, and no `.env` file of a project."""
        return self.source_of(name) in self._users_sources

    def substitute(self, text: str) -> str:
        """Return `text` with `${VAR}` and `${VAR:-default}` replaced, once; `$${` becomes `${`.

        An empty variable gets the default too. Raises ValueError for a variable that is not set
        and has no default, and for the user's own variables if nobody trusts the text.
        """
        return _REFERENCE.sub(self._replacement, text)

    def _replacement(self, match: re.Match[str]) -> str:
        escaped, name, default = match.groups()
        if escaped:
            return match[0][1:]
        if is_untrusted() and self.is_users(name):
            raise ValueError(
                f"${{{name}}}: --untrusted refuses variables of your environment; the API key of a"
                " provider is found without it"
            )
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
    """Return the folders for a user's configuration, the strongest first."""
    home = Path(real["HOME"]) if real.get("HOME") else Path.home()
    xdg = real.get("XDG_CONFIG_HOME")
    return [home / ".holodeck", (Path(xdg) if xdg else home / ".config") / "holodeck"]


def _dotenv_files(folder: Path | None, real: Mapping[str, str]) -> list[Path]:
    folders = [*([folder] if folder else []), Path.cwd(), *user_folders(real)]
    paths = {(one / ".env").resolve(): None for one in folders}
    return [path for path in paths if path.is_file()]


def _dotenv(path: Path) -> dict[str, str]:
    # Imported here because most projects have no .env file.
    from dotenv import dotenv_values  # noqa: PLC0415

    from holodeck.config.source import read_bytes  # noqa: PLC0415
    from holodeck.config.yaml_nodes import decode_text  # noqa: PLC0415

    text = decode_text(read_bytes(path, str(path)), str(path))
    values = dotenv_values(stream=StringIO(text))
    return {name: value for name, value in values.items() if value is not None}
