"""Where the values of an agent were written: in its own file, or in the files of its cases."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from holodeck.config.nodes import Node
from holodeck.config.source import Path_, dotted
from holodeck.models.agent import Agent


class Written(Protocol):
    """A file that was read, whose values have places."""

    @property
    def name(self) -> str:
        """What messages call the file."""
        ...

    def find(self, path: Path_) -> tuple[Path_, Node]:
        """The node at a path, and its own path without parts that the file does not have."""
        ...


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value was written."""

    source: Written
    path: Path_

    @property
    def place(self) -> str:
        """Such as `agent.yaml:41:7`."""
        _, node = self.source.find(self.path)
        return f"{self.source.name}:{node.line}:{node.column}"

    def below(self, *path: str | int) -> "Origin":
        """The origin of a value in it."""
        return Origin(self.source, (*self.path, *path))


class Places:
    """The places of a file's values; the test cases may come from other files.

    `cases` are the origins of the test cases, by their place in the agent's list of all.
    """

    def __init__(self, source: Written, cases: Sequence[Origin] = ()) -> None:
        self.source = source
        self.cases = cases

    def origin(self, path: Path_) -> Origin:
        """Where the value at a path was written."""
        if len(path) > 1 and path[0] == "test_cases":
            index = path[1]
            if isinstance(index, int) and index < len(self.cases):
                return self.cases[index].below(*path[2:])
        return Origin(self.source, path)

    def find(self, path: Path_) -> tuple[Origin, Node]:
        """The node of a value, and where it is; parts that the file does not have are left out."""
        origin = self.origin(path)
        found, node = origin.source.find(origin.path)
        return Origin(origin.source, found), node

    def place(self, path: Path_) -> str:
        """File, line and column, as `agent.yaml:41:7`."""
        return self.origin(path).place

    def key_place(self, path: Path_) -> str:
        """Where the key at a path stands; of a list's entry, the entry itself."""
        origin = self.origin(path)
        _, parent = origin.source.find(origin.path[:-1])
        if origin.path and isinstance(parent.value, dict) and origin.path[-1] in parent.value:
            key = parent.value[str(origin.path[-1])][0]
            return f"{origin.source.name}:{key.line}:{key.column}"
        return origin.place

    def written(self, path: Path_) -> Path_:
        """The path of the value in its own file."""
        return self.origin(path).path


def location(agent: Agent, *path: str | int) -> str:
    """Place and path of a value, to open a message with; only the path if it was in no file."""
    return f"{agent.place(*path)}: {dotted(agent.written(*path))}".removeprefix("agent: ")
