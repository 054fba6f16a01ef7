"""Settings of a run, resolved: CLI > agent.yaml > project > user > HOLODECK_* > default."""

import functools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import SecretStr, TypeAdapter, ValidationError

from holodeck.config.environment import PROCESS_LAYER, Environment
from holodeck.config.providers import with_provider_variables
from holodeck.config.source import Source
from holodeck.config.validation_errors import expected_value
from holodeck.config.yaml_nodes import quote
from holodeck.errors import ConfigError
from holodeck.lib.suggestions import nearest_word
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig, GlobalConfig, Setting, validate_min_pass
from holodeck.models.llm import PROVIDER_VARIABLES, LLMProvider
from holodeck.models.test_case import TestCaseModel

PREFIX = "HOLODECK_"
OTHER_VARIABLES = {
    "HOLODECK_BATCH_RUN_ID": "ID of a batch of scenarios that run in several processes.",
    "HOLODECK_LOG_LEVEL": "Level of the log on stderr, such as DEBUG.",
    "HF_ENDPOINT": "The model hub for downloads; by default the public one.",
}
"""Variables that are no setting of a run, and what they say."""


@dataclass(frozen=True)
class SettingField:
    """A setting as its field declares it."""

    field: str
    setting: Setting
    annotation: Any
    """The type with its range, None included."""

    @property
    def variable(self) -> str:
        return Setting.variable(self.field)

    @property
    def flag(self) -> str | None:
        """The long flag; None for a setting without one."""
        return next((flag for flag in self.setting.flags if flag.startswith("--")), None)


@functools.cache
def setting_fields() -> dict[str, SettingField]:
    """Every setting by field name, in the order of the model."""
    found = {}
    for name, field in ExecutionConfig.model_fields.items():
        setting = next(one for one in field.metadata if isinstance(one, Setting))
        found[name] = SettingField(name, setting, field.annotation)
    return found


@dataclass(frozen=True)
class SettingsLayer:
    """Settings from one place; `name` is what a value is said to come from."""

    config: ExecutionConfig | None
    name: str = "given"
    is_shared: bool = False
    """Whether it is a `config.yaml`, which holds for several agents."""

    def value(self, declared: SettingField) -> tuple[Any, str] | None:
        """The value and its source; None if it is not set here."""
        value = None if self.config is None else getattr(self.config, declared.field)
        if self.config is None or value is None:
            return None
        source = self.config.source_of(declared.field)
        return value, self.name if source == "given" else source


def resolve_settings(
    layers: Sequence[SettingsLayer],
    env: Mapping[str, str],
    defaults: Mapping[str, Any] | None = None,
) -> ExecutionConfig:
    """The first value found for each setting: layers, then HOLODECK_*, then the default.

    The result knows the source of each value. Raises ConfigError for a bad variable, even one that
    a layer overrules.
    """
    found = {
        one.field: _resolve(one, layers, env, defaults or {}) for one in setting_fields().values()
    }
    for declared in setting_fields().values():
        rival = declared.setting.rival
        if rival is not None and found[rival].rank < found[declared.field].rank:
            found[declared.field] = _Resolved(len(layers) + 1, declared.setting.default, "default")
    try:
        config = ExecutionConfig(**{field: one.value for field, one in found.items()})
    except ValidationError as error:  # two variables that contradict each other
        raise ConfigError("HOLODECK_*", conflict_message(error)) from error
    return config.with_sources({field: one.source for field, one in found.items()})


def conflict_message(error: ValidationError) -> str:
    """What settings that are right by themselves have against each other."""
    return error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")


class _Resolved(NamedTuple):
    """A value, how far from the user it was set, and what is said of where."""

    rank: int
    value: Any
    source: str


def _resolve(
    declared: SettingField,
    layers: Sequence[SettingsLayer],
    env: Mapping[str, str],
    defaults: Mapping[str, Any],
) -> _Resolved:
    from_env = value_from_environment(declared, env)
    for rank, layer in enumerate(layers):
        in_layer = layer.value(declared)
        if in_layer is not None:
            return _Resolved(rank, *in_layer)
    if from_env is not None:
        return _Resolved(len(layers), *from_env)
    default = defaults.get(declared.field, declared.setting.default)
    return _Resolved(len(layers) + 1, default, "default")


def value_from_environment(
    declared: SettingField, env: Mapping[str, str]
) -> tuple[Any, str] | None:
    """The variable's value; None if it is not set or empty."""
    text = env.get(declared.variable, "").strip()
    if not text:
        return None
    try:
        value = TypeAdapter(declared.annotation).validate_python(text)
    except ValidationError as error:
        raise ConfigError(
            declared.variable,
            f"found {quote(text)}; wanted {expected_value(error)} ({declared.setting.help})",
        ) from error
    return value, _describe_variable(declared.variable, env)


def _describe_variable(name: str, env: Mapping[str, str]) -> str:
    """The variable, and the `.env` file that sets it if one does."""
    source = env.source_of(name) if isinstance(env, Environment) else None
    return name if source in (None, PROCESS_LAYER) else f"{name} in {source}"


def unknown_variable_warnings(env: Mapping[str, str]) -> list[str]:
    """A warning for each HOLODECK_* variable that means nothing."""
    known = [*(one.variable for one in setting_fields().values()), *OTHER_VARIABLES]
    own = [one.removeprefix(PREFIX) for one in known]
    warnings = []
    for name in env:
        if name.startswith(PREFIX) and name not in known:
            nearest = nearest_word(name.removeprefix(PREFIX), own)
            hint = f"; did you mean {PREFIX}{nearest}?" if nearest else ""
            warnings.append(f"the variable {name} means nothing to holodeck{hint}")
    return warnings


_GROUPS = (
    ("retries",),
    ("repeat",),
    ("min_pass", "min_pass_rate"),
    ("stop_early",),
    ("cache_key",),
)
"""Keys of a case that are settings of the run too; those of a group say the same."""
_BAR = ("min_pass_rate", "min_pass")


@dataclass(frozen=True)
class _RunSettings:
    """Settings of one group that somebody set."""

    values: Mapping[str, Any]
    overrules: bool
    """Whether they hold for cases too that say something themselves."""


def with_case_settings(agent: Agent, settings: ExecutionConfig) -> Agent:
    """The agent, each case of which says itself how it is run; the same if done twice.

    What nobody set stays unset. Raises ConfigError for what makes no sense together.
    """
    given = [one for group in _GROUPS if (one := _run_settings(group, settings)) is not None]
    overruled = _overridden_keys(settings)
    cases = agent.test_cases or []
    changed = [_apply(_reset(case, overruled), given) for case in cases]
    for index, case in enumerate(changed):
        _check_case(agent, index, case)
    if all(new is old for new, old in zip(changed, cases, strict=True)):
        return agent
    return agent.model_copy(update={"test_cases": changed})


def _run_settings(group: tuple[str, ...], settings: ExecutionConfig) -> _RunSettings | None:
    values = {name: getattr(settings, name) for name in group}
    said = [name for name in group if values[name] is not None]
    if all(settings.source_of(name) == "default" for name in said):
        return None
    return _RunSettings(values, any(map(settings.is_from_command_line, said)))


def _apply(case: TestCaseModel, given: list[_RunSettings]) -> TestCaseModel:
    update: dict[str, Any] = {}
    for one in given:
        if one.overrules or all(getattr(case, name) is None for name in one.values):
            update |= one.values
    return case.model_copy(update=update) if update else case


def _check_case(agent: Agent, index: int, case: TestCaseModel) -> None:
    if case.retry_on is not None and case.retries is None:
        _raise_error(
            (agent, index, case),
            "retry_on",
            "'retry_on' says after what the case is run again, but nothing says how often;"
            " add 'retries: 1', say",
        )
    bar = next((name for name in _BAR if getattr(case, name) is not None), None)
    if bar is not None and case.repeat is None:
        _raise_error(
            (agent, index, case),
            bar,
            f"{bar!r} says how many repetitions must pass, but nothing says how many there are;"
            " add 'repeat: 5', say",
        )
    try:
        validate_min_pass(case.repeat, case.min_pass, case.min_pass_rate)
    except ValueError as error:
        _raise_error((agent, index, case), "min_pass", str(error))


def _overridden_keys(settings: ExecutionConfig) -> list[str]:
    """Keys of cases that give way to the command line, which holds for the run instead."""
    said = settings.is_from_command_line
    flags = {"timeout": "llm_timeout", "fail_fast": "fail_fast"}
    return [key for key, setting in flags.items() if said(setting)]


def _reset(case: TestCaseModel, keys: list[str]) -> TestCaseModel:
    said = [key for key in keys if getattr(case, key) is not None]
    return case.model_copy(update=dict.fromkeys(said)) if said else case


def _raise_error(where: tuple[Agent, int, TestCaseModel], key: str, why: str) -> None:
    agent, index, case = where
    place = agent.place("test_cases", index, key)
    raise ConfigError(f"{place}: {case.name or f'test_cases[{index}]'}", why)


HIDDEN = "(not shown)"


@dataclass(frozen=True)
class ConfigFile:
    """A project's or a user's `config.yaml`."""

    source: Source
    config: GlobalConfig


@dataclass(frozen=True)
class EffectiveSetting:
    """A key with the value that a run uses."""

    key: str
    """Such as `execution.llm_timeout` or `model.endpoint`."""
    value: Any
    """As JSON holds it; a secret is never in it."""
    source: str
    """Such as `agent.yaml:12:5`, `--llm-timeout`, `OPENAI_API_KEY in .env` or `default`."""
    overrules: str | None = None
    """The variable with another value that the `config.yaml` of `source` overrules, if any."""


def effective_settings(
    config: ExecutionConfig, layers: Sequence[SettingsLayer], env: Mapping[str, str]
) -> list[EffectiveSetting]:
    """Every setting of a run, in the order of the model."""
    return [
        EffectiveSetting(
            f"execution.{name}",
            getattr(config, name),
            config.source_of(name),
            _overridden_variable(name, layers, env),
        )
        for name in setting_fields()
    ]


def effective_model_settings(
    model: LLMProvider, written: Source, shared: Sequence[ConfigFile], env: Mapping[str, str]
) -> Iterator[EffectiveSetting]:
    """Every key of an agent's `model`; `shared` holds the strongest configuration file first."""
    variables = PROVIDER_VARIABLES[model.provider]
    for key in LLMProvider.model_fields:
        names = getattr(variables, key, ())
        variable = next((name for name in names if env.get(name, "").strip()), None)
        given = None if variable is None else describe_variable(variable, env)
        value = getattr(model, key)
        shown = HIDDEN if isinstance(value, SecretStr) else value
        own = _location(written, ("model", key))
        of_file = None if own else _provider_location(shared, model, key)
        overrules = None
        if of_file is not None and given is not None:
            plain = value.get_secret_value() if isinstance(value, SecretStr) else value
            offered = with_provider_variables({"provider": model.provider}, env)[key]
            overrules = given if offered != plain else None
        source = own or of_file or given or "default"
        yield EffectiveSetting(f"model.{key}", shown, source, overrules)


def overridden_notice(rows: Sequence[EffectiveSetting]) -> str | None:
    """What to tell whoever set variables that a `config.yaml` overrules; None if nobody did."""
    pairs = [f"{one.overrules} by {one.source} ({one.key})" for one in rows if one.overrules]
    if not pairs:
        return None
    return (
        f"config.yaml wins over environment variables; overruled: {', '.join(pairs)};"
        " `holodeck config show` lists every value with its source"
    )


def describe_variable(variable: str, env: Mapping[str, str]) -> str:
    """The variable, and the `.env` file that sets it if one does."""
    source = env.source_of(variable) if isinstance(env, Environment) else None
    return variable if source in (None, PROCESS_LAYER) else f"{variable} in {source}"


def _overridden_variable(
    name: str, layers: Sequence[SettingsLayer], env: Mapping[str, str]
) -> str | None:
    declared = setting_fields()[name]
    given = value_from_environment(declared, env)
    if given is None:
        return None
    rival = setting_fields().get(declared.setting.rival or "")
    for layer in layers:
        own = layer.value(declared)
        if own is not None:
            return given[1] if layer.is_shared and own[0] != given[0] else None
        if rival is not None and layer.value(rival) is not None:
            return given[1] if layer.is_shared else None
    return None


def _location(source: Source, path: tuple[str, ...]) -> str | None:
    """Where a key is written; None if it is not, or holds nothing."""
    found, node = source.find(path)
    return source.place(path) if found == path and node.value is not None else None


def _provider_location(shared: Sequence[ConfigFile], model: LLMProvider, key: str) -> str | None:
    """Where the configuration files say a key of a provider's models; None if they do not."""
    for one in shared:
        providers = (one.config.providers or {}).items()
        fitting = [name for name, settings in providers if settings.provider == model.provider]
        for name in (model.provider.value, *fitting):
            place = _location(one.source, ("providers", name, key))
            if place is not None:
                return place
    return None
