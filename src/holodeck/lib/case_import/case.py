"""An imported test case before it is written, and what of its source it lacks."""

import re
from dataclasses import dataclass, field
from typing import Any

from holodeck.lib.support.text import one_line

TODO = "write what a right response must do, then remove this line"
_MAX_NAME = 60


@dataclass
class LoggedCall:
    """A tool call of the agent."""

    name: str
    arguments: dict[str, Any] | None
    """None if they cannot be read."""
    id: str | None = None
    result: str | None = None
    """None if the log does not hold it."""


@dataclass
class LoggedTurn:
    """A message of the user, and what the agent did."""

    user: str
    answer: str | None = None
    """None if the log holds no answer."""
    calls: list[LoggedCall] = field(default_factory=list)


@dataclass
class ImportedCase:
    """A conversation, and what is known to be expected of its last response."""

    location: str
    """Where it comes from, such as `chats.jsonl:3`."""
    turns: list[LoggedTurn]
    name: str | None = None
    """None if the source has no name for it."""
    tags: list[str] = field(default_factory=list)
    evaluations: list[dict[str, Any]] = field(default_factory=list)
    criteria: list[str] = field(default_factory=list)
    todo: list[str] = field(default_factory=list)
    """What is still to be written; a case without any expectation always has one."""
    history: list[LoggedTurn] = field(default_factory=list)
    """The turns before."""

    @property
    def label(self) -> str:
        """The name, else the beginning of what the user says first."""
        return one_line(self.name or self.turns[0].user, _MAX_NAME)

    @property
    def user_key(self) -> tuple[str, ...]:
        """What the user says, without differences in case, space and punctuation."""
        spoken = (turn.user for turn in [*self.history, *self.turns])
        return tuple(" ".join(re.findall(r"\w+", text.casefold())) or text for text in spoken)


@dataclass(frozen=True)
class ImportNote:
    """A part of the source that is not imported, or only with a change."""

    location: str
    text: str

    def __str__(self) -> str:
        return f"{self.location}: {self.text}"


@dataclass
class Imported:
    """The test cases of a source, and its parts that they lack."""

    cases: list[ImportedCase] = field(default_factory=list)
    notes: list[ImportNote] = field(default_factory=list)
    _noted: set[ImportNote] = field(default_factory=set)

    def note(self, location: str, text: str) -> None:
        """Note a part of the source that is not imported, or only with a change."""
        note = ImportNote(location, text)
        if note not in self._noted:  # a prompt is filled in by several tests
            self._noted.add(note)
            self.notes.append(note)
