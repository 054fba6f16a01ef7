"""Parts of a selection of about the same length in time."""

import hashlib
import heapq
from collections.abc import Mapping, Sequence
from statistics import median

_DIGITS = 8


def shards_of(durations: Mapping[int, float | None], count: int) -> list[list[int]]:
    """The places in `count` parts: each place in one, whatever the order they are given in.

    The longest first, each to the part that has least to do so far. What was never timed is taken
    for as long as the others usually are.
    """
    known = [one for one in durations.values() if one is not None]
    usual = median(known) if known else 1.0
    weights = {at: usual if one is None else one for at, one in durations.items()}
    parts: list[list[int]] = [[] for _ in range(count)]
    loads = [(0.0, 0, number) for number in range(count)]
    for place in sorted(weights, key=lambda at: (-weights[at], at)):
        load, cases, number = loads[0]
        parts[number].append(place)
        heapq.heapreplace(loads, (load + weights[place], cases + 1, number))
    return parts


def shard_fingerprint(parts: Sequence[Sequence[int]], titles: Mapping[int, str]) -> str:
    """A few digits that are the same wherever the same cases were dealt out in the same way."""
    dealt = [[(at, titles[at]) for at in sorted(part)] for part in parts]
    return hashlib.sha256(repr(dealt).encode("utf-8", "backslashreplace")).hexdigest()[:_DIGITS]
