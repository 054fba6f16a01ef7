"""The folder of recordings of an agent: a file for each run of a case, and an index of dates."""

import hashlib
import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from holodeck.errors import ConfigError, ReportError
from holodeck.lib.recordings.entries import AGAIN, SecretInRecording, read_entries
from holodeck.lib.recordings.recording import Recording, RecordingSettings
from holodeck.lib.support.files import claim, make_folder, release, replace_file
from holodeck.lib.support.text import json_or_none

Json = Any
INDEX = "index.json"
SHARED = "outside-of-cases.json"
LEAK = "it would contain a secret even after masking; do not let the agent send it to its model"
_NOT_IN_NAMES = re.compile(r"[^a-z0-9]+")
_MAX_NAME = 60
_DIGITS = 10
_LOCK_S = 30.0
_POLL_S = 0.05


class Recordings:
    """The recordings of an agent in a run.

    Args:
        folder: Contains the files.
        about: What each file says about the agent.
        names: The names of the cases, by index.
        settings: Those of the run.
        note: Called with what readers of the report must know.

    Raises ConfigError if what was recorded outside of cases was changed.
    """

    def __init__(
        self,
        folder: Path,
        about: Mapping[str, Json],
        names: Sequence[str],
        settings: RecordingSettings,
        note: Callable[[str], None],
    ) -> None:
        self.folder = folder
        self.settings = settings
        self._about = about
        self._note = note
        self._names = names
        self._dates = read_dates(folder)
        self._recorded: set[str] = set()
        self.shared = Recording(folder / SHARED, about, settings, is_shared=True)
        if self.shared.misses:
            raise ConfigError("recordings", self.shared.misses[0])

    def of_case(self, index: int, repetition: int) -> Recording:
        """Return the recording of a run of the case at that index; repetitions begin with 1."""
        name = self._names[index]
        about = {**self._about, "case": name, "repetition": repetition}
        path = self.folder / file_name(name, repetition)
        recording = Recording(path, about, self.settings, recorded_on=self._dates.get(path.name))
        most, day = self.settings.max_age_days, recording.recorded_on
        for problem in outdated(recording.recorded_about, self._about, day, most):
            if self.settings.is_strict:
                recording.misses.append(f"{path.name}: {problem}; {AGAIN}")
            else:
                self._note(f"recordings: {problem}")
        return recording

    def save(self, recording: Recording) -> None:
        """Write what is new in a recording; that it cannot be written counts as a miss."""
        try:
            if recording.save():
                self._recorded.add(recording.path.name)
        except SecretInRecording:
            recording.misses.append(f"{recording.path} was not written, because {LEAK}")
        except OSError as error:
            recording.misses.append(f"{recording.path} cannot be written: {error}")

    def close(self) -> None:
        """Write what was recorded outside of cases, and the dates. Raises ReportError."""
        if self.settings.mode == "replay":
            return
        try:
            with _locked(self.folder):
                self.save(self.shared)
                if self._recorded:
                    today = datetime.now(UTC).date().isoformat()
                    dates = read_dates(self.folder) | dict.fromkeys(self._recorded, today)
                    write_dates(self.folder, dates)
        except OSError as error:  # a TimeoutError is one
            raise ReportError(f"{self.folder}: the index cannot be written: {error}") from error
        if self.shared.misses:
            raise ReportError("\n".join(self.shared.misses))


def outdated(
    recorded: Mapping[str, Json], about: Mapping[str, Json], day: str | None, most: int | None
) -> Iterator[str]:
    """Yield why what was recorded may no longer be what the models would answer.

    Args:
        recorded: What the file says about the agent; empty if there is no file.
        about: What is true of the agent now.
        day: When it was recorded; None if that is not known.
        most: The most days that it may be old; None for any number.
    """
    if not recorded:
        return
    if most is not None:
        age = None if day is None else (datetime.now(UTC).date() - date.fromisoformat(day)).days
        if age is None or age > most:
            yield f"they are older than {most} days" if age else "their age is not known"
    for part, digest in about["hashes"].items():
        if recorded["hashes"].get(part) != digest:
            yield f"the agent's {part} have changed since they were made"


@dataclass(frozen=True)
class RecordedFile:
    """A file of recordings, and what is wrong with it."""

    path: Path
    case: str
    entries: int
    day: str | None
    model: str | None
    problems: tuple[str, ...]
    is_useless: bool
    """Whether it can be deleted: it is of no case, or cannot be replayed."""

    @property
    def name(self) -> str:
        """The name of the file."""
        return self.path.name


def recorded_files(
    folder: Path, about: Mapping[str, Json], runs: Iterable[tuple[str, int]], most: int | None
) -> list[RecordedFile]:
    """Return the recordings in a folder, by name.

    Args:
        folder: That of the agent.
        about: What is true of the agent now.
        runs: The name of each case, with the number of each repetition.
        most: The most days that a recording may be old; None for any number.
    """
    known = {file_name(name, repetition) for name, repetition in runs} | {SHARED}
    dates = read_dates(folder)
    files = []
    for path in sorted(folder.glob("*.json")):
        if path.name == INDEX:
            continue
        day = dates.get(path.name)
        try:
            recorded, entries = read_entries(path)
        except ConfigError as error:
            files.append(RecordedFile(path, "?", 0, day, None, (error.message,), is_useless=True))
            continue
        is_useless = path.name not in known
        problems = [*outdated(recorded, about, day, most)]
        problems += ["it is of no case; delete it with `holodeck recordings prune`"] * is_useless
        case = str(recorded.get("case", "(outside of cases)"))
        facts = (len(entries), day, recorded.get("model"), tuple(problems))
        files.append(RecordedFile(path, case, *facts, is_useless=is_useless))
    return files


def remove_files(files: Sequence[RecordedFile]) -> None:
    """Delete recordings, also from the index. Raises OSError."""
    for file in files:
        file.path.unlink()
        dates = read_dates(file.path.parent)
        dates.pop(file.name, None)
        write_dates(file.path.parent, dates)


def file_name(case: str, repetition: int = 1) -> str:
    """Return the name of the file for a run of a case, which is another one for each name."""
    words = _NOT_IN_NAMES.sub("-", case.lower()).strip("-")[:_MAX_NAME]
    if words != case:
        digest = hashlib.sha256(case.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
        words = f"{words}-{digest}" if words else digest
    return f"{words}.json" if repetition == 1 else f"{words}.{repetition}.json"


def read_dates(folder: Path) -> dict[str, str]:
    """Return the days on which the files of a folder were recorded, by name."""
    try:
        dates = json_or_none((folder / INDEX).read_text(encoding="utf-8"))
    except OSError:
        return {}
    known = dates.items() if isinstance(dates, dict) else ()
    return {name: day for name, day in known if _is_day(day)}


def _is_day(value: Json) -> bool:
    try:
        date.fromisoformat(value)
    except (ValueError, TypeError):
        return False
    return True


def write_dates(folder: Path, dates: Mapping[str, str]) -> None:
    """Write the index of a folder. Raises OSError."""
    text = json.dumps(dict(sorted(dates.items())), ensure_ascii=False, indent=1)
    replace_file(folder / INDEX, [text.encode(), b"\n"])


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Keep other processes from writing the files that all of them share. Raises TimeoutError."""
    make_folder(folder)
    lock, ends = folder / ".lock", time.monotonic() + _LOCK_S
    while (handle := claim(lock)) is None:
        if time.monotonic() > ends:
            raise TimeoutError(f"{lock} was locked for {_LOCK_S:g} s")
        time.sleep(_POLL_S)
    try:
        yield
    finally:
        release(lock, handle)
