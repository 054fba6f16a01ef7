"""What of a test case makes a conversation: who plays the user, and what the judge looks at."""

from holodeck.models.base import Model, NonBlank
from holodeck.models.llm import LLMProvider

MAX_TURNS = 10
"""Turns that are played where nothing else is said."""


class Simulation(Model):
    """A user played by a model."""

    situation: NonBlank | None = None
    """What the user is in and wants; else the `situation` of the case."""
    persona: NonBlank | None = None
    """How the user is and writes."""
    facts: list[NonBlank] = []
    """All that the user may state about themselves; empty for no such limit."""
    opening: NonBlank | None = None
    """The user's first message, word by word."""
    agent_first: bool = False
    """Whether the agent speaks first; it is told that the conversation begins."""
    language: NonBlank | None = None
    """The language that the user writes."""
    model: LLMProvider | None = None
    """The model that plays the user; else the one of `evaluations`, else the agent's own."""


class CriterionSettings(Model):
    """Something that the judge decides about the whole conversation."""

    text: NonBlank
    """What must hold."""
    required: bool = True
    """Whether the case fails where it does not hold; false only reports it."""
