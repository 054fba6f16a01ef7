"""Files that a configuration names: reading them, and the location of each value in them."""

import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from holodeck import errors
from holodeck.config.yaml_nodes import Node, compose, decode_text, quote
from holodeck.errors import ConfigError
from holodeck.lib.safe_paths import file_inside
from holodeck.lib.suggestions import did_you_mean

if TYPE_CHECKING:
    from holodeck.models.agent import Agent

MAX_BYTES = 20_000_000


def read_bytes(path: Path, name: str, limit: int = MAX_BYTES) -> bytes:
    """A regular file's content. Raises ConfigError for anything else, and beyond `limit`."""
    try:
        status = path.stat()
        if not stat.S_ISREG(status.st_mode):
            raise ConfigError(name, "is not a regular file")
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except OSError as error:
        raise errors.FileNotFoundError(name, unreadable_reason(error)) from error
    if len(data) > limit:
        raise ConfigError(
            name, f"is larger than {limit // 1_000_000} MB; split it or move the data elsewhere"
        )
    return data


def unreadable_reason(error: OSError) -> str:
    """What keeps a file from being read, to stand after its name."""
    return f"cannot be read: {(error.strerror or str(error)).lower()}"


KeyPath = tuple[str | int, ...]
Substitute = Callable[[str], str]


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
        return cls.of(decode_text(read_bytes(path, name), name), name)

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

    def data(self, change: Substitute | None = None) -> dict[str, Any]:
        """Plain values, every text passed through `change`; its ValueError gets the place."""
        return {
            key: self._plain(node, (key,), change) for key, (_, node) in self._mapping().items()
        }

    def value(self, change: Substitute | None = None) -> Any:
        """What the file holds, be it no mapping."""
        return self._plain(self.root, (), change)

    def _mapping(self) -> dict[str, tuple[Node, Node]]:
        return self.root.value if isinstance(self.root.value, dict) else {}

    def _plain(self, node: Node, path: KeyPath, change: Substitute | None) -> Any:
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
            raise ConfigError(place, f"{format_key_path(path)}: {error}") from None

    def find(self, path: KeyPath) -> tuple[KeyPath, Node]:
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

    def place(self, path: KeyPath) -> str:
        """Where the value at `path` stands, as `agent.yaml:41:7`."""
        _, node = self.find(path)
        return f"{self.name}:{node.line}:{node.column}"

    def key_place(self, path: KeyPath) -> str:
        """Where the key at `path` stands; of a list's entry, the entry itself."""
        _, parent = self.find(path[:-1])
        if path and isinstance(parent.value, dict) and path[-1] in parent.value:
            key = parent.value[str(path[-1])][0]
            return f"{self.name}:{key.line}:{key.column}"
        return self.place(path)


def format_key_path(path: KeyPath) -> str:
    """A path as people write it: `test_cases[2].input`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def display_path(path: Path) -> str:
    """A path as short as it can be said: relative to the working folder, else as it is."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


class NodeSource(Protocol):
    """A file that was read, whose values have places."""

    @property
    def name(self) -> str:
        """What messages call the file."""
        ...

    def find(self, path: KeyPath) -> tuple[KeyPath, Node]:
        """The node at a path, and its own path without parts that the file does not have."""
        ...


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a value was written."""

    source: NodeSource
    path: KeyPath

    @property
    def place(self) -> str:
        """Such as `agent.yaml:41:7`."""
        _, node = self.source.find(self.path)
        return f"{self.source.name}:{node.line}:{node.column}"

    def below(self, *path: str | int) -> "Origin":
        """The origin of a value in it."""
        return Origin(self.source, (*self.path, *path))


class Locations:
    """The places of a file's values; the test cases may come from other files.

    `cases` are the origins of the test cases, by their place in the agent's list of all.
    """

    def __init__(self, source: NodeSource, cases: Sequence[Origin] = ()) -> None:
        self.source = source
        self.cases = cases

    def origin(self, path: KeyPath) -> Origin:
        """Where the value at a path was written."""
        if len(path) > 1 and path[0] == "test_cases":
            index = path[1]
            if isinstance(index, int) and index < len(self.cases):
                return self.cases[index].below(*path[2:])
        return Origin(self.source, path)

    def find(self, path: KeyPath) -> tuple[Origin, Node]:
        """The node of a value, and where it is; parts that the file does not have are left out."""
        origin = self.origin(path)
        found, node = origin.source.find(origin.path)
        return Origin(origin.source, found), node

    def place(self, path: KeyPath) -> str:
        """File, line and column, as `agent.yaml:41:7`."""
        return self.origin(path).place

    def key_place(self, path: KeyPath) -> str:
        """Where the key at a path stands; of a list's entry, the entry itself."""
        origin = self.origin(path)
        _, parent = origin.source.find(origin.path[:-1])
        if origin.path and isinstance(parent.value, dict) and origin.path[-1] in parent.value:
            key = parent.value[str(origin.path[-1])][0]
            return f"{origin.source.name}:{key.line}:{key.column}"
        return origin.place

    def source_path(self, path: KeyPath) -> KeyPath:
        """The path of the value in its own file."""
        return self.origin(path).path


def location(agent: "Agent", *path: str | int) -> str:
    """Place and path of a value, to open a message with; only the path if it was in no file."""
    text = f"{agent.place(*path)}: {format_key_path(agent.source_path(*path))}"
    return text.removeprefix("agent: ")


def find_file(path: str | Path, base_dir: Path, where: str) -> Path:
    """The file that `path` means, seen from `base_dir`; `where` opens the messages.

    Raises FileNotFoundError, and ConfigError for what leads outside or is no regular file.
    """
    try:
        return file_inside(path, base_dir)
    except errors.FileNotFoundError as error:
        raise errors.FileNotFoundError(where, f"{quote(str(path))}: {error.message}") from error
    except ConfigError as error:
        raise ConfigError(where, f"{quote(str(path))} {error.message}") from error


def read_text(path: str | Path, base_dir: Path, where: str) -> str:
    """The text of a file beside the agent.yaml. Raises ConfigError, FileNotFoundError."""
    return decode_text(read_bytes(find_file(path, base_dir, where), where), str(path))


def suggest_file(path: Path, *patterns: str) -> str:
    """`; did you mean 'x'?` for the file whose name is most alike; empty if none is."""
    folder = path.parent
    if not folder.is_dir():
        return ""
    names = [
        child.name
        for pattern in patterns or ("*",)
        for child in folder.glob(pattern)
        if child.is_file()
    ]
    return did_you_mean(path.name, names)
