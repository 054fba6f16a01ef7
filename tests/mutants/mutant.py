"""One slip in one file, and the words in which it is told."""

from dataclasses import dataclass

Files = dict[str, bytes]


@dataclass(frozen=True)
class Mutant:
    """What became of one file of a project."""

    project: str
    file: str
    operator: str
    place: str
    """Line and text where it was done."""
    content: bytes
    new_name: str | None = None
    """What the file is called now, where that is the slip."""

    @property
    def name(self) -> str:
        return f"{self.project}: {self.file}: {self.operator} at {self.place}"
