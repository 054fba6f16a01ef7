"""Which answers a judge prefers, in words."""

from collections.abc import Iterator

from holodeck.lib.support.text import one_line, plural
from holodeck.models.records.comparison import Preference, Preferences

_MAX_CRITERIA = 300
_WORDS = {"first": "A", "second": "B", "none": "neither", "undecided": "undecided"}


def describe_preference(preference: Preference) -> str:
    """Return which answer of a pair is preferred, and why."""
    return f"preferred: {_WORDS[preference.winner]}: {preference.reason}"


def describe_preferences(preferences: Preferences | None, significant: float) -> Iterator[str]:
    """Yield whose answers the judge prefers, and whether that may be luck.

    Up to the p-value `significant`, luck is called an unlikely explanation.
    """
    if preferences is None:
        return
    yield (
        f"{preferences.judge} prefers the answer of A in {plural(preferences.first, 'case')} and"
        f" that of B in {preferences.second}; {preferences.none} changed with the order,"
        f" {preferences.undecided} undecided ({one_line(preferences.criteria, _MAX_CRITERIA)})."
    )
    if preferences.left_out:
        left_out = plural(preferences.left_out, "pair")
        yield f"{left_out} without two answers to one input left out."
    if preferences.p_value is None:
        return
    test = f"(sign test, p = {preferences.p_value:.2g})"
    if preferences.p_value <= significant:
        better = "A" if preferences.first > preferences.second else "B"
        yield f"It prefers {better} more often than luck explains {test}."
    else:
        yield f"Luck may explain this difference {test}."
