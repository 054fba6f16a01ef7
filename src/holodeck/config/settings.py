"""Settings of a run, resolved: CLI > agent.yaml > project > user > HOLODECK_* > default."""

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import TypeAdapter, ValidationError

from holodeck.config.env import REAL, Environment
from holodeck.config.nodes import short
from holodeck.config.problems import wanted
from holodeck.errors import ConfigError
from holodeck.lib.suggestions import nearest_word
from holodeck.models.config import ExecutionConfig, Setting

PREFIX = "HOLODECK_"
OTHER_VARIABLES = {
    "HOLODECK_BATCH_RUN_ID": "Batch that scenarios belong to, for runs of several processes.",
    "HOLODECK_LOG_LEVEL": "Level of the log on stderr, such as DEBUG.",
    "HF_ENDPOINT": "The model hub to fetch models from; else the public one.",
}
"""Variables that are no setting of a run, and what they say."""


@dataclass(frozen=True)
class Declared:
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
def settings() -> dict[str, Declared]:
    """Every setting by field name, in the order of the model."""
    found = {}
    for name, field in ExecutionConfig.model_fields.items():
        setting = next(one for one in field.metadata if isinstance(one, Setting))
        found[name] = Declared(name, setting, field.annotation)
    return found


@dataclass(frozen=True)
class Layer:
    """Settings from one place; `name` is what a value is said to come from."""

    config: ExecutionConfig | None
    name: str = "given"
    is_shared: bool = False
    """Whether it is a `config.yaml`, which holds for several agents."""

    def value(self, declared: Declared) -> tuple[Any, str] | None:
        """The value and its source; None if it is not set here."""
        value = None if self.config is None else getattr(self.config, declared.field)
        if self.config is None or value is None:
            return None
        source = self.config.source_of(declared.field)
        return value, self.name if source == "given" else source


def resolve(
    layers: Sequence[Layer], env: Mapping[str, str], defaults: Mapping[str, Any] | None = None
) -> ExecutionConfig:
    """The first value found for each setting: layers, then HOLODECK_*, then the default.

    The result knows the source of each value. Raises ConfigError for a bad variable, even one that
    a layer overrules.
    """
    found = {one.field: _found(one, layers, env, defaults or {}) for one in settings().values()}
    for declared in settings().values():
        rival = declared.setting.rival
        if rival is not None and found[rival].rank < found[declared.field].rank:
            found[declared.field] = _Found(len(layers) + 1, declared.setting.default, "default")
    try:
        config = ExecutionConfig(**{field: one.value for field, one in found.items()})
    except ValidationError as error:  # two variables that contradict each other
        raise ConfigError("HOLODECK_*", contradiction(error)) from error
    return config.with_sources({field: one.source for field, one in found.items()})


def contradiction(error: ValidationError) -> str:
    """What settings that are right by themselves have against each other."""
    return error.errors(include_url=False)[0]["msg"].removeprefix("Value error, ")


class _Found(NamedTuple):
    """A value, how far from the user it was set, and what is said of where."""

    rank: int
    value: Any
    source: str


def _found(
    declared: Declared,
    layers: Sequence[Layer],
    env: Mapping[str, str],
    defaults: Mapping[str, Any],
) -> _Found:
    from_env = from_environment(declared, env)
    for rank, layer in enumerate(layers):
        in_layer = layer.value(declared)
        if in_layer is not None:
            return _Found(rank, *in_layer)
    if from_env is not None:
        return _Found(len(layers), *from_env)
    default = defaults.get(declared.field, declared.setting.default)
    return _Found(len(layers) + 1, default, "default")


def from_environment(declared: Declared, env: Mapping[str, str]) -> tuple[Any, str] | None:
    """The variable's value; None if it is not set or empty."""
    text = env.get(declared.variable, "").strip()
    if not text:
        return None
    try:
        value = TypeAdapter(declared.annotation).validate_python(text)
    except ValidationError as error:
        raise ConfigError(
            declared.variable,
            f"found {short(text)}; wanted {wanted(error)} ({declared.setting.help})",
        ) from error
    return value, _variable_and_file(declared.variable, env)


def _variable_and_file(name: str, env: Mapping[str, str]) -> str:
    """The variable, and the `.env` file that sets it if one does."""
    source = env.source_of(name) if isinstance(env, Environment) else None
    return name if source in (None, REAL) else f"{name} in {source}"


def unknown_variables(env: Mapping[str, str]) -> list[str]:
    """A warning for each HOLODECK_* variable that means nothing."""
    known = [*(one.variable for one in settings().values()), *OTHER_VARIABLES]
    own = [one.removeprefix(PREFIX) for one in known]
    warnings = []
    for name in env:
        if name.startswith(PREFIX) and name not in known:
            nearest = nearest_word(name.removeprefix(PREFIX), own)
            hint = f"; did you mean {PREFIX}{nearest}?" if nearest else ""
            warnings.append(f"the variable {name} means nothing to holodeck{hint}")
    return warnings
