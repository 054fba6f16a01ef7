"""Matching the tool names in test cases with the names of tools, as frameworks give them."""

import re
from collections.abc import Iterable, Iterator

from holodeck.errors import EvaluationError
from holodeck.lib.suggestions import nearest_word

SEPARATORS = "-._"
"""Characters between the name of a plugin and the name of its function."""
_AFTER_PREFIX = re.compile(r"__|\.")


def matches_tool_name(written: str, tool: str) -> bool:
    """Whether it is the tool's name, or all of it after the name of a plugin."""
    before = tool.removesuffix(written)
    return written == tool or (before != tool and before.endswith(tuple(SEPARATORS)))


def unprefixed(tool: str) -> list[str]:
    """Return the name without the prefixes that frameworks put before it, the longest first.

    They write `Plugin-name` (Semantic Kernel), `server.name` and `mcp__server__name` (Claude). A
    hyphen is a separator only if it is the only one, because Semantic Kernel allows none in names.
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
    """Return the tools that a name means: the one of this name, else all with it after a prefix.

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
    known = [one for tool in names for one in (tool, *unprefixed(tool))]
    ending = (tool for tool in names if tool.endswith(f"_{written}"))
    suggestion = next(ending, None) or nearest_word(written, known, cutoff=0.8)
    return "" if suggestion in {None, written} else f"; did you mean {suggestion!r}?"


def is_forbidden(tool: str, written: str, offered: Iterable[str] = ()) -> bool:
    """Whether a forbidden name forbids the tool: by its name, or by its name after a prefix.

    If the agent is known to have a tool of exactly that name (`offered`), it forbids no other.
    """
    return tool == written or (written in unprefixed(tool) and written not in offered)
