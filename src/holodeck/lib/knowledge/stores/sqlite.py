"""The embedded store: SQLite in a file or in memory, with an array of its vectors."""

import os
import sqlite3
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, LiteralString, TypeVar

from holodeck.lib.knowledge.stores.base import (
    OtherDimensions,
    SqlAdapter,
    StoreContext,
    StoredChunk,
    StoreProblem,
    collection_name,
    to_bytes,
)
from holodeck.lib.support.files import create_file, exclusive_lock, make_folder
from holodeck.models.tools.knowledge import DatabaseConfig, VectorStoreProvider

if TYPE_CHECKING:
    from holodeck.lib.knowledge.stores.base import Vector

T = TypeVar("T")

IN_MEMORY = frozenset({VectorStoreProvider.IN_MEMORY, VectorStoreProvider.FAISS})
"""Providers whose collections end with the run."""


_APPLICATION_ID = 0x686F6C6F  # "holo", in the header of the file
_VERSION = 1
_SCHEMA = f"""
    CREATE TABLE collections (name TEXT PRIMARY KEY, dimensions INTEGER NOT NULL);
    CREATE TABLE chunks (
        collection TEXT NOT NULL, document TEXT NOT NULL, position INTEGER NOT NULL,
        id TEXT NOT NULL, text TEXT NOT NULL, metadata TEXT NOT NULL, embedding BLOB NOT NULL,
        PRIMARY KEY (collection, document, position)
    );
    CREATE TABLE manifest (
        collection TEXT NOT NULL, document TEXT NOT NULL, fingerprint TEXT NOT NULL,
        PRIMARY KEY (collection, document)
    );
    PRAGMA application_id = {_APPLICATION_ID};
    PRAGMA user_version = {_VERSION};
"""


class SqliteAdapter(SqlAdapter):
    """A collection in a SQLite file, which several processes may use, or in memory.

    The vectors are read into one array by the first search, and again after a change of the file.
    """

    def __init__(self, config: DatabaseConfig, context: StoreContext) -> None:
        super().__init__()
        self._name = context.collection
        name = f"{collection_name(context.collection)}.sqlite"
        default = context.cache / "vectorstores" / name
        self._path = (
            None if config.provider in IN_MEMORY else context.written_path(config) or default
        )
        """The file; None in memory."""
        self._wait_s = config.timeout * 0.8  # ends before the limit of the call
        self._connection: sqlite3.Connection | None = None
        self._opened: os.stat_result | None = None
        """The file when it was opened."""

    @property
    def address(self) -> str:
        return "" if self._path is None else str(self._path)

    @property
    def _file(self) -> sqlite3.Connection:
        if self._connection is None:
            raise StoreProblem("the store is not open")
        # SQLite goes on with the file that it opened, also if it lies nowhere any more
        if self._path and self._opened and not os.path.samestat(self._path.stat(), self._opened):
            raise StoreProblem("another file was put in its place during the run; run again")
        return self._connection

    def open(self, dimensions: int, *, empty: bool) -> None:
        self.close()
        if self._path is None:
            self._connection = _connect(":memory:", self._wait_s)
        else:
            make_folder(self._path.parent)
            lock = self._path.with_name(f"{self._path.name}.lock")
            with exclusive_lock(lock, f"it opens {self._path}", self._wait_s):
                create_file(self._path)  # SQLite gives the files beside it the same permissions
                self._connection = _connect(self._path, self._wait_s)
            self._opened = self._path.stat()
        self._dimensions = dimensions
        size = self._run(lambda: self._create(dimensions, empty=empty), writes=True)
        if size != dimensions:
            self.close()
            raise OtherDimensions(size, dimensions)

    def _create(self, dimensions: int, *, empty: bool) -> int:
        """Create the collection if it is missing; return the size of its vectors."""
        if empty:
            self._execute("DELETE FROM {chunks} WHERE collection = %s")
            self._execute("DELETE FROM {manifest} WHERE collection = %s")
            self._execute("DELETE FROM {collections} WHERE name = %s")
        self._execute("INSERT OR IGNORE INTO {collections} VALUES (%s, %s)", dimensions)
        [[size]] = self._execute("SELECT dimensions FROM {collections} WHERE name = %s")
        return int(size)

    def replace(
        self, document: str, rows: Sequence[StoredChunk], vectors: Sequence["Vector"]
    ) -> None:
        values = [
            (self._name, *row.key, row.id, row.text, row.metadata, to_bytes(vector))
            for row, vector in zip(rows, vectors, strict=True)
        ]

        def store() -> None:
            self._forget(document)
            self._file.executemany("INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?)", values)

        self._run(store, writes=True)

    def _state(self) -> object:
        # the version changes with commits of other connections, the number with those of this one
        [version] = self._file.execute("PRAGMA data_version").fetchone()
        return version, self._file.total_changes

    def _execute(self, query: LiteralString, *values: object) -> list[Any]:
        tables = {name: name for name in ("chunks", "manifest", "collections")}
        statement = query.format(**tables).replace("%s", "?")
        return self._file.execute(statement, (self._name, *values)).fetchall()

    def _run(self, call: Callable[[], T], *, writes: bool = False) -> T:
        file = self._file
        file.execute("BEGIN IMMEDIATE" if writes else "BEGIN")
        try:
            value = call()
        except BaseException:
            if file.in_transaction:
                file.execute("ROLLBACK")
            raise
        file.execute("COMMIT")
        return value

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._index = None

    def explain(self, error: Exception) -> str | None:
        is_locked = isinstance(error, sqlite3.OperationalError) and "locked" in str(error)
        if is_locked or isinstance(error, TimeoutError):
            return (
                f"another process has kept the file locked for {self._wait_s:g} s; wait for it, or"
                " end it"
            )
        if isinstance(error, sqlite3.OperationalError):
            return f"{error}; check the path, its permissions and the free space"
        if isinstance(error, sqlite3.DatabaseError):
            return f"the file is damaged ({error}); delete it, and the documents are ingested anew"
        if isinstance(error, OSError):
            return f"{error.strerror or error}; check the path and its permissions"
        return None


def _connect(path: Path | str, wait_s: float) -> sqlite3.Connection:
    """Return a connection to a database with our tables. Raises StoreProblem."""
    file = sqlite3.connect(path, timeout=wait_s, isolation_level=None, check_same_thread=False)
    try:
        if _is_new(file):
            file.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = NORMAL")
    except BaseException:
        file.close()
        raise
    return file


def _is_new(file: sqlite3.Connection) -> bool:
    """Whether the file has no tables yet. Raises StoreProblem if they are not ours."""
    [tables] = file.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if not tables:
        return True
    [application] = file.execute("PRAGMA application_id").fetchone()
    if application != _APPLICATION_ID:
        raise StoreProblem("the file is a database of another program; use another 'path'")
    [version] = file.execute("PRAGMA user_version").fetchone()
    if version != _VERSION:
        raise StoreProblem(
            f"the file has format {version}, and this version of holodeck writes {_VERSION};"
            " delete it, and the documents are ingested anew"
        )
    return False
