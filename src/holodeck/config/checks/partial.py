"""The static checks of the valid parts of an invalid agent.yaml: all problems in one go."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from holodeck.config.checks.agent import check_keys
from holodeck.config.yaml.lost_checks import describe_lost_check, lost_checks
from holodeck.config.yaml.source import Locations
from holodeck.config.yaml.validation_errors import limit_lines, quoted_path
from holodeck.errors import ConfigError
from holodeck.models.agent import DUPLICATE_NAME, Agent

_STAND_INS = {
    "name": "agent",
    "model": {"provider": "openai", "name": "model", "endpoint": "http://127.0.0.1"},
    "instructions": {"inline": "instructions"},
}
"""What replaces invalid keys that an agent needs; it is not checked."""
_MOST_ROUNDS = 10
_FROM_CONFIG = {"model", "tools"}
"""Keys whose values config.yaml completes."""


def with_further_problems(
    error: ConfigError,
    values: Mapping[str, Any],
    folder: Path,
    locations: Locations,
    *,
    has_config: bool,
) -> ConfigError:
    """Return the error with a line for each problem that the static checks find in other keys.

    `values` are those of the agent.yaml. `has_config` is false if its config.yaml is invalid, too.
    """
    agent, valid = _valid_part(values)
    if agent is None:
        return error
    agent = agent.with_base_dir(folder).with_locator(locations.locate)
    if not has_config:
        valid -= _FROM_CONFIG
    known = f"{error.field}: {error.message}".splitlines()
    lines = [problem for problem in _problems(agent, valid, locations) if problem not in known]
    return ConfigError(error.field, "\n".join([error.message, *limit_lines(lines)]))


def _problems(agent: Agent, valid: set[str], locations: Locations) -> Iterator[str]:
    for at, why in lost_checks(agent):
        if at[0] in valid:
            yield describe_lost_check(at, why, locations)
    for problem in check_keys(agent, valid):
        yield f"{problem.location}: {problem.path}: {problem.message}"


def _valid_part(values: Mapping[str, Any]) -> tuple[Agent | None, set[str]]:
    """Return the agent with stand-ins for its invalid keys, and the keys that are valid or unset.

    The agent is None if it is invalid even so.
    """
    rest, valid = dict(values), set(Agent.model_fields)
    for _ in range(_MOST_ROUNDS):
        try:
            return Agent.model_validate(rest), valid
        except ValidationError as error:
            invalid = set(_keys_of(error))
        if not invalid:
            break
        valid -= invalid
        rest = {key: value for key, value in rest.items() if key not in invalid}
        rest |= {key: _STAND_INS[key] for key in invalid & _STAND_INS.keys()}
    return None, set()


def _keys_of(error: ValidationError) -> Iterator[str]:
    """Yield the keys of the agent.yaml that an error is about."""
    for detail in error.errors(include_url=False, include_input=False):
        if detail["loc"]:
            yield str(detail["loc"][0])
        elif detail["type"] == DUPLICATE_NAME:
            yield detail["ctx"]["list_name"]
        else:
            yield from map(str, quoted_path(detail["msg"].removeprefix("Value error, "))[:1])
