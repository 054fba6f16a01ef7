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

    @property
    def has_known_keys(self) -> bool:
        """Whether the front matter has a key with a meaning of its own."""
        is_numbered = not self.version.startswith("auto-")
        return is_numbered or bool(self.author or self.description or self.tags)

    def __str__(self) -> str:
        """`instructions 1.2 by Ada (support, refunds)`."""
        by = f" by {self.author}" if self.author else ""
        tags = f" ({', '.join(self.tags)})" if self.tags else ""
        return f"{self.name} {self.version}{by}{tags}"
