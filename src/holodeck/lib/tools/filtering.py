"""Tool filtering: the model is offered only the tools that fit the user's message."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence

from holodeck.errors import ConfigError
from holodeck.lib.support.suggestions import did_you_mean_or_list
from holodeck.lib.support.tool_names import unprefixed
from holodeck.lib.tools.base import Tool
from holodeck.lib.tools.keyword_search import KeywordIndex, fuse_ranks
from holodeck.models.tools.config import ToolFilterConfig

Embed = Callable[[Sequence[str]], Awaitable[Sequence[Sequence[float]]]]
"""Returns a vector for each text."""
NO_CALLS: Mapping[str, int] = {}


class ToolFilterManager:
    """Selects the tools for each message.

    Args:
        config: How they are selected.
        tools: All tools of the agent.
        embed: Computes embeddings; needed to search by meaning.

    Raises:
        ConfigError: `always_include` names an unknown tool, or embeddings are missing.
    """

    def __init__(
        self, config: ToolFilterConfig, tools: Sequence[Tool], embed: Embed | None = None
    ) -> None:
        if embed is None and config.search_method != "bm25":
            raise ConfigError(
                "tool_filtering.search_method",
                f"{config.search_method!r} needs an embedding model; write 'bm25'",
            )
        self._config = config
        self._embed = embed
        self._tools = {tool.name: tool for tool in tools}
        self._always = {tool.name for tool in tools if not tool.is_deferred}
        for name in config.always_include:
            self._always |= find_included(name, tools)
        self._texts = {tool.name: _searchable_text(tool) for tool in tools}
        self._keywords = KeywordIndex(self._texts)
        self._vectors: dict[str, Sequence[float]] | None = None
        self._lock = asyncio.Lock()

    async def prepare(self) -> None:
        """Compute the embeddings of the tools, if they are compared by meaning."""
        if self._config.search_method != "bm25":
            await self._vectors_of_tools()

    async def filter_tools(self, query: str, used: Mapping[str, int] = NO_CALLS) -> list[str]:
        """Return the names of the tools to offer, in the order of the agent.yaml.

        Args:
            query: The user's message.
            used: How often each tool was called in the conversation so far.
        """
        called = sorted((name for name in used if name in self._tools), key=lambda n: -used[n])
        chosen = self._always | set(called[: self._config.always_include_top_n_used])
        room = max(0, self._config.top_k - len(chosen))
        others = [name for name in self._tools if name not in chosen]
        if room and others:
            chosen |= set((await self._search(query, others))[:room])
        return [name for name in self._tools if name in chosen]

    async def _search(self, query: str, names: Collection[str]) -> list[str]:
        """Return the tools that fit the message, the best first."""
        method = self._config.search_method
        by_meaning = await self._by_meaning(query) if method != "bm25" else []
        by_keywords = self._by_keywords(query) if method != "semantic" else []
        ranked = [name for name, _ in fuse_ranks([(by_meaning, 1.0), (by_keywords, 1.0)])]
        return [name for name in ranked if name in names]

    def _by_keywords(self, query: str) -> list[str]:
        found = self._keywords.search(query)
        floor = found[0][1] * self._config.similarity_threshold if found else 0.0
        return [name for name, score in found if score >= floor]

    async def _by_meaning(self, query: str) -> list[str]:
        if self._embed is None or not query.strip():
            return []
        vectors = await self._vectors_of_tools()
        [wanted] = await self._embed([query])
        scores = {name: _cosine(wanted, vector) for name, vector in vectors.items()}
        found = [name for name in scores if scores[name] >= self._config.similarity_threshold]
        return sorted(found, key=lambda name: -scores[name])

    async def _vectors_of_tools(self) -> Mapping[str, Sequence[float]]:
        async with self._lock:
            if self._vectors is None:
                vectors = await self._embed(list(self._texts.values())) if self._embed else []
                self._vectors = dict(zip(self._texts, vectors, strict=True))
            return self._vectors


def find_included(name: str, tools: Sequence[Tool]) -> set[str]:
    """Return the tools that a name in `always_include` means. Raises ConfigError for none."""
    found = {
        tool.name
        for tool in tools
        if name in (tool.name, tool.entry) or name in unprefixed(tool.name)
    }
    if not found:
        known = [tool.name for tool in tools]
        hint = did_you_mean_or_list(name, known)
        raise ConfigError("tool_filtering.always_include", f"unknown tool {name!r}{hint}")
    return found


def _searchable_text(tool: Tool) -> str:
    properties = tool.parameters.get("properties", {})
    parameters = [
        f"{name}: {schema.get('description', '')}" if isinstance(schema, dict) else name
        for name, schema in properties.items()
    ]
    return "\n".join([tool.name.replace("_", " "), tool.description, *parameters])


def _cosine(one: Sequence[float], other: Sequence[float]) -> float:
    def dot(first: Sequence[float], second: Sequence[float]) -> float:
        return sum(a * b for a, b in zip(first, second, strict=True))

    length = (dot(one, one) * dot(other, other)) ** 0.5
    return dot(one, other) / length if length else 0.0
