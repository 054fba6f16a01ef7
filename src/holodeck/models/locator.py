"""Where the values of an agent were written."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

KeyPath = tuple[str | int, ...]


class Locator(Protocol):
    """Knows where the values of an agent were written."""

    def place(self, path: KeyPath) -> str:
        """File, line and column, as `agent.yaml:41:7`."""
        ...

    def written(self, path: KeyPath) -> KeyPath:
        """The path of the value in its own file."""
        ...


@dataclass(frozen=True)
class SelectionLocator:
    """Knows it of an agent that has kept only some of its cases."""

    before: Locator
    indices: Sequence[int]
    """Where each kept case stood before."""

    def place(self, path: KeyPath) -> str:
        """File, line and column, as `agent.yaml:41:7`."""
        return self.before.place(self._as_before(path))

    def written(self, path: KeyPath) -> KeyPath:
        """The path of the value in its own file."""
        return self.before.written(self._as_before(path))

    def _as_before(self, path: KeyPath) -> KeyPath:
        match path:
            case ("test_cases", int(index), *rest) if index < len(self.indices):
                return ("test_cases", self.indices[index], *rest)
        return path
