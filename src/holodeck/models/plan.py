"""What a run would do, told before it does it."""

from typing import Literal

from holodeck.models.base import Count, Model
from holodeck.models.selection import Selection


class Bounds(Model):
    """How often something happens if every answer comes at the first try."""

    least: Count
    most: Count | None
    """None: not known."""


class Estimate(Model):
    """A sum over the cases, as far as earlier runs tell."""

    known: float | None
    """Of the cases that are known; None if none is."""
    unknown_cases: Count
    """Cases that it leaves out."""


class Plan(Model):
    """What a run would do. Nothing of it has been called."""

    schema_version: Literal[1] = 1
    agent_name: str
    agent_config_path: str
    cases: Count
    """Cases that would run."""
    skipped: Count = 0
    """Cases beside them that say why they are not run."""
    selection: Selection | None = None
    """What was chosen of the cases; None if the run is about them all."""
    parallel: int | str
    """Most cases that run at once."""
    agent_calls: Bounds
    judge_calls: Bounds
    duration_ms: Estimate
    """Of the cases one after the other."""
    agent_tokens: Estimate
    expected_judge_calls: Estimate
    judge_tokens: Estimate
    simulator_tokens: Estimate
    """Of the models that play users; only cases that have one count."""
    currency: str | None = None
    """None where the configuration has no prices."""
    cost: Estimate | None = None
