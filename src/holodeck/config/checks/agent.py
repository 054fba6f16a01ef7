"""Static checks of an agent: they call no model and run no code of the user.

A check is a function that takes a `CheckContext` and reports errors and warnings to it. To add
one, write the function and add it to `AGENT_CHECKS`, or to `CASE_CHECKS` in `checks.cases`.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Collection, Sequence
from importlib.util import find_spec
from typing import Any

from holodeck.config.agent_files import load_response_schema, read_instructions
from holodeck.config.checks.cases import can_fail_case, check_case
from holodeck.config.checks.findings import CheckContext, Finding, raise_on_errors
from holodeck.config.checks.metrics import (
    check_metrics,
    check_placeholders,
    check_target,
    warn_of_no_threshold,
)
from holodeck.config.checks.programs import check_mcp_server, check_process, named_code
from holodeck.config.checks.tools import (
    check_model,
    check_pattern,
    check_tool_filtering,
    check_tool_names,
    check_tools,
    check_url,
    tools_of_provider,
    warn_of_front_matter,
)
from holodeck.config.model_calls import all_metrics, called_models, find_missing_keys
from holodeck.config.prices import require_prices, unused_prices
from holodeck.config.yaml.source import KeyPath, location_of
from holodeck.errors import ConfigError, MissingExtra
from holodeck.lib.backends.selector import BACKENDS, check_name
from holodeck.lib.evaluators.build import (
    RequiredInputs,
    is_installed,
    judge_model_of,
    metrics_of,
    metrics_of_turn,
    needs_judge,
)
from holodeck.lib.evaluators.param_spec import EvalParam
from holodeck.lib.support.safe_paths import written_path
from holodeck.lib.support.text import did_you_mean_or_list
from holodeck.lib.tools.base import Tool
from holodeck.models.agent import (
    BUILT_IN_BACKENDS,
    IN_PYTHON,
    KEYS_WITHOUT_EFFECT,
    Agent,
)
from holodeck.models.backend import (
    PLACEHOLDERS,
    A2aBackendConfig,
    HttpBackendConfig,
    McpBackendConfig,
    ProcessBackendConfig,
    PythonBackendConfig,
)
from holodeck.models.base import PathUse, paths_used
from holodeck.models.config import ExecutionConfig
from holodeck.models.observability import ExportersConfig
from holodeck.models.test_case import TestCaseModel, TurnModel
from holodeck.models.tools.knowledge import DatabaseConfig

__all__ = ["Finding", "check", "check_before_run", "log_findings", "raise_on_errors"]

logger = logging.getLogger(__name__)

MOST_WARNINGS = 20
"""Warnings that a run logs; `holodeck validate` shows all of them."""


def check_before_run(agent: Agent, settings: ExecutionConfig) -> list[Finding]:
    """Return the findings about an agent. Raises ConfigError for errors that stop the run."""
    findings = check(agent)
    raise_on_errors(findings)
    # `validate` only warns of a missing key, because it may run on a machine without keys.
    for path, message in find_missing_keys(agent) if settings.recording != "replay" else ():
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


def _check_called_models(context: CheckContext) -> None:
    for path, message in find_missing_keys(context.agent):
        context.warning(path, message)
    for path, _, model in called_models(context.agent):
        if model.protocol == "litellm" and find_spec("litellm") is None:
            missing = MissingExtra("litellm", f"the provider {model.provider.value}")
            context.config_error(path, missing)
            return


def _check_code(context: CheckContext) -> None:
    agent = context.agent
    for folder in dict.fromkeys([*agent.code_folders[1:], *agent.own_code_folders[1:]]):
        if not folder.is_dir():
            context.error(("code",), f"folder not found: {folder}")
    is_used = isinstance(agent.backend, ProcessBackendConfig) or any(named_code(agent))
    if agent.code is not None and not is_used:
        context.warning(("code",), "has no effect, because no Python code is named here")


def _check_backend(context: CheckContext) -> None:
    backend = context.agent.backend
    if isinstance(backend, HttpBackendConfig):
        _check_http(context, backend)
    elif isinstance(backend, A2aBackendConfig):
        check_url(context, backend.url, ("backend", "url"))
    elif isinstance(backend, ProcessBackendConfig):
        check_process(context, backend)
    elif isinstance(backend, McpBackendConfig):
        check_mcp_server(context, backend)
    elif isinstance(backend, PythonBackendConfig):
        with context.reporting(("backend",)):
            _check_code_of_agent(context, backend.target, ("backend", "target"))
    elif backend is not None and backend not in {*BUILT_IN_BACKENDS, IN_PYTHON}:
        with context.reporting(("backend",)):
            check_name(backend)
            if ":" in backend:
                _check_code_of_agent(context, backend, ("backend",))


def _check_code_of_agent(context: CheckContext, target: str, path: KeyPath) -> None:
    kind = ".".join(map(str, path))
    check_target(context, target, path, kind, context.agent.own_code_folders)


def _check_http(context: CheckContext, backend: HttpBackendConfig) -> None:
    """Find what only building the backend would find; the user's code is not imported."""
    requests: list[tuple[KeyPath, Any, set[str]]] = [(("backend",), backend, set())]
    if backend.session is not None:
        start, end = backend.session.create, backend.session.close
        requests.append((("backend", "session", "create"), start, {"input", "session_id"}))
        if end is not None:
            requests.append((("backend", "session", "close"), end, {"input", "messages"}))
    before = len(context.findings)
    for path, request, _ in requests:
        check_url(context, request.url, (*path, "url"))
    if len(context.findings) == before:
        without_code = backend.model_copy(update={"prepare": None, "parse": None})
        try:
            BACKENDS.load(backend.type)(without_code)
        except ConfigError as error:
            context.error(tuple(error.field.split(".")), error.message)
    for path, request, without_value in requests:
        _warn_of_placeholders(context, request, path, without_value)
    for key, target in backend.functions.items():
        path = ("backend", key)
        with context.reporting(path):
            _check_code_of_agent(context, target, path)


_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")


def _warn_of_placeholders(
    context: CheckContext, request: Any, path: KeyPath, without_value: Collection[str]
) -> None:
    """Find placeholders that nothing replaces, such as a misspelled one."""
    known = [name for name in PLACEHOLDERS if name not in without_value]
    for key in ("url", "query", "request"):
        names = _PLACEHOLDER.findall(str(getattr(request, key, "")))
        for name in dict.fromkeys(name for name in names if name not in known):
            hint = did_you_mean_or_list(name, known)
            context.warning((*path, key), f"'{{{name}}}' is no placeholder here{hint}")
    for name, value in getattr(request, "headers", {}).items():
        if set(_PLACEHOLDER.findall(value.get_secret_value())).difference(known):
            hint = f"a placeholder is unknown; known: {', '.join(known)}"  # the value is secret
            context.warning((*path, "headers", name), hint)


def _check_keys_without_effect(context: CheckContext) -> None:
    for key, reason in KEYS_WITHOUT_EFFECT.items():
        if getattr(context.agent, key) is not None:
            context.warning((key,), reason)
    claude = context.agent.claude
    for key in () if claude is None else claude.without_effect:
        context.warning(
            ("claude", key),
            "has no effect: it is a setting of Claude Code, which HoloDeck starts, and holodeck"
            " calls the model itself; to test an agent with it, write 'backend: module:attribute'"
            " with an agent of the Claude Agent SDK",
        )


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


def check_opened_tools(agent: Agent, tools: Sequence[Tool]) -> None:
    """Check the names in the cases against tools that only the run knows. Raises ConfigError."""
    context = CheckContext(agent, RequiredInputs(agent))
    context.tools = {
        tool.name: None
        if tool.parameters.get("additionalProperties", True)
        else list(tool.parameters.get("properties", {}))
        for tool in tools
    }
    context.tools = {**context.tools, **tools_of_provider(agent)}
    context.tools_of_servers = [tool.full_name for tool in tools if tool.server is not None]
    for index, case in enumerate(agent.test_cases or []):
        for at, part in case.parts:
            check_tool_names(context, part, ("test_cases", index, *at))
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
    if not any(
        case.uses_judge or (case.simulate is not None and case.simulate.model is None)
        for case in agent.test_cases or []
    ):
        context.warning(("evaluations", "model"), "no metric uses this model; remove it or add one")


def _check_observability(context: CheckContext) -> None:
    observability = context.agent.observability
    patterns = observability.traces.redaction_patterns if observability else []
    for index, pattern in enumerate(patterns):
        path = ("observability", "traces", "redaction_patterns", index)
        check_pattern(context, pattern, path)
    if observability is not None and observability.enabled:
        _check_exporters(context, observability.exporters)


def _check_prices(context: CheckContext) -> None:
    execution = context.agent.execution
    if execution is not None and execution.max_cost is not None:
        with context.reporting(("execution", "max_cost")):
            require_prices(context.agent, "")
    for name in unused_prices(context.agent):
        context.warning(
            ("prices", "models", name),
            "no model of this agent has the name; write 'provider/model' as in the reports",
        )


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
    if not isinstance(agent.backend, HttpBackendConfig) or agent.backend.parse is not None:
        return
    answer, limits, is_tapped = agent.backend.answer, agent.execution, agent.backend.tap
    parts = [(case, part) for case in agent.test_cases or [] for _, part in case.parts]
    checks_of_tools = sum(
        part.checks_tool_calls or _requires(context, case, part, EvalParam.TOOLS_CALLED)
        for case, part in parts
    )
    if answer.tool_calls is None and checks_of_tools and not is_tapped:
        context.warning(
            ("backend", "answer"),
            "'tool_calls' is missing, so the agent's tool calls are unknown and all checks of"
            f" tools ({checks_of_tools}) end in an error; set it to the path of the list in the"
            " JSON response",
        )
    if not (answer.retrieval_context or agent.retrieval_tools) and any(
        _requires(context, case, part, EvalParam.RETRIEVAL_CONTEXT)
        and not (part.retrieval_context or case.checks_spans)
        for case, part in parts
    ):
        context.warning(
            ("backend", "answer"),
            "'retrieval_context' is missing, so it is unknown what the agent retrieved and metrics"
            " of passages end in an error; set it to the path of the list in the JSON response, or"
            " name the tools that search in 'retrieval_tools'",
        )
    if answer.agents is None and any(part.handoffs is not None for _, part in parts):
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


def _requires(
    context: CheckContext, case: TestCaseModel, part: TurnModel, param: EvalParam
) -> bool:
    """Whether a metric of the case or turn cannot be computed without the input."""
    metrics = metrics_of(context.agent, case) if part is case else metrics_of_turn(part)
    return any(context.inputs.requires(metric, param) for metric in metrics if metric.enabled)


_CHECKED_ELSEWHERE = ("execution", "test_cases")
"""`resolve_settings` checks the settings; a case names no such path, and there may be many."""


def _check_written_paths(context: CheckContext) -> None:
    """Find them in every key of an agent."""
    agent = context.agent
    others = {key: value for key, value in vars(agent).items() if key not in _CHECKED_ELSEWHERE}
    for keys, path in paths_used(others, PathUse.WRITTEN):
        if _is_users_store(agent, keys):
            continue
        folder = agent.own_dir if keys[0] == "tools" else agent.base_dir
        with context.reporting(keys):
            written_path(path, folder, "")


def _is_users_store(agent: Agent, keys: KeyPath) -> bool:
    """Whether the path belongs to a vector store in the `config.yaml` of the user."""
    owner: Any = agent
    for key in keys[:-1]:
        is_item = isinstance(key, int) or isinstance(owner, dict)
        owner = owner[key] if is_item else getattr(owner, str(key))
    return isinstance(owner, DatabaseConfig) and owner.is_users


def _check_exporters(context: CheckContext, exporters: ExportersConfig) -> None:
    """Find wrong endpoints, which are errors, and libraries that are not installed.

    Without a library, the run takes place all the same, as its results do not need it.
    """
    path = ("observability", "exporters")
    otlp, azure = exporters.otlp, exporters.azure_monitor
    needed = []
    if azure is not None and azure.enabled:
        module = "azure.monitor.opentelemetry.exporter"
        needed.append((module, "azure_monitor", MissingExtra("azure-monitor", "Azure Monitor")))
    if otlp is not None and otlp.enabled:
        # Imported here because few agents export telemetry.
        from holodeck.lib.observability.exporters import otlp_target  # noqa: PLC0415

        try:
            if otlp_target(otlp).protocol == "grpc":
                module = "opentelemetry.exporter.otlp.proto.grpc"
                needed.append((module, "otlp", MissingExtra("otlp-grpc", "gRPC")))
        except ConfigError as error:
            context.config_error((*path, "otlp", error.field.rpartition(".")[2]), error)
    for module, key, missing in needed:
        if not is_installed(module):
            context.warning((*path, key), f"nothing is sent: {missing.field} {missing.message}")


AGENT_CHECKS: tuple[Callable[[CheckContext], None], ...] = (
    _check_model,
    _check_called_models,
    _check_code,
    _check_backend,
    _check_keys_without_effect,
    _check_written_paths,
    _check_instructions,
    _check_response_format,
    check_tools,
    check_tool_filtering,
    _check_shared_metrics,
    _check_shared_judge_is_used,
    _check_observability,
    _check_prices,
    _check_cases,
    _check_shared_thresholds,
    check_placeholders,
    _check_evidence,
)
"""Every check of an agent, in the order of the findings; some need what earlier ones note."""

KEY_CHECKS: dict[str, Callable[[CheckContext], None]] = {
    "model": _check_model,
    "code": _check_code,
    "backend": _check_backend,
    "instructions": _check_instructions,
    "response_format": _check_response_format,
    "tools": check_tools,
    "evaluations": _check_shared_metrics,
    "observability": _check_observability,
}
"""The checks that read only their key."""
_KEYS_OF_CASES = {"model", "backend", "tools", "evaluations", "test_cases"}
"""The keys that the checks of a case read."""
