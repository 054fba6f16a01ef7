"""What of a test case makes a conversation: who plays the user, and what the judge looks at."""

from holodeck.models.base import Model, NonBlank
from holodeck.models.llm import LLMProvider

MAX_TURNS = 10
"""Turns that are played where nothing else is said."""


class Simulation(Model):
    """A model that plays the user."""

    situation: NonBlank | None = None
    """The user's situation and goal; by default the `situation` of the case."""
    persona: NonBlank | None = None
    """Character and writing style of the user."""
    facts: list[NonBlank] = []
    """The only facts that the user may state about themselves; if empty, there is no limit."""
    opening: NonBlank | None = None
    """The user's first message."""
    agent_first: bool = False
    """Whether the agent speaks first; it is told that the conversation begins."""
    language: NonBlank | None = None
    """The user's language."""
    model: LLMProvider | None = None
    """The model that plays the user; by default the one of `evaluations`, else the agent's."""


class CriterionSettings(Model):
    """A requirement for the whole conversation that the judge decides about."""

    text: NonBlank
    """The requirement."""
    required: bool = True
    """Whether the case fails if the criterion does not hold; false only reports it."""
