"""Which scenarios of a suite are run and how, settled before the agent is called."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, partial
from typing import Any

from holodeck.errors import ConfigError, NothingSelected
from holodeck.suite.scenario import Scenario, Suite
from holodeck.suite.scorers import Scorer, get_scorer


@dataclass(frozen=True)
class Defaults:
    """What the runner says, where neither scenario nor suite says anything."""

    timeout_s: float
    retries: int
    fail_fast: bool

    def __post_init__(self) -> None:
        _check("default_timeout", self.timeout_s, "a number of seconds above 0", _is_seconds)
        _check("retries", self.retries, "a whole number of 0 or more", _is_count)
        _check("fail_fast", self.fail_fast, "True or False", lambda one: isinstance(one, bool))


@dataclass(frozen=True)
class Planned:
    """One scenario with everything that it is run with."""

    scenario: Scenario
    scorers: tuple[Scorer, ...]
    timeout_s: float


@dataclass(frozen=True)
class Plan:
    """What is run, in this order."""

    scenarios: list[Planned]
    retries: int
    fail_fast: bool


def plan_suite(suite: Suite, tags: Sequence[str] | None, defaults: Defaults) -> Plan:
    """The plan for a suite. Raises NothingSelected, and ConfigError for what cannot be run."""
    ids = Counter(one.id for one in suite.scenarios)
    twice = [one for one, count in ids.items() if count > 1]
    if twice:
        raise ConfigError(
            f"suite {suite.name!r}", f"more than one scenario has the id {twice[0]!r}"
        )
    return _plan(_selected(suite, tags), suite, defaults)


def plan_scenario(scenario: Scenario, defaults: Defaults) -> Plan:
    """The plan for a scenario by itself. Raises ConfigError."""
    return _plan([scenario], Suite(name=scenario.name), defaults)


def _plan(scenarios: Sequence[Scenario], suite: Suite, defaults: Defaults) -> Plan:
    config = suite.config
    timeout_s = config.default_timeout if config.says("default_timeout") else defaults.timeout_s
    scorer = cache(partial(get_scorer, folder=suite.folder))
    return Plan(
        [
            Planned(
                one,
                tuple(map(scorer, _scorers(one, suite))),
                one.timeout_seconds if one.says("timeout_seconds") else timeout_s,
            )
            for one in scenarios
        ],
        config.retries if config.says("retries") else defaults.retries,
        config.fail_fast if config.says("fail_fast") else defaults.fail_fast,
    )


def _scorers(scenario: Scenario, suite: Suite) -> Sequence[str]:
    return scenario.scorers if scenario.says("scorers") else suite.config.default_scorers


def _selected(suite: Suite, tags: Sequence[str] | None) -> list[Scenario]:
    """The scenarios with at least one of the tags, the suite's tags being those of all."""
    if not suite.scenarios:
        raise NothingSelected(f"suite {suite.name!r} has no scenarios")
    if tags is None:
        return suite.scenarios
    if isinstance(tags, str):
        raise ConfigError("tags", f"found {tags!r}; wanted a list: [{tags!r}]")
    wanted = set(tags)
    found = [one for one in suite.scenarios if wanted & {*one.tags, *suite.tags}]
    if not found:
        known = sorted({tag for one in suite.scenarios for tag in one.tags} | set(suite.tags))
        raise NothingSelected(
            f"no scenario of suite {suite.name!r} has a tag of {sorted(wanted)};"
            f" its tags: {', '.join(known) or 'none'}"
        )
    return found


def _is_seconds(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and math.isfinite(value) and value > 0


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _check(name: str, value: object, wanted: str, is_right: Any) -> None:
    if not is_right(value):
        raise ConfigError(name, f"found {value!r}; wanted {wanted}")
