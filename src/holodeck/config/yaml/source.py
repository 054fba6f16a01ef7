"""Files that a configuration names: reading them, and the location of each value in them."""

import stat
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from holodeck import errors
from holodeck.config.yaml.nodes import Node, compose, decode_text
from holodeck.errors import ConfigError
from holodeck.lib.support.safe_paths import file_inside, note_input
from holodeck.lib.support.text import did_you_mean, quote

if TYPE_CHECKING:
    from holodeck.models.agent import Agent

MAX_BYTES = 20_000_000


def read_bytes(path: Path, name: str, limit: int = MAX_BYTES) -> bytes:
    """Return the bytes of a regular file. Raises ConfigError if it is larger than `limit`."""
    note_input(path)
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


def read_file(path: Path, name: str, limit: int = MAX_BYTES) -> str:
    """Return the text of a file. Raises ConfigError, FileNotFoundError."""
    return decode_text(read_bytes(path, name, limit), name)


def unreadable_reason(error: OSError) -> str:
    """Return why a file cannot be read, to follow its name in a message."""
    return f"cannot be read: {(error.strerror or str(error)).lower()}"


KeyPath = tuple[str | int, ...]
Substitute = Callable[[str], str]


class Source:
    """A YAML file, with the location of each value.

    Args:
        name: The file's name in messages.
        root: The document.
    """

    def __init__(self, name: str, root: Node) -> None:
        self.name = name
        self.root = root

    @classmethod
    def read(cls, path: Path, name: str | None = None, *, may_be_empty: bool = False) -> "Source":
        """Parse a file that must hold a mapping. Raises ConfigError with the location."""
        name = name or str(path)
        return cls.of(read_file(path, name), name, may_be_empty=may_be_empty)

    @classmethod
    def of(cls, text: str, name: str, *, may_be_empty: bool = False) -> "Source":
        """Parse text that must hold a mapping. Raises ConfigError with the location."""
        root = compose(text, name)
        if root.value is None and may_be_empty:
            root = Node({}, root.line, root.column)
        if root.value is None:
            raise ConfigError(name, "the file is empty; write at least 'name:' and 'model:'")
        if not isinstance(root.value, dict):
            kind = "a list" if isinstance(root.value, list) else "a single value"
            raise ConfigError(
                f"{name}:{root.line}:{root.column}",
                f"found {kind}; the file must be a mapping such as 'name: my-agent'",
            )
        return cls(name, root)

    def data(self, substitute: Substitute | None = None) -> dict[str, Any]:
        """Return the values of the mapping, each text passed through `substitute`."""
        value = self.value(substitute)
        return value if isinstance(value, dict) else {}

    def value(self, substitute: Substitute | None = None) -> Any:
        """Return the value of the file, which need not be a mapping."""
        return self._plain(self.root, (), substitute)

    def _plain(self, node: Node, path: KeyPath, substitute: Substitute | None) -> Any:
        value = node.value
        if isinstance(value, dict):
            return {k: self._plain(n, (*path, k), substitute) for k, (_, n) in value.items()}
        if isinstance(value, list):
            return [self._plain(n, (*path, i), substitute) for i, n in enumerate(value)]
        if substitute is None or not isinstance(value, str) or "${" not in value:
            return value
        try:
            return substitute(value)
        except ValueError as error:
            location = f"{self.name}:{node.line}:{node.column}"
            raise ConfigError(location, f"{format_key_path(path)}: {error}") from None

    def find(self, path: KeyPath) -> tuple[KeyPath, Node]:
        """Return the node at `path`, and its path without parts that the file does not have.

        Such parts are the tag of a union member, or a missing key.
        """
        node, present = self.root, list[str | int]()
        for part in path:
            value = node.value
            if isinstance(value, dict) and isinstance(part, str) and part in value:
                node = value[part][1]
            elif isinstance(value, list) and isinstance(part, int) and part < len(value):
                node = value[part]
            else:
                continue
            present.append(part)
        return tuple(present), node

    def location(self, path: KeyPath) -> str:
        """Return the location of a value, such as `agent.yaml:41:7`."""
        return Origin(self, path).location


def _location(name: str, node: Node) -> str:
    """Return file, line and column; of a value without a line, such as an option, the name."""
    return f"{name}:{node.line}:{node.column}" if node.line else name


def format_key_path(path: KeyPath) -> str:
    """Return a path as text: `test_cases[2].input`."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def display_path(path: Path) -> str:
    """Return a path relative to the working folder, or unchanged if it is elsewhere."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


class NodeSource(Protocol):
    """A file whose values have locations."""

    @property
    def name(self) -> str:
        """The file's name in messages."""
        ...

    def find(self, path: KeyPath) -> tuple[KeyPath, Node]:
        """Return the node at a path, and its path without parts that the file does not have."""
        ...


@dataclass(frozen=True, slots=True)
class Origin:
    """The file and path where a value was written."""

    source: NodeSource
    path: KeyPath

    def __str__(self) -> str:
        """Return location and path of the value, to begin a message with."""
        return f"{self.location}: {format_key_path(self.path)}" if self.path else self.location

    def error(self, message: str) -> ConfigError:
        """Return an error about the value."""
        return ConfigError(str(self), message)

    @property
    def location(self) -> str:
        """Such as `agent.yaml:41:7`."""
        return _location(self.source.name, self.source.find(self.path)[1])

    @property
    def key_node(self) -> Node | None:
        """The node of the key, or of the item of a list; None if the file has neither."""
        _, parent = self.source.find(self.path[:-1])
        last = self.path[-1] if self.path else None
        if isinstance(parent.value, dict) and last in parent.value:
            return parent.value[str(last)][0]
        if isinstance(parent.value, list) and last in range(len(parent.value)):
            return parent.value[int(str(last))]
        return None

    @property
    def key_location(self) -> str:
        """The location of the key; for an item of a list, of the item."""
        node = self.key_node
        return self.location if node is None else _location(self.source.name, node)

    def below(self, *path: str | int) -> "Origin":
        """Return the origin of a value inside this one."""
        return Origin(self.source, (*self.path, *path))


class Locations:
    """The locations of an agent's values, whose test cases may come from other files.

    `cases` are the origins of the test cases, in the order of the agent's list.
    """

    def __init__(self, source: NodeSource, cases: Sequence[Origin] = ()) -> None:
        self.source = source
        self.cases = cases

    def origin(self, path: KeyPath) -> Origin:
        """Return where the value at a path was written."""
        if len(path) > 1 and path[0] == "test_cases":
            index = path[1]
            if isinstance(index, int) and index < len(self.cases):
                return self.cases[index].below(*path[2:])
        return Origin(self.source, path)

    def find(self, path: KeyPath) -> tuple[Origin, Node]:
        """Return the node at a path, and its origin without parts that the file does not have."""
        origin = self.origin(path)
        found, node = origin.source.find(origin.path)
        return Origin(origin.source, found), node

    def locate(self, path: KeyPath) -> tuple[str, KeyPath]:
        """Return the location of a value, such as `agent.yaml:41:7`, and its path in the file."""
        origin = self.origin(path)
        return origin.location, origin.path


def location_of(agent: "Agent", *path: str | int) -> str:
    """Return location and path of a value, to begin a message with; without a file, the path."""
    text = f"{agent.location(*path)}: {format_key_path(agent.source_path(*path))}"
    return text.removeprefix("agent: ")


def find_file(path: str | Path, base_dir: Path, location: str) -> Path:
    """Return the file at `path`, relative to `base_dir`; messages begin with `where`.

    Raises FileNotFoundError, or ConfigError for a path outside of the folder or no regular file.
    """
    try:
        return file_inside(path, base_dir)
    except errors.FileNotFoundError as error:
        raise errors.FileNotFoundError(location, f"{quote(str(path))}: {error.message}") from error
    except ConfigError as error:
        raise ConfigError(location, f"{quote(str(path))} {error.message}") from error


def read_text(path: str | Path, base_dir: Path, location: str) -> str:
    """Return the text of a file beside the agent.yaml. Raises ConfigError, FileNotFoundError."""
    return decode_text(read_bytes(find_file(path, base_dir, location), location), str(path))


def suggest_file(path: Path, *patterns: str) -> str:
    """Return `; did you mean 'x'?` with the most similar file name, or an empty text."""
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
