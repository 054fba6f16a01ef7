"""What an agent call went through before it worked, or did not."""

from holodeck.models.base import Count, Model


class Attempt(Model):
    """One try of an agent call that did not work, and what was done about it."""

    number: Count
    error: str
    retry_after_ms: int | None = None
    """How long was waited before the next try; None where none followed."""
