"""What a vector store takes, returns and does, and what the adapters of products have in common."""

import hashlib
import re
import socket
from abc import ABC, abstractmethod
from asyncio import timeout
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, LiteralString, NamedTuple, Protocol, TypeAlias, TypeVar
from urllib.parse import urlsplit
from uuid import UUID

from holodeck.errors import ConfigError, HoloDeckError, VectorStoreError
from holodeck.lib.llm.errors import error_chain
from holodeck.lib.secrets.redact import Redactor
from holodeck.lib.support.safe_paths import written_path
from holodeck.lib.support.text import describe, one_line
from holodeck.models.tools.knowledge import CLASS_KEYS, DatabaseConfig

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Vector: TypeAlias = npt.NDArray[np.float32]
    Matrix: TypeAlias = npt.NDArray[np.float32]


T = TypeVar("T")


@dataclass(frozen=True)
class Chunk:
    """A part of a document with its embedding, to be stored."""

    id: str
    """Unique in its document."""
    document: str
    """The source of the text."""
    text: str
    embedding: Sequence[float]
    metadata: dict[str, Any]
    """Values as JSON holds them."""


@dataclass(frozen=True)
class Hit:
    """A stored chunk that a search found."""

    id: str
    document: str
    text: str
    score: float
    """Cosine similarity with the query, from 0 to 1; opposite directions count as 0."""
    metadata: dict[str, Any]


class StoredText(NamedTuple):
    """A stored chunk without its embedding."""

    id: str
    document: str
    text: str
    metadata: dict[str, Any]


class VectorStore(Protocol):
    """One collection of chunks. Every method but `close` raises VectorStoreError.

    Characters that some stores reject (NUL, lone surrogates) are stored as U+FFFD.
    """

    async def open(self, dimensions: int, *, empty: bool = False) -> None:
        """Connect, and create the collection for embeddings of this size if it is missing.

        With `empty`, remove all that the collection has, whatever its size. Without it, a
        collection for embeddings of another size is an error.
        """
        ...

    async def replace(self, document: str, chunks: Sequence[Chunk]) -> None:
        """Store the chunks of a document instead of those it had, and forget its fingerprint.

        A caller that sets the fingerprint afterwards sees in `manifest` which documents are
        complete, even if a process died in between.
        """
        ...

    async def delete(self, document: str) -> None:
        """Remove a document with its chunks and its fingerprint, if it is there."""
        ...

    async def search(self, embedding: Sequence[float], top_k: int) -> list[Hit]:
        """Return the chunks with the highest scores, the best first."""
        ...

    async def texts(self) -> list[StoredText]:
        """Return all chunks, by document and in the order in which they were stored."""
        ...

    async def manifest(self) -> dict[str, str]:
        """Return document → fingerprint of the documents that have one."""
        ...

    async def set_manifest(self, document: str, fingerprint: str | None) -> None:
        """Set the fingerprint of a document; None forgets it."""
        ...

    async def close(self) -> None:
        """Disconnect; may be called twice, and without `open`."""
        ...


@dataclass(frozen=True)
class StoreContext:
    """What an adapter needs to know besides the configuration."""

    collection: str
    """Name of the collection, any text."""
    cache: Path
    """The cache folder."""
    base_dir: Path
    """The folder from which relative paths start."""

    def written_path(self, config: DatabaseConfig) -> Path | None:
        """Return the file or folder of a store without a server; None if it names none.

        Raises ConfigError if a run may not write there.
        """
        if config.path is None:
            return None
        if config.is_users:
            return (self.base_dir / Path(config.path).expanduser()).resolve()
        return written_path(config.path, self.base_dir, "database.path")


class RowKey(NamedTuple):
    """Identifies a chunk in a collection."""

    document: str
    position: int
    """From 0, in the order of the document."""


@dataclass(frozen=True)
class StoredChunk:
    """A chunk without its embedding, as stores keep it."""

    key: RowKey
    id: str
    text: str
    metadata: str
    """A JSON document."""

    @property
    def payload(self) -> dict[str, Any]:
        """Everything but the text, as a flat document."""
        document, position = self.key
        return {
            "document": document,
            "position": position,
            "id": self.id,
            "metadata": self.metadata,
        }

    @classmethod
    def of_payload(cls, payload: Mapping[str, Any], text: str) -> "StoredChunk":
        key = RowKey(payload["document"], payload["position"])
        return cls(key, payload["id"], text, payload["metadata"])


class StoreAdapter(Protocol):
    """A client of a product for one collection; `Collection` calls one method at a time.

    Methods block and raise whatever the client raises, or StoreProblem.
    """

    @property
    def address(self) -> str:
        """Host and port, or the path; never a secret."""
        ...

    def open(self, dimensions: int, *, empty: bool) -> None:
        """Connect and create the collection. Raises OtherDimensions."""
        ...

    def replace(
        self, document: str, rows: Sequence[StoredChunk], vectors: Sequence["Vector"]
    ) -> None:
        """Store rows instead of those of the document, and forget its fingerprint."""
        ...

    def delete(self, document: str) -> None: ...

    def search(self, vector: "Vector", top_k: int) -> list[tuple[StoredChunk, float]]:
        """Return at most `top_k` rows with their cosine similarity, in any order."""
        ...

    def rows(self) -> Iterable[StoredChunk]:
        """Return all rows, in any order."""
        ...

    def manifest(self) -> dict[str, str]: ...

    def set_manifest(self, document: str, fingerprint: str | None) -> None: ...

    def close(self) -> None: ...

    def explain(self, error: Exception) -> str | None:
        """Return what is wrong and what to change for an error of the client; None if unknown."""
        ...


class StoreProblem(Exception):
    """What is wrong with a store and what to change, for people."""


class OtherDimensions(StoreProblem):
    """The collection has embeddings of another size."""

    def __init__(self, found: int, wanted: int) -> None:
        super().__init__(
            f"the collection has embeddings with {found} dimensions, and the embedding model gives"
            f" {wanted}; use the model it was made with, or ingest anew with --force-ingest"
        )


def collection_name(text: str) -> str:
    """Return a name for a collection that every product accepts: 3 to 50 of `a-z`, 0-9 and `_`."""
    if re.fullmatch(r"[a-z][a-z0-9_]{2,49}", text):
        return text
    words = re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")[:30]
    return f"c_{words}_{digest(text)[:12]}".replace("__", "_")


def digest(*parts: str | int) -> str:
    """Return a SHA-256 of the parts, in hexadecimal digits."""
    return hashlib.sha256("\0".join(map(str, parts)).encode()).hexdigest()


def uuid_of(*parts: str | int) -> str:
    """Return a UUID for the parts, a key that every product accepts."""
    return str(UUID(digest(*parts)[:32]))


def normalise(embedding: Sequence[float], dimensions: int) -> "Vector":
    """Return the embedding with length 1, or zeros for zeros. Raises StoreProblem."""
    import numpy as np

    vector = np.asarray(embedding, dtype=np.float64)
    if vector.shape != (dimensions,):
        raise StoreProblem(
            f"an embedding has {vector.size} numbers instead of {dimensions}; all embeddings of a"
            " collection must come from one model"
        )
    if not np.isfinite(vector).all():
        raise StoreProblem(
            "an embedding has numbers that are not finite; check the embedding model"
        )
    length = np.linalg.norm(vector)
    return (vector / length if length else vector).astype(np.float32)


def to_bytes(vector: "Vector") -> bytes:
    """Return the vector as little-endian 32-bit floats."""
    return vector.astype("<f4").tobytes()


class VectorIndex:
    """Normalised vectors in one array, searched exactly."""

    def __init__(self, keys: Sequence[RowKey], matrix: "Matrix") -> None:
        """`keys` name the rows of `matrix`."""
        self.keys = keys
        self._matrix = matrix

    def best(self, vector: "Vector", top_k: int) -> list[tuple[RowKey, float]]:
        """Return the keys of the most similar vectors with their cosine similarity."""
        import numpy as np

        if not self.keys:
            return []
        scores = self._matrix @ vector
        if top_k < len(scores):
            # of equal scores at the edge, all take part: the caller's order decides
            edge = scores[np.argpartition(-scores, top_k - 1)[top_k - 1]]
            rows = np.flatnonzero(scores >= edge).tolist()
        else:
            rows = list(range(len(scores)))
        best = sorted(rows, key=lambda index: (-scores[index], self.keys[index]))
        return [(self.keys[index], float(scores[index])) for index in best[:top_k]]


class SqlAdapter(ABC):
    """Chunks, vectors and fingerprints in the tables of a SQL database, searched in memory.

    Queries have `{chunks}`, `{manifest}` and `{collections}` for the names of the tables, and `%s`
    for values.
    """

    def __init__(self) -> None:
        self._dimensions = 0
        self._index: VectorIndex | None = None
        self._indexed: object = None
        """The state of the collection that the index was made from."""

    @abstractmethod
    def _run(self, call: Callable[[], T], *, writes: bool = False) -> T:
        """Return what a call returns in a transaction."""

    @abstractmethod
    def _execute(self, query: LiteralString, *values: object) -> list[Any]:
        """Run a query whose parameters are the collection and `values`; return its rows."""

    @abstractmethod
    def _state(self) -> object:
        """Return what changes with every change of the collection."""

    def delete(self, document: str) -> None:
        self._run(lambda: self._forget(document), writes=True)

    def _forget(self, document: str) -> None:
        self._execute("DELETE FROM {chunks} WHERE collection = %s AND document = %s", document)
        self._execute("DELETE FROM {manifest} WHERE collection = %s AND document = %s", document)

    def search(self, vector: "Vector", top_k: int) -> list[tuple[StoredChunk, float]]:
        return self._run(lambda: self._search_in_memory(vector, top_k))

    def _search_in_memory(self, vector: "Vector", top_k: int) -> list[tuple[StoredChunk, float]]:
        import numpy as np

        state = self._state()
        if self._index is None or self._indexed != state:
            rows = self._execute(
                "SELECT document, position, embedding FROM {chunks} WHERE collection = %s"
            )
            vectors = b"".join(blob for *_, blob in rows)
            if len(vectors) != 4 * self._dimensions * len(rows):
                raise StoreProblem("stored embeddings are damaged; ingest anew with --force-ingest")
            matrix = np.frombuffer(vectors, dtype="<f4").reshape(len(rows), self._dimensions)
            self._index = VectorIndex([RowKey(*key) for *key, _ in rows], matrix)
            self._indexed = state
        return [(self._row(key), score) for key, score in self._index.best(vector, top_k)]

    def _row(self, key: RowKey) -> StoredChunk:
        [values] = self._execute(
            "SELECT id, text, metadata FROM {chunks}"
            " WHERE collection = %s AND document = %s AND position = %s",
            *key,
        )
        return StoredChunk(key, *values)

    def rows(self) -> Iterable[StoredChunk]:
        query: LiteralString = (
            "SELECT document, position, id, text, metadata FROM {chunks} WHERE collection = %s"
        )
        rows = self._run(lambda: self._execute(query))
        return [StoredChunk(RowKey(*row[:2]), *row[2:]) for row in rows]

    def manifest(self) -> dict[str, str]:
        query: LiteralString = "SELECT document, fingerprint FROM {manifest} WHERE collection = %s"
        return dict(self._run(lambda: self._execute(query)))

    def set_manifest(self, document: str, fingerprint: str | None) -> None:
        def change() -> None:
            self._execute(
                "DELETE FROM {manifest} WHERE collection = %s AND document = %s", document
            )
            if fingerprint is not None:
                self._execute("INSERT INTO {manifest} VALUES (%s, %s, %s)", document, fingerprint)

        self._run(change, writes=True)


_CREDENTIALS = (
    *("authentication failed", "no password supplied", "unauthorized", "forbidden"),
    *("authentication required", "invalid username-password", "permission denied for user"),
)


def settings_of(config: DatabaseConfig) -> dict[str, Any]:
    """Return the keys that a store has, with their values; secrets are text."""
    values = config.model_dump(include={*CLASS_KEYS} - {"options"}, exclude_none=True)
    for name in {"connection_string", "api_key"} & values.keys():
        values[name] = values[name].get_secret_value()
    return values


def server_url(config: DatabaseConfig, *schemes: str) -> str:
    """Return the address of the server. Raises ConfigError if it has none of the schemes."""
    key = "url" if config.url is not None else "connection_string"
    url: str = settings_of(config).get(key, "")
    try:
        parts = urlsplit(url)
        is_valid = parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_valid = False
    if not is_valid:
        known = " or ".join(f"{scheme}://" for scheme in schemes)
        raise ConfigError(
            f"database.{key}",
            f"is not an address of {config.provider}; it begins with {known} and a host",
        )
    return url


def host_of(url: str, default_port: int) -> str:
    """Return host and port of a URL."""
    parts = urlsplit(url)
    return f"{parts.hostname}:{parts.port or default_port}"


def no_answer(seconds: float) -> str:
    """Return what is wrong with a store that exceeds its time limit, and what to change."""
    return f"no answer within {seconds:g} s; check that it runs, or raise 'timeout' of the database"


def explain_connection(error: Exception, *keys: str) -> str | None:
    """Return what is wrong with a connection and what to change; None for other errors.

    `keys` are the settings that may hold the credentials.
    """
    causes = list(error_chain(error))
    texts = " ".join(str(cause) for cause in causes).lower()
    is_rejected = any(getattr(cause, "status_code", None) in {401, 403} for cause in causes)
    if is_rejected or any(words in texts for words in _CREDENTIALS):
        places = " or ".join(map(repr, keys))
        return f"the server rejects the credentials ({one_line(str(error), 300)}); change {places}"
    for cause in causes:
        if isinstance(cause, socket.gaierror) or "name or service not known" in str(cause).lower():
            return f"the host is unknown ({one_line(str(cause), 300)}); change the address"
        if isinstance(cause, ConnectionError) or "refused" in str(cause).lower():
            reason = one_line(str(cause), 300)
            return f"the server cannot be reached ({reason}); start it, or change the address"
    return None


@asynccontextmanager
async def store_errors(
    store: str,
    redactor: Redactor,
    limit_s: float | None,
    explain: Callable[[Exception], str | None] = describe,
) -> AsyncIterator[None]:
    """Limit the time of the block, and raise VectorStoreError without secrets for what it raises.

    Args:
        store: The product and its address, for messages.
        redactor: Knows the secrets.
        limit_s: Seconds that the block may take; None for no limit of its own.
        explain: Returns what is wrong and what to change; None if it does not know the error.
    """
    scope = timeout(limit_s)
    try:
        async with scope:
            yield
    except HoloDeckError:
        raise
    except Exception as error:
        if limit_s is not None and scope.expired():
            problem = no_answer(limit_s)
        elif isinstance(error, StoreProblem):
            problem = str(error)
        else:
            problem = explain(error) or describe(error)
        raise VectorStoreError(redactor.redact(f"{store}: {problem}")) from error
