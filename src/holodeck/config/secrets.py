"""Find the secrets of an agent and of the environment, which are never shown."""

import os
import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel, SecretStr

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
    return list(dict.fromkeys(value for value in found if value.strip()))


def names_a_secret(variable: str) -> bool:
    """Whether a variable of this name holds a secret."""
    name = variable.upper()
    return bool(_SECRET_VARIABLE.search(name)) and not _NAMES_A_PLACE.search(name)


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
