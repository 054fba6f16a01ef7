"""Forbidden names that a called tool has but for a slip: most likely that tool is meant."""

import re
from collections.abc import Collection, Iterator

from holodeck.models.test_case import TestCaseModel
from holodeck.models.test_result import TestResult

_PREFIX = re.compile(r".*[.:/]")
"""`functions.` and the like, which some libraries write before a tool's name."""


def misnamed_tools(
    case: TestCaseModel, result: TestResult, known: Collection[str]
) -> Iterator[str]:
    """A sentence for each forbidden name that is nearly the name of a tool that was called.

    Names are compared as they are written, so such a check passes although the tool was called.
    `known` are tools that the agent has; a name of one of them is meant as it is.
    """
    called = dict.fromkeys(one.name for one in result.tool_invocations)
    parts = [case, *(part for _, part in case.parts)]
    forbidden = dict.fromkeys(name for part in parts for name in part.forbidden_tools or ())
    for name in forbidden:
        near = [tool for tool in called if _is_near(name, tool)]
        if near and name not in called and name not in known:
            yield (
                f"the tool {name!r} is forbidden, and {near[0]!r} was called; names are compared"
                " as they are written, so correct the name if that tool is meant"
            )


def _is_near(written: str, tool: str) -> bool:
    """Whether two names differ in case, in signs, in a prefix, or in one letter at most.

    One letter more, one less, or two that changed places; another letter (`get`, `set`) is another
    word.
    """
    ours, theirs = _letters(written), _letters(tool)
    if ours == theirs or _letters(_PREFIX.sub("", written)) == theirs:
        return True
    shorter, longer = sorted((ours, theirs), key=len)
    if len(longer) - len(shorter) == 1:
        return any(longer[:at] + longer[at + 1 :] == shorter for at in range(len(longer)))
    swapped = (ours[:at] + ours[at + 1] + ours[at] + ours[at + 2 :] for at in range(len(ours) - 1))
    return len(shorter) == len(longer) and theirs in swapped


def _letters(name: str) -> str:
    return "".join(sign for sign in name.casefold() if sign.isalnum())
