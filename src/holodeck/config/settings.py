"""Settings of a run and where each comes from.

The order is: command line > agent.yaml > project > user > HOLODECK_* variables > pyproject.toml >
default.
"""

import operator
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from pydantic import SecretStr, TypeAdapter, ValidationError

from holodeck.config.environment import PROCESS_LAYER, Environment
from holodeck.config.providers import with_provider_variables
from holodeck.config.yaml.source import Source
from holodeck.config.yaml.validation_errors import expected_value
from holodeck.errors import ConfigError
from holodeck.lib.support.safe_paths import written_path
from holodeck.lib.support.text import nearest_word, quote
from holodeck.lib.support.trust import is_untrusted
from holodeck.models.agent import Agent
from holodeck.models.config import (
    ExecutionConfig,
    GlobalConfig,
    SettingField,
    setting_fields,
    validate_min_pass,
)
from holodeck.models.llm import PROVIDERS, LLMProvider
from holodeck.models.test_case import TestCaseModel

PREFIX = "HOLODECK_"
OTHER_VARIABLES = {
    "HOLODECK_BATCH_RUN_ID": "ID of a batch of scenarios that run in several processes.",
    "HOLODECK_CACHE_MODE": "Cache mode of scenarios in Python, such as replay.",
    "HOLODECK_LOG_LEVEL": "Level of the log on stderr, such as DEBUG.",
    "HOLODECK_TRUST": "1 is `--trust`; a `.env` file cannot set it.",
    "HF_ENDPOINT": "The model hub for downloads; by default the public one.",
}
"""Variables that are not settings of a run, and their meaning."""


@dataclass(frozen=True)
class SettingsLayer:
    """Settings from a source; `name` stands for the source of values without one."""

    config: ExecutionConfig | None
    name: str = "given"
    is_shared: bool = False
    """Whether it is a `config.yaml`, which applies to several agents."""
    is_users: bool = False
    """Whether the user has set it: the command line, or the `config.yaml` of the user."""
    yields: bool = False
    """Whether variables win; such layers come last."""

    def value(self, declared: SettingField) -> tuple[Any, str] | None:
        """Return the value and its source, or None if it is not set here."""
        if self.config is None:
            return None
        value = getattr(self.config, declared.field)
        source = self.config.source_of(declared.field)
        is_given = source == "given"
        if value is None and not (
            is_given
            and declared.setting.none_is_no_limit
            and declared.field in self.config.model_fields_set
        ):
            return None
        return value, self.name if is_given else source

    def is_users_value(self, declared: SettingField) -> bool:
        """Whether the user or code has set the value, and no file of a project."""
        return self.is_users or (
            self.config is not None and self.config.source_of(declared.field) == "given"
        )


@dataclass(frozen=True)
class EffectiveSetting:
    """A key, the value that a run uses, and its source."""

    key: str
    """Such as `execution.llm_timeout` or `model.endpoint`."""
    value: Any
    """A JSON value; secrets are replaced."""
    source: str
    """Such as `agent.yaml:12:5`, `--llm-timeout`, `OPENAI_API_KEY in .env` or `default`."""
    overrules: str | None = None
    """The variable with another value that the `config.yaml` of `source` overrides, if any."""


def resolve_settings(
    layers: Sequence[SettingsLayer],
    env: Mapping[str, str],
    defaults: Mapping[str, Any] | None = None,
    folder: Path | None = None,
) -> ExecutionConfig:
    """Return the first value of each setting: layers, with HOLODECK_* before those that yield to
    variables, then the default.

    The result knows the source of each value. Raises ConfigError for an invalid variable, even one
    that a layer overrides, and for a path that a file of the agent's `folder` may not name.
    """
    values = _resolved_values(layers, env, defaults or {})
    config = _to_config(values)
    for field, value in values.items() if is_untrusted() else ():
        reaches_out = setting_fields()[field].setting.reaches_out
        if reaches_out and value.value is not None and not value.is_users:
            raise ConfigError(value.source, f"execution.{field}: --untrusted refuses it")
    if folder is not None:
        for declared in setting_fields().values():
            if declared.is_written and not values[declared.field].is_users:
                _check_written_path(declared, config, folder)
    return config


def _to_config(values: Mapping[str, "_ResolvedValue"]) -> ExecutionConfig:
    try:
        config = ExecutionConfig(**{field: value.value for field, value in values.items()})
    except ValidationError as error:  # two variables conflict
        raise ConfigError("HOLODECK_*", conflict_message(error)) from error
    return config.with_sources({field: value.source for field, value in values.items()})


def effective_settings(
    layers: Sequence[SettingsLayer], env: Mapping[str, str], defaults: Mapping[str, Any]
) -> list[EffectiveSetting]:
    """Return every setting of a run, in the order of the model. Raises ConfigError."""
    values = _resolved_values(layers, env, defaults)
    config = _to_config(values)
    return [
        EffectiveSetting(f"execution.{name}", getattr(config, name), value.source, value.overrules)
        for name, value in values.items()
    ]


def _check_written_path(declared: SettingField, config: ExecutionConfig, folder: Path) -> None:
    """Raise ConfigError if a path that a file sets leads out of its folder."""
    path = getattr(config, declared.field)
    if path is not None:
        location = f"{config.source_of(declared.field)}: execution.{declared.field}"
        start = config.start_of(declared.field, folder)
        written_path(path, start, location, f"{declared.flags[0]} PATH")


def conflict_message(error: ValidationError) -> str:
    """Return why settings that are valid by themselves conflict."""
    return error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")


class _ResolvedValue(NamedTuple):
    """A value, the rank of its layer (0 is the strongest), and its source."""

    rank: int
    value: Any
    source: str
    is_users: bool = True
    """Whether the user or code has set it, and no file of a project."""
    overrules: str | None = None
    """The variable with another value that a `config.yaml` overrides."""


def _resolved_values(
    layers: Sequence[SettingsLayer], env: Mapping[str, str], defaults: Mapping[str, Any]
) -> dict[str, _ResolvedValue]:
    fields = setting_fields()
    values = {name: _resolve(field, layers, env, defaults) for name, field in fields.items()}
    for name, field in fields.items():
        rival = field.setting.rival
        if rival is not None and values[rival].rank < values[name].rank:
            default = _ResolvedValue(len(layers) + 1, field.setting.default, "default")
            from_env = value_from_environment(field, env)
            if from_env is not None and layers[values[rival].rank].is_shared:
                default = default._replace(overrules=from_env[1])
            values[name] = default
    return values


def _resolve(
    declared: SettingField,
    layers: Sequence[SettingsLayer],
    env: Mapping[str, str],
    defaults: Mapping[str, Any],
) -> _ResolvedValue:
    from_env = value_from_environment(declared, env)
    rank_of_env = sum(not layer.yields for layer in layers)
    for rank, layer in enumerate(layers):
        if layer.yields and from_env is not None:
            break
        in_layer = layer.value(declared)
        if in_layer is not None:
            is_other = from_env is not None and layer.is_shared and in_layer[0] != from_env[0]
            overrules = from_env[1] if from_env is not None and is_other else None
            below_env = rank + layer.yields
            return _ResolvedValue(below_env, *in_layer, layer.is_users_value(declared), overrules)
    if from_env is not None:
        is_users = not isinstance(env, Environment) or env.is_users(declared.variable)
        return _ResolvedValue(rank_of_env, *from_env, is_users=is_users)
    default = defaults.get(declared.field, declared.setting.default)
    return _ResolvedValue(len(layers) + 1, default, "default")


def value_from_environment(
    declared: SettingField, env: Mapping[str, str]
) -> tuple[Any, str] | None:
    """Return the value of the setting's variable and its source; None if unset or empty."""
    text = env.get(declared.variable, "").strip()
    if not text:
        return None
    try:
        value = TypeAdapter(declared.annotation).validate_python(text)
    except ValidationError as error:
        raise ConfigError(
            declared.variable,
            f"found {quote(text)}; expected {expected_value(error)} ({declared.setting.help})",
        ) from error
    return value, describe_variable(declared.variable, env)


def unknown_variable_warnings(env: Mapping[str, str]) -> list[str]:
    """Return a warning for each unknown HOLODECK_* variable."""
    known = [*(field.variable for field in setting_fields().values()), *OTHER_VARIABLES]
    names = [name.removeprefix(PREFIX) for name in known]
    warnings = []
    for name in env:
        if name.startswith(PREFIX) and name not in known:
            nearest = nearest_word(name.removeprefix(PREFIX), names)
            hint = f"; did you mean {PREFIX}{nearest}?" if nearest else ""
            warnings.append(f"unknown variable {name}{hint}")
    return warnings


_GROUPS = (
    ("retries",),
    ("repeat",),
    ("min_pass", "min_pass_rate"),
    ("stop_early",),
)
"""Keys of a case that are settings of the run too; a group sets the same thing."""
_OVERRIDDEN = {"timeout": "llm_timeout", "fail_fast": "fail_fast"}
"""Keys of a case → the settings that take their place if the command line sets them."""


def with_case_settings(agent: Agent, settings: ExecutionConfig) -> Agent:
    """Return the agent with the settings of the run written into its cases.

    Command line > case > all other sources; applying it twice changes nothing. Raises ConfigError
    for settings that conflict.
    """
    of_run = []
    for group in _GROUPS:
        values = {name: getattr(settings, name) for name in group}
        names = [name for name, value in values.items() if value is not None]
        if any(settings.source_of(name) != "default" for name in names):
            of_run.append((values, any(map(settings.is_from_command_line, names))))
    removed = [key for key, name in _OVERRIDDEN.items() if settings.is_from_command_line(name)]
    cases = []
    for index, case in enumerate(agent.test_cases or []):
        update: dict[str, Any] = {key: None for key in removed if getattr(case, key) is not None}
        for values, overrides in of_run:
            if overrides or all(getattr(case, name) is None for name in values):
                update |= values
        changed = case.model_copy(update=update) if update else case
        problem = _find_conflict(changed)
        if problem is not None:
            location = agent.location("test_cases", index, problem[0])
            name = case.name or f"test_cases[{index}]"
            raise ConfigError(f"{location}: {name}", problem[1])
        cases.append(changed)
    is_same = all(map(operator.is_, cases, agent.test_cases or []))
    return agent if is_same else agent.model_copy(update={"test_cases": cases})


def _find_conflict(case: TestCaseModel) -> tuple[str, str] | None:
    """Return a key that has no effect or conflicts with another one, and a message."""
    if case.retry_on is not None and case.retries is None:
        message = "'retry_on' has no effect without 'retries'; add 'retries: 1', for example"
        return "retry_on", message
    for key in ("min_pass_rate", "min_pass"):
        if getattr(case, key) is not None and case.repeat is None:
            return key, f"{key!r} has no effect without 'repeat'; add 'repeat: 5', for example"
    try:
        validate_min_pass(case.repeat, case.min_pass, case.min_pass_rate)
    except ValueError as error:
        return "min_pass", str(error)
    return None


HIDDEN = "(not shown)"


@dataclass(frozen=True)
class ConfigFile:
    """The `config.yaml` of a project or a user."""

    source: Source
    config: GlobalConfig


def effective_model_settings(
    model: LLMProvider, written: Source, shared: Sequence[ConfigFile], env: Mapping[str, str]
) -> Iterator[EffectiveSetting]:
    """Yield every key of an agent's `model`; `shared` begins with the strongest file."""
    variables = PROVIDERS[model.provider]
    for key in LLMProvider.model_fields:
        names = getattr(variables, key, ())
        variable = next((name for name in names if env.get(name, "").strip()), None)
        given = None if variable is None else describe_variable(variable, env)
        value = getattr(model, key)
        shown = HIDDEN if isinstance(value, SecretStr) else value
        own = _key_location(written, ("model", key))
        of_file = None if own else _provider_location(shared, model, key)
        overrules = None
        if of_file is not None and given is not None:
            plain = value.get_secret_value() if isinstance(value, SecretStr) else value
            offered = with_provider_variables({"provider": model.provider}, env)[key]
            overrules = given if offered != plain else None
        source = own or of_file or given or "default"
        yield EffectiveSetting(f"model.{key}", shown, source, overrules)


def overridden_notice(rows: Sequence[EffectiveSetting]) -> str | None:
    """Return a notice about variables that a `config.yaml` overrides, or None without any."""
    pairs = [f"{row.overrules} by {row.source} ({row.key})" for row in rows if row.overrules]
    if not pairs:
        return None
    return (
        f"config.yaml overrides environment variables: {', '.join(pairs)};"
        " `holodeck config show` lists every value with its source"
    )


def describe_variable(variable: str, env: Mapping[str, str]) -> str:
    """Return the name of a variable, and the `.env` file that sets it, if any."""
    source = env.source_of(variable) if isinstance(env, Environment) else None
    return variable if source in (None, PROCESS_LAYER) else f"{variable} in {source}"


def _key_location(source: Source, path: tuple[str, ...]) -> str | None:
    """Return where a key is written, or None if it has no value."""
    present, node = source.find(path)
    return source.location(path) if present == path and node.value is not None else None


def _provider_location(shared: Sequence[ConfigFile], model: LLMProvider, key: str) -> str | None:
    """Return where a configuration file sets a key for the model's provider, or None."""
    for file in shared:
        providers = (file.config.providers or {}).items()
        fitting = [name for name, settings in providers if settings.provider == model.provider]
        for name in (model.provider.value, *fitting):
            location = _key_location(file.source, ("providers", name, key))
            if location is not None:
                return location
    return None
