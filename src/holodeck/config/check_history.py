"""Whether an agent can be told what was said before: what its backend and its code say about it."""

import ast
from collections.abc import Iterator
from inspect import Parameter
from typing import Any

from holodeck.config.findings import Findings
from holodeck.config.history import load_history
from holodeck.config.python_files import find_definition
from holodeck.config.source import KeyPath
from holodeck.errors import ConfigError
from holodeck.lib.backends.base import NO_CONTEXT_PARAMETER, NO_MESSAGES_PLACEHOLDER
from holodeck.lib.backends.json_paths import has_placeholder
from holodeck.lib.backends.user_agents import METHODS, argument_passing
from holodeck.models.agent import Agent, HttpBackendConfig
from holodeck.models.conversation import speaks_for_agent, step_kind, step_value
from holodeck.models.test_case import TestCaseModel

Function = ast.FunctionDef | ast.AsyncFunctionDef


def check_history_support(
    agent: Agent, path: KeyPath, case: TestCaseModel, findings: Findings
) -> None:
    """Find what the agent of a case should have in mind and cannot."""
    if case.turns is not None and len(case.turns) > 1:
        _check_memory(agent, (*path, "turns"), findings)
    if case.is_scripted_or_simulated and case.max_turns != 1:
        _check_memory(agent, (*path, case.form), findings)
    _check_lines(agent, path, case, findings)
    if case.history is not None:
        _check_history(agent, path, findings)


def _check_memory(agent: Agent, path: KeyPath, findings: Findings) -> None:
    """Find what cannot carry a conversation of several turns, or hears each as if it were alone."""
    backend = agent.backend
    if isinstance(backend, HttpBackendConfig):
        if not any(
            has_placeholder(backend.request, name) for name in ("messages", "conversation_id")
        ):
            findings.error(
                path,
                "the request has no place for what was said before; write '{messages}' or"
                " '{conversation_id}' in backend.request",
            )
        return
    answers = _defined(agent)
    if isinstance(answers, Function) and _is_deaf(answers):
        findings.warning(
            path,
            f"{answers.name!r} hears each turn as if it were the first; give it a parameter"
            " 'context', or name a class",
        )


def _check_history(agent: Agent, path: KeyPath, findings: Findings) -> None:
    """Find what is wrong with the earlier messages of a case, and agents that cannot get them."""
    place = (*path, "history")
    try:
        load_history(agent, int(path[1]))
    except ConfigError as error:
        findings.of_error((*place, "file"), error)
    why = _why_deaf(agent)
    if why is not None:
        findings.error(place, why)


def _check_lines(agent: Agent, path: KeyPath, case: TestCaseModel, findings: Findings) -> None:
    """Find the first line of a script that the agent should be told of and cannot be."""
    steps = list(enumerate(case.script or ()))
    told = [at for at, one in steps if speaks_for_agent(step_kind(one), step_value(one))]
    why = _why_deaf(agent) if told else None
    if why is not None:
        findings.error((*path, "script", told[0]), why)


def _why_deaf(agent: Agent) -> str | None:
    """Why the agent cannot be told what was said; None where it can, or nothing is known of it."""
    backend = agent.backend
    if isinstance(backend, HttpBackendConfig):
        return None if has_placeholder(backend.request, "messages") else NO_MESSAGES_PLACEHOLDER
    answers = _answering(_defined(agent))
    return NO_CONTEXT_PARAMETER if answers is not None and _is_deaf(answers) else None


def _defined(agent: Agent) -> ast.AST | None:
    """What `backend: module:attribute` names beside the agent.yaml; None if that cannot be told."""
    if not isinstance(agent.backend, str) or ":" not in agent.backend:
        return None
    module, _, name = agent.backend.partition(":")
    try:
        return find_definition(f"{module.replace('.', '/')}.py", name, agent.base_dir, "")
    except ConfigError:  # told of elsewhere, or it is installed
        return None


def _answering(node: ast.AST | None) -> Function | None:
    """The function that answers: itself, or the method of a class that inherits nothing."""
    if not isinstance(node, ast.ClassDef) or node.bases or node.decorator_list:
        return node if isinstance(node, Function) else None
    methods = {one.name: one for one in node.body if isinstance(one, Function)}
    found = next((methods[name] for name in METHODS if name in methods), None)
    return None if found is None or found.decorator_list else found


def _is_deaf(function: Function) -> bool:
    """Whether it is told nothing of before; what a decorator makes of it is not known."""
    parameters = [one for one in _parameters(function.args) if one.name != "self"]
    if function.decorator_list or not parameters:
        return False
    try:
        way, _ = argument_passing(parameters, function.name, "backend")
    except ConfigError:  # told where it is called
        return False
    return way == "left out"


def _parameters(written: ast.arguments) -> Iterator[Parameter]:
    """The parameters as they would be, their annotations as text."""
    named = [*written.posonlyargs, *written.args]
    needed = len(named) - len(written.defaults)
    for index, one in enumerate(named):
        yield _parameter(one, Parameter.POSITIONAL_OR_KEYWORD, is_needed=index < needed)
    if written.vararg is not None:
        yield _parameter(written.vararg, Parameter.VAR_POSITIONAL, is_needed=True)
    for one, default in zip(written.kwonlyargs, written.kw_defaults, strict=True):
        yield _parameter(one, Parameter.KEYWORD_ONLY, is_needed=default is None)
    if written.kwarg is not None:
        yield _parameter(written.kwarg, Parameter.VAR_KEYWORD, is_needed=True)


def _parameter(written: ast.arg, kind: Any, *, is_needed: bool) -> Parameter:
    default = Parameter.empty if is_needed else None
    annotation = Parameter.empty if written.annotation is None else ast.unparse(written.annotation)
    return Parameter(written.arg, kind, default=default, annotation=annotation)
