"""Names of tools in a case that match no call, or more calls than their author may think."""

import re
from collections.abc import Sequence

from holodeck.config.findings import Findings
from holodeck.config.source import Path_
from holodeck.lib.tools.names import is_whole_name

_IN_NO_NAME = re.compile(r"[*?\[\]{}()|^$\\,;<>\"'`]")
"""Characters of patterns, lists and placeholders; no tool that a model calls has them."""


def check_forbidden_name(name: str, path: Path_, findings: Findings) -> bool:
    """Find a forbidden name that no tool can have; whether it is one."""
    sign = _IN_NO_NAME.search(name)
    if "{{" in name:
        why = "is a placeholder that nothing fills; add 'parameters', or write the tool's name"
    elif sign is not None and sign[0] in ",;":
        why = "is one name; write each tool as an item of its own: [a, b]"
    elif sign is not None:
        why = f"has {sign[0]!r} in it; names are compared as they are, patterns are not read"
    elif re.search(r"\s", name):
        why = "has white space around it or in it, which no tool's name has; remove it"
    else:
        return False
    findings.error(path, f"no call can match {name!r}: it {why}")
    return True


def warn_of_parts(name: str, tools: Sequence[str], path: Path_, findings: Findings) -> None:
    """Find tools whose calls meet an expectation that may be meant for another one."""
    parts = [tool for tool in tools if not is_whole_name(name, tool)]
    if parts:
        findings.warning(
            path,
            f"{name!r} is only a part of {', '.join(map(repr, parts))}, whose calls count as well;"
            f" write '{{name: {parts[0]}}}' if that tool is meant",
        )
