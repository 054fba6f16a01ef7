"""A small project whose agent has one fault, which one check of its files finds."""

import csv
import io
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any

import yaml

Keys = tuple[str | int, ...]
"""Where something stands in a file: keys of mappings and numbers of items."""


@dataclass(frozen=True)
class Check:
    """The check that finds the fault, or a part of it that may stand elsewhere."""

    file: str
    path: Keys
    is_whole: bool = True
    """Whether a file without it asks for nothing in its place; else it may only be changed."""


def never(_: Any) -> bool:
    return False


def is_another_tool(given: Any) -> bool:
    """Whether a forbidden name, or a list of them, is of other tools than those that are called."""
    if isinstance(given, list):
        return bool(given) and all(map(is_another_tool, given))
    is_name = isinstance(given, str) and re.fullmatch(r"[A-Za-z_][\w-]*", given) is not None
    return is_name and given not in CALLED and not any(near(given, tool) for tool in CALLED)


CALLED = ("get_order", "delete_order", "pay")
"""Tools that the agents of all projects call."""


def near(written: str, tool: str) -> bool:
    """Whether a name is most likely a slip in another."""
    bare = re.sub(r"\W|_", "", written).casefold()
    tool = tool.replace("_", "")
    return bare == tool or SequenceMatcher(None, bare, tool).ratio() > 0.6


@dataclass(frozen=True)
class Project:
    """Files that `holodeck test` runs, red for one reason."""

    name: str
    files: Mapping[str, str]
    deciding: Sequence[Check]
    args: Sequence[str] = ("agent.yaml",)
    meets: Callable[[Any], bool] = never
    """Whether the agent, as it is, meets what now stands where the deciding check was. Such a
    mutant asks for something else and may be green."""
    provokes: Sequence[Check] = ()
    """What makes the fault show: inputs, turns or numbers without which the agent does right."""
    renames: bool = True
    """Whether names of its files are mutated."""

    def write(self, folder: Path) -> None:
        for name, text in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8", newline="")

    @property
    def data_files(self) -> list[str]:
        """The files that are mutated."""
        return [name for name in self.files if not name.endswith(".py")]


class Words(yaml.SafeLoader):
    """YAML in which `yes` and `no` are words, as holodeck reads it."""


Words.yaml_implicit_resolvers = {
    sign: [one for one in resolvers if one[0] != "tag:yaml.org,2002:bool"]
    for sign, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
Words.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)


def read(name: str, content: bytes) -> Any:
    """What a file says, without holodeck's own reading. Raises ValueError if it says nothing."""
    text = content.decode("utf-8-sig")
    suffix = name.rpartition(".")[2].lower()
    if suffix == "csv":
        return list(csv.DictReader(io.StringIO(text, newline="")))
    if suffix == "jsonl":
        return [json.loads(line) for line in text.splitlines() if line.strip()]
    try:
        return json.loads(text) if suffix == "json" else yaml.load(text, Words)
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error


def value_at(tree: Any, path: Keys) -> Any:
    """What stands there. Raises LookupError if nothing does."""
    for key in path:
        if isinstance(tree, list) != isinstance(key, int) or isinstance(tree, str):
            raise LookupError(key)
        try:
            tree = tree[key]
        except TypeError as error:
            raise LookupError(key) from error
    return tree
