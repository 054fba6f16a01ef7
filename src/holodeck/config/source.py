"""One YAML file: its values, and the place of each of them for messages."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holodeck.config.nodes import Node, compose
from holodeck.config.reading import read_bytes
from holodeck.config.syntax import decode
from holodeck.errors import ConfigError

Path_ = tuple[str | int, ...]
Change = Callable[[str], str]


@dataclass(frozen=True)
class Source:
    """A YAML mapping as it was written."""

    name: str
    """What messages call the file."""
    root: Node

    @classmethod
    def read(cls, path: Path, name: str | None = None) -> "Source":
        """The file, parsed. Raises ConfigError with the place of what is wrong."""
        name = name or str(path)
        return cls.of(decode(read_bytes(path, name), name), name)

    @classmethod
    def of(cls, text: str, name: str) -> "Source":
        """Text, parsed. Raises ConfigError with the place of what is wrong."""
        root = compose(text, name)
        if root.value is None:
            raise ConfigError(name, "the file is empty; write at least 'name:' and 'model:'")
        if not isinstance(root.value, dict):
            kind = "a list" if isinstance(root.value, list) else "a single value"
            raise ConfigError(
                f"{name}:{root.line}:{root.column}",
                f"found {kind}; the file must be a mapping such as 'name: my-agent'",
            )
        return cls(name, root)

    def data(self, change: Change | None = None) -> dict[str, Any]:
        """Plain values, every text passed through `change`; its ValueError gets the place."""
        return {
            key: self._plain(node, (key,), change) for key, (_, node) in self._mapping().items()
        }

    def value(self, change: Change | None = None) -> Any:
        """What the file holds, be it no mapping."""
        return self._plain(self.root, (), change)

    def _mapping(self) -> dict[str, tuple[Node, Node]]:
        return self.root.value if isinstance(self.root.value, dict) else {}

    def _plain(self, node: Node, path: Path_, change: Change | None) -> Any:
        value = node.value
        if isinstance(value, dict):
            return {k: self._plain(n, (*path, k), change) for k, (_, n) in value.items()}
        if isinstance(value, list):
            return [self._plain(n, (*path, i), change) for i, n in enumerate(value)]
        if change is None or not isinstance(value, str) or "${" not in value:
            return value
        try:
            return change(value)
        except ValueError as error:
            place = f"{self.name}:{node.line}:{node.column}"
            raise ConfigError(place, f"{dotted(path)}: {error}") from None

    def find(self, path: Path_) -> tuple[Path_, Node]:
        """The node at `path` and its own path, where parts that the file does not have are left
        out (a model's tag, a missing key)."""
        node, found = self.root, list[str | int]()
        for part in path:
            value = node.value
            if isinstance(value, dict) and isinstance(part, str) and part in value:
                node = value[part][1]
            elif isinstance(value, list) and isinstance(part, int) and part < len(value):
                node = value[part]
            else:
                continue
            found.append(part)
        return tuple(found), node

    def place(self, path: Path_) -> str:
        """Where the value at `path` stands, as `agent.yaml:41:7`."""
        _, node = self.find(path)
        return f"{self.name}:{node.line}:{node.column}"

    def key_place(self, path: Path_) -> str:
        """Where the key at `path` stands; of a list's entry, the entry itself."""
        _, parent = self.find(path[:-1])
        if path and isinstance(parent.value, dict) and path[-1] in parent.value:
            key = parent.value[str(path[-1])][0]
            return f"{self.name}:{key.line}:{key.column}"
        return self.place(path)


def dotted(path: Path_) -> str:
    """A path as people write it: `test_cases[2].input`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def shown(path: Path) -> str:
    """A path as short as it can be said: relative to the working folder, else as it is."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
