"""Settings of scenarios."""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from holodeck.lib.conversation.types import ScenarioUsageError
from holodeck.lib.ui.terminal import is_tty
from holodeck.scenario.model_config import ModelConfig

__all__ = ["ModelConfig", "ScenarioConfig", "configure"]

logger = logging.getLogger(__name__)


class ScenarioConfig(BaseModel):
    """The settings of scenarios; None is a value as well, and different from not given."""

    model_config = ConfigDict(defer_build=True, extra="forbid")

    default_config: ClassVar[ScenarioConfig | None] = None
    """The settings made by `configure`."""

    default_model: str | ModelConfig | None = None
    """For judges and simulated users that name no model."""
    max_turns: int | None = 10
    """The most turns that are played without a script."""
    min_turns: int | None = None
    """The least turns before a judge is called."""
    verbose: bool | int | None = True
    """Whether to show the conversation on stderr as it happens; 2 adds the name of the scenario.
    If it is not given, the conversation is shown if stderr is a terminal."""
    cache_key: str | None = None
    """The key under which responses are cached; without one, none are."""
    cache_mode: Literal["auto", "record", "replay", "off"] | None = None
    """`auto` calls for what is not cached, `record` for everything, `replay` for nothing; None for
    the value of HOLODECK_CACHE_MODE, else `auto`."""
    cache_dir: str | Path | None = None
    """The folder of the responses; None for `scenarios` in the cache folder of holodeck."""
    debug: bool | None = False
    """Whether a person at the terminal may speak for the user."""
    events: Any = None
    """Listeners: a function of an event, the path of a file, or a list of these."""
    timeout: float | None = None
    """Seconds that a whole scenario may take."""
    call_timeout: float | None = 600.0
    """Seconds that one call of a participant may take; `configure(call_timeout=None)` removes the
    limit."""
    observability: dict[str, Any] | None = None
    """The arguments of `setup_scenario_tracing`: `span_filter`, `span_processors`,
    `trace_exporter`, `instrumentors`."""
    headless: bool | None = None
    """Whether the browser stays closed; holodeck opens none."""
    fetch_remote_traces: bool | None = None
    """Whether the judge waits for traces of a service; holodeck asks none."""
    trace_wait_timeout: float | None = None
    """Seconds to wait for these."""
    trace_wait_extension: float | None = None
    """Seconds to wait for them once more."""

    @classmethod
    def configure(cls, *default_model: str | ModelConfig, **settings: Any) -> None:
        """Set defaults for all further scenarios; other settings stay. Raises ConfigError.

        The default model may be a positional argument.
        """
        if default_model:
            [settings["default_model"]] = default_model
        base = cls.default_config or cls()
        ScenarioConfig.default_config = base.merge(_parse_settings("scenario.configure", settings))

    @classmethod
    def current(cls, **settings: Any) -> ScenarioConfig:
        """Return the settings of a run that is given these; None means not given.

        Raises ConfigError.
        """
        chosen = {key: value for key, value in settings.items() if value is not None}
        return (cls.default_config or cls()).merge(_parse_settings("scenario", chosen))

    @property
    def is_shown(self) -> bool:
        """Whether to show the conversation."""
        if self.debug:
            return True
        verbose = self.verbose if "verbose" in self.model_fields_set else None
        return is_tty(sys.stderr) if verbose is None else bool(verbose)

    def merge(self, other: ScenarioConfig) -> ScenarioConfig:
        """Return these settings, overridden by those given to `other`."""
        chosen = {name: getattr(other, name) for name in other.model_fields_set}
        return self.model_copy(update=chosen)


def _parse_settings(location: str, settings: Mapping[str, Any]) -> ScenarioConfig:
    try:
        config = ScenarioConfig(**settings)
    except ValidationError as error:
        first = error.errors(include_input=False)[0]
        name, problem = ".".join(map(str, first["loc"])), first["msg"].lower()
        if first["type"] == "extra_forbidden":
            problem = f"unknown setting; the settings are {', '.join(ScenarioConfig.model_fields)}"
        raise ScenarioUsageError(location, f"{name}: {problem}") from error
    _note_service_settings(config)
    return config


configure = ScenarioConfig.configure

SERVICE_SETTINGS = (
    "headless",
    "fetch_remote_traces",
    "trace_wait_timeout",
    "trace_wait_extension",
)
"""Settings for the service of Scenario, which have no effect."""
_noted: set[str] = set()


def _note_service_settings(config: ScenarioConfig) -> None:
    """Log once in the process that settings for the service have no effect."""
    unused = [name for name in SERVICE_SETTINGS if getattr(config, name) is not None]
    if unused and not _noted:
        _noted.update(unused)
        logger.warning(
            "scenario: %s only matters with a service; holodeck sends nothing anywhere, opens no"
            " browser and asks no service for traces",
            ", ".join(unused),
        )
