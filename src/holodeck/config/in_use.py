"""The values that a run uses of settings and model, their sources, and what these overrule."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import SecretStr

from holodeck.config.env import REAL, Environment
from holodeck.config.providers import VARIABLES, filled
from holodeck.config.settings import Layer, from_environment, settings
from holodeck.config.source import Source
from holodeck.models.config import ExecutionConfig, GlobalConfig
from holodeck.models.llm import LLMProvider

HIDDEN = "(not shown)"


@dataclass(frozen=True)
class Shared:
    """A project's or a user's `config.yaml`."""

    source: Source
    config: GlobalConfig


@dataclass(frozen=True)
class SettingInUse:
    """A key with the value that a run uses."""

    key: str
    """Such as `execution.llm_timeout` or `model.endpoint`."""
    value: Any
    """As JSON holds it; a secret is never in it."""
    source: str
    """Such as `agent.yaml:12:5`, `--timeout`, `OPENAI_API_KEY in .env` or `default`."""
    overrules: str | None = None
    """The variable with another value that the `config.yaml` of `source` overrules, if any."""


def settings_in_use(
    config: ExecutionConfig, layers: Sequence[Layer], env: Mapping[str, str]
) -> list[SettingInUse]:
    """Every setting of a run, in the order of the model."""
    return [
        SettingInUse(
            f"execution.{name}",
            getattr(config, name),
            config.source_of(name),
            _overruled_setting(name, layers, env),
        )
        for name in settings()
    ]


def model_in_use(
    model: LLMProvider, written: Source, shared: Sequence[Shared], env: Mapping[str, str]
) -> Iterator[SettingInUse]:
    """Every key of an agent's `model`; `shared` holds the strongest configuration file first."""
    variables = VARIABLES[model.provider]
    for key in LLMProvider.model_fields:
        names = getattr(variables, key, ())
        variable = next((name for name in names if env.get(name, "").strip()), None)
        given = None if variable is None else named(variable, env)
        value = getattr(model, key)
        shown = HIDDEN if isinstance(value, SecretStr) else value
        own = _place(written, ("model", key))
        of_file = None if own else _provider_place(shared, model, key)
        overrules = None
        if of_file is not None and given is not None:
            plain = value.get_secret_value() if isinstance(value, SecretStr) else value
            offered = filled({"provider": model.provider}, env)[key]
            overrules = given if offered != plain else None
        source = own or of_file or given or "default"
        yield SettingInUse(f"model.{key}", shown, source, overrules)


def notice(rows: Sequence[SettingInUse]) -> str | None:
    """What to tell whoever set variables that a `config.yaml` overrules; None if nobody did."""
    pairs = [f"{one.overrules} by {one.source} ({one.key})" for one in rows if one.overrules]
    if not pairs:
        return None
    return (
        f"config.yaml wins over environment variables; overruled: {', '.join(pairs)};"
        " `holodeck config show` lists every value with its source"
    )


def named(variable: str, env: Mapping[str, str]) -> str:
    """The variable, and the `.env` file that sets it if one does."""
    source = env.source_of(variable) if isinstance(env, Environment) else None
    return variable if source in (None, REAL) else f"{variable} in {source}"


def _overruled_setting(name: str, layers: Sequence[Layer], env: Mapping[str, str]) -> str | None:
    declared = settings()[name]
    given = from_environment(declared, env)
    if given is None:
        return None
    rival = settings().get(declared.setting.rival or "")
    for layer in layers:
        own = layer.value(declared)
        if own is not None:
            return given[1] if layer.is_shared and own[0] != given[0] else None
        if rival is not None and layer.value(rival) is not None:
            return given[1] if layer.is_shared else None
    return None


def _place(source: Source, path: tuple[str, ...]) -> str | None:
    """Where a key is written; None if it is not, or holds nothing."""
    found, node = source.find(path)
    return source.place(path) if found == path and node.value is not None else None


def _provider_place(shared: Sequence[Shared], model: LLMProvider, key: str) -> str | None:
    """Where the configuration files say a key of a provider's models; None if they do not."""
    for one in shared:
        providers = (one.config.providers or {}).items()
        fitting = [name for name, settings in providers if settings.provider == model.provider]
        for name in (model.provider.value, *fitting):
            place = _place(one.source, ("providers", name, key))
            if place is not None:
                return place
    return None
