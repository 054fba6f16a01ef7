"""Static checks of a test case: can its expectations be met, and can a response fail it?"""

import ast
from collections.abc import Callable, Iterator, Sequence
from inspect import Parameter
from typing import Any

from holodeck.config.cases.rows import load_history
from holodeck.config.checks.findings import CheckContext
from holodeck.config.checks.metrics import check_forbidden_text, check_metrics, warn_of_no_threshold
from holodeck.config.checks.programs import definition_of, require_target
from holodeck.config.checks.tools import check_pattern, check_tool_names, unknown_tool
from holodeck.config.yaml.source import KeyPath, find_file
from holodeck.errors import ConfigError
from holodeck.lib.backends.base import NO_APPROVALS, NO_CONTEXT_PARAMETER, NO_MESSAGES_PLACEHOLDER
from holodeck.lib.evaluators.build import can_fail, compares_nothing, metrics_of, metrics_of_turn
from holodeck.lib.evaluators.param_spec import EvalParam
from holodeck.lib.support.signatures import METHODS, UnusableAgent, argument_passing
from holodeck.lib.support.text import plural
from holodeck.lib.support.tool_names import tools_named
from holodeck.models.agent import Agent
from holodeck.models.backend import (
    A2aBackendConfig,
    HttpBackendConfig,
    McpBackendConfig,
    has_placeholder,
)
from holodeck.models.cases.conversation import (
    find_unanswered_step,
    speaks_for_agent,
    step_kind,
    step_value,
)
from holodeck.models.cases.matchers import TraceChecks
from holodeck.models.metrics.base import MetricSettings
from holodeck.models.metrics.text import ComparingMetric, NotContainsMetric
from holodeck.models.test_case import TestCaseModel, TurnModel

NO_JUDGE = "criteria need a judge model; write 'evaluations: {model: …}'"
NO_SIMULATOR = (
    "a simulated user needs a model; write 'model' under 'simulate' or under 'evaluations'"
)
NOTHING_TO_COMPARE = (
    "'passfail' has nothing to compare and gives no verdict; write 'ground_truth'"
    " ('expected_output' in 'scenarios') or 'expected_tools'"
)
_DECIDING_STEPS = frozenset({"judge", "succeed", "fail"})
_GROUND_TRUTH = frozenset({EvalParam.GROUND_TRUTH, EvalParam.EXPECTED_OUTPUT})


def check_case(context: CheckContext, case: TestCaseModel, path: KeyPath) -> None:
    """Report the findings about a case and its turns."""
    for check in CASE_CHECKS:
        check(context, case, path)


def can_fail_case(agent: Agent, case: TestCaseModel) -> bool:
    """Whether a check of the case can fail it."""
    turns = [turn for _, turn in case.checked_turns]
    graded = [(case, metrics_of(agent, case)), *((turn, metrics_of_turn(turn)) for turn in turns)]
    return (
        case.checks_spans
        or case.max_turns_to_done is not None
        or any(part.checks_trajectory for part in (case, *turns))
        or any(criterion.required for criterion in case.criterion_settings)
        or any(step_kind(step) in _DECIDING_STEPS for step in case.script or ())
        or any(
            can_fail(metric) and not compares_nothing(metric, part)
            for part, metrics in graded
            for metric in metrics
        )
    )


def _check_metrics(context: CheckContext, case: TestCaseModel, path: KeyPath) -> None:
    for at, part in case.parts:
        for key, metrics in part.metric_lists:
            check_metrics(context, metrics, (*path, *at, key))


def _check_verdict(context: CheckContext, case: TestCaseModel, path: KeyPath) -> None:
    """Check that the metrics have their inputs, that one of the checks can fail the case, and that
    its expectations can be met."""
    metrics = metrics_of(context.agent, case)
    scorers = case.scorers or []
    evaluations = metrics[: len(metrics) - len(scorers)]
    has_own = case.evaluations is not None
    _check_inputs(context, evaluations, case, (*path, "evaluations"), None if has_own else path)
    _check_inputs(context, scorers, case, (*path, "scorers"))
    if case.todo is not None:
        context.warning((*path, "todo"), f"cannot pass until this is removed: {case.todo}")
    enabled = [
        metric for metric in metrics if metric.enabled and not compares_nothing(metric, case)
    ]
    if can_fail_case(context.agent, case):
        for key, own in case.metric_lists:
            warn_of_no_threshold(context, own, (*path, key))
    elif case.skip is None and case.todo is None:
        _warn_of_no_verdict(context, enabled, path)
    _check_expectations(context, case, enabled, path)


def _check_turns(context: CheckContext, case: TestCaseModel, path: KeyPath) -> None:
    for part_path, turn in case.checked_turns:
        turn_path = (*path, *part_path)
        for key, metrics in turn.metric_lists:
            _check_inputs(context, metrics, turn, (*turn_path, key))
            warn_of_no_threshold(context, metrics, (*turn_path, key))
        enabled = [metric for metric in metrics_of_turn(turn) if metric.enabled]
        _check_expectations(context, turn, enabled, turn_path)


def _check_context(context: CheckContext, case: TestCaseModel, path: KeyPath) -> None:
    """Find a `context` that does not reach the agent and so has no effect."""
    backend = context.agent.backend
    if case.context is None:
        return
    if not context.agent.has_own_model:
        context.error(
            (*path, "context"), "the built-in agent takes no context; only a 'backend' of yours can"
        )
    elif isinstance(backend, HttpBackendConfig) and not has_placeholder(
        backend.message_template, "context"
    ):
        context.error(
            (*path, "context"),
            "the request does not contain the context; write '{context}' in backend.request",
        )


def _check_approvals(context: CheckContext, case: TestCaseModel, path: KeyPath) -> None:
    """Find approvals that no agent of this kind asks for, or that are answered too late."""
    services = HttpBackendConfig | A2aBackendConfig | McpBackendConfig
    can_ask = context.agent.has_own_model and not isinstance(context.agent.backend, services)
    for at, part in case.parts:
        if part.expect_approval is None:
            continue
        key = (*path, *at, "expect_approval")
        if not can_ask:
            context.error(key, NO_APPROVALS)
        elif at[:1] == ("script",):
            context.error(key, "the step comes after the turn; write it for the whole case")


def _check_criteria(context: CheckContext, case: TestCaseModel, path: KeyPath) -> None:
    """Find criteria about tools that the agent does not have."""
    if context.agent.has_own_model or not context.knows_all_tools:
        return
    for index, criterion in enumerate(case.criterion_settings):
        tool = criterion.says_failed
        if tool is not None and not tools_named(tool, context.tools):
            key = (*path, "criteria", index, "says_failed")
            context.error(key, unknown_tool(tool, context.tools))


def _check_models(context: CheckContext, case: TestCaseModel, path: KeyPath) -> None:
    if case.uses_judge and context.agent.judge_model is None:
        context.error((*path, "script" if case.criteria is None else "criteria"), NO_JUDGE)
    if case.simulate is not None and context.agent.simulator_model(case) is None:
        context.error((*path, "simulate"), NO_SIMULATOR)


def _check_script(context: CheckContext, case: TestCaseModel, path: KeyPath) -> None:
    unanswered = find_unanswered_step(case.script or ())
    if unanswered is not None:
        context.warning(
            (*path, "script", unanswered), "the agent never answers this; write 'agent' below it"
        )
    for number, step in enumerate(case.script or ()):
        if step_kind(step) == "call":
            with context.reporting((*path, "script", number, "call")):
                require_target(step_value(step), context.agent.code_folders, "call")


def _check_turns_to_done(context: CheckContext, case: TestCaseModel, path: KeyPath) -> None:
    most = case.most_turns
    if case.max_turns_to_done is not None and most is not None and case.max_turns_to_done >= most:
        context.error(
            (*path, "max_turns_to_done"),
            f"cannot fail: the agent has at most {plural(most, 'turn')}; write less",
        )


def _check_inputs(
    context: CheckContext,
    metrics: Sequence[MetricSettings],
    case: TurnModel,
    path: KeyPath,
    shared_path: KeyPath | None = None,
) -> None:
    """Check that the case has what its metrics need.

    `path` is the list of the metrics; `shared_path` takes its place for metrics of other cases too.
    """
    for index, metric in enumerate(metrics):
        missing = context.inputs.describe_missing(metric, case) if metric.enabled else None
        metric_path = (*path, index) if shared_path is None else shared_path
        if missing is not None:
            context.error(metric_path, missing)
        elif metric.enabled and compares_nothing(metric, case):
            context.warning(metric_path, NOTHING_TO_COMPARE)


def _warn_of_no_verdict(
    context: CheckContext, metrics: Sequence[MetricSettings], path: KeyPath
) -> None:
    if not metrics:
        context.warning(
            path, "checks nothing; add evaluations, criteria, expected_tools or forbidden_tools"
        )
        return
    if any(metric.required and metric.threshold == 0 for metric in metrics):
        return  # reported as errors
    names = ", ".join(dict.fromkeys(metric.label for metric in metrics))
    reason = "without a threshold above 0 gives no verdict"
    if not all(metric.required for metric in metrics):
        reason = "is only reported, because of 'required: false' or no threshold above 0"
    context.warning(path, f"cannot fail: {names} {reason}")


def _check_expectations(
    context: CheckContext, case: TurnModel, metrics: Sequence[MetricSettings], path: KeyPath
) -> None:
    if case.ground_truth is not None:
        if not any(_reads_ground_truth(context, metric) for metric in metrics):
            context.warning(
                (*path, "ground_truth"),
                "no metric compares with it; add one such as 'exact_match' without 'value'",
            )
        for metric in metrics:
            if isinstance(metric, NotContainsMetric) and metric.expected_texts() is None:
                check_forbidden_text(context, case.ground_truth, metric, (*path, "ground_truth"))
    check_tool_names(context, case, path)
    for index, file in enumerate(case.files or []):
        if file.path is None:
            continue
        with context.reporting((*path, "files", index, "path"), stops_the_run=False):
            find_file(file.path, context.agent.base_dir, "")


def _reads_ground_truth(context: CheckContext, metric: MetricSettings) -> bool:
    if isinstance(metric, ComparingMetric):
        return metric.expected_texts() is None
    accepts = context.inputs.accepts
    return metric.user_code is not None or any(accepts(metric, key) for key in _GROUND_TRUTH)


NO_RECEIVER = (
    "the agent behind the URL does not know where to send its spans; write 'observability:"
    " {receiver: {port: 4318}}', and start it with"
    " OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318"
)


def _check_traces(context: CheckContext, case: TestCaseModel, path: KeyPath) -> None:
    """Report the findings about the checks of spans of a case and its turns."""
    backend, settings = context.agent.backend, context.agent.observability
    is_service = isinstance(backend, HttpBackendConfig | A2aBackendConfig) or (
        isinstance(backend, McpBackendConfig) and backend.url is not None
    )
    can_have_spans = not is_service or (settings is not None and settings.receiver is not None)
    for at, part in case.parts:
        if part.trace is None:
            continue
        if not can_have_spans:
            context.error((*path, *at, "trace"), NO_RECEIVER)
        _check_patterns(context, part.trace, (*path, *at, "trace"))


def _check_patterns(context: CheckContext, checks: TraceChecks, path: KeyPath) -> None:
    for index, check in enumerate(checks.checks):
        for name, matcher in check.matchers().items():
            if matcher.regex is not None:
                key = (*path, "checks", index, "where", name, "regex")
                check_pattern(context, matcher.regex, key)


def _check_stand_ins(context: CheckContext, case: TestCaseModel, path: KeyPath) -> None:
    """Report the findings about what stands in for the tools and the model of a case."""
    model = context.agent.model
    is_scripted = model is not None and model.protocol == "scripted"
    has_own = case.stubs_of_tools or case.is_sealed or case.model_replies or case.model_faults
    if not (has_own or is_scripted):
        return
    # Imported here because few cases have any.
    from holodeck.config.checks.stubs import check_model, check_stubs  # noqa: PLC0415

    check_stubs(context, case, path)
    check_model(context, case, path)


Function = ast.FunctionDef | ast.AsyncFunctionDef


def _check_history_support(context: CheckContext, case: TestCaseModel, path: KeyPath) -> None:
    """Check that the agent gets the earlier messages that the case relies on."""
    if case.turns is not None and len(case.turns) > 1:
        _check_memory(context, (*path, "turns"))
    if case.is_scripted_or_simulated and case.max_turns != 1:
        _check_memory(context, (*path, case.input_kind))
    steps = enumerate(case.script or ())
    unseen = [at for at, step in steps if speaks_for_agent(step_kind(step), step_value(step))]
    reason = _reason_no_history(context.agent) if unseen or case.history is not None else None
    if unseen and reason is not None:
        context.error((*path, "script", unseen[0]), reason)
    if case.history is None:
        return
    with context.reporting((*path, "history", "file")):
        load_history(context.agent, int(path[1]))
    if reason is not None:
        context.error((*path, "history"), reason)


def _check_memory(context: CheckContext, path: KeyPath) -> None:
    """Check that the agent can carry on a conversation of several turns."""
    backend = context.agent.backend
    if isinstance(backend, HttpBackendConfig):
        if not backend.has_memory:
            context.error(
                path,
                "the request does not contain the earlier messages; write '{messages}' or"
                " '{conversation_id}' in backend.request",
            )
        return
    function = _definition(context.agent)
    if isinstance(function, Function) and _ignores_history(function):
        context.warning(
            path,
            f"{function.name!r} gets each turn as if it were the first; give it a parameter"
            " 'context', or name a class",
        )


def _reason_no_history(agent: Agent) -> str | None:
    """Return why the agent cannot get earlier messages; None if it can, or if that is unknown."""
    backend = agent.backend
    if isinstance(backend, HttpBackendConfig):
        return None if backend.takes_history else NO_MESSAGES_PLACEHOLDER
    function = _answering_function(_definition(agent))
    return NO_CONTEXT_PARAMETER if function is not None and _ignores_history(function) else None


def _definition(agent: Agent) -> ast.AST | None:
    """Return what `module:attribute` names beside the agent.yaml; None if unknown."""
    if agent.target is None:
        return None
    try:
        return definition_of(agent.target, agent.own_code_folders, "")
    except ConfigError:  # reported elsewhere
        return None


def _answering_function(node: ast.AST | None) -> Function | None:
    """Return the function that answers: the node, or a method of a class without bases."""
    if not isinstance(node, ast.ClassDef) or node.bases or node.decorator_list:
        return node if isinstance(node, Function) else None
    methods = {method.name: method for method in node.body if isinstance(method, Function)}
    found = next((methods[name] for name in METHODS if name in methods), None)
    return None if found is None or found.decorator_list else found


def _ignores_history(function: Function) -> bool:
    """Whether the function certainly gets no earlier messages; a decorator may add them."""
    parameters = [parameter for parameter in _parameters(function.args) if parameter.name != "self"]
    if function.decorator_list or not parameters:
        return False
    try:
        way, _ = argument_passing(parameters, function.name)
    except UnusableAgent:  # reported where it is called
        return False
    return way == "left out"


def _parameters(written: ast.arguments) -> Iterator[Parameter]:
    """Yield the parameters of a parsed function, their annotations as text."""
    named = [*written.posonlyargs, *written.args]
    needed = len(named) - len(written.defaults)
    for index, argument in enumerate(named):
        yield _parameter(argument, Parameter.POSITIONAL_OR_KEYWORD, is_needed=index < needed)
    if written.vararg is not None:
        yield _parameter(written.vararg, Parameter.VAR_POSITIONAL, is_needed=True)
    for argument, default in zip(written.kwonlyargs, written.kw_defaults, strict=True):
        yield _parameter(argument, Parameter.KEYWORD_ONLY, is_needed=default is None)
    if written.kwarg is not None:
        yield _parameter(written.kwarg, Parameter.VAR_KEYWORD, is_needed=True)


def _parameter(written: ast.arg, kind: Any, *, is_needed: bool) -> Parameter:
    default = Parameter.empty if is_needed else None
    annotation = Parameter.empty if written.annotation is None else ast.unparse(written.annotation)
    return Parameter(written.arg, kind, default=default, annotation=annotation)


CASE_CHECKS: tuple[Callable[[CheckContext, TestCaseModel, KeyPath], None], ...] = (
    _check_metrics,
    _check_verdict,
    _check_turns,
    _check_context,
    _check_approvals,
    _check_history_support,
    _check_models,
    _check_criteria,
    _check_script,
    _check_turns_to_done,
    _check_traces,
    _check_stand_ins,
)
"""Every check of a test case, in the order of the findings."""
