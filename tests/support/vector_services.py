"""Pinecone, Weaviate and Azure AI Search as their documentation describes them, on loopback."""

import json
import re
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from support.rest_services import KEY, Call, Refusal, RestService, check_vector, only, product

Records = dict[str, dict[str, Any]]


@dataclass
class PineconeIndex:
    dimension: int
    asked: int = 0
    """How often its state was asked for; it is ready after some time."""
    namespaces: dict[str, Records] = field(default_factory=dict)
    written: dict[str, int] = field(default_factory=dict)
    leaving: dict[str, int] = field(default_factory=dict)
    """How often the statistics still count a namespace that was emptied."""


class PineconeService(RestService):
    """The service of indexes, and the host of each index under a path of its own."""

    routes = (
        ("GET", r"/indexes/([^/]+)", "describe"),
        ("DELETE", r"/indexes/([^/]+)", "remove"),
        ("POST", r"/indexes", "create"),
        ("POST", r"/host/([^/]+)/vectors/upsert", "upsert"),
        ("POST", r"/host/([^/]+)/vectors/delete", "delete"),
        ("POST", r"/host/([^/]+)/query", "query"),
        ("POST", r"/host/([^/]+)/describe_index_stats", "stats"),
        ("GET", r"/host/([^/]+)/vectors/list", "listing"),
        ("GET", r"/host/([^/]+)/vectors/fetch", "fetch"),
    )

    def __init__(self) -> None:
        super().__init__()
        self.indexes: dict[str, PineconeIndex] = {}
        self.lag = 0
        """How many queries after a change do not see it yet."""
        self._unseen = 0

    def check(self, call: Call) -> None:
        if call.headers.get("api-key") != KEY:
            raise Refusal(401, "Invalid API Key")
        if not re.fullmatch(r"20\d\d-\d\d", call.headers.get("x-pinecone-api-version", "")):
            raise Refusal(400, "X-Pinecone-Api-Version is missing")

    def _index(self, name: str) -> PineconeIndex:
        if name not in self.indexes:
            raise Refusal(404, f"Resource {name} not found")
        return self.indexes[name]

    def describe(self, call: Call, name: str) -> tuple[int, Any]:
        index = self._index(name)
        index.asked += 1
        return 200, {
            "name": name,
            "metric": "cosine",
            "dimension": index.dimension,
            "host": f"127.0.0.1:{self.port}/host/{name}",
            "status": {"ready": index.asked > 1, "state": "Ready"},
        }

    def create(self, call: Call) -> tuple[int, Any]:
        body = only(call.body, "name", "dimension", "metric", "spec", "deletion_protection", "tags")
        name = body["name"]
        if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,43}[a-z0-9])?", name):
            raise Refusal(400, "Name must be 1-45 characters of lower case letters, digits and '-'")
        if body["metric"] not in {"cosine", "euclidean", "dotproduct"}:
            raise Refusal(400, "unknown metric")
        only(only(body["spec"], "serverless")["serverless"], "cloud", "region")
        if not 1 <= body["dimension"] <= 20_000:
            raise Refusal(400, "dimension must be 1 to 20000")
        if name in self.indexes:
            raise Refusal(409, "Resource already exists")
        self.indexes[name] = PineconeIndex(body["dimension"])
        return 201, {"name": name}

    def remove(self, call: Call, name: str) -> tuple[int, Any]:
        self._index(name)
        del self.indexes[name]
        return 202, None

    def _changed(self, call: Call, index: PineconeIndex, namespace: str) -> None:
        index.written[namespace] = index.written.get(namespace, 0) + 1
        call.replied["x-pinecone-request-lsn"] = str(index.written[namespace])
        self._unseen = self.lag

    def upsert(self, call: Call, name: str) -> tuple[int, Any]:
        index, body = self._index(name), only(call.body, "vectors", "namespace")
        if not 1 <= len(body["vectors"]) <= 1000 or len(json.dumps(body)) > 2_000_000:
            raise Refusal(400, "an upsert has 1 to 1000 vectors and at most 2 MB")
        for one in body["vectors"]:
            only(one, "id", "values", "metadata")
            check_vector(one["values"], index.dimension)
            if not any(one["values"]):
                raise Refusal(400, "Dense vectors must contain at least one non-zero value")
            if not 1 <= len(one["id"]) <= 512 or not one["id"].isascii():
                raise Refusal(400, "an id has 1 to 512 ASCII characters")
            if len(json.dumps(one["metadata"])) > 40_960:
                raise Refusal(400, "metadata size exceeds the limit of 40960 bytes per vector")
            if not all(isinstance(value, str | int | float) for value in one["metadata"].values()):
                raise Refusal(400, "metadata values are strings, numbers and booleans")
        records = index.namespaces.setdefault(body.get("namespace", ""), {})
        records.update({one["id"]: one for one in body["vectors"]})
        self._changed(call, index, body.get("namespace", ""))
        return 200, {"upsertedCount": len(body["vectors"])}

    def delete(self, call: Call, name: str) -> tuple[int, Any]:
        index, body = self._index(name), only(call.body, "ids", "deleteAll", "namespace")
        namespace = body.get("namespace", "")
        if namespace not in index.namespaces:
            raise Refusal(404, "Namespace not found")
        if len(body.get("ids", ())) > 1000:
            raise Refusal(400, "at most 1000 ids")
        if body.get("deleteAll"):
            del index.namespaces[namespace]
            index.written.pop(namespace, None)
            index.leaving[namespace] = self.lag
            return 200, {}
        for one in body.get("ids", ()):
            index.namespaces[namespace].pop(one, None)
        self._changed(call, index, namespace)
        return 200, {}

    def stats(self, call: Call, name: str) -> tuple[int, Any]:
        index = self._index(name)
        counts = {one: len(records) for one, records in index.namespaces.items()}
        counts |= {one: 1 for one, left in index.leaving.items() if left > 0}
        index.leaving = {one: left - 1 for one, left in index.leaving.items()}
        namespaces = {one: {"vectorCount": count} for one, count in counts.items()}
        return 200, {"dimension": index.dimension, "namespaces": namespaces}

    def query(self, call: Call, name: str) -> tuple[int, Any]:
        keys = ("vector", "topK", "namespace", "filter", "includeMetadata", "includeValues")
        index, body = self._index(name), only(call.body, *keys)
        if not 1 <= body["topK"] <= 10_000:
            raise Refusal(400, "topK must be 1 to 10000")
        vector = check_vector(body["vector"], index.dimension)
        if not any(vector):
            raise Refusal(400, "Dense vectors must contain at least one non-zero value")
        [(key, condition)] = body["filter"].items()
        wanted = only(condition, "$eq")["$eq"]
        namespace = body.get("namespace", "")
        written = index.written.get(namespace, 0)
        call.replied["x-pinecone-max-indexed-lsn"] = str(written - bool(self._unseen))
        if self._unseen:
            self._unseen -= 1
            return 200, {"matches": [], "namespace": namespace}
        found = [
            {
                "id": one["id"],
                "score": product(vector, one["values"])
                / (product(vector, vector) * product(one["values"], one["values"])) ** 0.5,
                **({"metadata": one["metadata"]} if body.get("includeMetadata") else {}),
            }
            for one in index.namespaces.get(namespace, {}).values()
            if one["metadata"].get(key) is wanted
        ]
        found.sort(key=lambda one: -one["score"])
        return 200, {"matches": found[: body["topK"]], "namespace": namespace}

    def listing(self, call: Call, name: str) -> tuple[int, Any]:
        limit, prefix = int(call.param("limit", "100")), call.param("prefix", "")
        if not 1 <= limit <= 100:
            raise Refusal(400, "limit must be 1 to 100")
        after = call.param("paginationToken", "")
        ids = sorted(self._index(name).namespaces.get(call.param("namespace"), {}))
        ids = [one for one in ids if one.startswith(prefix) and one > after]
        answer: dict[str, Any] = {"vectors": [{"id": one} for one in ids[:limit]]}
        if len(ids) > limit:
            answer["pagination"] = {"next": ids[limit - 1]}
        return 200, answer

    def fetch(self, call: Call, name: str) -> tuple[int, Any]:
        records = self._index(name).namespaces.get(call.param("namespace"), {})
        ids = call.params["ids"]
        return 200, {"vectors": {one: records[one] for one in ids if one in records}}


@dataclass
class WeaviateClass:
    definition: dict[str, Any]
    objects: Records = field(default_factory=dict)
    dimensions: int | None = None


class WeaviateService(RestService):
    routes = (
        ("GET", r"/v1/schema/([^/]+)", "describe"),
        ("DELETE", r"/v1/schema/([^/]+)", "remove"),
        ("POST", r"/v1/schema", "create"),
        ("POST", r"/v1/batch/objects", "store"),
        ("DELETE", r"/v1/batch/objects", "delete"),
        ("POST", r"/v1/graphql", "query"),
        ("GET", r"/v1/objects", "listing"),
        ("DELETE", r"/v1/objects/([^/]+)/([^/]+)", "delete_one"),
    )
    _PROPERTY = ("name", "dataType", "tokenization", "indexFilterable", "indexSearchable")
    _CLASS = ("class", "description", "vectorizer", "vectorIndexType", "vectorIndexConfig")

    def __init__(self) -> None:
        super().__init__()
        self.classes: dict[str, WeaviateClass] = {}
        self.most_deleted = 10_000

    def check(self, call: Call) -> None:
        if call.headers.get("authorization") != f"Bearer {KEY}":
            raise Refusal(401, "anonymous access not enabled")

    def error(self, message: str) -> Any:
        return {"error": [{"message": message}]}

    def _class(self, name: str) -> WeaviateClass:
        if name not in self.classes:
            raise Refusal(404, f"could not find class {name}")
        return self.classes[name]

    def describe(self, call: Call, name: str) -> tuple[int, Any]:
        return 200, self._class(name).definition

    def create(self, call: Call) -> tuple[int, Any]:
        body = only(call.body, *self._CLASS, "properties")
        if not re.fullmatch(r"[A-Z][_0-9A-Za-z]{0,254}", body["class"]):
            raise Refusal(422, f"{body['class']!r} is not a valid class name")
        if body["class"] in self.classes:
            raise Refusal(422, f"class name {body['class']} already exists")
        if body["vectorIndexConfig"]["distance"] not in {"cosine", "dot", "l2-squared"}:
            raise Refusal(422, "unknown distance")
        for one in body["properties"]:
            only(one, *self._PROPERTY)
            if not re.fullmatch(r"[_A-Za-z][_0-9A-Za-z]*", one["name"]) or one["name"] == "id":
                raise Refusal(422, f"{one['name']!r} is not a valid or a reserved property name")
            if one["dataType"] != ["text"] and (one["indexSearchable"] or "tokenization" in one):
                raise Refusal(422, "tokenization and indexSearchable are for text")
        self.classes[body["class"]] = WeaviateClass(body)
        return 200, body

    def remove(self, call: Call, name: str) -> tuple[int, Any]:
        self._class(name)
        del self.classes[name]
        return 200, None

    def store(self, call: Call) -> tuple[int, Any]:
        body = only(call.body, "objects")
        answers = [
            self._store(only(one, "class", "id", "vector", "properties")) for one in body["objects"]
        ]
        return 200, answers

    def _store(self, one: dict[str, Any]) -> dict[str, Any]:
        stored_in = self._class(one["class"])
        UUID(one["id"])
        kinds = {each["name"]: each["dataType"] for each in stored_in.definition["properties"]}
        fault = ""
        for name, value in one["properties"].items():
            if type(value) is not {"text": str, "int": int}[kinds[name][0]]:
                fault = f"invalid value of property {name!r}"
        if "vector" in one:
            stored_in.dimensions = stored_in.dimensions or len(one["vector"])
            if len(one["vector"]) != stored_in.dimensions:
                fault = "new node has a vector with another length"
        if fault:
            errors = {"error": [{"message": fault}]}
            return {**one, "result": {"status": "FAILED", "errors": errors}}
        stored_in.objects[one["id"]] = one
        return {**one, "result": {"status": "SUCCESS"}}

    def delete(self, call: Call) -> tuple[int, Any]:
        match = only(only(call.body, "match", "output", "dryRun")["match"], "class", "where")
        where = only(match["where"], "path", "operator", "valueText")
        objects, [name] = self._class(match["class"]).objects, where["path"]
        properties = self._class(match["class"]).definition["properties"]
        [stored] = [one for one in properties if one["name"] == name]
        if where["operator"] != "Equal" or not stored["indexFilterable"]:
            raise Refusal(422, f"cannot filter by {name!r}")
        found = [
            key for key, one in objects.items() if one["properties"][name] == where["valueText"]
        ]
        for key in found[: self.most_deleted]:
            del objects[key]
        done = min(len(found), self.most_deleted)
        results = {"matches": len(found), "limit": self.most_deleted, "successful": done}
        return 200, {**call.body, "results": {**results, "failed": 0}}

    def query(self, call: Call) -> tuple[int, Any]:
        pattern = (
            r"\{Get \{(\w+)\(limit: (\d+), nearVector: \{vector: (\[[^]]*\])\}\)"
            r" \{([\w ]+) _additional \{distance\}\}\}\}"
        )
        match = re.fullmatch(pattern, only(call.body, "query")["query"])
        if match is None:
            return 200, {"data": None, "errors": [{"message": "Syntax Error GraphQL request"}]}
        name, limit, given, fields = match.groups()
        searched, vector = self._class(name), json.loads(given)
        try:
            check_vector(vector, searched.dimensions or len(vector))
        except Refusal as refusal:
            return 200, {"data": {"Get": {name: None}}, "errors": [{"message": str(refusal)}]}
        known = {one["name"] for one in searched.definition["properties"]}
        if not set(fields.split()) <= known:
            return 200, {"errors": [{"message": f"Cannot query field on type {name!r}"}]}
        found = [
            {
                **{field: one["properties"][field] for field in fields.split()},
                "_additional": {"distance": -product(vector, one["vector"])},
            }
            for one in searched.objects.values()
        ]
        found.sort(key=lambda one: one["_additional"]["distance"])
        return 200, {"data": {"Get": {name: found[: int(limit)]}}}

    def listing(self, call: Call) -> tuple[int, Any]:
        after, limit = str(UUID(call.param("after"))), int(call.param("limit", "25"))
        objects = self._class(call.param("class")).objects
        found = [objects[key] for key in sorted(objects) if key > after][:limit]
        without = [{key: one[key] for key in ("class", "id", "properties")} for one in found]
        return 200, {"objects": without}

    def delete_one(self, call: Call, name: str, key: str) -> tuple[int, Any]:
        if self._class(name).objects.pop(str(UUID(key)), None) is None:
            raise Refusal(404, "not found")
        return 204, None


@dataclass
class SearchIndex:
    definition: dict[str, Any]
    entries: Records = field(default_factory=dict)
    shown: Records = field(default_factory=dict)
    """The entries that searches see."""
    unseen: int = 0
    """How many searches do not see the last changes yet."""

    def field(self, name: str) -> dict[str, Any]:
        for one in self.definition["fields"]:
            if one["name"] == name:
                return dict(one)
        raise Refusal(400, f"Could not find a property named '{name}' on type 'search.document'")


class AzureSearchService(RestService):
    routes = (
        ("GET", r"/indexes/([^/]+)", "describe"),
        ("DELETE", r"/indexes/([^/]+)", "remove"),
        ("POST", r"/indexes", "create"),
        ("POST", r"/indexes/([^/]+)/docs/index", "change"),
        ("POST", r"/indexes/([^/]+)/docs/search", "search"),
    )
    _FIELD = (
        *("name", "type", "key", "retrievable", "searchable", "filterable", "sortable"),
        *("facetable", "dimensions", "vectorSearchProfile"),
    )
    _QUERY = (
        *("search", "filter", "count", "top", "skip", "select", "orderby", "vectorQueries"),
        "vectorFilterMode",
    )
    _CONDITION = re.compile(
        r"(?P<name>\w+) eq (?P<value>'[^']*'|true|false)"
        r"|search\.in\((?P<member>\w+), '(?P<values>[^']*)', ','\)"
    )

    def __init__(self) -> None:
        super().__init__()
        self.indexes: dict[str, SearchIndex] = {}
        self.lag = 0
        """How many searches after a change do not see it yet."""

    def check(self, call: Call) -> None:
        if call.headers.get("api-key") != KEY:
            raise Refusal(403, "Forbidden")
        if not re.fullmatch(r"20\d\d-\d\d-\d\d(-[Pp]review)?", call.param("api-version")):
            raise Refusal(400, "Invalid or missing api-version query string parameter")

    def _index(self, name: str) -> SearchIndex:
        if name not in self.indexes:
            raise Refusal(404, f"No index with the name '{name}' was found in the service")
        return self.indexes[name]

    def describe(self, call: Call, name: str) -> tuple[int, Any]:
        return 200, self._index(name).definition

    def remove(self, call: Call, name: str) -> tuple[int, Any]:
        self._index(name)
        del self.indexes[name]
        return 204, None

    def create(self, call: Call) -> tuple[int, Any]:
        body = only(call.body, "name", "fields", "vectorSearch")
        if not re.fullmatch(r"[a-z0-9](-?[a-z0-9]){1,127}", body["name"]):
            raise Refusal(400, f"Index name '{body['name']}' is invalid")
        if body["name"] in self.indexes:
            raise Refusal(400, f"Cannot create index '{body['name']}' because it already exists")
        profiles = {one["name"] for one in body["vectorSearch"]["profiles"]}
        for one in body["fields"]:
            only(one, *self._FIELD)
            if one["type"] == "Collection(Edm.Single)":
                if one["vectorSearchProfile"] not in profiles or not one["searchable"]:
                    raise Refusal(400, "a vector field is searchable and has a known profile")
                if not 2 <= one["dimensions"] <= 4096:
                    raise Refusal(400, "dimensions must be 2 to 4096")
            elif one["type"] != "Edm.String" and "searchable" in one:
                raise Refusal(400, "only text is searchable")
        if [one["type"] for one in body["fields"] if one.get("key")] != ["Edm.String"]:
            raise Refusal(400, "an index has one key, which is a string")
        self.indexes[body["name"]] = SearchIndex(body)
        return 201, body

    def change(self, call: Call, name: str) -> tuple[int, Any]:
        index, actions = self._index(name), only(call.body, "value")["value"]
        if not 1 <= len(actions) <= 1000:
            raise Refusal(400, "a batch has 1 to 1000 actions")
        statuses = [self._act(index, dict(one)) for one in actions]
        if not self.lag:
            index.shown = dict(index.entries)
        index.unseen = self.lag
        return (200 if all(one["status"] for one in statuses) else 207), {"value": statuses}

    def _act(self, index: SearchIndex, entry: dict[str, Any]) -> dict[str, Any]:
        action, key = entry.pop("@search.action"), entry["key"]
        if not re.fullmatch(r"[A-Za-z0-9=-][\w=-]*", key):
            raise Refusal(400, f"Invalid document key: '{key}'")
        done = {"key": key, "status": True, "errorMessage": None, "statusCode": 200}
        if action == "delete":
            index.entries.pop(key, None)
            return done
        if action != "upload":
            raise Refusal(400, f"unknown action {action!r}")
        for field_name, value in entry.items():
            stored = index.field(field_name)
            if stored.get("filterable") and len(str(value).encode()) > 32_766:
                message = f"Field '{field_name}' contains a term that is too large to process"
                return {**done, "status": False, "errorMessage": message, "statusCode": 400}
            if stored["type"] == "Collection(Edm.Single)":
                check_vector(value, stored["dimensions"])
        index.entries[key] = entry
        return {**done, "statusCode": 201}

    def search(self, call: Call, name: str) -> tuple[int, Any]:
        index, body = self._index(name), only(call.body, *self._QUERY)
        if index.unseen:
            index.unseen -= 1
        else:
            index.shown = dict(index.entries)
        found = [one for one in index.shown.values() if self._fits(index, one, body["filter"])]
        scores = dict.fromkeys((one["key"] for one in found), 1.0)
        for query in body.get("vectorQueries", ()):
            only(query, "kind", "vector", "fields", "k", "exhaustive")
            vector = check_vector(query["vector"], index.field(query["fields"])["dimensions"])
            for one in found:
                lengths = product(vector, vector) * product(one["vector"], one["vector"])
                cosine = product(vector, one["vector"]) / lengths**0.5
                scores[one["key"]] = 1 / (2 - cosine)
            found = sorted(found, key=lambda one: -scores[one["key"]])[: query["k"]]
        if "orderby" in body:
            order, direction = body["orderby"].split()
            if not index.field(order).get("sortable") or direction != "asc":
                raise Refusal(400, f"The field '{order}' is not sortable")
            found.sort(key=lambda one: one[order])
        top, skip = body.get("top", 50), body.get("skip", 0)
        if not 0 <= top <= 1000 or not 0 <= skip <= 100_000:
            raise Refusal(400, "top must be 0 to 1000, and skip 0 to 100000")
        selected = body.get("select", "key").split(",")
        value = [
            {
                "@search.score": scores[one["key"]],
                **{each: one.get(index.field(each)["name"]) for each in selected},
            }
            for one in found[skip : skip + top]
        ]
        count = {"@odata.count": len(found)} if body.get("count") else {}
        return 200, {**count, "value": value}

    def _fits(self, index: SearchIndex, entry: dict[str, Any], condition: str) -> bool:
        verdicts = []
        for part in condition.split(" and "):
            match = self._CONDITION.fullmatch(part)
            if match is None:
                raise Refusal(400, f"Invalid expression: Syntax error in '{part}'")
            name = match["name"] or match["member"]
            if not index.field(name).get("filterable"):
                raise Refusal(400, f"The field '{name}' is not filterable")
            found = entry.get(name)
            if match["member"]:
                verdicts.append(found in match["values"].split(","))
                continue
            literal = match["value"]
            value = literal[1:-1] if literal.startswith("'") else literal == "true"
            verdicts.append(found == value)
        return all(verdicts)
