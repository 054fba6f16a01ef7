"""What the environment says about the machine: where caches lie, and whether the network is off."""

import os
from pathlib import Path

from holodeck.errors import ConfigError

_YES = frozenset({"1", "true", "yes", "on"})
_NO = frozenset({"0", "false", "no", "off", ""})


def cache_dir() -> Path:
    """The folder for what can be fetched again: HOLODECK_CACHE_DIR, else the user's cache."""
    chosen = os.environ.get("HOLODECK_CACHE_DIR")
    if chosen:
        return Path(chosen).expanduser().absolute()
    # Imported here because most commands never ask.
    from platformdirs import user_cache_path  # noqa: PLC0415

    return user_cache_path("holodeck", appauthor=False)


def offline() -> bool:
    """Whether HOLODECK_OFFLINE forbids downloads. Raises ConfigError for an unclear value."""
    value = os.environ.get("HOLODECK_OFFLINE", "")
    word = value.strip().lower()
    if word not in _YES | _NO:
        raise ConfigError("HOLODECK_OFFLINE", f"{value!r} is neither yes nor no; write 1 or 0")
    return word in _YES


def hub_url() -> str | None:
    """The model hub that HF_ENDPOINT names; None means the public one."""
    return os.environ.get("HF_ENDPOINT") or None
