"""Azure Cosmos DB for NoSQL as its documentation describes it, on loopback."""

import base64
import hmac
import json
import re
from email.utils import parsedate_to_datetime
from typing import Any
from urllib.parse import unquote

from support.rest_services import Call, Refusal, RestService

COSMOS_KEY = base64.b64encode(b"secret-key-of-cosmos").decode()
_ITEM = r"/(dbs/[^/]+/colls/[^/]+)/docs"


class CosmosService(RestService):
    """An account; each request must be signed, and queries return two items at a time."""

    routes = (
        ("GET", r"/(dbs/[^/]+)", "describe"),
        ("GET", r"/(dbs/[^/]+/colls/[^/]+)", "describe"),
        ("POST", r"/(dbs)", "create"),
        ("POST", r"/(dbs/[^/]+/colls)", "create"),
        ("POST", _ITEM, "store_or_query"),
        ("DELETE", rf"{_ITEM}/([^/]+)", "delete"),
    )

    def __init__(self) -> None:
        super().__init__()
        self.resources: dict[str, dict[str, Any]] = {}
        self.items: dict[tuple[str, str, str], dict[str, Any]] = {}
        """By container, partition and id."""
        self.changes = 0
        self.unaware = 0
        """Requests for items that did not say what they have seen, after the first change."""

    def check(self, call: Call) -> None:
        parts = call.path.strip("/").split("/")
        kind = parts[-1] if len(parts) % 2 else parts[-2]
        link = "/".join(parts[:-1] if len(parts) % 2 else parts)
        date = call.headers.get("x-ms-date", "")
        if not call.headers.get("x-ms-version"):
            raise Refusal(400, "The required header x-ms-version is missing")
        parsedate_to_datetime(date)
        text = f"{call.method.lower()}\n{kind}\n{link}\n{date.lower()}\n\n"
        key = base64.b64decode(COSMOS_KEY)
        signature = base64.b64encode(hmac.digest(key, text.encode(), "sha256")).decode()
        given = call.headers.get("authorization", "")
        if "=" in given or unquote(given) != f"type=master&ver=1.0&sig={signature}":
            raise Refusal(401, "The input authorization token can't serve the request")

    def error(self, message: str) -> Any:
        return {"code": "Error", "message": message}

    def describe(self, call: Call, link: str) -> tuple[int, Any]:
        if link not in self.resources:
            raise Refusal(404, "Resource Not Found")
        return 200, self.resources[link]

    def create(self, call: Call, path: str) -> tuple[int, Any]:
        link = f"{path}/{call.body['id']}"
        parent = path.rpartition("/")[0]
        if parent and parent not in self.resources:
            raise Refusal(404, "Resource Not Found")
        if link in self.resources:
            raise Refusal(409, "Resource with specified id already exists")
        if parent and call.body["partitionKey"]["kind"] != "Hash":
            raise Refusal(400, "unknown kind of partition key")
        self.resources[link] = call.body
        return 201, call.body

    def _partition(self, call: Call, link: str) -> str:
        if link not in self.resources:
            raise Refusal(404, "Resource Not Found")
        values = json.loads(call.headers.get("x-ms-documentdb-partitionkey", "[]"))
        if len(values) != 1:
            raise Refusal(400, "PartitionKey value must be supplied for this operation")
        if self.changes and not call.headers.get("x-ms-session-token"):
            self.unaware += 1
        call.replied["x-ms-session-token"] = f"0:-1#{self.changes}"
        return str(values[0])

    def store_or_query(self, call: Call, link: str) -> tuple[int, Any]:
        partition = self._partition(call, link)
        if call.headers.get("x-ms-documentdb-isquery") == "true":
            return self._query(call, link, partition)
        path = self.resources[link]["partitionKey"]["paths"][0].strip("/")
        if call.body[path] != partition:
            raise Refusal(400, "PartitionKey extracted from document doesn't match the header")
        if not re.fullmatch(r"[^/\\?#]{1,255}", call.body["id"]):
            raise Refusal(400, "the id has characters that are not allowed")
        if len(json.dumps(call.body)) > 2_000_000:
            raise Refusal(413, "Request size is too large")
        key = (link, partition, call.body["id"])
        if key in self.items and call.headers.get("x-ms-documentdb-is-upsert") != "true":
            raise Refusal(409, "Entity with the specified id already exists in the system")
        self.items[key] = call.body
        self.changes += 1
        return 201, call.body

    def _query(self, call: Call, link: str, partition: str) -> tuple[int, Any]:
        if call.headers["content-type"] != "application/query+json":
            raise Refusal(400, "a query must be application/query+json")
        pattern = r"SELECT (\*|c\.id) FROM c WHERE (c\.\w+ = @\w+(?: AND c\.\w+ = @\w+)*)"
        match = re.fullmatch(pattern, call.body["query"])
        if match is None:
            raise Refusal(400, "Syntax error")
        values = {one["name"]: one["value"] for one in call.body["parameters"]}
        wanted = {name: values[given] for name, given in re.findall(r"c\.(\w+) = (@\w+)", match[2])}
        found = [
            item
            for (container, owner, _), item in sorted(self.items.items())
            if (container, owner) == (link, partition)
            and all(item.get(name) == value for name, value in wanted.items())
        ]
        first = int(call.headers.get("x-ms-continuation", "0"))
        if first + 2 < len(found):
            call.replied["x-ms-continuation"] = str(first + 2)
        some = found[first : first + 2]
        documents = some if match[1] == "*" else [{"id": one["id"]} for one in some]
        return 200, {"Documents": documents, "_count": len(documents)}

    def delete(self, call: Call, link: str, name: str) -> tuple[int, Any]:
        key = (link, self._partition(call, link), name)
        if key not in self.items:
            raise Refusal(404, "Entity with the specified id does not exist in the system")
        del self.items[key]
        self.changes += 1
        return 204, None
