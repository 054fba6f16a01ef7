"""A conversation as text; one that is too long is shortened around what matters, and searchable."""

import re
from collections.abc import Iterable, Iterator, Sequence

from holodeck.lib.conversation.messages import arguments_of, calls_in, text_of, tool_name
from holodeck.lib.conversation.roles import EARLIER, UNSEEN_CALLS, Message
from holodeck.lib.text import abridged, printable

BUDGET = 24_000
"""Characters of a transcript that fit into a judge's prompt."""
FULL = 4
"""So many messages at the beginning and at the end are shown whole, if that fits."""
LEAST = 40
MOST_FOUND = 6
AROUND = 300
_WORD = re.compile(r"\w{4,}")


def transcript_of(messages: Iterable[Message]) -> str:
    """All that was said and done, in numbered paragraphs."""
    return "\n".join(paragraphs_of(messages))


def paragraphs_of(messages: Iterable[Message]) -> list[str]:
    """A paragraph for what each message says and for each call in it, with the message's number.

    No text can pass for another message, for a call, or for a heading of a prompt: words follow a
    colon, calls do not, and the other lines of a paragraph are indented.
    """
    return [
        indent(f"[{number}] {told}")
        for number, one in enumerate(messages, 1)
        for told in _told(one)
    ]


def indent(said: str) -> str:
    """A text whose lines are indented but the first one."""
    return said.replace("\n", "\n    ")


def _told(message: Message) -> Iterator[str]:
    role = str(message.get("role", ""))
    if role in {"tool", "function"}:
        role = f"result of {message.get('name') or 'the tool'}"
    who = f"before this, {role}" if message.get(EARLIER) else role
    calls = list(calls_in(message))
    if message.get(UNSEEN_CALLS) and not calls:
        yield f"{who} may call tools unseen: that no call is shown here proves nothing"
    if text_of(message) or not calls:
        yield printable(f"{who}: {text_of(message)}")
    for call in calls:
        yield printable(f"{who} calls {tool_name(call)}({arguments_of(call)})")


def shorten_lines(lines: Sequence[str], about: Iterable[str], budget: int = BUDGET) -> str:
    """The lines within a budget of characters.

    What shares words with `about`, and the beginning and the end, keep more of their length than
    the rest; every message stays visible as long as there is room for one line of each.
    """
    if sum(map(len, lines)) + len(lines) <= budget:
        return "\n".join(lines)
    weights = _weights(lines, about)
    room = budget - len(lines)
    total = sum(weights)
    shares = [max(LEAST, int(room * weight / total)) for weight in weights]
    kept = [abridged(line, share) for line, share in zip(lines, shares, strict=True)]
    return _within("\n".join(kept), budget)


def _weights(lines: Sequence[str], about: Iterable[str]) -> list[int]:
    wanted = {word.lower() for text in about for word in _WORD.findall(text)}
    weights = []
    for index, line in enumerate(lines):
        is_edge = index < FULL or index >= len(lines) - FULL
        shared = len(wanted & {word.lower() for word in _WORD.findall(line)})
        weights.append(min(len(line), (1 + 4 * is_edge + 2 * shared) * LEAST * 5))
    return weights


def _within(text: str, budget: int) -> str:
    """The last resort for thousands of messages: the beginning and the end."""
    if len(text) <= budget:
        return text
    half = budget // 2
    return f"{text[:half]}\n[… search for what was said in between …]\n{text[-half:]}"


def find_passages(lines: Sequence[str], wanted: str) -> str:
    """The passages that hold a text, whatever its case; at most a handful."""
    hits = [(line, line.lower().find(wanted.lower())) for line in lines]
    passages = [_around(line, at, len(wanted)) for line, at in hits if at >= 0]
    if not passages:
        return f"{wanted!r}: nowhere"
    more = len(passages) - MOST_FOUND
    shown = passages[:MOST_FOUND] + ([f"… and {more} more"] if more > 0 else [])
    return "\n".join([f"{wanted!r}:", *shown])


def _around(line: str, at: int, length: int) -> str:
    number = line.partition(" ")[0]
    start, end = max(0, at - AROUND), at + length + AROUND
    passage = line[start:end]
    return passage if start == 0 else f"{number} …{passage}"
