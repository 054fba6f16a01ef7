"""Matching the tool names in test cases with the names of tools, as frameworks give them."""

import re
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase

from holodeck.errors import EvaluationError
from holodeck.lib.support.text import nearest_word

SEPARATORS = "-._"
"""Characters between the name of a plugin and the name of its function."""
_AFTER_PREFIX = re.compile(r"__|\.")
_BEFORE_CAPITAL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BETWEEN_WORDS = re.compile(r"[^\w*]+|_+")
_MARK = re.compile(r"(?:_?v?\d+)+$|_(?:call|function|tool)$")
"""What stands after a name without making it another: a version, or what kind of thing it is."""
_SEPARATORS = re.compile(r"[^\w]+")
"""What stands after a prefix such as `functions.`, and between two names written together."""
_SHORTEST_SLIP = 4
"""Letters that two names must share before a slip of a letter is more likely than two tools."""


def matches_tool_name(written: str, tool: str) -> bool:
    """Whether it is the tool's name, or all of it after the name of a plugin."""
    before = tool.removesuffix(written)
    return written == tool or (before != tool and before.endswith(tuple(SEPARATORS)))


def unprefixed(tool: str) -> list[str]:
    """Return the name without the prefixes that frameworks put before it, the longest first.

    They write `Plugin-name` (Semantic Kernel), `server.name` and `mcp__server__name` (Claude). A
    hyphen is a separator only if there is no other, because Semantic Kernel allows none in names.
    A single underscore never is: `get_order` is not a tool `order`.

    Examples:
        >>> unprefixed("OrderPlugin-lookup_order")
        ['lookup_order']
        >>> unprefixed("mcp__shop__lookup_order")
        ['shop__lookup_order', 'lookup_order']
        >>> unprefixed("list-all-orders")
        []
    """
    return [tool[at:] for at in _ends_of_prefixes(tool) if _is_name(tool[:at]) and tool[at:]]


def _ends_of_prefixes(tool: str) -> Iterator[int]:
    first = _AFTER_PREFIX.search(tool)
    hyphen = tool.find("-")
    if tool.count("-") == 1 and (first is None or hyphen < first.start()):
        yield hyphen + 1
    for separator in _AFTER_PREFIX.finditer(tool):
        yield separator.end()


def _is_name(prefix: str) -> bool:
    return any(character.isalnum() for character in prefix)


def tools_named(written: str, tools: Iterable[str]) -> list[str]:
    """Return the tools that a name means: the tool of this name, else all with it after a prefix.

    Several mean that the name is ambiguous.
    """
    names = list(dict.fromkeys(tools))
    if written in names:
        return [written]
    return [name for name in names if written in unprefixed(name)]


def find_tool(written: str, tools: Iterable[str]) -> str | None:
    """Return the tool that a name means; None if it means none of them.

    Raises EvaluationError if it may mean several.
    """
    meant = tools_named(written, tools)
    if len(meant) > 1:
        raise EvaluationError(
            f"{written!r} is ambiguous: it may be {' or '.join(map(repr, meant))};"
            " write the whole name"
        )
    return meant[0] if meant else None


def did_you_mean_tool(written: str, tools: Iterable[str]) -> str:
    """Return `; did you mean '…'?` with the nearest of the tools; empty if none is near."""
    names = list(dict.fromkeys(tools))
    known = [name for tool in names for name in (tool, *unprefixed(tool))]
    ending = (tool for tool in names if tool.endswith(f"_{written}"))
    suggestion = next(ending, None) or nearest_word(written, known, cutoff=0.8)
    return "" if suggestion in {None, written} else f"; did you mean {suggestion!r}?"


def is_forbidden(
    tool: str, written: str, offered: Iterable[str] = (), allowed: Iterable[str] = ()
) -> bool:
    """Whether a forbidden name forbids the tool: by its name, or by its name after a prefix.

    If the agent is known to have a tool of exactly that name (`offered`), it forbids no other. A
    `*` in the name stands for any characters. `allowed` are the names of exceptions.
    """
    if any(is_forbidden(tool, name) for name in allowed):
        return False
    if "*" in written:
        return any(fnmatchcase(name, written) for name in (tool, *unprefixed(tool)))
    return tool == written or (written in unprefixed(tool) and written not in offered)


def is_near(written: str, tool: str) -> bool:
    """Whether a tool's name is so like a written name that the same tool may be meant.

    It is if the whole written name stands after a separator, before a version, in another case, or
    with a slip of a letter. A further word makes another tool: `get_order_history`, `get_order`.

    Examples:
        >>> [is_near("delete_order", tool) for tool in ("shop_delete_order", "deleteOrderV2")]
        [True, True]
        >>> [is_near("delete_order", tool) for tool in ("delete_account", "delete_order_items")]
        [False, False]
    """
    ours, theirs = _words_of(written), _words_of(tool)
    endings = [*_endings(theirs), *_endings(_MARK.sub("", theirs))]
    if any(fnmatchcase(ending, ours) for ending in endings):
        return True
    # The last word alone is another tool: `cancel_order` is not `order`.
    meant = [_MARK.sub("", ours), *(ending for ending in _endings(ours) if "_" in ending)]
    return theirs in meant or any(is_similar(written, name) for name in (tool, *unprefixed(tool)))


def _words_of(name: str) -> str:
    """Return the name in small letters, with an underscore between its words."""
    return _BETWEEN_WORDS.sub("_", _BEFORE_CAPITAL.sub("_", name)).strip("_").casefold()


def _endings(words: str) -> list[str]:
    return [words[at:] for at in range(len(words)) if at == 0 or words[at - 1] == "_"]


def is_similar(written: str, tool: str) -> bool:
    """Whether two names differ in case, punctuation or a slip of letters, or either holds both.

    A slip is a letter more or less, or two letters that are swapped; a different letter makes a
    different word (`get`, `set`).
    """
    ours, theirs = _letters(written), _letters(tool)
    if ours == theirs or any(_letters(part) == theirs for part in _SEPARATORS.split(written)):
        return True
    shorter, longer = sorted((ours, theirs), key=len)
    if len(shorter) < _SHORTEST_SLIP:
        return False
    if len(longer) - len(shorter) == 1:
        return any(longer[:at] + longer[at + 1 :] == shorter for at in range(len(longer)))
    swapped = (ours[:at] + ours[at + 1] + ours[at] + ours[at + 2 :] for at in range(len(ours) - 1))
    return len(shorter) == len(longer) and theirs in swapped


def _letters(name: str) -> str:
    return "".join(sign for sign in name.casefold() if sign.isalnum())
