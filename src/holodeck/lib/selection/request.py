"""What the command line asks to be run."""

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
    """One of so many parts of a selection, counted from 1."""

    number: int
    count: int

    @classmethod
    def parse(cls, text: str) -> "Shard":
        """`2/4`. Raises ConfigError."""
        match = _SHARD.fullmatch(text)
        shard = cls(int(match[1]), int(match[2])) if match else None
        if shard is None or not 1 <= shard.number <= shard.count:
            wanted = "wanted I/N with I from 1 to N, such as 2/4"
            raise ConfigError("--shard", f"found {text[:80]!r}; {wanted}")
        return shard

    def __str__(self) -> str:
        return f"{self.number}/{self.count}"


@dataclass(frozen=True)
class SelectionRequest:
    """Filters, all of which a case must pass; then the order, the limit and the shard."""

    ids: tuple[str, ...] = ()
    suites: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    """One of them is enough."""
    excluded_tags: tuple[str, ...] = ()
    keyword: "Expression | None" = None
    last_failed: bool = False
    new: bool = False
    seed: int | None = None
    """Of the shuffled order; None keeps the order of the file."""
    failed_first: bool = False
    limit: int | None = None
    shard: Shard | None = None
    allow_empty: bool = False

    @property
    def asks_the_past(self) -> bool:
        """Whether earlier runs decide."""
        return self.last_failed or self.new or self.failed_first or self.shard is not None

    @property
    def most_results(self) -> int:
        """How many earlier results of a case are asked for: the last one, or some for a median."""
        return RESULTS_FOR_A_MEDIAN if self.shard is not None else 1

    def args(self) -> list[str]:
        """The options that ask for this; what only allows or forbids nothing is left out."""
        named = (
            *(("--id", one) for one in self.ids),
            *(("--suite", one) for one in self.suites),
            *(("--tag", one) for one in self.tags),
            *(("--exclude-tag", one) for one in self.excluded_tags),
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
            part for flag, value in named if value is not None for part in (flag, value) if part
        ]

    def __str__(self) -> str:
        return shlex.join(self.args())


@dataclass(frozen=True)
class CaseHistory:
    """A case's earlier results in short, numbers as medians; None is unknown."""

    passed: bool | None = None
    """Whether its latest result passed; None if it has never had one."""
    duration_ms: float | None = None
    whole_run_ms: float | None = None
    """How long it took in runs that were no shard: shards must not change the shards to come."""
    agent_tokens: float | None = None
    judge_calls: float | None = None
    judge_tokens: float | None = None
    simulator_tokens: float | None = None
    """Of the model that plays the user."""
    cost: float | None = None
    """In the present currency, at the prices of then."""


UNKNOWN_HISTORY = CaseHistory()
