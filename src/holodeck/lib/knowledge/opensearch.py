"""Keyword search in OpenSearch, the adapter for opensearch-py."""

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from holodeck.errors import MissingExtra
from holodeck.lib.knowledge.stores import base
from holodeck.lib.processes.threads import run_in_thread
from holodeck.lib.secrets.redact import Redactor
from holodeck.models.tools.knowledge import KeywordIndexConfig


class OpenSearchIndex:
    """The index of a tool, which is made anew if its chunks have changed.

    Args:
        config: Where it is. `endpoint` and `index_name` are set.
        owner: The name of the tool's collection.

    Raises:
        MissingExtra: The client is not installed.
    """

    def __init__(self, config: KeywordIndexConfig, owner: str) -> None:
        try:
            from opensearchpy import OpenSearch
        except ImportError as error:
            raise MissingExtra("opensearch", "keyword index opensearch") from error

        endpoint = config.endpoint or ""
        address = base.host_of(endpoint, 443 if endpoint.startswith("https") else 9200)
        self._store = f"keyword index opensearch at {address}"
        self._owner, self._name = owner, config.index_name or ""
        credentials = "password" if config.api_key is None else "api_key"
        self._explain = lambda error: base.explain_connection(error, credentials)
        secrets = (config.password, config.api_key)
        password, key = (secret.get_secret_value() if secret else "" for secret in secrets)
        self._redactor = Redactor(filter(None, (password, key)))
        self._client: Any = OpenSearch(
            [endpoint],
            http_auth=(config.username, password) if config.username else None,
            headers={"authorization": f"ApiKey {key}"} if key else None,
            verify_certs=config.verify_certs,
            ssl_show_warn=False,
            timeout=config.timeout_seconds,
            retry_on_status=(429, 502, 503, 504),
        )

    async def build(self, texts: Sequence[str]) -> None:
        """Make the index hold these texts. Raises VectorStoreError."""
        await self._run(partial(self._build, texts))

    async def search(self, query: str, limit: int) -> list[tuple[int, float]]:
        """Return positions of the best texts with their scores. Raises VectorStoreError."""
        match = {"query": {"match": {"text": query}}, "size": limit, "_source": False}
        body = {**match, "sort": ["_score", {"position": "asc"}]}
        response = await self._run(partial(self._client.search, index=self._name, body=body))
        return [(int(hit["_id"]), hit["_score"]) for hit in response["hits"]["hits"]]

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _build(self, texts: Sequence[str]) -> None:
        from opensearchpy import NotFoundError, helpers

        state, indices = {"owner": self._owner, "texts": base.digest(*texts)}, self._client.indices
        with suppress(NotFoundError):
            # for an alias, it is the mapping of its index
            for mapping in indices.get_mapping(index=self._name).values():
                known = (mapping["mappings"].get("_meta") or {}).get("holodeck") or {}
                if known == state:
                    return
                if known.get("owner") != self._owner:
                    problem = f"the index {self._name!r} is of another tool or program"
                    raise base.StoreProblem(f"{problem}; write another 'index_name'")
                indices.delete(index=self._name)
        fields = {"text": {"type": "text"}, "position": {"type": "integer"}}
        unfinished = {"_meta": {"holodeck": {"owner": self._owner}}, "properties": fields}
        settings = {"number_of_shards": 1}  # scores of several shards cannot be compared
        indices.create(index=self._name, body={"settings": settings, "mappings": unfinished})
        documents = ({"_id": str(n), "text": text, "position": n} for n, text in enumerate(texts))
        helpers.bulk(self._client, documents, index=self._name)
        indices.refresh(index=self._name)
        indices.put_mapping(index=self._name, body={"_meta": {"holodeck": state}})

    async def _run(self, call: Callable[[], Any]) -> Any:
        async with base.store_errors(self._store, self._redactor, None, self._explain):
            return await run_in_thread(call, "holodeck-keyword-index")
