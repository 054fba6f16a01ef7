"""Static checks of what an agent gets and sends: earlier messages, and spans that cases check."""

import ast
from collections.abc import Iterator
from inspect import Parameter
from typing import Any

from holodeck.config.cases.rows import load_history
from holodeck.config.checks.findings import CheckContext
from holodeck.config.checks.python_files import find_definition
from holodeck.config.yaml.source import KeyPath
from holodeck.errors import ConfigError
from holodeck.lib.backends.base import NO_CONTEXT_PARAMETER, NO_MESSAGES_PLACEHOLDER
from holodeck.lib.backends.json_paths import has_placeholder
from holodeck.lib.support.patterns import compile_pattern
from holodeck.lib.support.signatures import METHODS, UnusableAgent, argument_passing
from holodeck.models.agent import Agent
from holodeck.models.backend import A2aBackendConfig, HttpBackendConfig, McpBackendConfig
from holodeck.models.cases.conversation import speaks_for_agent, step_kind, step_value
from holodeck.models.cases.matchers import TraceChecks
from holodeck.models.test_case import TestCaseModel

NO_RECEIVER = (
    "the agent behind the URL does not know where to send its spans; write 'observability:"
    " {receiver: {port: 4318}}', and start it with"
    " OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318"
)


def check_traces(context: CheckContext, case: TestCaseModel, path: KeyPath) -> None:
    """Report the findings about the checks of spans of a case and its turns."""
    parts = [((), case), *case.checked_turns]
    for at, part in parts:
        if part.trace is None:
            continue
        if not _can_have_spans(context):
            context.error((*path, *at, "trace"), NO_RECEIVER)
        _check_patterns(context, part.trace, (*path, *at, "trace"))


def _can_have_spans(context: CheckContext) -> bool:
    backend, settings = context.agent.backend, context.agent.observability
    is_service = isinstance(backend, HttpBackendConfig | A2aBackendConfig) or (
        isinstance(backend, McpBackendConfig) and backend.url is not None
    )
    return not is_service or (settings is not None and settings.receiver is not None)


def _check_patterns(context: CheckContext, checks: TraceChecks, path: KeyPath) -> None:
    for index, check in enumerate(checks.checks):
        for name, matcher in check.matchers().items():
            if matcher.regex is None:
                continue
            try:
                compile_pattern(matcher.regex)
            except ConfigError as error:
                context.error((*path, "checks", index, "where", name, "regex"), error.message)


Function = ast.FunctionDef | ast.AsyncFunctionDef


def check_history_support(context: CheckContext, case: TestCaseModel, path: KeyPath) -> None:
    """Check that the agent gets the earlier messages that the case relies on."""
    if case.turns is not None and len(case.turns) > 1:
        _check_memory(context, (*path, "turns"))
    if case.is_scripted_or_simulated and case.max_turns != 1:
        _check_memory(context, (*path, case.input_kind))
    steps = enumerate(case.script or ())
    unseen = [at for at, one in steps if speaks_for_agent(step_kind(one), step_value(one))]
    reason = _reason_no_history(context.agent) if unseen or case.history is not None else None
    if unseen and reason is not None:
        context.error((*path, "script", unseen[0]), reason)
    if case.history is None:
        return
    try:
        load_history(context.agent, int(path[1]))
    except ConfigError as error:
        context.config_error((*path, "history", "file"), error)
    if reason is not None:
        context.error((*path, "history"), reason)


def _check_memory(context: CheckContext, path: KeyPath) -> None:
    """Check that the agent can carry on a conversation of several turns."""
    backend = context.agent.backend
    if isinstance(backend, HttpBackendConfig):
        names = ("messages", "conversation_id")
        if not any(has_placeholder(backend.request, name) for name in names):
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
        return None if has_placeholder(backend.request, "messages") else NO_MESSAGES_PLACEHOLDER
    function = _answering_function(_definition(agent))
    return NO_CONTEXT_PARAMETER if function is not None and _ignores_history(function) else None


def _definition(agent: Agent) -> ast.AST | None:
    """Return what `module:attribute` names beside the agent.yaml; None if unknown."""
    target = agent.target
    if target is None:
        return None
    module, _, name = target.partition(":")
    try:
        return find_definition(f"{module.replace('.', '/')}.py", name, agent.base_dir, "")
    except ConfigError:  # reported elsewhere, or an installed module
        return None


def _answering_function(node: ast.AST | None) -> Function | None:
    """Return the function that answers: the node, or a method of a class without bases."""
    if not isinstance(node, ast.ClassDef) or node.bases or node.decorator_list:
        return node if isinstance(node, Function) else None
    methods = {one.name: one for one in node.body if isinstance(one, Function)}
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
    for index, one in enumerate(named):
        yield _parameter(one, Parameter.POSITIONAL_OR_KEYWORD, is_needed=index < needed)
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
