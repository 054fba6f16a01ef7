"""Settings of scenarios: built in, of the process (`configure`), and of one run."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal

from pydantic import BaseModel, ConfigDict, ValidationError

from holodeck.lib.conversation.usage_error import ScenarioUsageError
from holodeck.lib.ui.terminal import is_tty


class ModelConfig(BaseModel):
    """A model and how it is asked; None leaves a value to the provider's own variables."""

    model_config = ConfigDict(defer_build=True, extra="forbid")

    model: str
    """Such as `openai/gpt-4.1`: provider and name."""
    api_base: str | None = None
    api_key: str | None = None
    temperature: float | None = None
    max_tokens: int | None = None


class ScenarioConfig(BaseModel):
    """How scenarios are run. Only what was given counts: None can be given, too."""

    model_config = ConfigDict(defer_build=True, extra="forbid")

    default_config: ClassVar[ScenarioConfig | None] = None
    """What `configure` has set."""

    default_model: str | ModelConfig | None = None
    """For judges and simulated users that name no model."""
    max_turns: int | None = 10
    """The most turns that are played without a script."""
    min_turns: int | None = None
    """The least, before a judge is asked."""
    verbose: bool | int | None = True
    """Whether the conversation is shown on stderr as it happens; 2 adds the name of the scenario.
    Unless it is given, only where stderr is a terminal."""
    cache_key: str | None = None
    """What answers are kept under; without one, none are."""
    cache_mode: Literal["auto", "record", "replay", "off"] | None = None
    """`auto` asks for what is not kept yet, `record` for everything, `replay` for nothing; None for
    what HOLODECK_CACHE_MODE says, else `auto`."""
    cache_dir: str | Path | None = None
    """The folder of the answers; None for `scenarios` in the cache folder of holodeck."""
    debug: bool | None = False
    """Whether a person at the terminal may speak for the user."""
    events: Any = None
    """Who is told of what happens: a function of an event, the path of a file, or a list."""
    timeout: float | None = None
    """Seconds that a whole scenario may take."""
    call_timeout: float | None = None
    """Seconds that one answer of anybody may take."""

    @classmethod
    def configure(cls, *default_model: str | ModelConfig, **settings: Any) -> None:
        """Set what holds for all scenarios from now on; the rest stays. Raises ConfigError.

        The default model may be given without its name.
        """
        if default_model:
            [settings["default_model"]] = default_model
        base = cls.default_config or cls()
        ScenarioConfig.default_config = base.merge(_read("scenario.configure", settings))

    @classmethod
    def current(cls, **settings: Any) -> ScenarioConfig:
        """What holds for a run with these settings, of which None means not given.

        Raises ConfigError.
        """
        given = {key: value for key, value in settings.items() if value is not None}
        return (cls.default_config or cls()).merge(_read("scenario", given))

    @property
    def is_shown(self) -> bool:
        """Whether there is something to see of the conversation."""
        if self.debug:
            return True
        given = self.verbose if "verbose" in self.model_fields_set else None
        return is_tty(sys.stderr) if given is None else bool(given)

    def merge(self, other: ScenarioConfig) -> ScenarioConfig:
        """This, with everything that was given to `other`."""
        given = {name: getattr(other, name) for name in other.model_fields_set}
        return self.model_copy(update=given)


def _read(where: str, settings: Mapping[str, Any]) -> ScenarioConfig:
    try:
        return ScenarioConfig(**settings)
    except ValidationError as error:
        wrong = error.errors(include_input=False)[0]
        name, told = ".".join(map(str, wrong["loc"])), wrong["msg"].lower()
        if wrong["type"] == "extra_forbidden":
            told = f"there is no such setting; there are {', '.join(ScenarioConfig.model_fields)}"
        raise ScenarioUsageError(where, f"{name}: {told}") from error


configure = ScenarioConfig.configure
