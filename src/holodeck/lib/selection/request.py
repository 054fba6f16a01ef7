"""Which cases the command line requests, and what recorded runs know of them."""

import re
import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from holodeck.errors import ConfigError

if TYPE_CHECKING:
    from holodeck.lib.selection.expression import Expression

_SHARD = re.compile(r"([0-9]{1,6})/([0-9]{1,6})")

RESULTS_FOR_A_MEDIAN = 3


@dataclass(frozen=True)
class Shard:
    """One of `count` parts of a selection; the first has number 1."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """Parse such as `2/4`. Raises ConfigError."""
        match = _SHARD.fullmatch(text)
        shard = cls(int(match[1]), int(match[2])) if match else None
        if shard is None or not 1 <= shard.number <= shard.count:
            hint = "expected I/N with I from 1 to N, such as 2/4"
            raise ConfigError("--shard", f"found {text[:80]!r}; {hint}")
        return shard

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


@dataclass(frozen=True)
class SelectionRequest:
    """Filters, all of which a case must match; then the order, the limit and the shard."""

    ids: tuple[str, ...] = ()
    suites: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    """A case needs one of them."""
    excluded_tags: tuple[str, ...] = ()
    keyword: "Expression | None" = None
    last_failed: bool = False
    new: bool = False
    seed: int | None = None
    """Of the random order; None keeps the order of the file."""
    failed_first: bool = False
    limit: int | None = None
    shard: Shard | None = None
    allow_empty: bool = False

    @property
    def needs_history(self) -> bool:
        """Whether the selection depends on recorded runs."""
        return self.last_failed or self.new or self.failed_first or self.shard is not None

    @property
    def results_needed(self) -> int:
        """How many recorded results of a case are needed: the last one, or some for a median."""
        return RESULTS_FOR_A_MEDIAN if self.shard is not None else 1

    def args(self) -> list[str]:
        """Return the options that request this selection, without `--allow-empty`."""
        options = (
            *(("--id", one) for one in self.ids),
            *(("--suite", suite) for suite in self.suites),
            *(("--tag", tag) for tag in self.tags),
            *(("--exclude-tag", tag) for tag in self.excluded_tags),
            ("-k", self.keyword.text if self.keyword else None),
            ("--last-failed", "" if self.last_failed else None),
            ("--new", "" if self.new else None),
            ("--shuffle", "" if self.seed is not None else None),
            ("--seed", None if self.seed is None else str(self.seed)),
            ("--failed-first", "" if self.failed_first else None),
            ("--limit", None if self.limit is None else str(self.limit)),
            ("--shard", None if self.shard is None else str(self.shard)),
        )
        return [
            part for flag, value in options if value is not None for part in (flag, value) if part
        ]

    def __str__(self) -> str:
        return shlex.join(self.args())


@dataclass(frozen=True)
class CaseHistory:
    """The recorded results of a case; numbers are medians, None means unknown."""

    passed: bool | None = None
    """Whether the latest result passed; None without a result."""
    duration_ms: float | None = None
    whole_run_ms: float | None = None
    """The duration in runs without `--shard`, so that shards do not change later shards."""
    agent_tokens: float | None = None
    judge_calls: float | None = None
    judge_tokens: float | None = None
    simulator_tokens: float | None = None
    cost: float | None = None
    """In the present currency, at the prices of the run."""


UNKNOWN_HISTORY = CaseHistory()
