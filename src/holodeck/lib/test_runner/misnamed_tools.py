"""Find forbidden names that look like the misspelt name of a tool that was called."""

import re
from collections.abc import Collection, Iterator

from holodeck.lib.tool_names import is_forbidden, unprefixed
from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import TestResult

_SEPARATORS = re.compile(r"[^\w]+")
"""What stands after a prefix such as `functions.`, and between two names written as one."""


def misnamed_tools(
    case: TestCaseModel, result: TestResult, known: Collection[str]
) -> Iterator[str]:
    """Return a note for each forbidden name that looks like the misspelt name of a called tool.

    Names are compared exactly, but for prefixes, so such a check passes although the tool was
    called. `known` are tools of the agent, whose names are not misspelt.
    """
    called = dict.fromkeys(one.name for one in result.tool_invocations)
    parts = [case, *(part for _, part in case.checked_turns)]
    forbidden = dict.fromkeys(name for part in parts for name in part.forbidden_tools or ())
    for name in forbidden:
        similar = [tool for tool in called if _is_near(name, tool)]
        is_found = any(is_forbidden(tool, name) for tool in called)
        if similar and not is_found and name not in known:
            yield (
                f"the tool {name!r} is forbidden, and {similar[0]!r} was called; names are compared"
                " exactly, so correct the name if that tool is meant"
            )


def _is_near(written: str, tool: str) -> bool:
    """Whether a name is like the tool's, with or without its prefix, or like where it hands off."""
    is_handoff = tool.endswith(f"_to_{written}")
    return is_handoff or any(is_similar(written, name) for name in (tool, *unprefixed(tool)))


def is_similar(written: str, tool: str) -> bool:
    """Whether two names differ in case, punctuation or one slip of letters, or one holds both.

    A slip is a letter more or less, or two letters that are swapped; a different letter makes a
    different word (`get`, `set`).
    """
    ours, theirs = _letters(written), _letters(tool)
    if ours == theirs or any(_letters(part) == theirs for part in _SEPARATORS.split(written)):
        return True
    shorter, longer = sorted((ours, theirs), key=len)
    if len(longer) - len(shorter) == 1:
        return any(longer[:at] + longer[at + 1 :] == shorter for at in range(len(longer)))
    swapped = (ours[:at] + ours[at + 1] + ours[at] + ours[at + 2 :] for at in range(len(ours) - 1))
    return len(shorter) == len(longer) and theirs in swapped


def _letters(name: str) -> str:
    return "".join(sign for sign in name.casefold() if sign.isalnum())
