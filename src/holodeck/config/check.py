"""What is wrong with an agent that loads, found without calling a model or running user code."""

import logging
from collections.abc import Sequence
from importlib.util import find_spec

from holodeck.config.agent_files import load_instructions, load_response_schema
from holodeck.config.check_cases import check_case, check_pattern, is_decided
from holodeck.config.check_metrics import check_metric, check_placeholders, check_undecided
from holodeck.config.findings import Finding, Findings, raise_on_errors
from holodeck.config.model_calls import all_metrics, find_missing_keys, require_prices
from holodeck.config.python_files import (
    find_definition,
    import_warning,
    imported_class,
    parameter_names,
    require_target,
)
from holodeck.config.source import KeyPath, location
from holodeck.errors import ConfigError, MissingExtra
from holodeck.lib.evaluators.build import (
    RequiredInputs,
    build_evaluator,
    judge_model_of,
    metrics_of,
    metrics_of_turn,
    needs_judge,
)
from holodeck.lib.evaluators.param_spec import EvalParam
from holodeck.lib.safe_paths import is_file
from holodeck.models.agent import BUILT_IN_BACKENDS, IN_PYTHON, Agent, HttpBackendConfig
from holodeck.models.config import ExecutionConfig
from holodeck.models.evaluation import MetricSettings
from holodeck.models.llm import ProviderEnum
from holodeck.models.test_case import TestCaseModel, TurnModel
from holodeck.models.tool import FunctionTool

__all__ = ["Finding", "check", "check_before_run", "log_findings", "raise_on_errors"]

logger = logging.getLogger(__name__)

MOST_WARNINGS = 20
"""`holodeck validate` shows all of them."""


def check_before_run(agent: Agent, settings: ExecutionConfig) -> list[Finding]:
    """Return what is doubtful about an agent. Raises ConfigError for what is known to be wrong."""
    findings = check(agent)
    raise_on_errors(findings)
    for path, lacking in find_missing_keys(
        agent
    ):  # to `validate`, which may run anywhere, a warning
        if settings.cache_mode != "replay" or path[-1] not in {"criteria", "script", "simulate"}:
            raise ConfigError(location(agent, *path), lacking)
    return findings


def log_findings(findings: Sequence[Finding]) -> None:
    """Log the first findings as warnings, and how many more there are."""
    for finding in findings[:MOST_WARNINGS]:
        logger.warning("%s: %s: %s", finding.place, finding.path, finding.message)
    if len(findings) > MOST_WARNINGS:
        logger.warning("and %d more; see `holodeck validate`", len(findings) - MOST_WARNINGS)


def check(agent: Agent) -> list[Finding]:
    """Everything found, in the order of the file's parts."""
    findings = Findings(agent)
    _check_model(agent, findings)
    for path, lacking in find_missing_keys(agent):
        findings.warning(path, lacking)
    _check_backend(agent, findings)
    _check_texts(agent, findings)
    tools = _check_tools(agent, findings)
    shared = agent.evaluations.metrics if agent.evaluations else []
    inputs = RequiredInputs(agent)
    check_metrics(agent, shared, ("evaluations", "metrics"), inputs, findings)
    _check_judge_is_asked(agent, findings)
    _check_patterns(agent, findings)
    _check_prices(agent, findings)
    cases = agent.test_cases or []
    if not cases:
        findings.warning(("test_cases",), "nothing to test; write at least one case")
    for index, case in enumerate(cases):
        path = ("test_cases", index)
        _check_metrics_in(agent, case, path, inputs, findings)
        for at, part in case.parts:
            _check_metrics_in(agent, part, (*path, *at), inputs, findings)
        check_case(agent, case, path, tools, inputs, findings)
    if any(case.evaluations is None and is_decided(agent, case) for case in cases):
        check_undecided(shared, ("evaluations", "metrics"), findings)
    check_placeholders(agent, findings)
    _check_evidence(agent, inputs, findings)
    return findings.all


def _check_model(agent: Agent, findings: Findings) -> None:
    model = agent.model
    if model is None:
        return
    if model.endpoint is not None:
        _check_url(model.endpoint, ("model", "endpoint"), findings)
    if model.provider is not ProviderEnum.LOCAL:
        return
    if find_spec("xllamacpp") is None:
        findings.of_error(("model",), MissingExtra("local", "model"))
    if model.name.endswith(".gguf") and not is_file(agent.base_dir / model.name):
        findings.error(("model", "name"), f"there is no file {model.name!r}")


def _check_judge_is_asked(agent: Agent, findings: Findings) -> None:
    if agent.evaluations is None or agent.evaluations.model is None:
        return
    for _, metric in all_metrics(agent):
        asked = judge_model_of(agent, metric) if metric.enabled and needs_judge(metric) else None
        if asked is agent.evaluations.model:
            return
    if any(_asks_shared_model(case) for case in agent.test_cases or []):
        return
    findings.warning(("evaluations", "model"), "is asked by no metric; remove it, or add one")


def _asks_shared_model(case: TestCaseModel) -> bool:
    """Whether the model of `evaluations` judges the criteria of a case, or plays its user."""
    plays = case.simulate is not None and case.simulate.model is None
    return case.uses_judge or plays


def _check_backend(agent: Agent, findings: Findings) -> None:
    backend = agent.backend
    if isinstance(backend, HttpBackendConfig):
        _check_url(backend.url, ("backend", "url"), findings)
    elif backend is not None and backend not in {*BUILT_IN_BACKENDS, IN_PYTHON}:
        try:
            _check_named_backend(backend, agent, findings)
        except ConfigError as error:
            findings.of_error(("backend",), error)


def _check_named_backend(backend: str, agent: Agent, findings: Findings) -> None:
    # Imported here because only few agents name a backend.
    from holodeck.lib.backends.selector import check_name  # noqa: PLC0415
    from holodeck.lib.backends.user_agents import (  # noqa: PLC0415
        SEMANTIC_KERNEL,
        semantic_kernel_hint,
    )

    check_name(backend)
    if ":" not in backend:
        return
    _check_target(backend, agent, ("backend",), findings)
    module, _, kind = (imported_class(backend, agent.base_dir) or "").rpartition(".")
    if f"{module}.".startswith(f"{SEMANTIC_KERNEL}.agents."):
        findings.error(("backend",), semantic_kernel_hint(kind))


def _check_target(target: str, agent: Agent, path: KeyPath, findings: Findings) -> None:
    """Find what is known to be wrong with `module:attribute`. Raises ConfigError."""
    require_target(target, agent.base_dir, "backend" if path == ("backend",) else "metric")
    doubt = import_warning(target, agent.base_dir)
    if doubt is not None:
        findings.warning(path, doubt)


def _check_url(url: str, path: KeyPath, findings: Findings) -> None:
    if not url.startswith(("http://", "https://")):
        findings.error(path, "a URL begins with http:// or https://")


def _check_texts(agent: Agent, findings: Findings) -> None:
    try:
        load_instructions(agent)
    except ConfigError as error:
        findings.of_error(("instructions", "file"), error)
    try:
        load_response_schema(agent)
    except ConfigError as error:
        findings.of_error(("response_format",), error)


def _check_patterns(agent: Agent, findings: Findings) -> None:
    patterns = agent.observability.traces.redaction_patterns if agent.observability else []
    for index, pattern in enumerate(patterns):
        check_pattern(pattern, ("observability", "traces", "redaction_patterns", index), findings)


def _check_prices(agent: Agent, findings: Findings) -> None:
    if agent.execution is not None and agent.execution.max_cost is not None:
        try:
            require_prices(agent, "")
        except ConfigError as error:
            findings.of_error(("execution", "max_cost"), error)


def _check_evidence(agent: Agent, inputs: RequiredInputs, findings: Findings) -> None:
    """Find checks that can only end in an error, as the answers of a URL lack what they need."""
    if not isinstance(agent.backend, HttpBackendConfig):
        return
    answer, limits = agent.backend.answer, agent.execution
    needing = [
        part
        for case in agent.test_cases or []
        for part in (case, *(part for _, part in case.parts))
        if answer.tool_calls is None and _needs_tool_calls(agent, case, part, inputs)
    ]
    if needing:
        findings.warning(
            ("backend", "answer"),
            "'tool_calls' is missing, so the tool calls are unknown and all checks of tools"
            f" ({len(needing)}) end in an error; name the place of the list in the answer",
        )
    is_limited = limits is not None and (limits.max_tokens or limits.max_cost) is not None
    if is_limited and not (answer.prompt_tokens and answer.completion_tokens):
        findings.warning(
            ("backend", "answer"),
            "'prompt_tokens' and 'completion_tokens' are missing, so the budget cannot be held and"
            " the run stops after its first case; name their places in the JSON that comes back",
        )


def _needs_tool_calls(
    agent: Agent, case: TestCaseModel, part: TurnModel, inputs: RequiredInputs
) -> bool:
    if part.expected_tools is not None or part.forbidden_tools is not None:
        return True
    metrics = metrics_of(agent, case) if part is case else metrics_of_turn(part)
    return any(inputs.requires(one, EvalParam.TOOLS_CALLED) for one in metrics if one.enabled)


def _check_tools(agent: Agent, findings: Findings) -> dict[str, list[str] | None]:
    """Tool → names of its parameters; None for a tool that takes any or could not be read."""
    found: dict[str, list[str] | None] = {}
    for index, tool in enumerate(agent.tools or []):
        path = ("tools", index)
        found[tool.name] = _parameters(agent, tool, path, findings)
    return found


def _parameters(
    agent: Agent, tool: FunctionTool, path: KeyPath, findings: Findings
) -> list[str] | None:
    try:
        function = find_definition(tool.file, tool.function, agent.base_dir, "")
    except ConfigError as error:
        key = "function" if "defines no" in error.message else "file"
        findings.of_error((*path, key), error)
        return None
    return parameter_names(function) if tool.parameters is None else list(tool.parameters)


def _check_metrics_in(
    agent: Agent, asked: TurnModel, path: KeyPath, inputs: RequiredInputs, findings: Findings
) -> None:
    check_metrics(agent, asked.evaluations or [], (*path, "evaluations"), inputs, findings)
    check_metrics(agent, asked.scorers or [], (*path, "scorers"), inputs, findings)


def check_metrics(
    agent: Agent,
    metrics: Sequence[MetricSettings],
    path: KeyPath,
    inputs: RequiredInputs,
    findings: Findings,
) -> None:
    """Find metrics that cannot be built, and those that stand there twice; learn what they need."""
    for index, metric in enumerate(metrics):
        place = (*path, index)
        if metric in metrics[:index]:
            findings.warning(place, f"{metric.label!r} stands here twice, just the same")
        if not metric.enabled:
            continue
        check_metric(metric, place, findings)
        try:
            if metric.user_code is not None:
                _check_target(metric.user_code, agent, place, findings)
            else:
                inputs.register(metric, build_evaluator(metric, agent.base_dir, location=""))
                _check_judge(agent, metric, place, findings)
        except ConfigError as error:
            findings.of_error(place, error)


def _check_judge(agent: Agent, metric: MetricSettings, place: KeyPath, findings: Findings) -> None:
    if needs_judge(metric) and judge_model_of(agent, metric) is None:
        findings.error(
            place,
            f"{metric.label!r} needs a model that judges; write 'model' here or in 'evaluations'",
        )
