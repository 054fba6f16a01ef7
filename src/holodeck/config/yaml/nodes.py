"""Parse YAML text as a tree of nodes with locations, within limits that stop YAML bombs.

Values follow the core schema of YAML 1.2: only `true` and `false` are booleans (`yes`, `no`, `on`
and `off` are text), a date is text, `012` is twelve and `1:30` is text. Keys are always text.
"""

import re
import sys
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, NoReturn

import yaml

from holodeck.errors import ConfigError
from holodeck.lib.secrets.formats import names_a_secret
from holodeck.lib.support.text import bom_encoding, quote

_EXPLANATIONS = {
    "mapping values are not allowed": "unexpected ':'; put text that contains ': ' in quotes,"
    " and check the indentation",
    "could not find expected ':'": "missing ':' after a key, or a line that is not indented enough",
    "did not find expected ',' or ']'": "missing ']' at the end of a list",
    "did not find expected ',' or '}'": "missing '}' at the end of a mapping; put text that"
    " begins with '{' in quotes",
    "did not find expected '-'": "this line does not continue the list above it; check the"
    " indentation",
    "did not find expected key": "this line does not continue the mapping above it; check the"
    " indentation and brackets",
    "did not find expected comment or line break": "text after '|' or '>' must begin on the next"
    " line",
    "did not find expected node content": "missing value",
    "found unexpected end of stream": "missing closing quotation mark",
    "found unknown escape character": "unknown escape sequence in double quotes; use single"
    " quotes, or write \\\\",
    "found unexpected document indicator": "unexpected '---' or '...' inside quoted text",
    "undefined tag handle": "tags ('!name') are not allowed; put text that begins with '!' in"
    " quotes",
    "unknown directive": "a line that begins with '%' is not allowed; put it in quotes",
    "incompatible YAML document": "unsupported version of YAML; use 1.1 or 1.2",
    "found a tab character": "tab in the indentation; use spaces",
    "cannot start any token": "tab in the indentation; use spaces",
    "alphabetic or numeric character": "'&' and '*' begin a name; put text that begins with one in"
    " quotes",
}
_EXCERPT_LENGTH = 120
_HEADERS = ("authorization", "cookie")
_FORBIDDEN = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x84\x86-\x9f\ufffe\uffff]")


def explain_syntax_error(error: Any, text: str, name: str) -> ConfigError:
    """Return a syntax error with its location, an explanation and the line."""
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    problem = str(getattr(error, "problem", None) or error).splitlines()[0]
    if mark is None:
        return ConfigError(name, f"cannot be read as YAML ({problem})")
    lines = re.split(r"\r\n|\r|\n", text)
    line = lines[mark.line] if mark.line < len(lines) else ""
    excerpt = line.strip()[:_EXCERPT_LENGTH]
    printable = "".join(c if c.isprintable() else " " for c in excerpt)
    shown = f"\n    {printable}" if _is_safe_to_show(excerpt) else ""
    return ConfigError(
        f"{name}:{mark.line + 1}:{mark.column + 1}",
        f"{_explanation(problem, line, mark.column)}{_start_of_context(error)}{shown}",
    )


def _explanation(problem: str, line: str, column: int) -> str:
    character = line[column : column + 1]
    if "cannot start any token" in problem and character != "\t":
        return f"a value cannot begin with {character!r}; put it in quotes"
    for known, words in _EXPLANATIONS.items():
        if known in problem:
            return words
    return f"cannot be read as YAML ({problem})"


def _start_of_context(error: Any) -> str:
    """Return where the unfinished value begins, if that is another line."""
    start = getattr(error, "context_mark", None)
    if start is None or start.line == error.problem_mark.line:
        return ""
    return f" (it begins on line {start.line + 1})"


def _is_safe_to_show(line: str) -> bool:
    """Whether the line is not blank and holds no key of a secret."""
    keys = re.findall(r"([\w-]+)['\"]?\s*:", line)
    hidden = any(names_a_secret(key) or key.lower() in _HEADERS for key in keys)
    return bool(line.strip()) and not hidden


def decode_text(data: bytes, name: str) -> str:
    """Decode a file as UTF-8, or as its byte order mark says. Raises ConfigError otherwise."""
    encoding = bom_encoding(data)
    if encoding is not None:
        try:
            data = data.decode(encoding).encode()
        except UnicodeError as error:
            raise ConfigError(
                f"{name}:1:1",
                f"the file has a byte order mark but is not valid {encoding.upper()}: {error};"
                " save it as UTF-8",
            ) from error
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        location = _position(data[: error.start].decode(errors="replace"), name)
        raise ConfigError(
            location, f"byte 0x{data[error.start]:02x} is not UTF-8; save the file as UTF-8"
        ) from error
    control = _FORBIDDEN.search(text)
    if control is not None:
        raise ConfigError(
            _position(text[: control.start()], name),
            f"the control character U+{ord(control[0]):04X} is not allowed here; remove it",
        )
    return text


def _position(before: str, name: str) -> str:
    line = before.count("\n") + 1
    column = len(before) - before.rfind("\n")
    return f"{name}:{line}:{column}"


MAX_DEPTH = 100
MAX_KEY_LENGTH = 1024
MAX_NESTED_ALIASES = 1000
MAX_ALIASED_NODES = 100_000
_KEY_IS_NO_TEXT = "a key must be text, not a list or mapping"

Scalar = str | int | float | bool | None

_INT = re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+")
_FLOAT = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
_CONSTANTS: dict[str, Scalar] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys((".inf", ".Inf", ".INF", "+.inf", "+.Inf", "+.INF"), float("inf")),
    **dict.fromkeys(("-.inf", "-.Inf", "-.INF"), float("-inf")),
    **dict.fromkeys((".nan", ".NaN", ".NAN"), float("nan")),
}
_TAG = "tag:yaml.org,2002:"
_SCALAR_TAGS = {f"{_TAG}{name}" for name in ("str", "int", "float", "bool", "null")}
_YAML_1_1_BREAKS = "\u0085\u2028\u2029"
"""Line breaks of YAML 1.1 that are text in YAML 1.2, where they end no comment or value."""
_BREAK_SUBSTITUTES = "\U0010ff85\U0010ff28\U0010ff29"
"""Private-use characters, which text does not contain."""
_HIDE_BREAKS = str.maketrans(_YAML_1_1_BREAKS, _BREAK_SUBSTITUTES)
_RESTORE_BREAKS = str.maketrans(_BREAK_SUBSTITUTES, _YAML_1_1_BREAKS)
_LOADER: type[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Node:
    """A value and its location; lines and columns count from 1."""

    __slots__ = ("column", "line", "value")

    def __init__(self, value: "Value", line: int, column: int) -> None:
        self.value = value
        self.line = line
        self.column = column


Value = Scalar | list[Node] | dict[str, tuple[Node, Node]]
"""A mapping holds the node of each key and the node of its value."""


def compose(text: str, name: str) -> Node:
    """Parse a document and return its root; messages begin with `name`. Raises ConfigError."""
    loader = _LOADER(text.translate(_HIDE_BREAKS))
    try:
        return _Composer(name, _events(loader)).document()
    except yaml.YAMLError as error:
        raise explain_syntax_error(error, text, name) from error
    finally:
        loader.dispose()


def _events(loader: Any) -> Iterator[Any]:
    while loader.check_event():
        yield loader.get_event()


class _Composed(NamedTuple):
    """A node, and how many nodes and aliases are in it with every alias expanded."""

    node: Node
    size: int = 1
    aliases: int = 0


class _Composer:
    """Builds the tree from parser events.

    PyYAML's own composer crashes on lists that are nested a hundred thousand times. Thousands of
    test cases are thousands of nodes, so equal keys and the nodes of a line share their objects.
    """

    def __init__(self, name: str, events: Iterator[Any]) -> None:
        self._name = name
        self._events = events
        self._anchors: dict[str, _Composed | None] = {}
        """None while the collection is unfinished."""
        self._nested_aliases = 0
        self._aliased_nodes = 0
        self._line = 1

    def document(self) -> Node:
        root = None
        for event in self._events:
            if isinstance(event, yaml.DocumentStartEvent):
                if root is not None:
                    self._fail(event, "a second document begins here; write one document per file")
                root = self._compose(next(self._events), 0).node
        return Node(None, 1, 1) if root is None else root

    def _compose(self, event: Any, depth: int) -> _Composed:
        if isinstance(event, yaml.AliasEvent):
            return self._alias(event)
        if isinstance(event, yaml.ScalarEvent):
            composed = _Composed(self._node_at(event, self._scalar(event)))
        else:
            composed = self._collection(event, depth)
        if event.anchor is not None:
            self._anchors[event.anchor] = composed
        return composed

    def _collection(self, event: Any, depth: int) -> _Composed:
        is_mapping = isinstance(event, yaml.MappingStartEvent)
        if event.tag not in (None, "!", f"{_TAG}{'map' if is_mapping else 'seq'}"):
            self._fail_at_tag(event)
        if depth >= MAX_DEPTH:
            self._fail(event, f"nested more than {MAX_DEPTH} levels deep")
        if event.anchor is not None:
            self._anchors[event.anchor] = None
        return self._mapping(event, depth) if is_mapping else self._list(event, depth)

    def _list(self, start: Any, depth: int) -> _Composed:
        items: list[Node] = []
        node, size, aliases = self._node_at(start, items), 1, 0
        while not isinstance(event := next(self._events), yaml.SequenceEndEvent):
            item = self._compose(event, depth + 1)
            items.append(item.node)
            size += item.size
            aliases += item.aliases
        return _Composed(node, size, aliases)

    def _mapping(self, start: Any, depth: int) -> _Composed:
        entries: dict[str, tuple[Node, Node]] = {}
        node, size, aliases = self._node_at(start, entries), 1, 0
        while not isinstance(event := next(self._events), yaml.MappingEndEvent):
            key = self._key(event, entries)
            value = self._compose(next(self._events), depth + 1)
            entries[str(key.node.value)] = key.node, value.node
            size += key.size + value.size
            aliases += key.aliases + value.aliases
        _apply_merge_key(entries)
        return _Composed(node, size, aliases)

    def _key(self, event: Any, entries: Mapping[str, tuple[Node, Node]]) -> _Composed:
        if isinstance(event, yaml.CollectionStartEvent):
            self._fail(event, _KEY_IS_NO_TEXT)
        if isinstance(event, yaml.AliasEvent):
            key = self._alias(event)
        else:
            text = sys.intern(event.value.translate(_RESTORE_BREAKS))
            key = _Composed(self._node_at(event, text))
            if event.anchor is not None:
                self._anchors[event.anchor] = key
        if isinstance(key.node.value, list | dict):
            self._fail(event, _KEY_IS_NO_TEXT)
        text = str(key.node.value)
        if len(text) > MAX_KEY_LENGTH:
            self._fail(event, f"a key of {len(text)} characters; {MAX_KEY_LENGTH} are allowed")
        if text in entries:
            first = entries[text][0]
            self._fail(
                event,
                f"duplicate key {quote(text)}, first on line {first.line}, column {first.column};"
                " remove one of them",
            )
        return key

    def _scalar(self, event: Any) -> Scalar:
        tag, text = event.tag, event.value.translate(_RESTORE_BREAKS)
        if tag is not None and tag not in _SCALAR_TAGS and tag != "!":
            self._fail_at_tag(event)
        if tag in (f"{_TAG}str", "!") or not (event.implicit[0] or tag):
            return str(text)
        try:
            return parse_scalar(text)
        except ValueError:
            self._fail(event, f"a number of {len(text)} digits is too long")

    def _alias(self, event: Any) -> _Composed:
        if event.anchor not in self._anchors:
            self._fail(event, f"unknown alias *{event.anchor}; no '&{event.anchor}' above it")
        original = self._anchors[event.anchor]
        if original is None:
            self._fail(event, f"the alias *{event.anchor} contains itself")
        self._nested_aliases += original.aliases
        self._aliased_nodes += original.size
        if self._nested_aliases > MAX_NESTED_ALIASES:
            self._fail(event, f"more than {MAX_NESTED_ALIASES} alias expansions; write them out")
        if self._aliased_nodes > MAX_ALIASED_NODES:
            self._fail(event, f"aliases expand to more than {MAX_ALIASED_NODES} values")
        copy = self._node_at(event, original.node.value)
        return _Composed(copy, original.size, original.aliases + 1)

    def _node_at(self, event: Any, value: Value) -> Node:
        mark = event.start_mark
        if mark.line + 1 != self._line:  # else the same object is used again
            self._line = mark.line + 1
        return Node(value, self._line, mark.column + 1)

    def _fail_at_tag(self, event: Any) -> NoReturn:
        tag = quote(event.tag.replace(_TAG, "!!"))
        self._fail(event, f"the tag {tag} is not allowed; write plain text, numbers or lists")

    def _fail(self, event: Any, message: str) -> NoReturn:
        mark = event.start_mark
        raise ConfigError(f"{self._name}:{mark.line + 1}:{mark.column + 1}", message)


def parse_scalar(text: str) -> Scalar:
    """Return the value of unquoted text. Raises ValueError for a number that is too long."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if _INT.fullmatch(text):
        if text[:2] not in ("0o", "0x"):
            return int(text)
        number = int(text, 0)  # of any length, unlike a decimal
        str(number)  # raises as a decimal does: no message could show it
        return number
    return float(text) if _FLOAT.fullmatch(text) else text


def _apply_merge_key(mapping: dict[str, tuple[Node, Node]]) -> None:
    """Apply `<<: *defaults`: add the keys of those mappings that are missing here."""
    if "<<" not in mapping:
        return
    _, source = mapping["<<"]
    sources = source.value if isinstance(source.value, list) else [source]
    if not all(isinstance(source.value, dict) for source in sources):
        return
    del mapping["<<"]
    for defaults in sources:
        if isinstance(defaults.value, dict):
            for key, entry in defaults.value.items():
                mapping.setdefault(key, entry)
