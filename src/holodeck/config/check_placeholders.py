"""`{{name}}` that nothing filled: forgotten `parameters` look like this."""

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel

from holodeck.config.cases.placeholders import PLACEHOLDER
from holodeck.config.findings import Findings
from holodeck.config.source import Path_
from holodeck.models.agent import Agent
from holodeck.models.evaluation import NotContainsMetric

_NO_MATTER = frozenset({"forbidden_tools", "description"})
"""Keys that are looked at elsewhere, or only by people."""


def check_placeholders(agent: Agent, findings: Findings) -> None:
    """Find them in every text of the cases and of the metrics."""
    parts: list[tuple[Path_, Any]] = [(("evaluations",), agent.evaluations)]
    parts += [(("test_cases", at), case) for at, case in enumerate(agent.test_cases or ())]
    for path, part in parts:
        for at, found, can_fail in _left(part, path):
            if can_fail:
                why = "stays as it is; add 'parameters' if it stands for values"
                findings.warning(at, f"'{found}' {why}")
            else:
                findings.error(at, f"no answer contains '{found}'; add 'parameters' or write text")


def _left(value: Any, path: Path_, *, can_fail: bool = True) -> Iterator[tuple[Path_, str, bool]]:
    """The first placeholder of each text, and whether the check that it is part of can fail."""
    if isinstance(value, str):
        found = PLACEHOLDER.search(value) if "{{" in value else None
        if found is not None:
            yield path, found[0], can_fail
    elif isinstance(value, BaseModel):
        forbids = isinstance(value, NotContainsMetric)
        for key in type(value).model_fields:
            if key in value.model_fields_set and key not in _NO_MATTER:
                yield from _left(getattr(value, key), (*path, key), can_fail=not forbids)
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _left(one, (*path, key), can_fail=can_fail)
    elif isinstance(value, list):
        for index, one in enumerate(value):
            yield from _left(one, (*path, index), can_fail=can_fail)
