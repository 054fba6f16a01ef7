"""PostgreSQL: search by pgvector, or in memory where the extension is missing."""

import logging
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, LiteralString, TypeAlias, TypeVar

from holodeck.errors import ConfigError, MissingExtra
from holodeck.lib.knowledge.stores.base import (
    OtherDimensions,
    RowKey,
    SqlAdapter,
    StoreContext,
    StoredChunk,
    StoreProblem,
    explain_connection,
    to_bytes,
)
from holodeck.models.tools.knowledge import DatabaseConfig

if TYPE_CHECKING:
    from psycopg import Connection

    from holodeck.lib.knowledge.stores.base import Vector

    Client: TypeAlias = Connection[Any]

T = TypeVar("T")

logger = logging.getLogger(__name__)

_TABLES: tuple[LiteralString, ...] = (
    """CREATE TABLE IF NOT EXISTS holodeck_collections (
        name text PRIMARY KEY, dimensions integer NOT NULL, changes bigint NOT NULL DEFAULT 0
    )""",
    """CREATE TABLE IF NOT EXISTS holodeck_manifest (
        collection text NOT NULL, document text NOT NULL, fingerprint text NOT NULL,
        PRIMARY KEY (collection, document)
    )""",
    """CREATE TABLE IF NOT EXISTS {table} (
        collection text NOT NULL, document text NOT NULL, position integer NOT NULL,
        id text NOT NULL, text text NOT NULL, metadata text NOT NULL, embedding {type} NOT NULL,
        PRIMARY KEY (collection, document, position)
    )""",
)
_LOCK = 0x686F6C6F
"""The number of the advisory lock under which tables are created."""


class PostgresAdapter(SqlAdapter):
    """A collection in tables of a database; changes of a document are transactions.

    With pgvector, embeddings are vectors, and the server searches them exactly. Without it, they
    are bytes in another table, and the search is in memory.
    """

    def __init__(self, config: DatabaseConfig, context: StoreContext) -> None:
        try:
            from psycopg import ProgrammingError
            from psycopg.conninfo import conninfo_to_dict
        except ImportError as error:
            raise MissingExtra("postgres", "vector store postgres") from error

        super().__init__()
        secret = config.connection_string
        self._address = "" if secret is None else secret.get_secret_value()
        try:
            parts = conninfo_to_dict(self._address)
        except ProgrammingError:  # its message has the address with the password
            raise ConfigError(
                "database.connection_string",
                "is not an address of postgres, such as postgresql://user@localhost:5432/name",
            ) from None
        self.address = f"{parts.get('host', 'localhost')}:{parts.get('port', 5432)}"
        self._schema = config.db_schema
        self._seconds = config.timeout * 0.8  # ends before the limit of the call
        self._collection = context.collection
        self._client: Client | None = None
        self._has_vectors = False

    @property
    def _name(self) -> str:
        """The collection; the same one without pgvector is another, as its table is."""
        return self._collection if self._has_vectors else f"{self._collection} (bytes)"

    @property
    def _table(self) -> str:
        return "holodeck_chunks" if self._has_vectors else "holodeck_chunks_bytes"

    def open(self, dimensions: int, *, empty: bool) -> None:
        self.close()
        self._dimensions = dimensions
        self._client = self._connect()
        with self._client.transaction():
            self._client.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
            if self._schema is not None:
                self._create_schema(self._client, self._schema)
            self._has_vectors = _enable_pgvector(self._client)
            self._create_tables(self._client)
            if empty:
                self._empty(dimensions)
            self._execute(
                "INSERT INTO {collections} VALUES (%s, %s) ON CONFLICT DO NOTHING",
                dimensions,
            )
            [[size]] = self._execute("SELECT dimensions FROM {collections} WHERE name = %s")
        if not self._has_vectors:
            logger.info("PostgreSQL at %s has no pgvector; searching in memory", self.address)
        if size != dimensions:
            self.close()
            raise OtherDimensions(size, dimensions)

    def _empty(self, dimensions: int) -> None:
        self._execute("DELETE FROM {chunks} WHERE collection = %s")
        self._execute("DELETE FROM {manifest} WHERE collection = %s")
        # the number of changes goes on, as other runs may have read the old chunks
        self._execute(
            "INSERT INTO {collections} AS old VALUES (%s, %s) ON CONFLICT (name) DO UPDATE"
            " SET dimensions = EXCLUDED.dimensions, changes = old.changes + 1",
            dimensions,
        )

    def _connect(self) -> "Client":
        from psycopg import connect
        from psycopg.sql import SQL, Identifier

        client = connect(
            self._address,
            autocommit=True,
            connect_timeout=max(2, int(self._seconds)),
            application_name="holodeck",
        )
        limit = str(int(1000 * self._seconds))
        client.execute("SELECT set_config('statement_timeout', %s, false)", (limit,))
        if self._schema is not None:
            path = SQL("SET search_path TO {}, public").format(Identifier(self._schema))
            client.execute(path)
        return client

    def _create_schema(self, client: "Client", schema: str) -> None:
        from psycopg.sql import SQL, Identifier

        row = client.execute("SELECT to_regnamespace(quote_ident(%s))", (schema,)).fetchone()
        if row is None or row[0] is None:
            client.execute(SQL("CREATE SCHEMA {}").format(Identifier(schema)))

    def _create_tables(self, client: "Client") -> None:
        from psycopg.sql import SQL, Identifier

        kind = SQL("vector" if self._has_vectors else "bytea")
        for statement in _TABLES:
            client.execute(SQL(statement).format(table=Identifier(self._table), type=kind))

    def _execute(self, query: LiteralString, *values: object) -> list[Any]:
        from psycopg.sql import SQL, Identifier

        statement = SQL(query).format(
            chunks=Identifier(self._table),
            manifest=Identifier("holodeck_manifest"),
            collections=Identifier("holodeck_collections"),
        )
        cursor = self._connected.execute(statement, (self._name, *values), binary=True)
        return cursor.fetchall() if cursor.description else []

    @property
    def _connected(self) -> "Client":
        if self._client is None:
            raise StoreProblem("the store is not open")
        return self._client

    def _run(self, call: Callable[[], T], *, writes: bool = False) -> T:  # noqa: ARG002 - it need not know
        """Return what a call returns in a transaction.

        If the server has closed the connection in the meantime, connect again, once.
        """
        from psycopg import OperationalError

        client = self._connected
        try:
            with client.transaction():
                return call()
        except OperationalError:
            if not client.closed:
                raise
            self._client = self._connect()
            with self._client.transaction():
                return call()

    def replace(
        self, document: str, rows: Sequence[StoredChunk], vectors: Sequence["Vector"]
    ) -> None:
        encode: Callable[[Vector], object] = _literal if self._has_vectors else to_bytes
        values = [
            (self._name, *row.key, row.id, row.text, row.metadata, encode(vector))
            for row, vector in zip(rows, vectors, strict=True)
        ]

        def replace() -> None:
            self._forget(document)
            self._copy(values)

        self._run(replace)

    def _copy(self, rows: Iterable[Sequence[object]]) -> None:
        from psycopg.sql import SQL, Identifier

        statement = SQL("COPY {} FROM STDIN").format(Identifier(self._table))
        with self._connected.cursor() as cursor, cursor.copy(statement) as copy:
            for row in rows:
                copy.write_row(row)

    def _forget(self, document: str) -> None:
        super()._forget(document)
        self._execute("UPDATE {collections} SET changes = changes + 1 WHERE name = %s")

    def _state(self) -> object:
        return self._execute("SELECT changes FROM {collections} WHERE name = %s")

    def search(self, vector: "Vector", top_k: int) -> list[tuple[StoredChunk, float]]:
        if self._has_vectors:
            return self._run(lambda: self._search_by_pgvector(vector, top_k))
        return super().search(vector, top_k)

    def _search_by_pgvector(self, vector: "Vector", top_k: int) -> list[tuple[StoredChunk, float]]:
        # all vectors have length 1, so that the product is the cosine; <#> gives its negative
        rows = self._execute(
            "SELECT document, position, id, text, metadata, embedding <#> query AS distance"
            " FROM {chunks}, (SELECT %s AS name, %s::vector AS query) AS asked"
            " WHERE collection = asked.name"
            ' ORDER BY distance, document COLLATE "C", position LIMIT %s',
            _literal(vector),
            top_k,
        )
        return [(StoredChunk(RowKey(*row[:2]), *row[2:-1]), -row[-1]) for row in rows]

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = self._index = None

    def explain(self, error: Exception) -> str | None:
        from psycopg import errors

        text = " ".join(str(error).split())
        if isinstance(error, errors.InsufficientPrivilege):
            return (
                f"{text}; grant the right to create tables, or set 'db_schema' to a schema with it"
            )
        if isinstance(error, errors.QueryCanceled):
            return f"no answer within {self._seconds:g} s; raise 'timeout' of the database"
        if "does not exist" in text:
            return f"{text}; create it, or change 'connection_string'"
        return explain_connection(error, "connection_string")


def _enable_pgvector(client: "Client") -> bool:
    """Whether the database has pgvector, which is switched on if the server has it."""
    from psycopg import errors

    query = "SELECT installed_version FROM pg_available_extensions WHERE name = 'vector'"
    row = client.execute(query).fetchone()
    if row is None or row[0] is not None:
        return row is not None
    try:
        with client.transaction():
            client.execute("CREATE EXTENSION IF NOT EXISTS vector SCHEMA public")
    except errors.InsufficientPrivilege as error:
        logger.info("pgvector cannot be switched on: %s", error)
        return False
    return True


def _literal(vector: "Vector") -> str:
    """Return the vector as pgvector writes it."""
    return f"[{','.join(format(number, '.9g') for number in vector.tolist())}]"
