"""Static checks of an agent: they call no model and run no code of the user.

A check is a function that takes a `CheckContext` and reports errors and warnings to it. To add
one, write the function and add it to `AGENT_CHECKS`, or to `CASE_CHECKS` in `check_cases`.
"""

import logging
import re
from collections.abc import Callable, Collection, Sequence
from importlib.util import find_spec
from typing import Any

from holodeck.config.agent_files import Prompt, load_response_schema, read_instructions
from holodeck.config.checks.cases import can_fail_case, check_case, check_pattern, check_tool_names
from holodeck.config.checks.findings import CheckContext, Finding, Tools, raise_on_errors
from holodeck.config.checks.metrics import check_metrics, check_placeholders, warn_of_no_threshold
from holodeck.config.checks.paths import check_written_paths
from holodeck.config.checks.python_files import (
    find_definition,
    parameter_names,
)
from holodeck.config.model_calls import (
    all_metrics,
    find_missing_keys,
    models_of_litellm,
    require_prices,
)
from holodeck.config.yaml.source import KeyPath, location_of
from holodeck.errors import ConfigError, MissingExtra
from holodeck.lib.evaluators.build import (
    RequiredInputs,
    judge_model_of,
    metrics_of,
    metrics_of_turn,
    needs_judge,
)
from holodeck.lib.evaluators.param_spec import EvalParam
from holodeck.lib.support.safe_paths import is_file
from holodeck.lib.support.text import did_you_mean_or_list
from holodeck.lib.tools.base import Tool
from holodeck.lib.user_code.registry import Registry
from holodeck.models.agent import (
    BUILT_IN_BACKENDS,
    IN_PYTHON,
    KEYS_WITHOUT_EFFECT,
    NO_EFFECT,
    Agent,
)
from holodeck.models.backend import (
    A2aBackendConfig,
    HttpBackendConfig,
    McpBackendConfig,
    ProcessBackendConfig,
    PythonBackendConfig,
)
from holodeck.models.config import ExecutionConfig
from holodeck.models.llm import LLMProvider, ProviderEnum
from holodeck.models.test_case import TestCaseModel, TurnModel
from holodeck.models.tool import FunctionTool

__all__ = ["Finding", "check", "check_before_run", "log_findings", "raise_on_errors"]

logger = logging.getLogger(__name__)

MOST_WARNINGS = 20
"""Warnings that a run logs; `holodeck validate` shows all of them."""


def check_before_run(agent: Agent, settings: ExecutionConfig) -> list[Finding]:
    """Return the findings about an agent. Raises ConfigError for errors that stop the run."""
    findings = check(agent)
    raise_on_errors(findings)
    # `validate` only warns of a missing key, because it may run on a machine without keys.
    for path, message in find_missing_keys(agent):
        if settings.cache_mode != "replay" or path[-1] not in {"criteria", "script", "simulate"}:
            raise ConfigError(location_of(agent, *path), message)
    return findings


def log_findings(findings: Sequence[Finding]) -> None:
    """Log the first findings as warnings, and how many more there are."""
    for finding in findings[:MOST_WARNINGS]:
        logger.warning("%s: %s: %s", finding.location, finding.path, finding.message)
    if len(findings) > MOST_WARNINGS:
        logger.warning("and %d more; see `holodeck validate`", len(findings) - MOST_WARNINGS)


def check(agent: Agent) -> list[Finding]:
    """Return all findings about an agent, in the order of the checks."""
    context = CheckContext(agent, RequiredInputs(agent))
    for check_agent in AGENT_CHECKS:
        check_agent(context)
    return context.findings


def check_keys(agent: Agent, keys: Collection[str]) -> list[Finding]:
    """Return the errors about these keys of an agent whose other keys are not to be trusted."""
    context = CheckContext(agent, RequiredInputs(agent))
    for key, check_key in KEY_CHECKS.items():
        if key in keys:
            check_key(context)
    if set(keys) >= _KEYS_OF_CASES:
        _check_cases(context)
    return [finding for finding in context.findings if finding.severity == "error"]


def _check_model(context: CheckContext) -> None:
    if context.agent.model is not None:
        check_model(context, context.agent.model, ("model",))


def check_model(context: CheckContext, model: LLMProvider, path: KeyPath) -> None:
    """Check a model of the agent or its tools."""
    if model.endpoint is not None:
        _check_url(context, model.endpoint, (*path, "endpoint"))
    if model.provider is not ProviderEnum.LOCAL:
        return
    if find_spec("xllamacpp") is None:
        context.config_error(path, MissingExtra("local", "model"))
    if model.name.endswith(".gguf") and not is_file(context.agent.own_dir / model.name):
        context.error((*path, "name"), f"file not found: {model.name!r}")


def _check_url(context: CheckContext, url: str, path: KeyPath) -> None:
    if not url.startswith(("http://", "https://")):
        context.error(path, "a URL must begin with http:// or https://")


def _check_api_keys(context: CheckContext) -> None:
    for path, message in find_missing_keys(context.agent):
        context.warning(path, message)


def _check_litellm(context: CheckContext) -> None:
    path, model = next(models_of_litellm(context.agent), ((), None))
    if model is not None and find_spec("litellm") is None:
        context.config_error(path, MissingExtra("litellm", f"the provider {model.provider.value}"))


def _check_backend(context: CheckContext) -> None:
    backend = context.agent.backend
    if isinstance(backend, HttpBackendConfig | A2aBackendConfig):
        _check_url(context, backend.url, ("backend", "url"))
    elif isinstance(backend, ProcessBackendConfig):
        # Imported here because few agents are processes.
        from holodeck.config.checks.programs import check_process  # noqa: PLC0415

        check_process(context, backend)
    elif isinstance(backend, McpBackendConfig):
        # Imported here because few agents are MCP servers.
        from holodeck.config.checks.programs import check_mcp_server  # noqa: PLC0415

        check_mcp_server(context, backend)
    elif backend is not None and backend not in {*BUILT_IN_BACKENDS, IN_PYTHON}:
        try:
            _check_named_backend(context, backend)
        except ConfigError as error:
            context.config_error(("backend",), error)


def _check_named_backend(context: CheckContext, backend: str | PythonBackendConfig) -> None:
    # Imported here because few agents name a backend.
    from holodeck.config.checks.metrics import check_target  # noqa: PLC0415
    from holodeck.lib.backends.selector import check_name  # noqa: PLC0415

    if isinstance(backend, PythonBackendConfig):
        path, folder = ("backend", "target"), context.agent.own_dir
        check_target(context, backend.target, path, "backend.target", folder)
        return
    check_name(backend)
    if ":" in backend:
        check_target(context, backend, ("backend",), "backend", context.agent.own_dir)


def _check_keys_without_effect(context: CheckContext) -> None:
    for key in KEYS_WITHOUT_EFFECT:
        if getattr(context.agent, key) is not None:
            context.warning((key,), NO_EFFECT)


def _check_instructions(context: CheckContext) -> None:
    try:
        prompt = read_instructions(context.agent)
    except ConfigError as error:
        context.config_error(("instructions", "file"), error)
        return
    if prompt is None or context.agent.instructions is None:
        return
    warn_of_front_matter(context, prompt, ("instructions", "file"))
    if context.agent.instructions.template is not None:
        for name in dict.fromkeys(_TEMPLATE_VARIABLE.findall(prompt.text)):
            message = f"{{{{${name}}}}} has no value, and becomes empty text"
            context.warning(("instructions", "template"), message)


_TEMPLATE_VARIABLE = re.compile(r"\{\{\s*\$(\w+)")


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


def _check_response_format(context: CheckContext) -> None:
    try:
        load_response_schema(context.agent)
    except ConfigError as error:
        context.config_error(("response_format",), error)
        return
    agent, is_built_in = context.agent, context.agent.backend is None
    has_schema = agent.response_format is not None
    if has_schema and is_built_in and agent.model and agent.model.protocol == "anthropic":
        problem = "anthropic supports no schema; ask for the format in the instructions"
        context.error(("response_format",), problem)


def _check_tools(context: CheckContext) -> None:
    """Check each tool, and note its name and the names of its parameters."""
    tools: dict[str, list[str] | None] = {}
    for index, tool in enumerate(context.agent.tools or []):
        found = TOOL_CHECKS.load(tool.type)(context, tool, ("tools", index))
        if found is None:
            context.knows_all_tools = False
        else:
            tools |= found
    context.tools = tools


def _check_tool_filtering(context: CheckContext) -> None:
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
        "function": "holodeck.config.checks.agent:check_function_tool",
        "mcp": "holodeck.config.checks.programs:check_mcp_tool",
        "prompt": "holodeck.config.checks.tools:check_prompt_tool",
        "vectorstore": "holodeck.config.checks.tools:check_knowledge_tool",
        "hierarchical_document": "holodeck.config.checks.tools:check_knowledge_tool",
    },
)
"""By the `type` of a tool, what checks it and returns the tools that the model gets from it; None
if only the run knows them."""


def check_opened_tools(agent: Agent, tools: Sequence[Tool]) -> None:
    """Check the names in the cases against tools that only the run knows. Raises ConfigError."""
    context = CheckContext(agent, RequiredInputs(agent))
    context.tools = {
        tool.name: None
        if tool.parameters.get("additionalProperties", True)
        else list(tool.parameters.get("properties", {}))
        for tool in tools
    }
    context.tools_of_servers = [tool.full_name for tool in tools if tool.server is not None]
    for index, case in enumerate(agent.test_cases or []):
        check_tool_names(context, case, ("test_cases", index))
        for turn_path, turn in case.checked_turns:
            check_tool_names(context, turn, ("test_cases", index, *turn_path))
    raise_on_errors(context.findings)


def _check_shared_metrics(context: CheckContext) -> None:
    evaluations = context.agent.evaluations
    check_metrics(context, evaluations.metrics if evaluations else [], ("evaluations", "metrics"))


def _check_shared_judge_is_used(context: CheckContext) -> None:
    agent = context.agent
    if agent.evaluations is None or agent.evaluations.model is None:
        return
    for _, metric in all_metrics(agent):
        judge = judge_model_of(agent, metric) if metric.enabled and needs_judge(metric) else None
        if judge is agent.evaluations.model:
            return
    if not any(_uses_shared_model(case) for case in agent.test_cases or []):
        context.warning(("evaluations", "model"), "no metric uses this model; remove it or add one")


def _uses_shared_model(case: TestCaseModel) -> bool:
    """Whether the model of `evaluations` judges the criteria of a case, or simulates its user."""
    return case.uses_judge or (case.simulate is not None and case.simulate.model is None)


def _check_redaction_patterns(context: CheckContext) -> None:
    observability = context.agent.observability
    patterns = observability.traces.redaction_patterns if observability else []
    for index, pattern in enumerate(patterns):
        path = ("observability", "traces", "redaction_patterns", index)
        check_pattern(context, pattern, path)
    if observability is not None and observability.enabled:
        # Imported here because most agents send no telemetry.
        from holodeck.config.checks.telemetry import check_exporters  # noqa: PLC0415

        check_exporters(context, observability.exporters)


def _check_prices(context: CheckContext) -> None:
    execution = context.agent.execution
    if execution is not None and execution.max_cost is not None:
        try:
            require_prices(context.agent, "")
        except ConfigError as error:
            context.config_error(("execution", "max_cost"), error)


def _check_cases(context: CheckContext) -> None:
    cases = context.agent.test_cases or []
    if not cases:
        context.warning(("test_cases",), "nothing to test; write at least one case")
    for index, case in enumerate(cases):
        check_case(context, case, ("test_cases", index))


def _check_shared_thresholds(context: CheckContext) -> None:
    """Find shared metrics without a verdict, where a case that uses them has other checks."""
    agent = context.agent
    cases = agent.test_cases or []
    if agent.evaluations is not None and any(
        case.evaluations is None and can_fail_case(agent, case) for case in cases
    ):
        warn_of_no_threshold(context, agent.evaluations.metrics, ("evaluations", "metrics"))


def _check_evidence(context: CheckContext) -> None:
    """Find checks that can only end in an error, because the HTTP response lacks what they need."""
    agent = context.agent
    if not isinstance(agent.backend, HttpBackendConfig):
        return
    answer, limits, is_tapped = agent.backend.answer, agent.execution, agent.backend.tap
    checks_of_tools = sum(
        _needs_tool_calls(context, case, part)
        for case in agent.test_cases or []
        for part in (case, *(part for _, part in case.checked_turns))
    )
    if answer.tool_calls is None and checks_of_tools and not is_tapped:
        context.warning(
            ("backend", "answer"),
            "'tool_calls' is missing, so the agent's tool calls are unknown and all checks of"
            f" tools ({checks_of_tools}) end in an error; set it to the path of the list in the"
            " JSON response",
        )
    if answer.agents is None and any(
        part.handoffs is not None
        for case in agent.test_cases or []
        for part in (case, *(part for _, part in case.checked_turns))
    ):
        context.warning(
            ("backend", "answer"),
            "'agents' is missing, so the agents that spoke are unknown and 'handoffs' ends in an"
            " error; set it to the path of the list of their names in the JSON response",
        )
    is_limited = limits is not None and (limits.max_tokens or limits.max_cost) is not None
    if is_limited and not is_tapped and not (answer.prompt_tokens and answer.completion_tokens):
        context.warning(
            ("backend", "answer"),
            "'prompt_tokens' and 'completion_tokens' are missing, so the budget cannot be enforced"
            " and the run stops after its first case; set them to their paths in the JSON response",
        )


def _needs_tool_calls(context: CheckContext, case: TestCaseModel, part: TurnModel) -> bool:
    if part.checks_tool_calls:
        return True
    metrics = metrics_of(context.agent, case) if part is case else metrics_of_turn(part)
    requires = context.inputs.requires
    return any(requires(metric, EvalParam.TOOLS_CALLED) for metric in metrics if metric.enabled)


AGENT_CHECKS: tuple[Callable[[CheckContext], None], ...] = (
    _check_model,
    _check_api_keys,
    _check_litellm,
    _check_backend,
    _check_keys_without_effect,
    check_written_paths,
    _check_instructions,
    _check_response_format,
    _check_tools,
    _check_tool_filtering,
    _check_shared_metrics,
    _check_shared_judge_is_used,
    _check_redaction_patterns,
    _check_prices,
    _check_cases,
    _check_shared_thresholds,
    check_placeholders,
    _check_evidence,
)
"""Every check of an agent, in the order of the findings; some need what earlier ones note."""

KEY_CHECKS: dict[str, Callable[[CheckContext], None]] = {
    "model": _check_model,
    "backend": _check_backend,
    "instructions": _check_instructions,
    "response_format": _check_response_format,
    "tools": _check_tools,
    "evaluations": _check_shared_metrics,
    "observability": _check_redaction_patterns,
}
"""The checks that read one key only."""
_KEYS_OF_CASES = {"model", "backend", "tools", "evaluations", "test_cases"}
"""The keys that the checks of a case read."""
