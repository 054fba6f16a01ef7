"""Keyword search in OpenSearch, through its REST interface."""

import json
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from holodeck.errors import HoloDeckError, VectorStoreError
from holodeck.lib.exceptions import describe
from holodeck.lib.knowledge.stores.adapter import StoreProblem, digest
from holodeck.lib.knowledge.stores.rest import RestClient, RestError, explain_rest
from holodeck.lib.knowledge.stores.servers import host_of
from holodeck.lib.redact import Redactor
from holodeck.lib.threads import run_in_thread
from holodeck.models.knowledge import KeywordIndexConfig

T = TypeVar("T")

_PER_REQUEST = 500


class OpenSearchIndex:
    """An index of one tool, which is made anew if its chunks have changed.

    Args:
        config: Where it is. `endpoint` and `index_name` are set.
        owner: The name of the tool's collection.
    """

    def __init__(self, config: KeywordIndexConfig, owner: str) -> None:
        endpoint = config.endpoint or ""
        is_secure = endpoint.startswith("https")
        self._address = host_of(endpoint, 443 if is_secure else 9200)
        self._owner = owner
        self._name = config.index_name or ""
        self._credentials = "password" if config.api_key is None else "api_key"
        secrets = [one.get_secret_value() for one in (config.password, config.api_key) if one]
        self._redactor = Redactor(secrets)
        headers, login = dict[str, str](), None
        if config.api_key is not None:
            headers["authorization"] = f"ApiKey {config.api_key.get_secret_value()}"
        elif config.username is not None:
            password = config.password.get_secret_value() if config.password else ""
            login = (config.username, password)
        self._service = RestClient(
            endpoint, headers, config.timeout_seconds, login=login, verify=config.verify_certs
        )

    async def build(self, texts: Sequence[str]) -> None:
        """Make the index hold these texts. Raises VectorStoreError."""
        await self._run(partial(self._build, texts))

    async def search(self, query: str, limit: int) -> list[tuple[int, float]]:
        """Return positions of the best texts with their scores. Raises VectorStoreError."""
        return await self._run(partial(self._search, query, limit))

    def close(self) -> None:
        """Close the connections."""
        self._service.close()

    def _build(self, texts: Sequence[str]) -> None:
        path, state = f"/{self._name}", {"owner": self._owner, "texts": digest(*texts)}
        found = self._service.ask("GET", f"{path}/_mapping", missing=True)
        if found:
            [mapping] = found.values()  # also if the name is an alias
            known = (mapping["mappings"].get("_meta") or {}).get("holodeck") or {}
            if known == state:
                return
            if known.get("owner") != self._owner:
                raise StoreProblem(
                    f"the index {self._name!r} is of another tool or program; write another"
                    " 'index_name'"
                )
            self._service.send("DELETE", path)
        unfinished = {"holodeck": {"owner": self._owner}}
        fields = {"text": {"type": "text"}, "position": {"type": "integer"}}
        mappings = {"_meta": unfinished, "dynamic": "strict", "properties": fields}
        settings = {"number_of_shards": 1}  # scores of several shards cannot be compared
        self._service.send("PUT", path, {"settings": settings, "mappings": mappings})
        for start in range(0, len(texts), _PER_REQUEST):
            self._store(start, texts[start : start + _PER_REQUEST])
        self._service.send("POST", f"{path}/_refresh")
        self._service.send("PUT", f"{path}/_mapping", {"_meta": {"holodeck": state}})

    def _store(self, first: int, texts: Sequence[str]) -> None:
        lines = []
        for position, text in enumerate(texts, start=first):
            lines.append(json.dumps({"index": {"_id": str(position)}}))
            lines.append(json.dumps({"text": text, "position": position}))
        body = ("\n".join(lines) + "\n").encode()
        stored = self._service.ask("POST", f"/{self._name}/_bulk", body)
        if stored["errors"]:
            failed = next(one["index"] for one in stored["items"] if one["index"].get("error"))
            raise RestError(failed["status"], str(failed["error"].get("reason")))

    def _search(self, query: str, limit: int) -> list[tuple[int, float]]:
        body = {
            "query": {"match": {"text": query}},
            "size": limit,
            "_source": False,
            "sort": ["_score", {"position": "asc"}],
        }
        found = self._service.ask("POST", f"/{self._name}/_search", body)
        return [(int(one["_id"]), one["_score"]) for one in found["hits"]["hits"]]

    async def _run(self, call: Callable[[], T]) -> T:
        try:
            return await run_in_thread(call, "holodeck-keyword-index")
        except HoloDeckError:
            raise
        except Exception as error:
            problem = str(error) if isinstance(error, StoreProblem) else None
            problem = problem or explain_rest(error, self._credentials) or describe(error)
            message = f"keyword index opensearch at {self._address}: {problem}"
            raise VectorStoreError(self._redactor.redact(message)) from error
