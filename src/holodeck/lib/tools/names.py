"""Matching the tool names in test cases with the names of tools."""

SEPARATORS = "-._"
"""Characters between the name of a plugin and the name of its function."""


def matches_tool_name(written: str, tool: str) -> bool:
    """Whether it is the tool's name, or all of it after the name of a plugin."""
    before = tool.removesuffix(written)
    return written == tool or (before != tool and before.endswith(tuple(SEPARATORS)))
