"""The tools of an agent.yaml: functions at once, those of servers and documents once opened."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NoReturn, Protocol, runtime_checkable

from holodeck.errors import ConfigError
from holodeck.lib.support.text import describe, did_you_mean_or_list
from holodeck.lib.support.tool_names import unprefixed
from holodeck.lib.tools.base import SideEffectsError, Tool
from holodeck.lib.tools.function import load_function_tool
from holodeck.lib.tools.keyword_search import KeywordIndex, fuse_ranks
from holodeck.lib.tools.recorded import open_recorded, recorded
from holodeck.lib.user_code.registry import Registry
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.results.outcome import ModelCost
from holodeck.models.tool import FunctionTool, PromptTool, ToolConfig
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
        by_keywords: list[str] = []
        if method != "semantic" and (found := self._keywords.search(query)):
            floor = found[0][1] * self._config.similarity_threshold
            by_keywords = [name for name, score in found if score >= floor]
        ranked = [name for name, _ in fuse_ranks([(by_meaning, 1.0), (by_keywords, 1.0)])]
        return [name for name in ranked if name in names]

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


def _cosine(vector: Sequence[float], other: Sequence[float]) -> float:
    def dot(first: Sequence[float], second: Sequence[float]) -> float:
        return sum(a * b for a, b in zip(first, second, strict=True))

    length = (dot(vector, vector) * dot(other, other)) ** 0.5
    return dot(vector, other) / length if length else 0.0


logger = logging.getLogger(__name__)


ProxyFor = Callable[[str], str | None]


class ToolSource(Protocol):
    """An entry of `tools` that has to be opened, such as an MCP server or documents."""

    async def open(self) -> Sequence[Tool]:
        """Return its tools, ready to be called.

        Raises ConfigError or BackendInitError, which name the tool and say what to change.
        """
        ...

    async def close(self) -> None:
        """Release everything; may be called twice, without `open`, and from any task."""
        ...


def _template_of(tool: PromptTool) -> str:
    if tool.template is None:
        raise ConfigError(f"tools.{tool.name}.file", "cannot be read here; write a 'template'")
    return tool.template


@runtime_checkable
class HasPreparationCosts(Protocol):
    """A source or an agent that asks models before the first case."""

    @property
    def preparation_costs(self) -> Sequence[ModelCost]:
        """What that cost when it was opened; nothing before."""
        ...


@dataclass(frozen=True)
class ToolContext:
    """What the source of a tool may need."""

    agent: Agent
    execution: ExecutionConfig | None = None
    """Time limits and retries; their defaults if None."""
    force_ingest: bool = False
    """Whether documents are read and embedded again although nothing changed."""
    proxy_for: ProxyFor | None = None
    """Returns the proxy for a URL."""
    cache_dir: Path | None = None
    """The folder for what can be computed again."""
    read_prompt: Callable[[PromptTool], str] = _template_of
    """Returns the text of a prompt tool, whose file lies beside the agent.yaml."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """The environment variables of holodeck."""
    read_variables: Callable[[], Mapping[str, str]] = dict
    """Returns these with those of `.env` files."""

    @property
    def base_dir(self) -> Path:
        """The folder from which relative paths start."""
        return self.agent.own_dir


FilterFactory = Callable[[Sequence[Tool]], "ToolFilterManager"]
"""Makes the manager that selects tools, once they are known. Raises ConfigError."""


def filter_factory(agent: Agent, embed: "Embed") -> FilterFactory | None:
    """Return what makes the manager of an agent's tools; None if they are not filtered."""
    config = agent.tool_filtering
    if config is None or not config.enabled:
        return None
    return lambda tools: ToolFilterManager(config, tools, embed)


SOURCES: Registry[Callable[[Any, ToolContext], ToolSource]] = Registry(
    "tool",
    {
        "mcp": "holodeck.lib.tools.mcp:McpServer",
        "prompt": "holodeck.lib.tools.prompt:PromptSource",
        "vectorstore": "holodeck.lib.knowledge.tools:KnowledgeSource",
        "hierarchical_document": "holodeck.lib.knowledge.tools:KnowledgeSource",
    },
)
"""By the `type` of a tool, what makes its source; functions need none."""


class Toolbox:
    """The tools of an agent, opened once and shared by its cases.

    Args:
        context: The agent, and what its tools need. Files of functions are imported at once.

    Raises:
        ConfigError: A tool cannot be built.
    """

    def __init__(self, context: ToolContext) -> None:
        self._context = context
        self._configs = context.agent.tools or []
        self._parts = [_build(config, context) for config in self._configs]
        self._opened: tuple[Tool, ...] | None = None
        self._lock = asyncio.Lock()

    @property
    def has_sources(self) -> bool:
        """Whether some tools are known only once it is open."""
        return any(not isinstance(part, Tool) for part in self._parts)

    @property
    def tools(self) -> tuple[Tool, ...] | None:
        """The tools, in the order of the agent.yaml; None if they are not known yet."""
        if self._opened is None and not self.has_sources:
            return tuple(part for part in self._parts if isinstance(part, Tool))
        return self._opened

    @property
    def preparation_costs(self) -> Sequence[ModelCost]:
        """What models cost that were asked while the tools were opened."""
        asking = [part for part in self._parts if isinstance(part, HasPreparationCosts)]
        return [cost for part in asking for cost in part.preparation_costs]

    async def open(self) -> tuple[Tool, ...]:
        """Return the tools, once everything that they need is ready.

        Raises ConfigError or BackendInitError; then nothing stays open.
        """
        async with self._lock:
            if self._opened is None:
                try:
                    self._opened = await self._open()
                except BaseException:
                    await self._close()
                    raise
            return self._opened

    async def close(self) -> None:
        """Close every source; may be called twice. The tools can be opened again."""
        async with self._lock:
            await self._close()

    async def _open(self) -> tuple[Tool, ...]:
        entries = zip(self._configs, self._parts, strict=True)
        opening = [
            asyncio.ensure_future(_tools_of(part, config, self._context))
            for config, part in entries
        ]
        try:
            tools = await asyncio.gather(*opening)
        finally:
            for task in opening:
                task.cancel()
            await asyncio.gather(*opening, return_exceptions=True)
        return _of_different_names(self._configs, tools)

    async def _close(self) -> None:
        self._opened = None
        sources = [part for part in self._parts if not isinstance(part, Tool)]
        failures = await asyncio.gather(
            *(source.close() for source in sources), return_exceptions=True
        )
        for failure in failures:
            if isinstance(failure, Exception):
                logger.warning("closing a tool failed: %s", describe(failure))


def _finish(tool: Tool, config: ToolConfig, context: ToolContext) -> Tool:
    """Return the tool with what its entry says of every tool; one with side effects is guarded.

    Its calls are recorded and replayed, where that is asked for.
    """
    tool = replace(tool, entry=config.name, is_deferred=config.defer_loading)
    execution = context.execution
    is_allowed = execution is not None and execution.allow_side_effects is True
    if config.side_effects and not is_allowed:

        async def decline(_: dict[str, Any]) -> NoReturn:
            raise SideEffectsError(
                f"{tool.name!r} was not run, because it has side effects; they are allowed by"
                " --allow-side-effects"
            )

        return recorded(replace(tool, call=decline))
    return recorded(tool)


def _build(config: ToolConfig, context: ToolContext) -> Tool | ToolSource:
    if isinstance(config, FunctionTool):
        return _finish(load_function_tool(config, context.agent.own_code_folders), config, context)
    return SOURCES.load(config.type)(config, context)


async def _tools_of(
    part: Tool | ToolSource, config: ToolConfig, context: ToolContext
) -> Sequence[Tool]:
    if isinstance(part, Tool):
        return [part]
    return [_finish(tool, config, context) for tool in await open_recorded(config, part.open)]


def _of_different_names(
    configs: Sequence[ToolConfig], opened: Sequence[Sequence[Tool]]
) -> tuple[Tool, ...]:
    """Return all tools. Raises ConfigError if two have the same name.

    Of a tool from config.yaml, it is a warning, and the tool is missing.
    """
    tools: dict[str, Tool] = {}
    entries: dict[str, ToolConfig] = {}
    for config, ours in zip(configs, opened, strict=True):
        for tool in ours:
            if tool.name not in tools:
                tools[tool.name], entries[tool.name] = tool, config
                continue
            message = _name_clash(tool.name, entries[tool.name], config)
            if not config.is_shared:
                raise ConfigError("tools", message)
            logger.warning("mcp_servers of config.yaml: %s; the second is missing", message)
    return tuple(tools.values())


def _name_clash(name: str, first: ToolConfig, second: ToolConfig) -> str:
    server = next((config for config in (second, first) if config.type == "mcp"), None)
    if server is None:
        return f"two tools have the name {name!r}; rename or remove one"
    return (
        f"{name!r} is a tool of {first.name!r} and of {second.name!r}; to tell them apart, write"
        f" 'tool_prefix: {server.name}_' at {server.name!r}"
    )
