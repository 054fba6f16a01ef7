"""Which version of a prompt a run used."""

from typing import Literal

from holodeck.models.base import Json, Model


class PromptVersion(Model):
    """The version of a prompt, as the front matter of its file says, or by its text."""

    name: str
    """`instructions`, or the name of the prompt tool."""
    version: str
    """`version` of the front matter; by default `auto-` and the beginning of `body_hash`."""
    author: str | None = None
    description: str | None = None
    tags: list[str] = []
    source: Literal["file", "inline"]
    file_path: str | None = None
    """As the agent.yaml says; None for inline text."""
    body_hash: str
    """SHA-256 of the text without the front matter."""
    extra: dict[str, Json] = {}
    """Further keys of the front matter."""

    def __str__(self) -> str:
        """`1.2 by Ada (support, refunds)`."""
        by = f" by {self.author}" if self.author else ""
        tags = f" ({', '.join(self.tags)})" if self.tags else ""
        return f"{self.version}{by}{tags}"
