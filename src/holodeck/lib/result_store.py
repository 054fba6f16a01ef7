"""Keeps the results of a run: the latest in memory, all others in a temporary file.

A run of 100,000 cases must not fill the memory, with or without a record. Reports read the results
one after the other, in the order of the test cases.
"""

from array import array
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import chain
from threading import Lock
from typing import IO, overload

from pydantic import ValidationError
from pydantic_core import PydanticSerializationError, from_json, to_json

from holodeck.errors import ExecutionError
from holodeck.models.outcome import Outcome
from holodeck.models.result_sequence import ResultSequence
from holodeck.models.test_result import TestResult

MOST_IN_MEMORY = 1_000
"""A run of so many cases needs no file."""
_NOWHERE = -1
_OUTCOMES = tuple(Outcome)
_REPLACEMENT = "\ufffd"
"""What pydantic writes in place of half a surrogate pair in a key."""
_LINE_END = "\0"
"""Stands for a line end within a line of the file; no JSON contains it."""


class ResultStore:
    """Results by the index of their case.

    Args:
        most_in_memory: How many results are kept in memory.
        is_indented: Whether each result is kept as indented JSON, too, from when it is added. It
            takes as long as later, but a JSON report is then only put together at the end.
    """

    def __init__(self, most_in_memory: int = MOST_IN_MEMORY, *, is_indented: bool = False) -> None:
        self._most = most_in_memory
        self._indented: dict[int, str] | None = {} if is_indented else None
        """The JSON of those in memory; None if it is made when it is asked for."""
        self._in_memory: dict[int, TestResult] = {}
        self._only_in_memory: dict[int, TestResult] = {}
        """Those that cannot be written as JSON, or that the full disk did not take."""
        self._offsets = array("q")
        """Where each result is in the file, by its index; `_NOWHERE` for all others."""
        self._outcomes = bytearray()
        """Where the outcome of each result is among all outcomes, by the index of the result."""
        self._count = 0
        self._file: IO[bytes] | None = None
        self._end = 0
        self._lock = Lock()

    def __del__(self) -> None:
        if self._file is not None:
            self._file.close()

    def __len__(self) -> int:
        return self._count

    def __contains__(self, index: int) -> bool:
        return index in self._in_memory or index in self._only_in_memory or self._is_stored(index)

    def add(self, index: int, result: TestResult) -> None:
        """Keep a result, in place of an earlier one of the same case."""
        with self._lock:
            self._count += index not in self
            self._outcomes.extend(bytes(max(0, index + 1 - len(self._outcomes))))
            self._outcomes[index] = _OUTCOMES.index(result.outcome)
            self._only_in_memory.pop(index, None)
            self._in_memory[index] = result
            if self._indented is not None:
                self._indented.pop(index, None)
                with suppress(PydanticSerializationError):  # a lone surrogate; `json_of` says so
                    self._indented[index] = result.model_dump_json(indent=2)
            if len(self._in_memory) > self._most:
                self._write_oldest()

    def get(self, index: int) -> TestResult | None:
        """Return the result of the case at that index; None if there is none."""
        result = self._in_memory.get(index, self._only_in_memory.get(index))
        if result is None and self._is_stored(index):
            return _parse(self._read(index).replace(_LINE_END.encode(), b"\n"))
        return result

    def outcome_of(self, index: int) -> Outcome:
        """Return how the result of the case at that index ended; there must be one."""
        return _OUTCOMES[self._outcomes[index]]

    def json_of(self, index: int) -> str:
        """Return the result of the case at that index as indented JSON.

        Raises PydanticSerializationError for a lone surrogate, which JSON must escape.
        """
        if self._indented is not None and (text := self._indented.get(index)) is not None:
            return text
        result = self._in_memory.get(index, self._only_in_memory.get(index))
        if result is not None:
            return result.model_dump_json(indent=2)
        line = self._read(index)
        if self._indented is not None:
            return line.decode().rstrip("\n").replace(_LINE_END, "\n")
        return to_json(from_json(line), indent=2).decode()

    def snapshot(self) -> "StoredResults":
        """Return the results there are now, in the order of their cases."""
        in_memory = chain(self._in_memory, self._only_in_memory)
        in_file = (at for at, offset in enumerate(self._offsets) if offset != _NOWHERE)
        return self.at(sorted({*in_memory, *in_file}))

    def at(self, indexes: Iterable[int]) -> "StoredResults":
        """Return the results of the cases at these indexes, in their order."""
        return StoredResults(self, indexes)

    def _is_stored(self, index: int) -> bool:
        return index < len(self._offsets) and self._offsets[index] != _NOWHERE

    def _write_oldest(self) -> None:
        """Write the older half of the results in memory to the file."""
        for index in list(self._in_memory)[: max(1, self._most // 2)]:
            result = self._in_memory[index]
            try:
                self._write(index, result)
            except (OSError, ValueError):  # the disk is full; a lone surrogate
                self._only_in_memory[index] = result
            else:
                if self._indented is not None:
                    del self._indented[index]
            del self._in_memory[index]

    def _write(self, index: int, result: TestResult) -> None:
        """Write a result behind all others.

        Raises OSError, and ValueError if JSON cannot hold the result.
        """
        if self._indented is None:
            text = result.model_dump_json()
        elif index in self._indented:
            text = self._indented[index].replace("\n", _LINE_END)
        else:
            raise ValueError("it is not JSON")
        if _REPLACEMENT in text:
            raise ValueError("the text may have lost a character")
        if self._file is None:
            # Imported here because most runs fit in memory.
            from tempfile import TemporaryFile  # noqa: PLC0415

            self._file = TemporaryFile(prefix="holodeck-")  # noqa: SIM115 - closed in __del__
        line = text.encode() + b"\n"
        self._file.seek(self._end)
        self._file.write(line)
        self._file.flush()
        missing = index + 1 - len(self._offsets)
        self._offsets.extend([_NOWHERE] * missing)
        self._offsets[index] = self._end
        self._end += len(line)

    def _read(self, index: int) -> bytes:
        """Return the JSON of a result in the file. Raises ExecutionError if it cannot be read."""
        assert self._file is not None  # noqa: S101 - a result has an offset in it
        try:
            with self._lock:
                self._file.seek(self._offsets[index])
                return self._file.readline()
        except OSError as error:
            raise ExecutionError(f"a result cannot be read again: {error.strerror}") from error


def _parse(line: bytes) -> TestResult:
    try:
        return TestResult.model_validate_json(line)
    except ValidationError as error:
        raise ExecutionError(f"a result cannot be read again: {error}") from error


class StoredResults(ResultSequence[TestResult]):
    """The results of a run in the order of their cases."""

    def __init__(self, store: ResultStore, indexes: Iterable[int]) -> None:
        self._store = store
        self._indexes = array("q", indexes)

    def __len__(self) -> int:
        return len(self._indexes)

    @overload
    def __getitem__(self, at: int) -> TestResult: ...
    @overload
    def __getitem__(self, at: slice) -> "StoredResults": ...
    def __getitem__(self, at: int | slice) -> "TestResult | StoredResults":
        if isinstance(at, slice):
            return StoredResults(self._store, self._indexes[at])
        result = self._store.get(self._indexes[at])
        assert result is not None  # noqa: S101 - the store forgets none
        return result

    def as_json(self) -> Iterator[str]:
        """Yield each result as indented JSON, without making an object of it.

        Raises PydanticSerializationError for a lone surrogate, which JSON must escape.
        """
        return map(self._store.json_of, self._indexes)

    def outcomes(self) -> Iterator[Outcome]:
        """Yield how each of them ended, without reading the results."""
        return map(self._store.outcome_of, self._indexes)

    def at(self, positions: Iterable[int]) -> "StoredResults":
        """Return the results at these positions of the sequence, which are not negative."""
        return StoredResults(self._store, map(self._indexes.__getitem__, positions))
