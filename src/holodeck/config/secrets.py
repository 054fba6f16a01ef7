"""Find the secrets of an agent and of the environment, which are never shown."""

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from pydantic import BaseModel, SecretStr

from holodeck.errors import ConfigError

_SECRET_VARIABLE = re.compile(
    r"SECRET|PASSW(?:OR)?D|PASSPHRASE|APIKEY|CREDENTIAL|(?:KEY|TOKEN)(?:_|\d|$)|_(?:PAT|PWD)$"
)
_PLAIN = (str, int, float)
"""Types that hold no secret; checked first, because most values have them."""
_NAMES_A_PLACE = re.compile(r"_(?:FILE|PATH|DIR|HOME|URL|ENDPOINT)$")


def collect(agent: BaseModel | None = None, env: Mapping[str, str] | None = None) -> list[str]:
    """Return the secrets of an agent and of `env`, else of the environment."""
    env = os.environ if env is None else env
    found = list(_secrets_in(agent))
    found += [value for name, value in env.items() if names_a_secret(name)]
    found += [] if agent is None else _secrets_in_env_files(agent)
    return list(dict.fromkeys(value for value in found if value.strip()))


def names_a_secret(variable: str) -> bool:
    """Whether a variable of this name holds a secret."""
    name = variable.upper()
    return bool(_SECRET_VARIABLE.search(name)) and not _NAMES_A_PLACE.search(name)


def _secrets_in_env_files(agent: BaseModel) -> Iterator[str]:
    """Yield the secrets in the files with variables of MCP servers."""
    # Imported here because not only agents have secrets; theirs is imported already.
    from holodeck.models.agent import Agent  # noqa: PLC0415

    if not isinstance(agent, Agent):
        return
    for tool in agent.tools or ():
        if tool.type != "mcp" or tool.env_file is None:
            continue
        # Imported here because few servers have a file.
        from holodeck.lib.tools.mcp import variables_of_file  # noqa: PLC0415

        with suppress(ConfigError):  # the check of the tool, or its start, reports it
            variables = variables_of_file(tool, agent.own_dir)
            yield from (value for name, value in variables.items() if names_a_secret(name))


def _secrets_in(value: Any) -> Iterator[str]:
    if value is None or isinstance(value, _PLAIN):
        return
    if isinstance(value, SecretStr):
        yield value.get_secret_value()
    elif isinstance(value, BaseModel):
        for item in filter(None, vars(value).values()):
            yield from _secrets_in(item)
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from _secrets_in(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _secrets_in(item)
