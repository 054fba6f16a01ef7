"""Environment variables: the real ones over `.env` files, and `${VAR}` in texts."""

import os
import re
from collections.abc import Iterator, Mapping
from io import StringIO
from pathlib import Path

from holodeck.config.reading import read_bytes
from holodeck.config.syntax import decode

_REFERENCE = re.compile(r"(\$\$\{)|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


REAL = "environment"
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
        return cls([(REAL, real), *((str(path), _dotenv(path)) for path in files)])

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

    text = decode(read_bytes(path, str(path)), str(path))
    values = dotenv_values(stream=StringIO(text))
    return {name: value for name, value in values.items() if value is not None}
