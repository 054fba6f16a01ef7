"""Which mutants may be green: those that are a complete file which asks for something else.

Each rule compares what the two files say as trees. Whatever no rule knows is a silent green.
"""

import copy
from collections.abc import Iterator
from typing import Any

from mutants.mutant import Mutant
from mutants.project import Check, Keys, Project, read, value_at

REMOVED = "the check is gone, whole, and what is left says nothing of it"
CHANGED = "the check asks for something that the agent does"
MOVED = "the check stands, whole, in another case or turn"
NOT_PROVOKED = "what makes the fault show is gone or changed"
PUT_ASIDE = "the file has a name that no pattern and no folder asks for"

CUT_SHORT = "the file ends early, and what is left is complete but for its last text"
OTHER_PROPERTY = "a JSON schema is about a property of another name, and names are the user's own"
TRUNCATIONS = frozenset({"file: half", "file: three quarters"})
PLACES = frozenset({
    "test_cases", "scenarios", "suites", "turns", "script", "check", "evaluations", "metrics",
    "forbidden_tools", "expected_tools", "handoffs", "criteria", "scorers",
})  # fmt: skip
"""Keys under which a check is one; under any other, such as `context`, it is only data."""


def why_legitimate(project: Project, mutant: Mutant) -> str | None:
    """The rule by which the mutant may be green; None if there is none."""
    if mutant.new_name is not None:
        return PUT_ASIDE if _is_put_aside(mutant.file, mutant.new_name) else None
    try:
        before = read(mutant.file, project.files[mutant.file].encode())
        after = read(mutant.file, mutant.content)
    except (ValueError, UnicodeError):
        return None
    for check in project.deciding:
        if check.file == mutant.file and (rule := _rule(project, check, before, after)):
            return rule
    provoking = [one for one in project.provokes if one.file == mutant.file]
    rules = {
        OTHER_PROPERTY: _is_other_property(before, after),
        CUT_SHORT: mutant.operator in TRUNCATIONS and _is_pruned(before, after, is_cut=True),
        NOT_PROVOKED: any(_is_touched(one.path, before, after) for one in provoking),
    }
    return next((rule for rule, applies in rules.items() if applies), None)


def _is_put_aside(old: str, new: str) -> bool:
    """`a.yaml.bak` and what lies in another folder is not meant; `a.YAML` and `a.yml` are."""
    folder, _, own = new.rpartition("/")
    suffix = own.rpartition(".")[2].lower()
    if own.startswith(".") or suffix not in {"yaml", "yml", "csv", "json", "jsonl"}:
        return True
    return folder != old.rpartition("/")[0]


def _rule(project: Project, check: Check, before: Any, after: Any) -> str | None:
    if any(_is_pruned(tree, after) for tree in _without_it(before, check)):
        return REMOVED
    if _is_changed(project, check.path, before, after):
        return CHANGED
    return MOVED if _is_moved(check.path, before, after) else None


def _without_it(before: Any, check: Check) -> Iterator[Any]:
    """The tree without the check, or without what holds it; never with an empty list left."""
    path = check.path
    for length in range(1, len(path) + check.is_whole):
        tree = without(before, path[:length])
        if value_at(tree, path[: length - 1]):
            yield tree


def without(tree: Any, path: Keys) -> Any:
    """A copy of the tree that lacks what stands there."""
    changed = copy.deepcopy(tree)
    del value_at(changed, path[:-1])[path[-1]]
    return changed


def _is_pruned(before: Any, after: Any, *, is_cut: bool = False) -> bool:
    """Whether a tree is another one from which items and entries were taken, none emptied.

    With `is_cut` texts may be shorter, too.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        return bool(after or not before) and all(
            key in before and _is_pruned(before[key], value, is_cut=is_cut)
            for key, value in after.items()
        )
    if isinstance(before, list) and isinstance(after, list):
        left = iter(before)
        return bool(after or not before) and all(
            any(_is_pruned(one, item, is_cut=is_cut) for one in left) for item in after
        )
    if is_cut and isinstance(before, str) and isinstance(after, str):
        return bool(after.strip()) and before.startswith(after)
    return type(before) is type(after) and before == after


def _is_changed(project: Project, path: Keys, before: Any, after: Any) -> bool:
    try:
        now = value_at(after, path)
        rest = _is_pruned(without(before, path), without(after, path))
    except LookupError:
        return False
    return rest and now != value_at(before, path) and bool(project.meets(now))


def _is_moved(path: Keys, before: Any, after: Any) -> bool:
    check = value_at(before, path)
    for place in _places(after):
        if place != path and value_at(after, place) == check and _is_asked(place):
            return _is_pruned(without(before, path), without(after, place))
    return False


def _is_asked(place: Keys) -> bool:
    return all(key in PLACES for key in place if isinstance(key, str))


def _places(tree: Any, above: Keys = ()) -> Iterator[Keys]:
    entries = tree.items() if isinstance(tree, dict) else enumerate(tree)
    for key, value in entries:
        yield (*above, key)
        if isinstance(value, dict | list):
            yield from _places(value, (*above, key))


def _is_other_property(before: Any, after: Any) -> bool:
    """Whether all that changed is one key right under `properties` of a schema."""
    for place in _places(before):
        if place[-1] == "properties" and place.count("schema"):
            try:
                here, there = value_at(before, place), value_at(after, place)
            except LookupError:
                continue
            if not isinstance(there, dict):
                continue
            if here.keys() != there.keys() and list(here.values()) == list(there.values()):
                return bool(without(before, place) == without(after, place))
    return False


def _is_touched(path: Keys, before: Any, after: Any) -> bool:
    try:
        return bool(value_at(after, path) != value_at(before, path))
    except LookupError:
        return True
