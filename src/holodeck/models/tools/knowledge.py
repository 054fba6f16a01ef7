"""Tools that search documents: `vectorstore` and `hierarchical_document`, and their stores."""

import math
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, PrivateAttr, SecretStr, model_validator

from holodeck.models.base import (
    InvalidKeys,
    Json,
    Model,
    NetworkUse,
    NonBlank,
    Ratio,
    ReadPath,
    Seconds,
    ServerAddress,
    WrittenPath,
)
from holodeck.models.llm import LLMProvider
from holodeck.models.tools.config import ToolConfig

Secret = Annotated[SecretStr, Field(min_length=1)]


class VectorStoreProvider(StrEnum):
    """Products that keep vectors."""

    SQLITE = "sqlite"
    IN_MEMORY = "in-memory"
    CHROMADB = "chromadb"
    QDRANT = "qdrant"
    POSTGRES = "postgres"
    REDIS = "redis"
    FAISS = "faiss"
    WEAVIATE = "weaviate"
    PINECONE = "pinecone"
    AZURE_AI_SEARCH = "azure-ai-search"
    AZURE_COSMOS_MONGO = "azure-cosmos-mongo"
    AZURE_COSMOS_NOSQL = "azure-cosmos-nosql"
    SQL_SERVER = "sql-server"


ALIASES = {
    "postgresql": VectorStoreProvider.POSTGRES,
    "redis-hashset": VectorStoreProvider.REDIS,
    "redis-json": VectorStoreProvider.REDIS,
}
"""Other names of providers in existing files."""

REPLACED = {
    VectorStoreProvider.REDIS: "the default, a file in the cache folder",
    VectorStoreProvider.FAISS: "the store in memory, whose search is exact, too",
}
"""Products of existing files that are not used any more, with what is used."""

WITHOUT_SERVER = frozenset({VectorStoreProvider.SQLITE, VectorStoreProvider.IN_MEMORY, *REPLACED})
"""Products that run in the process, whatever the other keys say."""

CLASS_KEYS: tuple[str, ...] = (
    *("connection_string", "url", "path", "api_key", "tenant", "database", "namespace"),
    *("db_schema", "options"),
)
"""The keys of a class, which are its arguments."""

KEYS: Mapping[VectorStoreProvider, tuple[str, ...]] = {
    VectorStoreProvider.SQLITE: ("path",),
    VectorStoreProvider.IN_MEMORY: (),
    VectorStoreProvider.CHROMADB: (
        *("connection_string", "url", "path", "api_key", "tenant", "database"),
    ),
    VectorStoreProvider.QDRANT: ("connection_string", "url", "path", "api_key"),
    VectorStoreProvider.POSTGRES: ("connection_string", "db_schema"),
    VectorStoreProvider.REDIS: ("connection_string", "url"),
    VectorStoreProvider.FAISS: (),
    VectorStoreProvider.WEAVIATE: ("connection_string", "url", "api_key"),
    VectorStoreProvider.PINECONE: ("api_key", "namespace", "cloud", "region"),
    VectorStoreProvider.AZURE_AI_SEARCH: ("connection_string", "url", "api_key"),
    VectorStoreProvider.AZURE_COSMOS_MONGO: ("connection_string", "database"),
    VectorStoreProvider.AZURE_COSMOS_NOSQL: ("connection_string", "url", "api_key", "database"),
    VectorStoreProvider.SQL_SERVER: ("connection_string",),
}
"""The keys of each product, besides `provider` and `timeout`."""

_ADDRESSES = ("connection_string", "url", "path")
"""Keys that say where a store is; a store has one of them."""
_EXAMPLES = {
    VectorStoreProvider.CHROMADB: "connection_string: http://localhost:8000",
    VectorStoreProvider.QDRANT: "url: http://localhost:6333",
    VectorStoreProvider.POSTGRES: "connection_string: postgresql://user@localhost:5432/name",
    VectorStoreProvider.WEAVIATE: "url: http://localhost:8080",
    VectorStoreProvider.AZURE_AI_SEARCH: "url: https://NAME.search.windows.net",
    VectorStoreProvider.AZURE_COSMOS_MONGO: "connection_string: ${AZURE_COSMOS_CONNECTION_STRING}",
    VectorStoreProvider.AZURE_COSMOS_NOSQL: "connection_string: ${AZURE_COSMOS_CONNECTION_STRING}",
    VectorStoreProvider.SQL_SERVER: "connection_string: ${SQL_SERVER_CONNECTION_STRING}",
}
"""Products that need an address, with an example of it."""
_KEY_MAY_BE_IN: Mapping[VectorStoreProvider | str, tuple[str, ...]] = {
    VectorStoreProvider.AZURE_AI_SEARCH: ("api_key",),
    VectorStoreProvider.AZURE_COSMOS_NOSQL: ("api_key", "connection_string"),
    VectorStoreProvider.PINECONE: ("api_key",),
}
"""Where the API key is, for products that need one."""
_OTHER_NAMES: Mapping[str, Mapping[str, str]] = {
    VectorStoreProvider.AZURE_AI_SEARCH: {"search_endpoint": "url", "endpoint": "url"},
    VectorStoreProvider.AZURE_COSMOS_MONGO: {"database_name": "database"},
    VectorStoreProvider.AZURE_COSMOS_NOSQL: {"key": "api_key", "database_name": "database"},
}
"""Names of keys in existing files, with ours."""


class DatabaseConfig(Model):
    """A vector store and how to reach it."""

    provider: VectorStoreProvider | Annotated[str, Field(pattern=r"^[^\s:]+:[^\s:]+$")]
    """The product, or `module:Class` with a store of yours or a connector of Semantic Kernel."""
    connection_string: Annotated[Secret, NetworkUse.SERVER] | None = None
    """Address of the server, which may hold a password: `postgresql://…`, `redis://…`,
    `http://localhost:8000`."""
    url: ServerAddress | None = None
    """Address of a server without a password."""
    path: WrittenPath | None = None
    """File (`sqlite`) or folder (`chromadb`, `qdrant`) of a store without a server, relative to
    `agent.yaml`."""
    api_key: Secret | None = None
    """API key of a server."""
    tenant: NonBlank | None = None
    """Tenant of a Chroma server."""
    database: NonBlank | None = None
    """Database of a Chroma server, or of Azure Cosmos DB (by default holodeck)."""
    namespace: NonBlank | None = None
    """Namespace in Pinecone."""
    cloud: Literal["aws", "gcp", "azure"] | None = None
    """Cloud of new indexes in Pinecone; by default aws."""
    region: NonBlank | None = None
    """Region of new indexes in Pinecone; by default us-east-1."""
    db_schema: NonBlank | None = None
    """Schema of the tables in PostgreSQL; by default the first one of the search path."""
    timeout: Seconds = 30.0
    """Maximum seconds of one request to the store."""
    options: dict[str, Json] | None = None
    """Further arguments of `module:Class`."""

    _is_users: bool = PrivateAttr(default=False)

    @property
    def is_users(self) -> bool:
        """Whether the `config.yaml` of the user names it, so that its path may lie anywhere."""
        return self._is_users

    def of_user(self) -> Self:
        """Return it as a store in the `config.yaml` of the user."""
        return self.with_private(_is_users=True)

    @classmethod
    def _prepare(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Replace other names of the product and of its keys."""
        if not isinstance(data.get("provider"), str):
            return data
        provider = ALIASES.get(data["provider"], data["provider"])
        names = _OTHER_NAMES.get(str(provider), {})
        renamed = {names.get(key, key): value for key, value in data.items()}
        if len(renamed) < len(data):
            return data  # two names of one key; the other one is unknown
        return {**renamed, "provider": provider}

    @property
    def named_class(self) -> str | None:
        """The store as `module:Class`; None for a product."""
        return None if isinstance(self.provider, VectorStoreProvider) else self.provider

    @property
    def is_embedded(self) -> bool:
        """Whether the store runs in the process, and no server is asked."""
        return self.provider in WITHOUT_SERVER or (
            self.named_class is None and self.path is not None
        )

    @model_validator(mode="after")
    def _check(self) -> "DatabaseConfig":
        given = [name for name in self.model_fields_set if getattr(self, name) is not None]
        is_product = self.named_class is None
        allowed = KEYS[VectorStoreProvider(self.provider)] if is_product else CLASS_KEYS
        others = sorted(set(given).difference(allowed, ("provider", "timeout")))
        if others:
            known = ", ".join(("provider", *allowed, "timeout"))
            raise InvalidKeys(
                [f"{name!r} is no key of {self.provider}; known: {known}" for name in others]
            )
        self._has_one_address(given)
        places = _KEY_MAY_BE_IN.get(self.provider)
        if places is not None and not set(given).intersection(places):
            name = self.provider.upper().replace("-", "_")
            raise ValueError(
                f"the API key of {self.provider} is missing; write, for example,"
                f" 'api_key: ${{{name}_API_KEY}}'"
            )
        return self

    def _has_one_address(self, given: list[str]) -> None:
        addresses = [name for name in _ADDRESSES if name in given]
        if len(addresses) > 1:
            names = " and ".join(f"'{name}'" for name in addresses)
            raise ValueError(f"{names} are both set; keep one of them")
        if not addresses and self.provider in _EXAMPLES:
            raise ValueError(
                f"the address of {self.provider} is missing; write, for example,"
                f" '{_EXAMPLES[VectorStoreProvider(self.provider)]}'"
            )


class VectorStoreSettings(DatabaseConfig):
    """A vector store of `config.yaml`, which tools name in `database`."""

    options: dict[str, Json] | None = None
    """Further keys of the store, which may also stand beside `provider`; further arguments of
    `module:Class`."""

    @classmethod
    def _prepare(cls, data: dict[str, Any]) -> dict[str, Any]:
        """Put the keys of a product beside those in `options`."""
        options = data.get("options")
        if isinstance(options, dict) and ":" not in str(data.get("provider")):
            data = options | {key: value for key, value in data.items() if key != "options"}
        return super()._prepare(data)


S3_ENDPOINTS = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
"""Variables with the address of another service than that of AWS, the strongest first."""
DEFAULT_CHUNK_SIZE = 512
DEFAULT_CHUNK_OVERLAP = 50
WEIGHTS_TOLERANCE = 1e-6


class KnowledgeTool(ToolConfig):
    """What the tools that search documents have in common."""

    source: Annotated[ReadPath, NetworkUse.SERVER]
    """A file, a folder, a glob pattern such as `docs/**/*.md`, an http(s) URL, or a file or folder
    in object storage (`s3://…`, `az://…`)."""
    embedding_model: NonBlank | None = None
    """Name of the embedding model; by default that of `embedding_provider`, else one that fits the
    agent's provider."""
    embedding_dimensions: Annotated[int, Field(ge=1, le=10_000)] | None = None
    """Length of the vectors, for models with several lengths."""
    database: DatabaseConfig | NonBlank | None = None
    """Where the vectors are kept: a database, or the name of one in `vectorstores` of config.yaml;
    by default a file in the cache folder."""

    @property
    def retrieves(self) -> bool:
        return True


class VectorstoreTool(KnowledgeTool):
    """Search in documents, or in the records of CSV, JSON and JSON Lines files, by meaning."""

    type: Literal["vectorstore"]
    """Type of the tool."""
    vector_field: NonBlank | Annotated[list[NonBlank], Field(min_length=1)] | None = None
    """The field of a record that is searched, or several; makes the source structured."""
    id_field: NonBlank | None = None
    """The field that identifies a record; required with `vector_field`."""
    meta_fields: list[NonBlank] | None = None
    """Fields of a record that are returned with it; by default all others."""
    field_separator: str = "\n"
    """Text between the values of several fields."""
    delimiter: Annotated[str, Field(min_length=1, max_length=1)] | None = None
    """Separator of the columns of a CSV file; by default found from its first lines."""
    record_path: NonBlank | None = None
    """Path of the list of records in a JSON file, such as `data.items`."""
    record_prefix: str | None = None
    """Text before the names of a record's own fields, as the keys above write them."""
    meta_prefix: str | None = None
    """Text before the name of each of `meta_fields`, in results."""
    chunk_size: Annotated[int, Field(gt=0, le=8192)] | None = None
    """Tokens of a chunk, estimated as a quarter of its bytes; 512 by default."""
    chunk_overlap: Annotated[int, Field(ge=0)] | None = None
    """Tokens that a chunk repeats of the one before; 50 by default."""
    top_k: Annotated[int, Field(ge=1, le=100)] = 5
    """Number of chunks in a result."""
    min_similarity_score: Ratio | None = None
    """Chunks with a lower score are left out."""

    @model_validator(mode="after")
    def _fields_fit_together(self) -> "VectorstoreTool":
        if self.vector_field is not None and self.id_field is None:
            raise ValueError("'id_field' is missing; 'vector_field' needs it to identify a record")
        structured = ("id_field", "meta_fields", "delimiter", "record_path", "record_prefix")
        lone = [key for key in (*structured, "meta_prefix") if getattr(self, key) is not None]
        if self.vector_field is None and lone:
            raise ValueError(f"{lone[0]!r} has no effect without 'vector_field'; add it")
        if self.overlap >= self.size:
            raise ValueError(
                f"'chunk_overlap' is {self.overlap}; it must be less than 'chunk_size', which is"
                f" {self.size}"
            )
        return self

    @property
    def size(self) -> int:
        """Tokens of a chunk."""
        return DEFAULT_CHUNK_SIZE if self.chunk_size is None else self.chunk_size

    @property
    def overlap(self) -> int:
        """Tokens that a chunk repeats of the one before."""
        if self.chunk_overlap is None:
            return min(DEFAULT_CHUNK_OVERLAP, self.size // 4)
        return self.chunk_overlap

    @property
    def vector_fields(self) -> list[str]:
        """The fields of a record that are searched; empty for documents."""
        field = self.vector_field
        return [field] if isinstance(field, str) else list(field or [])


class KeywordIndexConfig(Model):
    """The index for keyword search."""

    provider: Literal["in-memory", "opensearch"] = "in-memory"
    """Where the index is."""
    endpoint: ServerAddress | None = None
    """Address of the OpenSearch server, such as `https://search.example.com:9200`."""
    index_name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]{0,254}$")] | None = None
    """Name of the index in OpenSearch, which belongs to this tool alone."""
    username: NonBlank | None = None
    """User of OpenSearch."""
    password: Secret | None = None
    """Password of the user."""
    api_key: Secret | None = None
    """API key of OpenSearch, instead of a user."""
    verify_certs: bool = True
    """Whether the certificate of the server must be valid."""
    timeout_seconds: Annotated[float, Field(ge=1, le=120)] = 10
    """Maximum seconds of one request to OpenSearch."""

    @model_validator(mode="after")
    def _keys_fit_the_provider(self) -> "KeywordIndexConfig":
        if self.provider == "in-memory":
            lone = sorted(self.model_fields_set - {"provider"})
            if lone:
                raise ValueError(
                    f"{lone[0]!r} has no effect in memory; add 'provider: opensearch', or remove it"
                )
            return self
        for name in ("endpoint", "index_name"):
            if getattr(self, name) is None:
                raise ValueError(f"{name!r} is missing; opensearch needs it")
        parts = urlsplit(self.endpoint or "")
        if parts.scheme not in {"http", "https"} or not parts.hostname or "@" in parts.netloc:
            raise ValueError(
                "'endpoint' is no address of a server; it begins with http:// or https:// and a"
                " host; user and password are keys of their own"
            )
        if self.api_key is not None and self.username is not None:
            raise ValueError("'api_key' and 'username' are both set; keep one of them")
        if self.password is not None and self.username is None:
            raise ValueError("'username' is missing; 'password' needs it")
        return self


Domain = Literal[
    "none", "us_legislative", "au_legislative", "academic", "technical", "legal_contract"
]
SearchMode = Literal["semantic", "keyword", "hybrid"]


class HierarchicalDocumentTool(KnowledgeTool):
    """Search in documents with headings, by meaning, by keywords and by exact matches."""

    type: Literal["hierarchical_document"]
    """Type of the tool."""
    chunking_strategy: Literal["structure", "token"] = "structure"
    """Whether chunks begin at headings, or only fill up to `max_chunk_tokens`."""
    max_chunk_tokens: Annotated[int, Field(ge=100, le=2000)] = 800
    """Tokens of a chunk, estimated as a quarter of its bytes."""
    chunk_overlap: Annotated[int, Field(ge=0, le=200)] = 50
    """Tokens that a chunk repeats of the one before, if a section has several."""
    document_domain: Domain = "none"
    """Kind of the documents, which says what lines are headings besides those of Markdown."""
    max_subsection_depth: Annotated[int, Field(ge=1)] | None = None
    """Headings below this level begin no chunk of their own; null for no limit."""
    search_mode: SearchMode = "hybrid"
    """How chunks are found."""
    top_k: Annotated[int, Field(ge=1, le=100)] = 10
    """Number of chunks in a result."""
    min_score: Ratio | None = None
    """Chunks with a lower score are left out."""
    semantic_weight: Ratio = 0.5
    """Weight of the rank by meaning in hybrid search."""
    keyword_weight: Ratio = 0.3
    """Weight of the rank by keywords in hybrid search."""
    exact_weight: Ratio = 0.2
    """Weight of the rank by exact matches in hybrid search."""
    rrf_k: Annotated[int, Field(ge=1)] = 60
    """The constant of reciprocal rank fusion: a rank counts as 1 / (rrf_k + rank)."""
    contextual_embeddings: bool = True
    """Whether a model writes a short context for each chunk, which is searched with it."""
    context_max_tokens: Annotated[int, Field(ge=50, le=200)] = 100
    """Tokens of such a context."""
    context_concurrency: Annotated[int, Field(ge=1, le=50)] = 10
    """Contexts that are requested at the same time."""
    context_model: LLMProvider | None = None
    """The model that writes contexts; by default the agent's own."""
    extract_definitions: bool = True
    """Whether results show the definitions of terms that a chunk uses."""
    extract_cross_references: bool = True
    """Whether results show where the sections are that a chunk refers to."""
    enable_reranking: bool = False
    """Whether a model scores what the search found, three times `top_k` chunks; `min_score` then
    applies to its scores."""
    reranker_model: LLMProvider | None = None
    """The model that scores them; by default the agent's own."""
    keyword_index: KeywordIndexConfig | None = None
    """The index for keyword search."""

    @model_validator(mode="after")
    def _reranker_is_used(self) -> "HierarchicalDocumentTool":
        is_off = "enable_reranking" in self.model_fields_set
        if self.reranker_model is not None and not self.enable_reranking and not is_off:
            raise ValueError(
                "'reranker_model' has no effect without 'enable_reranking: true'; add it"
            )
        return self

    @model_validator(mode="after")
    def _weights_fit_together(self) -> "HierarchicalDocumentTool":
        if self.search_mode != "hybrid":
            return self
        total = self.semantic_weight + self.keyword_weight + self.exact_weight
        if not math.isclose(total, 1, abs_tol=WEIGHTS_TOLERANCE):
            raise ValueError(
                "'semantic_weight', 'keyword_weight' and 'exact_weight' add up to"
                f" {total:g}; hybrid search needs 1"
            )
        if self.semantic_weight + self.keyword_weight == 0:
            raise ValueError("'semantic_weight' and 'keyword_weight' are both 0; raise one of them")
        return self
