"""All test cases of an agent.yaml in one list: its own, those of data files, those of suites."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holodeck.config.lost_checks import NO_VALUE
from holodeck.config.places import Origin
from holodeck.config.source import Change, Source
from holodeck.errors import ConfigError
from holodeck.models.agent import Agent


@dataclass
class GatheredAgent:
    """An agent.yaml's values, `test_cases` being all of them."""

    data: dict[str, Any]
    cases: list[Any] = field(default_factory=list)
    origins: list[Origin] = field(default_factory=list)
    """Of each case, where it was written."""
    read: set[Path] = field(default_factory=set)
    """The files besides the agent.yaml that cases were read from."""

    def add(self, case: Any, origin: Origin) -> None:
        """Add the cases that one stands for; what is no case is left to be told of."""
        for one in _several(case, origin):
            self.cases.append(one)
            self.origins.append(origin)


def gather_cases(
    source: Source, agent_file: Path, change: Change, also: Sequence[str] = ()
) -> GatheredAgent:
    """The values of an agent.yaml with the cases from everywhere. Raises ConfigError.

    `change` puts variables into texts. `also` are files of suites that it need not name itself, as
    seen from its folder.
    """
    data = source.data(change)
    elsewhere: Iterable[tuple[Any, Origin]] = ()
    read: set[Path] = set()
    if also or not data.keys() <= Agent.model_fields.keys():
        # Imported here because most agents hold all of their cases.
        from holodeck.config.cases.external import external_cases  # noqa: PLC0415
        from holodeck.config.cases.files import Files  # noqa: PLC0415

        files = Files(agent_file, change, read)
        elsewhere = external_cases(data, source, files, also)
    own = data.get("test_cases")
    found = GatheredAgent(data, read=read)
    if own is not None and not isinstance(own, list):
        return found  # which is told together with whatever else is wrong
    for index, case in enumerate(own or []):
        found.add(case, Origin(source, ("test_cases", index)))
    for case, at in elsewhere:
        found.add(case, at)
    if own is None and "test_cases" in data and found.cases:
        place = Origin(source, ("test_cases",)).place
        raise ConfigError(place, f"test_cases: {NO_VALUE}")
    if own is not None or found.cases:
        data["test_cases"] = found.cases
    return found


def _several(case: Any, origin: Origin) -> Iterable[Any]:
    """The cases that one stands for; itself, if it has no parameters."""
    if not isinstance(case, dict) or "parameters" not in case:
        return (case,)
    # Imported here because most cases have none.
    from holodeck.config.cases.parameters import expand_parameters  # noqa: PLC0415

    return expand_parameters(case, origin)
