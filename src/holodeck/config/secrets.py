"""Find the secrets of an agent and of the environment, which are never shown."""

import os
import re
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

from pydantic import BaseModel, SecretStr

from holodeck.errors import ConfigError
from holodeck.lib.secrets.formats import names_a_secret
from holodeck.models.base import walk

_HARMLESS = frozenset({"api-version", "version", "model", "deployment", "region", "format"})
_WORD = re.compile(r"[a-z]{1,11}")
_LOOKS_RANDOM = re.compile(r"(?=.*\d)(?=.*[A-Za-z])\S{8,}")
_TOKEN_IN_PATH = re.compile(
    # letters and digits without a separator, as no name of a model, version or project has them
    r"(?=[a-z]*[A-Z\d])(?=\D*\d)(?:(?=.*[a-z].*[A-Z]|.*[A-Z].*[a-z])[A-Za-z\d]{12,}|[A-Za-z\d]{20,})"
)
_BOT = re.compile(r"bot(\d{1,20}:[\w-]{3,})")
"""What a URL of Telegram names a bot by."""
_WORDS_FOR_KEYS = frozenset({"key", "code"})
"""Names that mean a secret in a URL or command; in the context of a case, an ordinary value."""
_COMMANDS = frozenset({"command", "args"})
_USER_OPTIONS = frozenset({"-u", "--user", "--proxy-user", "-U"})
_SHORT_OPTIONS = frozenset({"-p", "-t", "-k", "-s"})
"""Options whose value is a password or token in some programs, and in others a port or a path."""
_TOKEN = re.compile(r"(?=.*\d)(?=.*[A-Za-z])[\w!#$%^&*+=~-]{8,}")
_CASE = re.ASCII | re.IGNORECASE
_HEADER = re.compile(r"([\w-]+):\s*(?:\w+\s+)?(?!(?:bearer|basic|token)$)(\S{4,})", _CASE)
_SCHEME = re.compile(r"(?i)\b(?:bearer|basic|token)\s+(\S{6,})")


def collect(agent: BaseModel | None = None, env: Mapping[str, str] | None = None) -> list[str]:
    """Return the secrets of an agent and of `env`, else of the environment."""
    env = os.environ if env is None else env
    found = [part.get_secret_value() for _, part in walk(agent) if isinstance(part, SecretStr)]
    found += [value for name, value in env.items() if names_a_secret(name)]
    for name, value in env.items():
        if "://" in value:
            found += secrets_in_url(value)
            if names_a_secret(name):  # such as SLACK_WEBHOOK_URL
                found += filter(_LOOKS_RANDOM.fullmatch, [unquote(value.rpartition("/")[2])])
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
    """Yield the secrets in URLs and commands of an agent; of cases, in `context` and `files`.

    Test cases have too many other texts.
    """
    if isinstance(value, str):
        yield from secrets_in_url(value)
    elif isinstance(value, BaseModel):
        for name, item in vars(value).items():
            if name == "test_cases":
                yield from _secrets_in_cases(item or ())
            elif item:
                yield from _secrets_in_texts(item)
                yield from _secrets_in_command(name, item)
    elif isinstance(value, Mapping):
        yield from filter(_LOOKS_RANDOM.fullmatch, _named_secrets(value))
        for name, item in value.items():
            yield from _secrets_in_texts(item)
            yield from _secrets_in_command(name, item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _secrets_in_texts(item)


def _secrets_in_command(name: Any, value: Any) -> Iterator[str]:
    """Yield the secrets in a list that is a command, by its key or by an option in it."""
    if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
        return
    if name in _COMMANDS or any(item.startswith("-") for item in value):
        yield from secrets_in_arguments(value)


def _secrets_in_cases(cases: Iterable[Any]) -> Iterator[str]:
    for case in cases:
        if case.context:
            named = _without(case.context, _WORDS_FOR_KEYS)
            yield from _secrets_in_texts(named)
        for file in case.files or ():
            if file.url is not None:
                yield from secrets_in_url(file.url)


def _without(value: Any, names: frozenset[str]) -> Any:
    """Return mappings, and those in them, without the texts of some keys."""
    if isinstance(value, Mapping):
        return {
            key: _without(item, names)
            for key, item in value.items()
            if str(key).lower() not in names or not isinstance(item, str)
        }
    return [_without(item, names) for item in value] if isinstance(value, list) else value


def _named_secrets(mapping: Mapping[Any, Any]) -> Iterator[str]:
    """Yield the texts whose keys name a secret."""
    for name, item in mapping.items():
        if isinstance(item, str) and names_a_secret(str(name)):
            yield item


def secrets_in_url(text: str) -> Iterator[str]:
    """Yield the password, the secret parameters and the tokens in the path of a URL."""
    if "://" not in text or len(text.split()) != 1:
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
    for segment in parts.path.partition(";")[0].split("/"):
        bot = _BOT.fullmatch(segment)
        if bot is not None:
            yield bot[1]
        elif any(_TOKEN_IN_PATH.fullmatch(word) for word in re.split(r"[^A-Za-z\d]", segment)):
            yield unquote(segment)


def secrets_in_arguments(arguments: Sequence[str]) -> Iterator[str]:
    """Yield the secrets in a command: `--token X`, `-H "Authorization: X"`, `-u name:X`, `A_KEY=X`.

    Commands in one argument, as of `sh -c`, are split.
    """
    for option, following in pairwise([*arguments, ""]):
        words = _shell_words(option)
        name, equals, value = option.partition("=")
        if len(words) > 1:
            yield from _SCHEME.findall(option)
            yield from _secrets_in_header(option)
            yield from secrets_in_arguments(words)
        elif equals:
            yield from [value] if names_a_secret(name) else secrets_in_arguments([value])
        elif option.startswith("-") and not following.startswith("-"):
            yield from _value_of_option(option, following)
        elif not option.startswith("-"):
            yield from _secrets_in_header(option)
            yield from secrets_in_url(option)
        if option.startswith("-p") and _TOKEN.fullmatch(option[2:]):
            yield option[2:]  # as mysql takes it


def _value_of_option(option: str, value: str) -> Iterator[str]:
    """Yield the value that follows an option, or the secret part of it."""
    if option in _USER_OPTIONS:
        yield from filter(None, [value.partition(":")[2]])
    elif names_a_secret(option) or (option in _SHORT_OPTIONS and _TOKEN.fullmatch(value)):
        yield value


def _secrets_in_header(text: str) -> Iterator[str]:
    """Yield the value of `Name: value`, where the name of the header is that of a secret."""
    header = _HEADER.fullmatch(text)
    if header is not None and names_a_secret(header[1]):
        yield header[2]


def _shell_words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError:  # a quote that does not end
        return text.split()
