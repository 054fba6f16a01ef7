"""Find the secrets of an agent and of the environment, which are never shown."""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import BaseModel, SecretStr

from holodeck.errors import ConfigError
from holodeck.lib.secret_names import names_a_secret

_PLAIN = (str, int, float)
"""Types that hold no secret; checked first, because most values have them."""
_HARMLESS = frozenset({"api-version", "version", "model", "deployment", "region", "format"})
_WORD = re.compile(r"[a-z]{1,11}")
_LOOKS_RANDOM = re.compile(r"(?=.*\d)(?=.*[A-Za-z])\S{8,}")


def collect(agent: BaseModel | None = None, env: Mapping[str, str] | None = None) -> list[str]:
    """Return the secrets of an agent and of `env`, else of the environment."""
    env = os.environ if env is None else env
    found = list(_secrets_in(agent))
    found += [value for name, value in env.items() if names_a_secret(name)]
    found += [part for value in env.values() if "://" in value for part in secrets_in_url(value)]
    if agent is not None:
        found += _secrets_in_env_files(agent)
        found += _secrets_in_texts(agent)
    return list(dict.fromkeys(value for value in found if value.strip()))


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


def _secrets_in_texts(value: Any) -> Iterator[str]:
    """Yield the secrets in URLs and commands of an agent; test cases have too many texts."""
    if isinstance(value, str):
        yield from secrets_in_url(value)
    elif isinstance(value, BaseModel):
        for name, item in vars(value).items():
            if item and name != "test_cases":
                yield from _secrets_in_texts(item)
    elif isinstance(value, Mapping):
        yield from filter(_LOOKS_RANDOM.fullmatch, _named_secrets(value))
        for item in value.values():
            yield from _secrets_in_texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _secrets_in_texts(item)
        if all(isinstance(item, str) for item in value):
            yield from secrets_in_arguments(value)


def _named_secrets(mapping: Mapping[Any, Any]) -> Iterator[str]:
    """Yield the texts whose keys name a secret."""
    for name, item in mapping.items():
        if isinstance(item, str) and names_a_secret(str(name)):
            yield item


def secrets_in_url(text: str) -> Iterator[str]:
    """Yield the password and the secret parameters of a URL, also after `;` and `#`."""
    if "://" not in text or {*"?@;#"}.isdisjoint(text) or len(text.split()) != 1:
        return
    try:
        parts = urlsplit(text)
        password = parts.password
    except ValueError:
        return
    # `postgres:postgres@` is masked in the URL; elsewhere the word is no secret.
    if password is not None and not _WORD.fullmatch(password):
        yield unquote(password)
    parameters = (parts.query, parts.fragment, *parts.path.split(";")[1:])
    for name, value in parse_qsl("&".join(parameters)):
        if names_a_secret(name) or (name not in _HARMLESS and _LOOKS_RANDOM.fullmatch(value)):
            yield value


def secrets_in_arguments(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the values of options such as `--token X` and `--api-key=X`."""
    for option, following in pairwise([*arguments, ""]):
        name, equals, value = option.partition("=")
        if option.startswith("-") and names_a_secret(name):
            if equals:
                yield value
            elif not following.startswith("-"):
                yield following


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
