"""Groups the cases that did not pass by cause, for every report that lists failures.

Two cases have the same cause if they ended alike, for the same reasons. What differs from call to
call is ignored in errors: times, ids of requests, numbers of attempts. Status codes, names,
addresses and lines of code are not. The reasons of failed checks are compared as they are, because
they quote the agent.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b

from holodeck.models.outcome import Outcome, Reason
from holodeck.models.result_sequence import positions_of, results_at
from holodeck.models.test_result import TestResult, TurnResult

NOT_PASSED = (Outcome.FAILED, Outcome.AGENT_ERROR, Outcome.METRIC_ERROR, Outcome.UNCHECKED)
"""The outcomes of cases that ran and did not pass, the most telling first."""
_ERRORS = frozenset({Outcome.AGENT_ERROR, Outcome.METRIC_ERROR})
_PLACE = re.compile(r"^(?:(?:turn|repetition|try) \d+: )+")
_COUNT_OF_REPETITIONS = re.compile(r"^\d+ of \d+ repetitions passed, .*")
_VARYING = [
    (re.compile(pattern), replacement)
    for pattern, replacement in (
        (r" \(after \d+ attempts\)", ""),
        (r"(?i)\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "<id>"),
        (r"\b(req|chatcmpl|call|msg|resp|gen)[_-](?=[A-Za-z]*\d)[A-Za-z0-9]{20,}", r"\1-<id>"),
        (
            r"(?i)\b((?:request|trace|session)[ _-]?id[\"']?[ :=]*[\"']?)(?=[\w.-]*\d)[\w.-]{6,}",
            r"\1<id>",
        ),
        (r"(?i)\bat 0x[0-9a-f]+\b", "at <address>"),
        (
            r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d+)?)?(?:Z|[+-]\d\d:?\d\d\b)?",
            "<time>",
        ),
        (r"\b\w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT\b", "<time>"),
        (r"(?<![\w.])\d+(?:\.\d+)? ?(?:ms|s|secs?|seconds?|minutes?)\b", "<duration>"),
        (r"(?i)\b(attempt|retry|try) \d+(?: of \d+)?\b", r"\1 <n>"),
        (r"(?i)\b\d+ (attempt|retr|tr)(?:s|y|ies)?\b", r"<n> \1"),
        (r"\bUsed \d+, Requested \d+", "Used <n>, Requested <n>"),  # the tokens of a rate limit
    )
]
"""What differs between two errors of the same cause, and what is compared in its place."""

Cause = tuple[Outcome, tuple[str, ...]]


@dataclass(frozen=True)
class FailureGroup:
    """Cases that did not pass for the same reason, in the order of the report."""

    numbers: Sequence[int]
    """Their numbers in the report, from 1."""
    outcome: Outcome
    """How each of them ended."""
    results: Sequence[TestResult]
    """The cases; those of a large run are read whenever they are asked for."""

    @property
    def first(self) -> TestResult:
        """The case whose words stand for all."""
        return self.results[0]


def group_failures(results: Iterable[TestResult]) -> list[FailureGroup]:
    """Return the cases that did not pass by cause; the groups are in the order of their first."""
    known = results if isinstance(results, Sequence) else list(results)
    by_cause: dict[tuple[Outcome, bytes], list[int]] = {}
    positions = positions_of(known, NOT_PASSED)
    for at, result in zip(positions, results_at(known, positions), strict=True):
        outcome, reasons = cause_of(result)
        # Their hash, because reasons quote long texts.
        digest = blake2b(repr(reasons).encode(errors="surrogatepass"), digest_size=16).digest()
        by_cause.setdefault((outcome, digest), []).append(at)
    return [
        FailureGroup(tuple(at + 1 for at in members), outcome, results_at(known, members))
        for (outcome, _), members in by_cause.items()
    ]


def cause_of(result: TestResult) -> Cause:
    """Return what is equal for cases that did not pass for the same reason."""
    reasons = result.reasons()
    if result.outcome in _ERRORS:
        without = [one for one in reasons if not _COUNT_OF_REPETITIONS.match(one)]
        reasons = list(dict.fromkeys(map(_normalize, without or reasons)))
    return result.outcome, tuple(reasons)


def _normalize(reason: str) -> str:
    """Return an error without what differs from call to call."""
    text = _PLACE.sub("", reason)
    for pattern, replacement in _VARYING:
        text = pattern.sub(replacement, text)
    return text


def distinct_reasons(result: TestResult) -> list[Reason]:
    """Return why a case did not pass, each reason once."""
    return list({str(one): one for one in result.detailed_reasons()}.values())


def failed_part(result: TestResult) -> TestResult | TurnResult:
    """Return the part of a case that failed first: a repetition of it, a turn, or the case."""
    runs = result.repeats.runs if result.repeats is not None else []
    failed_run = next((run for run in runs if not run.passed), None)
    if failed_run is not None:
        return failed_part(failed_run)
    turns = (turn for turn in result.turns if turn.outcome in NOT_PASSED)
    return next(turns, result)
