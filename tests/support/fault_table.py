"""The faults and what came of them, as a page of the documentation."""

from support.faults import CASES, HARMLESS, PERMANENT, TRANSIENT, Outcome, outcomes

PEERS = (
    "holodeck-ai 0.7.1", "holodeck-ai 0.3.0", "inspect_ai 0.3.285", "promptfoo 0.121.20",
    "pydantic-evals 2.62.0", "agenticassure 0.4.0",
)  # fmt: skip

_ALL = ("10",) * 6
_ALL_BUT_PROMPTFOO = ("10", "10", "10", "0", "10", "10")
_NONE = ("0",) * 6
_FIVE = ("0", "0", "10", "10", "0", "0")
_RIGHT = ("passes", "passes", "fails", "fails", "fails", "fails")

MEASURED = {
    "429, Retry-After in seconds": _ALL,
    "429, retry-after-ms": ("10", "10", "10", "hangs", "10", "10"),
    "HTTP 408": _ALL_BUT_PROMPTFOO,
    "HTTP 500": _ALL_BUT_PROMPTFOO,
    "HTTP 503": _ALL_BUT_PROMPTFOO,
    "HTTP 529": _ALL_BUT_PROMPTFOO,
    "connection reset": _ALL,
    "closed before the answer": _ALL,
    "half a body, then closed": _ALL_BUT_PROMPTFOO,
    "a chunk that is cut": _ALL_BUT_PROMPTFOO,
    "200 with broken JSON": _NONE,
    "200 with HTML": _NONE,
    "200 with nothing in it": _NONE,
    "no choices": ("–", *_NONE[1:]),
    "429 five times in a row": _FIVE,
    "500 five times in a row": ("0", "0", "10", "0", "0", "0"),
    "content: null": _RIGHT,
    'content: ""': _RIGHT,
}
"""How many of ten cases ended right with the peers, where it was measured; – means that the fault
cannot happen there."""

HEAD = f"""# What comes of a provider's faults

Written by `scripts/faults` from a run: {CASES} cases, each of which meets the fault at its first
attempt (or at its first five), through the real runner on Semantic Kernel with default settings
but for short waits. The silent ones are cut off by `--attempt-timeout`. `tests/reliability` runs
the same list, and each of these faults for ever in one of a hundred cases.

The numbers are cases of ten that end right; for the peers, where they were measured,
once each, with the settings their documentation suggests. A case without an answer is not to pass.
"""


def table() -> str:
    """The page."""
    found = {outcome.kind.name: outcome for outcome in outcomes()}
    return "\n".join(
        [
            HEAD,
            *_section("May pass by themselves, and are tried again", TRANSIENT, found, _passed),
            *_section("Strange, and still an answer", HARMLESS, found, _passed),
            *_section("Do not pass by themselves", PERMANENT, found, _failed),
        ]
    )


def _section(title, kinds, found, ours):
    names = " | ".join(PEERS)
    yield f"## {title}\n"
    yield f"| fault | holodeck | {names} |"
    yield "| --- " * (len(PEERS) + 2) + "|"
    for kind in kinds:
        peers = " | ".join(MEASURED.get(kind.name, ("",) * len(PEERS)))
        yield f"| {kind.name} | {ours(found[kind.name])} | {peers} |".replace("  ", " ")
    yield ""


def _passed(outcome: Outcome) -> str:
    tries = f" ({outcome.attempts} attempts)" if outcome.attempts > 1 else ""
    return f"{outcome.passed} of {CASES}{tries}"


def _failed(outcome: Outcome) -> str:
    kind = "error" if outcome.kind.ends == "error" else "failed"
    reason = outcome.reason if len(outcome.reason) <= 110 else f"{outcome.reason[:109]}…"
    return f"{kind}, “{reason}”"
