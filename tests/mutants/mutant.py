"""One slip in one file, and the words in which it is told."""

from dataclasses import dataclass

from mutants.project import Project

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


def slip(project: Project, file: str, old: str, new: str) -> Mutant:
    """The mutant in which one text of the file is another. Raises ValueError if there is none."""
    text = project.files[file]
    if text.count(old) != 1:
        raise ValueError(f"{project.name}: {file} holds {old!r} {text.count(old)} times, not once")
    content = text.replace(old, new).encode()
    return Mutant(project.name, file, f"{old!r} as {new!r}", file, content)
