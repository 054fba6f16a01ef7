"""Environment variables: the process's own, those of `.env` files, and `${VAR}` in texts."""

import os
import re
from collections.abc import Collection, Iterator, Mapping
from io import StringIO
from pathlib import Path

from holodeck.lib.support.trust import is_untrusted

_REFERENCE = re.compile(r"(\$\$\{)|\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^}]*))?\}")


_MAX_ADDRESS = 2_000
"""Characters of the longest text that can be the address of a server."""
values_in: dict[str, list[str]] = {}
"""Texts after substitution → the values in them that a `.env` file of a project has chosen."""
PROCESS_LAYER = "environment"
"""The source of variables of the process."""


class Environment(Mapping[str, str]):
    """Environment variables and those of `.env` files, each with its source; read-only."""

    def __init__(
        self,
        layers: list[tuple[str, Mapping[str, str]]],
        users_sources: Collection[str] = (PROCESS_LAYER,),
        agents_source: str | None = None,
    ) -> None:
        """`layers` are pairs of source and variables, the strongest first.

        `users_sources` are those that the user has set, and no folder with an agent.
        `agents_source` is the `.env` file that an agent without trust may use.
        """
        self._layers = layers
        self._users_sources = users_sources
        self._agents_source = agents_source

    @classmethod
    def beside(
        cls, folder: Path | None = None, real: Mapping[str, str] | None = None
    ) -> "Environment":
        """Read the `.env` files of `folder`, the working folder and the user.

        Environment variables (`real`, else those of the process) take precedence.
        """
        real = os.environ if real is None else real
        users = [(user_folder / ".env").resolve() for user_folder in user_folders(real)]
        others = [(other / ".env").resolve() for other in (folder, Path.cwd()) if other]
        # What a stranger wrote must not copy the user's variables.
        variables = [
            (str(path), _dotenv(path, interpolate=path in users or not is_untrusted()))
            for path in dict.fromkeys([*others, *users])
            if path.is_file()
        ]
        # A link may lead out of the folder.
        is_agents = folder is not None and others[0].is_relative_to(folder.resolve())
        return cls(
            [(PROCESS_LAYER, real), *variables],
            [PROCESS_LAYER, *map(str, users)],
            str(others[0]) if is_agents else None,
        )

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
        and has no default, and for all but those of the agent's `.env` if nobody trusts the text.
        """
        replaced = _REFERENCE.sub(self._replacement, text)
        if replaced != text and len(replaced) <= _MAX_ADDRESS:
            names = {match[2] for match in _REFERENCE.finditer(text) if match[2] is not None}
            values = [self[name] for name in names if self.get(name) and not self.is_users(name)]
            if values:
                values_in[replaced] = values
        return replaced

    def _replacement(self, match: re.Match[str]) -> str:
        escaped, name, default = match.groups()
        if escaped:
            return match[0][1:]
        if is_untrusted() and self.source_of(name) not in {None, self._agents_source}:
            raise ValueError(
                f"${{{name}}}: --untrusted refuses variables of your environment, and of files"
                " elsewhere; the API key of a provider is found without it"
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


def _dotenv(path: Path, *, interpolate: bool) -> dict[str, str]:
    # Imported here because most projects have no .env file.
    from dotenv import dotenv_values

    from holodeck.config.yaml.source import read_file  # noqa: PLC0415 - imports yaml

    text = read_file(path, str(path))
    values = dotenv_values(stream=StringIO(text), interpolate=interpolate)
    return {name: value for name, value in values.items() if value is not None}
