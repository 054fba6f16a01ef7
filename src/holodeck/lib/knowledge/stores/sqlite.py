"""The embedded store: SQLite in a file or in memory, with an array of its vectors."""

import os
import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from holodeck.lib.knowledge.stores.base import (
    OtherDimensions,
    RowKey,
    StoreContext,
    StoredChunk,
    StoreProblem,
    VectorIndex,
    collection_name,
    matrix_of,
    to_bytes,
)
from holodeck.lib.support.files import create_file, exclusive_lock, make_folder
from holodeck.models.tools.database import DatabaseConfig, VectorStoreProvider

if TYPE_CHECKING:
    from holodeck.lib.knowledge.stores.base import Vector

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


class SqliteAdapter:
    """A collection in a SQLite file, which several processes may use, or in memory.

    The vectors are read into one array by the first search, and again after a change of the file.
    """

    def __init__(self, config: DatabaseConfig, context: StoreContext) -> None:
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
        self._dimensions = 0
        self._index: VectorIndex | None = None
        self._indexed: tuple[int, int] | None = None
        """The state of the file that the index was made from."""

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
        with self._writing() as file:
            if empty:
                file.execute("DELETE FROM chunks WHERE collection = ?", (self._name,))
                file.execute("DELETE FROM manifest WHERE collection = ?", (self._name,))
                file.execute("DELETE FROM collections WHERE name = ?", (self._name,))
            values = (self._name, dimensions)
            file.execute("INSERT OR IGNORE INTO collections VALUES (?, ?)", values)
            select = "SELECT dimensions FROM collections WHERE name = ?"
            [size] = file.execute(select, (self._name,)).fetchone()
        if size != dimensions:
            self.close()
            raise OtherDimensions(size, dimensions)

    def replace(
        self, document: str, rows: Sequence[StoredChunk], vectors: Sequence["Vector"]
    ) -> None:
        values = [
            (self._name, *row.key, row.id, row.text, row.metadata, to_bytes(vector))
            for row, vector in zip(rows, vectors, strict=True)
        ]
        with self._writing() as file:
            self._forget(file, document)
            file.executemany("INSERT INTO chunks VALUES (?, ?, ?, ?, ?, ?, ?)", values)

    def delete(self, document: str) -> None:
        with self._writing() as file:
            self._forget(file, document)

    def _forget(self, file: sqlite3.Connection, document: str) -> None:
        values = (self._name, document)
        file.execute("DELETE FROM chunks WHERE collection = ? AND document = ?", values)
        file.execute("DELETE FROM manifest WHERE collection = ? AND document = ?", values)

    def search(self, vector: "Vector", top_k: int) -> list[tuple[StoredChunk, float]]:
        with self._reading() as file:
            index = self._current_index(file)
            best = index.best(vector, top_k)
            return [(self._row(file, key), score) for key, score in best]

    def _current_index(self, file: sqlite3.Connection) -> VectorIndex:
        # the version changes with commits of other connections, the number with those of this one
        [version] = file.execute("PRAGMA data_version").fetchone()
        state = (version, file.total_changes)
        if self._index is None or self._indexed != state:
            select = "SELECT document, position, embedding FROM chunks WHERE collection = ?"
            rows = file.execute(select, (self._name,)).fetchall()
            matrix = matrix_of([blob for *_, blob in rows], self._dimensions)
            self._index = VectorIndex([RowKey(*key) for *key, _ in rows], matrix)
            self._indexed = state
        return self._index

    def _row(self, file: sqlite3.Connection, key: RowKey) -> StoredChunk:
        select = (
            "SELECT id, text, metadata FROM chunks"
            " WHERE collection = ? AND document = ? AND position = ?"
        )
        return StoredChunk(key, *file.execute(select, (self._name, *key)).fetchone())

    def rows(self) -> Iterable[StoredChunk]:
        select = "SELECT document, position, id, text, metadata FROM chunks WHERE collection = ?"
        rows = self._file.execute(select, (self._name,)).fetchall()
        return [StoredChunk(RowKey(*row[:2]), *row[2:]) for row in rows]

    def manifest(self) -> dict[str, str]:
        select = "SELECT document, fingerprint FROM manifest WHERE collection = ?"
        return dict(self._file.execute(select, (self._name,)).fetchall())

    def set_manifest(self, document: str, fingerprint: str | None) -> None:
        with self._writing() as file:
            delete = "DELETE FROM manifest WHERE collection = ? AND document = ?"
            file.execute(delete, (self._name, document))
            if fingerprint is not None:
                values = (self._name, document, fingerprint)
                file.execute("INSERT INTO manifest VALUES (?, ?, ?)", values)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection = self._index = self._indexed = None

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

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        yield from _transaction(self._file, "BEGIN IMMEDIATE")

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        yield from _transaction(self._file, "BEGIN")


def _transaction(file: sqlite3.Connection, begin: str) -> Iterator[sqlite3.Connection]:
    file.execute(begin)
    try:
        yield file
    except BaseException:
        if file.in_transaction:
            file.execute("ROLLBACK")
        raise
    file.execute("COMMIT")


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
