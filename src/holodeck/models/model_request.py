"""One request of an agent to a model, as a tap saw it."""

from holodeck.models.base import Count, Model
from holodeck.models.token_usage import TokenUsage


class ModelRequest(Model):
    """One request of an agent to a model, as a tap saw it."""

    model: str
    """The model as prices name it, such as `openai/gpt-4o`."""
    status: int | None = None
    """The HTTP status of the response; None if none came."""
    elapsed_ms: Count = 0
    """Time until the last piece of the response."""
    token_usage: TokenUsage | None = None
    """None if the response does not tell it."""
