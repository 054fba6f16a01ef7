"""Parser for the JSON in a model's response: bare, in a Markdown fence, or after reasoning."""

import json
import re
from collections.abc import Iterator
from typing import Any

from holodeck.lib.support.text import replace_surrogates, unique_keys

_THOUGHT = re.compile(r"<(think|thinking|reasoning)>.*?(</\1>|\Z)", re.DOTALL | re.IGNORECASE)
_UP_TO_THOUGHTS_END = re.compile(r"\A.*</(think|thinking|reasoning)>", re.DOTALL | re.IGNORECASE)
_LEADING_THOUGHTS = re.compile(
    r"\A\s*(<(think|thinking|reasoning)>.*?(</\2>|\Z)\s*)+", re.DOTALL | re.IGNORECASE
)
_FIRST_THOUGHTS_END = re.compile(
    r"\A(?!\s*(\{|```)).*?</(think|thinking|reasoning)>", re.DOTALL | re.IGNORECASE
)
_FENCE_BEFORE = re.compile(r"(?:\A|\n)[ \t]*```[ \t]*\w*[ \t]*\n\s*\Z")
_FENCE_AFTER = re.compile(r"\A\s*\n[ \t]*```[ \t]*(?:\n|\Z)")
_ONLY_JSON = "write nothing but the JSON"


def without_reasoning(text: str) -> str:
    """Return a response without the reasoning in `<think>` tags, closed or not."""
    return _UP_TO_THOUGHTS_END.sub("", _THOUGHT.sub("", text)).strip()


def parse_json_answer(text: str) -> Any:
    """Return the JSON value of a response.

    An object may follow reasoning, be in a Markdown fence, and have a remark before or after it.
    Possible quotations are refused: an object with text on both sides, an object inside a line of
    text, and several objects that differ. Raises ValueError with a message for the model.
    """
    if not text.strip():
        raise ValueError("the answer is empty")
    try:
        return _loads(text.strip())
    except json.JSONDecodeError as error:
        wrong = str(error)
    answer = _FIRST_THOUGHTS_END.sub("", _LEADING_THOUGHTS.sub("", text)).strip()
    if not answer:
        raise ValueError("the answer holds reasoning and nothing else")
    try:
        return _loads(answer)
    except json.JSONDecodeError:
        return _object_in(answer, wrong)


def _object_in(text: str, wrong: str) -> dict[str, Any]:
    """Return the one object in a text; `wrong` is what keeps all of it from being JSON."""
    text = text.replace("\r\n", "\n")
    objects = list(_objects(text, wrong))
    if not objects:
        raise ValueError(f"the answer is not JSON ({wrong})")
    if len({json.dumps(value, sort_keys=True) for _, _, value in objects}) > 1:
        raise ValueError(f"the answer holds several JSON objects that differ; {_ONLY_JSON}")
    start, end, value = objects[-1]
    before, after = text[:start], text[end:]
    fence = _FENCE_BEFORE.search(before)
    if fence is not None and (closing := _FENCE_AFTER.match(after)) is not None:
        before, after = before[: fence.start()], after[closing.end() :]
    elif (before and before.rstrip(" \t")[-1:] != "\n") or (
        after and after.lstrip(" \t")[:1] != "\n"
    ):
        raise ValueError(f"the JSON is inside a line of text; {_ONLY_JSON}")
    if before.strip() and after.strip():
        raise ValueError(f"there is text before and after the JSON; {_ONLY_JSON}")
    return value


def _objects(text: str, wrong: str) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """Yield the outermost objects of a text, each with its start and end."""
    decoder = json.JSONDecoder(parse_constant=_refuse_constant, object_pairs_hook=_object_of)
    at = text.find("{")
    while at >= 0:
        try:
            value, end = decoder.raw_decode(text, at)
        except json.JSONDecodeError as error:
            # A complete object inside of a broken one is not the answer.
            if not text[text.rfind("\n", 0, at) + 1 : at].strip():
                raise ValueError(f"the answer is not JSON ({wrong})") from error
            end = at + 1
        except RecursionError as error:
            raise ValueError("the answer is nested too deep") from error
        else:
            yield at, end, value
        at = text.find("{", end)


def _loads(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_object_of)
    except RecursionError as error:
        raise ValueError("the answer is nested too deep") from error


def _object_of(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return the object. Raises ValueError for a repeated key."""
    return unique_keys(
        [
            (name, replace_surrogates(value) if isinstance(value, str) else value)
            for name, value in pairs
        ]
    )


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")
