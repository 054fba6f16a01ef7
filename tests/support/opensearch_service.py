"""OpenSearch as its documentation describes it, on loopback."""

import base64
import re
from dataclasses import dataclass, field
from typing import Any

from support.rest_services import KEY, Call, Refusal, RestService, only

USER, PASSWORD = "me", "secret-of-search"


@dataclass
class TextIndex:
    mappings: dict[str, Any]
    added: dict[str, dict[str, Any]] = field(default_factory=dict)
    shown: dict[str, dict[str, Any]] = field(default_factory=dict)
    """What searches see since the last refresh."""


class OpenSearchService(RestService):
    """Scores a text by how many words of the query it has."""

    routes = (
        ("GET", r"/([^/_][^/]*)/_mapping", "describe"),
        ("PUT", r"/([^/_][^/]*)/_mapping", "change"),
        ("PUT", r"/([^/_][^/]*)", "create"),
        ("DELETE", r"/([^/_][^/]*)", "remove"),
        ("POST", r"/([^/_][^/]*)/_bulk", "bulk"),
        ("POST", r"/([^/_][^/]*)/_refresh", "refresh"),
        ("POST", r"/([^/_][^/]*)/_search", "search"),
    )

    def __init__(self) -> None:
        super().__init__()
        self.indexes: dict[str, TextIndex] = {}

    def check(self, call: Call) -> None:
        basic = base64.b64encode(f"{USER}:{PASSWORD}".encode()).decode()
        if call.headers.get("authorization") not in {f"Basic {basic}", f"ApiKey {KEY}"}:
            raise Refusal(401, "Unauthorized")

    def error(self, message: str) -> Any:
        return {"error": {"type": "exception", "reason": message}, "status": 400}

    def _index(self, name: str) -> TextIndex:
        if name not in self.indexes:
            raise Refusal(404, f"no such index [{name}]")
        return self.indexes[name]

    def describe(self, call: Call, name: str) -> tuple[int, Any]:
        return 200, {name: {"mappings": self._index(name).mappings}}

    def change(self, call: Call, name: str) -> tuple[int, Any]:
        self._index(name).mappings |= only(call.body, "_meta")
        return 200, {"acknowledged": True}

    def create(self, call: Call, name: str) -> tuple[int, Any]:
        body = only(call.body, "settings", "mappings")
        if name in self.indexes:
            raise Refusal(400, f"index [{name}] already exists")
        if name != name.lower() or re.search(r'[ ,":*+/\\|?#><]', name):
            raise Refusal(400, f"Invalid index name [{name}]")
        mappings = only(body["mappings"], "_meta", "dynamic", "properties")
        self.indexes[name] = TextIndex(mappings)
        return 200, {"acknowledged": True}

    def remove(self, call: Call, name: str) -> tuple[int, Any]:
        self._index(name)
        del self.indexes[name]
        return 200, {"acknowledged": True}

    def bulk(self, call: Call, name: str) -> tuple[int, Any]:
        index, lines = self._index(name), call.lines
        if not lines or len(lines) % 2:
            raise Refusal(400, "The bulk request must be terminated by a newline")
        items = []
        for action, document in zip(lines[::2], lines[1::2], strict=True):
            key = only(only(action, "index")["index"], "_id")["_id"]
            unknown = document.keys() - index.mappings["properties"].keys()
            if unknown:
                reason = f"mapping set to strict, introduction of {sorted(unknown)} not allowed"
                items.append({"index": {"_id": key, "status": 400, "error": {"reason": reason}}})
                continue
            index.added[key] = document
            items.append({"index": {"_id": key, "status": 201}})
        return 200, {"errors": any("error" in one["index"] for one in items), "items": items}

    def refresh(self, call: Call, name: str) -> tuple[int, Any]:
        index = self._index(name)
        index.shown = dict(index.added)
        return 200, {}

    def search(self, call: Call, name: str) -> tuple[int, Any]:
        index, body = self._index(name), only(call.body, "query", "size", "_source", "sort")
        [(searched, query)] = only(body["query"], "match")["match"].items()
        if index.mappings["properties"][searched]["type"] != "text":
            raise Refusal(400, f"[{searched}] is no text")
        words = set(re.findall(r"\w+", query.lower()))
        scores = {
            key: float(len(words.intersection(re.findall(r"\w+", one[searched].lower()))))
            for key, one in index.shown.items()
        }
        assert body["sort"] == ["_score", {"position": "asc"}]
        found = sorted(
            (key for key in scores if scores[key]),
            key=lambda key: (-scores[key], index.shown[key]["position"]),
        )
        hits = [{"_id": key, "_score": scores[key]} for key in found[: body["size"]]]
        return 200, {"hits": {"hits": hits}}
