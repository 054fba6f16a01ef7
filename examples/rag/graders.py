"""Checks of the passages; metrics such as `faithfulness` get the same ones."""

from holodeck.lib.evaluators.base import Observation


def is_quoted(case: Observation) -> bool:
    """Whether the response stands in one of the retrieved passages."""
    return any(case.response in passage for passage in case.retrieval_context)


def nothing_was_found(case: Observation) -> bool:
    return not case.retrieval_context
