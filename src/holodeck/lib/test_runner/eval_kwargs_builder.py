"""The documented path of `EvalKwargsBuilder`, and the passages that retrieval tools returned."""

import json
from typing import Any

from holodeck.lib.evaluators.inputs import EvalKwargsBuilder

__all__ = ["EvalKwargsBuilder", "build_retrieval_context_from_tools"]


def build_retrieval_context_from_tools(
    tool_results: list[dict[str, Any]],
    retrieval_tool_names: set[str],
) -> list[str] | None:
    """Return the passages that retrieval tools returned, in order; None if there are none.

    Args:
        tool_results: Mappings with `name` and `result`. Each item of a list is a passage; values
            that are not text become JSON; None and empty text are ignored.
        retrieval_tool_names: The tools whose results are passages.
    """
    passages = [
        passage
        for result in tool_results
        if result.get("name") in retrieval_tool_names
        for passage in _passages(result.get("result"))
    ]
    return passages or None


def _passages(result: Any) -> list[str]:
    items = result if isinstance(result, list) else [result]
    texts = (item if isinstance(item, str) else _as_json(item) for item in items)
    return [text for text in texts if text]


def _as_json(value: Any) -> str:
    if value is None:
        return ""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError):  # keys that are not text, or a value that contains itself
        return str(value)
