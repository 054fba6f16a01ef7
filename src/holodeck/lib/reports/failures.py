"""The cases that did not pass, grouped by cause.

Two cases have the same cause if they ended alike, for the same reasons. What differs from call to
call is ignored in errors: times, ids of requests, numbers of attempts. Status codes, names,
addresses and lines of code are not. The reasons of failed checks are compared as they are, because
they quote the agent. Causes in which the same checks failed are listed together where there is no
room for each.
"""

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from itertools import groupby, zip_longest
from typing import TypeVar

from holodeck.lib.support.text import one_line
from holodeck.models.results.outcome import Outcome, Reason
from holodeck.models.test_result import TestResult

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

_NUMBER = re.compile(r"\d+(?:[.,]\d+)*")
_MAX_CHECKS = 120
T = TypeVar("T")


@dataclass(frozen=True)
class FailureGroup:
    """Cases that did not pass for the same reason, in the order of the report."""

    numbers: Sequence[int]
    """Their numbers in the report, from 1."""
    outcome: Outcome
    """How each of them ended."""
    results: Sequence[TestResult]
    checks: str
    """The names of the checks that failed; for errors, the errors."""

    @property
    def first(self) -> TestResult:
        """The case whose words stand for all."""
        return self.results[0]


@dataclass(frozen=True)
class CheckGroup:
    """The causes in which the same checks failed, those of many cases first."""

    outcome: Outcome
    checks: str
    causes: Sequence[FailureGroup]

    @property
    def count(self) -> int:
        """How many cases did not pass."""
        return sum(len(cause.numbers) for cause in self.causes)

    @property
    def first(self) -> TestResult:
        """The case whose words stand for all."""
        return self.causes[0].first

    def results(self) -> Iterator[TestResult]:
        """Yield the cases: the first of each cause, then the others."""
        yield from (cause.first for cause in self.causes)
        yield from (result for cause in self.causes for result in cause.results[1:])


@dataclass(frozen=True)
class Failure:
    """The reasons of a case that belong to a turn, and what was expected and answered there."""

    outcome: Outcome
    """How the case ended."""
    reasons: Sequence[Reason]
    expected: str | None
    response: str | None

    @property
    def texts(self) -> Iterator[tuple[str, str]]:
        """The expected and the found text, with their titles."""
        if self.expected is not None:
            yield "expected", self.expected
        if self.response is not None:
            yield "found", self.response

    def unquoted(self, shown: str) -> Iterator[tuple[str, str]]:
        """Yield the texts that the shown reasons do not quote; errors have no answer."""
        if self.outcome is Outcome.FAILED:
            yield from ((title, text) for title, text in self.texts if repr(text) not in shown)


def group_failures(results: Iterable[TestResult]) -> list[FailureGroup]:
    """Return the cases that did not pass by cause; the groups are in the order of their first."""
    by_cause: dict[tuple[Outcome, bytes, str], list[tuple[int, TestResult]]] = {}
    for number, result in enumerate(results, 1):
        if result.outcome not in NOT_PASSED:
            continue
        reasons = result.detailed_reasons()
        cause = _cause_of(result.outcome, reasons)
        # Their hash, because reasons quote long texts.
        digest = blake2b(repr(cause).encode(errors="surrogatepass"), digest_size=16).digest()
        names = {_check_of(result.outcome, reason) for reason in _without_count(reasons)}
        checks = one_line(", ".join(sorted(names)), _MAX_CHECKS)
        by_cause.setdefault((result.outcome, digest, checks), []).append((number, result))
    return [
        FailureGroup(
            tuple(number for number, _ in members),
            outcome,
            [result for _, result in members],
            checks,
        )
        for (outcome, _, checks), members in by_cause.items()
    ]


def group_by_check(groups: Iterable[FailureGroup]) -> list[CheckGroup]:
    """Return the causes by the checks that failed: failed before errors, those of many first."""
    by_check: dict[tuple[Outcome, str], list[FailureGroup]] = {}
    for group in groups:
        by_check.setdefault((group.outcome, group.checks), []).append(group)
    joined = [
        CheckGroup(outcome, checks, sorted(causes, key=lambda cause: -len(cause.numbers)))
        for (outcome, checks), causes in by_check.items()
    ]
    return sorted(joined, key=lambda group: (NOT_PASSED.index(group.outcome), -group.count))


def each_outcome_first(groups: Sequence[CheckGroup]) -> list[CheckGroup]:
    """Return the groups so that the first few are of every outcome."""
    kinds = groupby(groups, key=lambda group: group.outcome)
    return list(in_turns([list(members) for _, members in kinds]))


def in_turns(lists: Iterable[Iterable[T]]) -> Iterator[T]:
    """Yield the first of each, then the second of each, and so on."""
    for row in zip_longest(*lists):
        yield from (item for item in row if item is not None)


def _cause_of(outcome: Outcome, reasons: Sequence[Reason]) -> tuple[str, ...]:
    """Return what is equal for cases that did not pass for the same reason."""
    if outcome not in _ERRORS:
        return tuple(map(str, reasons))
    return tuple(dict.fromkeys(_normalize(str(reason)) for reason in _without_count(reasons)))


def _check_of(outcome: Outcome, reason: Reason) -> str:
    if reason.check is not None:
        return reason.check
    if reason.raised is not None:
        kind = reason.raised.error.partition(":")[0]
        return f"{kind} at {reason.raised.file}:{reason.raised.line}"
    text = _normalize(reason.text)
    # In errors, numbers such as status codes name the cause.
    return text if outcome in _ERRORS else _NUMBER.sub("<n>", text)


def _without_count(reasons: Sequence[Reason]) -> Sequence[Reason]:
    """Return the reasons without how many repetitions passed, unless nothing else is known."""
    others = [reason for reason in reasons if not _COUNT_OF_REPETITIONS.match(reason.text)]
    return others or reasons


@lru_cache(maxsize=16)  # a reason is read for the cause, then for the checks
def _normalize(reason: str) -> str:
    """Return an error without what differs from call to call."""
    text = _PLACE.sub("", reason)
    for pattern, replacement in _VARYING:
        text = pattern.sub(replacement, text)
    return text


def distinct_reasons(result: TestResult) -> list[Reason]:
    """Return why a case did not pass, each reason once."""
    return list({str(reason): reason for reason in result.detailed_reasons()}.values())


def explain(result: TestResult) -> list[Failure]:
    """Return why a case did not pass, the reasons of each turn with its answer.

    How many repetitions passed belongs to the first repetition that did not.
    """
    reasons = distinct_reasons(result)
    if not reasons:
        return [Failure(result.outcome, [], result.ground_truth, result.agent_response)]
    if len(reasons) > 1 and _COUNT_OF_REPETITIONS.match(reasons[0].text):
        reasons[0] = reasons[0].beside(reasons[1].expected, reasons[1].response)
    answers = groupby(reasons, key=lambda reason: (reason.expected, reason.response))
    return [Failure(result.outcome, list(members), *answer) for answer, members in answers]


def explained_lines(result: TestResult, limit: int) -> Iterator[str]:
    """Yield the reasons of a case, each on a line, and below those of a turn its answer."""
    for failure in explain(result):
        reasons = [str(reason) for reason in failure.reasons]
        yield from (one_line(reason, limit) for reason in reasons)
        for title, text in failure.unquoted(" ".join(reasons)):
            yield f"{title}: {one_line(text, limit) or '(empty)'}"
