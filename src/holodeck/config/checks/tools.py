"""Static checks of the tools that an agent has, and of the names that test cases give them."""

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

from holodeck.config.agent_files import Prompt, read_tool_prompt
from holodeck.config.checks.findings import CheckContext, Tools
from holodeck.config.checks.programs import (
    find_definition,
    parameter_names,
)
from holodeck.config.yaml.source import KeyPath
from holodeck.errors import ConfigError, MissingExtra
from holodeck.lib.support.patterns import compile_pattern, passes_every_text
from holodeck.lib.support.safe_paths import is_file
from holodeck.lib.support.synonyms import MATCHERS, meant_word
from holodeck.lib.support.text import did_you_mean, did_you_mean_or_list, plural
from holodeck.lib.support.tool_names import is_forbidden, matches_tool_name, tools_named
from holodeck.lib.user_code.registry import Registry
from holodeck.models.agent import Agent
from holodeck.models.cases.matchers import MATCHER_KEYS
from holodeck.models.llm import LLMProvider, ProviderEnum
from holodeck.models.test_case import ExpectedTool, TurnModel
from holodeck.models.tool import FunctionTool, PromptTool


def check_prompt_tool(context: CheckContext, tool: PromptTool, path: KeyPath) -> Tools:
    """Check the prompt and the model; return the names of the parameters."""
    from holodeck.lib.tools.prompt import PromptTemplate  # noqa: PLC0415 - few agents have one

    key = "template" if tool.file is None else "file"
    with context.reporting((*path, key)):
        prompt = read_tool_prompt(context.agent, tool)
        PromptTemplate.of(prompt.text, tool.parameters, "")
        warn_of_front_matter(context, prompt, (*path, key))
    if tool.model is not None:
        check_model(context, tool.model, (*path, "model"))
    return {tool.name: list(tool.parameters)}


def check_model(context: CheckContext, model: LLMProvider, path: KeyPath) -> None:
    """Check a model of the agent or its tools."""
    if model.endpoint is not None:
        check_url(context, model.endpoint, (*path, "endpoint"))
    if model.provider is not ProviderEnum.LOCAL:
        return
    if find_spec("xllamacpp") is None:
        context.config_error(path, MissingExtra("local", "model"))
    if model.name.endswith(".gguf") and not is_file(context.agent.own_dir / model.name):
        context.error((*path, "name"), f"file not found: {model.name!r}")


def check_url(context: CheckContext, url: str, path: KeyPath) -> None:
    if not url.startswith(("http://", "https://")):
        context.error(path, "a URL must begin with http:// or https://")


def warn_of_front_matter(context: CheckContext, prompt: Prompt, path: KeyPath) -> None:
    """Report a block at the beginning of a file that may be text, and would not be sent."""
    version = prompt.version
    if version.extra and not version.has_known_keys:
        keys = ", ".join(version.extra)
        context.warning(
            path,
            f"the block with {keys} between '---' is front matter, and is not sent; if it is text,"
            " begin the file with an empty line",
        )


def check_tools(context: CheckContext) -> None:
    """Check each tool, and note its name and the names of its parameters."""
    tools: dict[str, list[str] | None] = {}
    for index, tool in enumerate(context.agent.tools or []):
        found = TOOL_CHECKS.load(tool.type)(context, tool, ("tools", index))
        if found is None:
            context.knows_all_tools = False
        else:
            tools |= found
    context.tools = tools | tools_of_provider(context.agent)
    if context.agent.has_own_model or not context.knows_all_tools:
        return
    for index, name in enumerate(context.agent.retrieval_tools):
        if not tools_named(name, context.tools):
            context.error(("retrieval_tools", index), unknown_tool(name, context.tools))


def tools_of_provider(agent: Agent) -> dict[str, list[str] | None]:
    """Return the tools that the model's provider runs."""
    searches_web = agent.claude is not None and agent.claude.web_search
    return {"web_search": ["query"]} if searches_web else {}


def check_tool_filtering(context: CheckContext) -> None:
    """Check that there is an embedding model, and that `always_include` names tools, as far as all
    tools are known."""
    filtering = context.agent.tool_filtering
    if filtering is None or not filtering.enabled:
        return
    if filtering.search_method != "bm25" and context.agent.embedding_provider is not None:
        # Imported here because few agents filter their tools by meaning.
        from holodeck.lib.knowledge.embeddings import filtering_llm  # noqa: PLC0415

        try:
            filtering_llm(context.agent)
        except ConfigError as error:
            context.error(("embedding_provider",), error.message)
    if not context.knows_all_tools:
        return
    for index, name in enumerate(filtering.always_include):
        if name not in context.tools:
            hint = did_you_mean_or_list(name, context.tools)
            path = ("tool_filtering", "always_include", index)
            context.error(path, f"unknown tool {name!r}{hint}")


def check_function_tool(context: CheckContext, tool: FunctionTool, path: KeyPath) -> Tools:
    """Check that the function exists; return the names of its parameters."""
    names = None if tool.parameters is None else list(tool.parameters)
    try:
        function = find_definition(tool.file, tool.function, context.agent.own_dir, "")
    except ConfigError as error:
        key = "function" if "does not define" in error.message else "file"
        context.config_error((*path, key), error)
        return {tool.name: None}
    return {tool.name: parameter_names(function) if names is None else names}


TOOL_CHECKS: Registry[Callable[[CheckContext, Any, KeyPath], Tools | None]] = Registry(
    "tool",
    {
        "function": "holodeck.config.checks.tools:check_function_tool",
        "mcp": "holodeck.config.checks.programs:check_mcp_tool",
        "prompt": "holodeck.config.checks.tools:check_prompt_tool",
        "vectorstore": "holodeck.config.checks.knowledge:check_knowledge_tool",
        "hierarchical_document": "holodeck.config.checks.knowledge:check_knowledge_tool",
    },
)
"""By the `type` of a tool, what checks it and returns the tools that the model gets from it; None
if only the run knows them."""


_NOT_IN_TOOL_NAMES = re.compile(r"[?\[\]{}()|^$\\,;<>\"'`]")
"""Characters of patterns, lists and placeholders; no tool that a model calls has them."""
_WORDS_FOR_NOTHING = frozenset({"n/a", "na", "nil", "none", "null"})
"""What people write into a cell of a table to leave it empty."""


def check_pattern(context: CheckContext, pattern: str, path: KeyPath) -> None:
    """Check that a regular expression is valid."""
    try:
        compile_pattern(pattern)
    except ConfigError as error:
        context.error(path, error.message)


def check_tool_names(context: CheckContext, case: TurnModel, path: KeyPath) -> None:
    """Check what a case or turn expects and forbids of tools."""
    is_known = context.knows_all_tools and not context.agent.has_own_model
    tools = context.tools if is_known else None
    for index, expected in enumerate(case.expected_tools or []):
        tool_path = (*path, "expected_tools", index)
        if isinstance(expected, ExpectedTool):
            _check_matchers(context, expected, tool_path)
        matching = _matching_tools(expected, context.tools) or [_name(expected)]
        if all(
            any(is_forbidden(name, tool.name, context.tools, tool.allow) for tool in case.forbidden)
            for name in matching
        ):
            context.error(tool_path, f"{_name(expected)!r} is both expected and forbidden")
        if tools is not None:
            _check_expected_tool(context, expected, tool_path, tools)
    for index, forbidden in enumerate(case.forbidden):
        tool_path = (*path, "forbidden_tools", index)
        for name in (forbidden.name, *forbidden.allow):
            reason = _reason_not_a_tool_name(name)
            if reason is not None:
                context.error(tool_path, f"no call can match {name!r}: {reason}")
            elif tools is not None and not any(is_forbidden(tool, name, tools) for tool in tools):
                context.error(tool_path, unknown_tool(name, tools))
    _check_most_calls(context, case, path)
    if not context.agent.has_own_model:
        _check_agents(context, case, path)


def _check_agents(context: CheckContext, case: TurnModel, path: KeyPath) -> None:
    """Find checks of the agents that speak, where the built-in agent is the only one."""
    keys: list[KeyPath] = [] if case.handoffs is None else [("handoffs",)]
    keys += [
        ("expected_tools", index, "agent")
        for index, expected in enumerate(case.expected_tools or [])
        if isinstance(expected, ExpectedTool) and expected.agent is not None
    ]
    for key in keys:
        context.error(
            (*path, *key), "the built-in agent is the only one; remove it, or test a 'backend'"
        )


def _check_matchers(context: CheckContext, expected: ExpectedTool, path: KeyPath) -> None:
    """Find patterns that are invalid, and a pattern of the result that every result matches."""
    for argument, matcher in expected.matchers().items():
        if matcher.regex is not None:
            check_pattern(context, matcher.regex, (*path, "args", argument, "regex"))
        _check_literal(context, expected.args[argument], (*path, "args", argument))
    result = expected.result_matcher()
    if result is None or result.regex is None:
        return
    result_path = (*path, "result", "regex")
    check_pattern(context, result.regex, result_path)
    with suppress(ConfigError):  # reported above
        if passes_every_text(compile_pattern(result.regex), whole=True) is not None:
            context.error(
                result_path, f"{result.regex!r} matches every text, so no result can fail"
            )


def _check_literal(context: CheckContext, value: Any, path: KeyPath) -> None:
    """Find a mapping that is probably a condition, and is compared as it is."""
    if not isinstance(value, dict):
        return
    conditions = [key for key in value if key in MATCHER_KEYS]
    if conditions and len(conditions) < len(value):
        others = ", ".join(repr(key) for key in value if key not in MATCHER_KEYS)
        context.error(
            path,
            f"{conditions[0]!r} is a condition, and {others} beside it is not; write the condition"
            " alone, or '{equals: …}' if this mapping is expected",
        )
    if len(value) != 1:
        return
    [key] = value
    meant = meant_word(str(key), MATCHERS)
    if key not in MATCHER_KEYS and (key == "type" or meant is not None):
        hint = ";" if meant is None else f"; did you mean {meant!r}?"
        context.warning(
            path,
            f"{key!r} is no condition{hint} known: {', '.join(MATCHER_KEYS)}; write '{{equals: …}}'"
            " if a mapping is expected",
        )


def _check_most_calls(context: CheckContext, case: TurnModel, path: KeyPath) -> None:
    """Find a maximum of tool calls that the expected calls exceed."""
    expected = case.expected_tools
    if case.max_tool_calls is None or not expected or case.order == "subset":
        return
    counts = [1 if isinstance(tool, str) else tool.count or 1 for tool in expected]
    needed = sum(counts) if case.tool_order else max(counts)
    if needed > case.max_tool_calls:
        context.error(
            (*path, "max_tool_calls"),
            f"cannot be met: 'expected_tools' needs {plural(needed, 'tool call')}",
        )


def _reason_not_a_tool_name(name: str) -> str | None:
    """Return why no tool can have this name; None if a tool can."""
    character = _NOT_IN_TOOL_NAMES.search(name)
    if "{{" in name:
        return "nothing fills this placeholder; add 'parameters', or write the tool's name"
    if character is not None and character[0] in ",;":
        return "it is one name; write each tool as an item of the list: [a, b]"
    if character is not None:
        return f"it contains {character[0]!r}; of patterns, only '*' is read"
    if name.casefold() in _WORDS_FOR_NOTHING or not re.search(r"\w", name):
        return "it is not a tool; leave the list or cell empty, or write the tool's name"
    if re.search(r"\s", name):
        return "it contains white space, which no tool's name has; remove it"
    return None


def _check_expected_tool(
    context: CheckContext, expected: str | ExpectedTool, path: KeyPath, tools: Tools
) -> None:
    matching = _matching_tools(expected, tools)
    name = _name(expected)
    if not matching:
        # Calls of a server's tools count, as in HoloDeck, which calls them `memory-read`.
        is_part = isinstance(expected, str) or expected.match == "substring"
        if not (is_part and any(name in tool for tool in context.tools_of_servers)):
            context.error(path, unknown_tool(name, tools))
        return
    if isinstance(expected, ExpectedTool) and expected.match == "exact" and len(matching) > 1:
        context.error(
            path, f"{name!r} may be {' or '.join(map(repr, matching))}; write the whole name"
        )
        return
    longer = [tool for tool in matching if not matches_tool_name(name, tool)]
    if longer:
        context.warning(
            path,
            f"{name!r} is only a part of {', '.join(map(repr, longer))}, whose calls count as well;"
            f" write '{{name: {longer[0]}}}' if you mean that tool",
        )
    if isinstance(expected, ExpectedTool):
        for argument, known in _unknown_arguments(expected, matching, tools):
            hint = did_you_mean(argument, known, f"; it has {', '.join(known)}")
            context.error(
                (*path, "args", argument), f"{matching[0]!r} has no parameter {argument!r}{hint}"
            )


def _unknown_arguments(
    expected: ExpectedTool, matching: Sequence[str], tools: Tools
) -> Iterator[tuple[str, list[str]]]:
    """Yield the arguments that no matching tool has, each with the known parameters."""
    known: list[str] = []
    for name in matching:
        parameters = tools[name]
        if parameters is None:
            return
        known += parameters
    for argument in expected.args:
        if argument not in known:
            yield argument, known


def _name(expected: str | ExpectedTool) -> str:
    return expected if isinstance(expected, str) else expected.name


def _matching_tools(expected: str | ExpectedTool, tools: Tools) -> list[str]:
    if isinstance(expected, ExpectedTool) and expected.match == "exact":
        return tools_named(expected.name, tools)
    return [name for name in tools if _name(expected) in name]


def unknown_tool(name: str, tools: Tools) -> str:
    """Return what is wrong with the name of a tool that the agent does not have."""
    if not tools:
        return f"unknown tool {name!r}: the agent has no tools"
    return f"unknown tool {name!r}{did_you_mean(name, tools, ';')} known: {', '.join(tools)}"
