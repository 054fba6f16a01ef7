"""Chroma, on a server or in a folder."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from holodeck.errors import MissingExtra
from holodeck.lib.knowledge.stores.base import (
    OtherDimensions,
    StoreContext,
    StoredChunk,
    StoreProblem,
    collection_name,
    digest,
    explain_connection,
    host_of,
    no_answer,
    server_url,
)
from holodeck.lib.support.files import make_folder
from holodeck.models.tools.knowledge import DatabaseConfig

if TYPE_CHECKING:
    import httpx
    from chromadb.api import ClientAPI
    from chromadb.api.models.Collection import Collection

    from holodeck.lib.knowledge.stores.base import Vector

_PER_REQUEST = 200


class ChromaAdapter:
    """A collection of chunks, and one for the fingerprints of documents."""

    def __init__(self, config: DatabaseConfig, context: StoreContext) -> None:
        try:
            import chromadb  # noqa: F401
        except ImportError as error:
            raise MissingExtra("chroma", "vector store chromadb") from error

        self._config = config
        self._folder = context.written_path(config)
        self._url = "" if self._folder else server_url(config, "http", "https")
        default_port = 443 if self._url.startswith("https") else 8000
        self.address = str(self._folder) if self._folder else host_of(self._url, default_port)
        self._name = collection_name(context.collection)
        self._open: tuple[Collection, Collection] | None = None
        self._client: ClientAPI | None = None
        """The client; None unless it is open."""

    def open(self, dimensions: int, *, empty: bool) -> None:
        self.close()
        client = self._client = self._connect()
        names = (self._name, f"{self._name}_manifest")
        if empty:
            for name in {collection.name for collection in client.list_collections()}.intersection(
                names
            ):
                client.delete_collection(name)
        chunks = _collection(client, names[0], dimensions)
        self._open = chunks, _collection(client, names[1], 1)
        size = (chunks.metadata or {}).get("dimensions")
        if not isinstance(size, int):
            raise StoreProblem(f"the collection {names[0]!r} is of another program; remove it")
        if size != dimensions:
            raise OtherDimensions(size, dimensions)

    def _connect(self) -> "ClientAPI":
        import chromadb
        import httpx
        from chromadb.config import Settings

        settings = Settings(anonymized_telemetry=False)
        of_server = {
            key: value
            for key in ("tenant", "database")
            if (value := getattr(self._config, key)) is not None
        }
        if self._folder is not None:
            make_folder(self._folder)
            return chromadb.PersistentClient(str(self._folder), settings, **of_server)
        parts = urlsplit(self._url)
        host, port = self.address.rsplit(":", 1)
        # Chroma's client has no time limit, and no setting for one. A call that nobody waits for
        # any more would keep its thread, and every later call would wait behind it.
        limit = self._config.timeout
        httpx.get(f"{parts.scheme}://{self.address}/api/v2/heartbeat", timeout=limit)
        key = self._config.api_key.get_secret_value() if self._config.api_key else ""
        headers = {"X-Chroma-Token": key, "Authorization": f"Bearer {key}"} if key else None
        client = chromadb.HttpClient(
            host=host,
            port=int(port),
            ssl=parts.scheme == "https",
            headers=headers,
            settings=settings,
            **of_server,
        )
        _session_of(client).timeout = limit
        return client

    @property
    def _collections(self) -> "tuple[Collection, Collection]":
        if self._open is None:
            raise StoreProblem("the store is not open")
        return self._open

    def replace(
        self, document: str, rows: Sequence[StoredChunk], vectors: Sequence["Vector"]
    ) -> None:
        self.delete(document)
        chunks, _ = self._collections
        for start in range(0, len(rows), _PER_REQUEST):
            some = rows[start : start + _PER_REQUEST]
            chunks.add(
                ids=[digest(*row.key) for row in some],
                embeddings=list(vectors[start : start + _PER_REQUEST]),
                metadatas=[row.payload for row in some],
                documents=[row.text for row in some],
            )

    def delete(self, document: str) -> None:
        chunks, _ = self._collections
        self.set_manifest(document, None)
        chunks.delete(**_of_document(document))

    def search(self, vector: "Vector", top_k: int) -> list[tuple[StoredChunk, float]]:
        chunks, _ = self._collections
        number = chunks.count()
        if not number:
            return []
        response = chunks.query(
            query_embeddings=[vector],
            n_results=min(top_k, number),
            include=["documents", "metadatas", "distances"],
        )
        rows = _rows((response["documents"] or [[]])[0], (response["metadatas"] or [[]])[0])
        distances = (response["distances"] or [[]])[0]
        return [(row, 1 - distance) for row, distance in zip(rows, distances, strict=True)]

    def rows(self) -> Iterable[StoredChunk]:
        chunks, _ = self._collections
        for start in range(0, chunks.count(), _PER_REQUEST):
            page = chunks.get(limit=_PER_REQUEST, offset=start, include=["documents", "metadatas"])
            yield from _rows(page["documents"] or [], page["metadatas"] or [])

    def manifest(self) -> dict[str, str]:
        _, manifest = self._collections
        entries = manifest.get(include=["metadatas"])["metadatas"] or []
        return {str(entry["document"]): str(entry["fingerprint"]) for entry in entries}

    def set_manifest(self, document: str, fingerprint: str | None) -> None:
        _, manifest = self._collections
        if fingerprint is None:
            manifest.delete(**_of_document(document))
            return
        values = {"document": document, "fingerprint": fingerprint}
        manifest.upsert(ids=[digest(document)], embeddings=[[1.0]], metadatas=[values])

    def close(self) -> None:
        client, self._client, self._open = self._client, None, None
        if client is not None and self._folder is None:
            _session_of(client).close()  # which Chroma leaves open

    def explain(self, error: Exception) -> str | None:
        import httpx

        if isinstance(error, httpx.TimeoutException):
            return no_answer(self._config.timeout)
        return explain_connection(error, "api_key")


def _session_of(client: Any) -> "httpx.Client":
    session: httpx.Client = client._server._session  # noqa: SLF001 - there is no other way to it
    return session


def _collection(client: "ClientAPI", name: str, dimensions: int) -> "Collection":
    from chromadb.errors import NotFoundError

    try:
        return client.get_collection(name, embedding_function=None)
    except NotFoundError:
        return client.create_collection(
            name,
            # all vectors have length 1, so that the product is the cosine
            configuration={"hnsw": {"space": "ip", "ef_search": 200}},
            metadata={"dimensions": dimensions},
            embedding_function=None,
            get_or_create=True,
        )


def _of_document(document: str) -> dict[str, Any]:
    """Return the arguments that select the entries of a document."""
    return {"where": {"document": document}}


def _rows(texts: Sequence[str], metadatas: Sequence[Any]) -> list[StoredChunk]:
    pairs = zip(metadatas, texts, strict=True)
    return [StoredChunk.of_payload(metadata, text) for metadata, text in pairs]
