"""What earlier runs tell of a case."""

from dataclasses import dataclass


@dataclass(frozen=True)
class CasePast:
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


UNKNOWN = CasePast()
