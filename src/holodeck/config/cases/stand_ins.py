"""Stubs in files of their own, and what suites and agents share with their test cases."""

from collections.abc import Mapping
from pathlib import Path
from typing import TypeVar

from holodeck.config.yaml.nodes import Node, compose
from holodeck.config.yaml.source import (
    Locations,
    Source,
    Substitute,
    display_path,
    find_file,
    location_of,
    read_file,
)
from holodeck.config.yaml.validation_errors import validate
from holodeck.models.agent import Agent
from holodeck.models.cases.stubs import StandIns, StubFile

S = TypeVar("S", bound=StandIns)
NOTHING: Mapping[str, StandIns] = {}
_KEYS = tuple(StandIns.model_fields)


def with_stub_file(
    settings: S, folder: Path, location: str, substitute: Substitute | None = None
) -> S:
    """Return the settings with the stubs of the file that they name, if they name one.

    Raises ConfigError, FileNotFoundError.
    """
    if not isinstance(settings.stubs, str):
        return settings
    file = find_file(settings.stubs, folder, location)
    name = display_path(file)
    root = compose(read_file(file, name), name)
    source = Source(name, Node({"stubs": (root, root)}, 1, 1))
    stubs = validate(StubFile, source.data(substitute), Locations(source)).stubs
    return settings.model_copy(update={"stubs": stubs})


def with_stand_ins(
    agent: Agent,
    of_suites: Mapping[str, StandIns] = NOTHING,
    substitute: Substitute | None = None,
) -> Agent:
    """Return the agent with what stands in for tools and models written into its cases.

    Each case has its own, then those of its suite, then those of the agent. Applying it twice
    changes nothing. Raises ConfigError, FileNotFoundError.
    """
    shared = with_stub_file(agent, agent.base_dir, location_of(agent, "stubs"), substitute)
    cases, has_changed = [], False
    for index, written in enumerate(agent.test_cases or ()):
        case = written
        if isinstance(case.stubs, str):
            location = location_of(agent, "test_cases", index, "stubs")
            case = with_stub_file(case, agent.base_dir, location, substitute)
        for others in (of_suites.get(case.suite or ""), shared):
            if others is not None and others.has_stand_ins:
                case = case.with_shared(others)
        cases.append(case)
        has_changed |= case is not written
    if not has_changed:
        return agent
    return agent.model_copy(update={"test_cases": cases, **dict.fromkeys(_KEYS)})
