"""`holodeck validate`: every check that needs no call of a model."""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path

import click

from holodeck.cli.agents import AgentTarget, find_checked
from holodeck.cli.context import CliContext
from holodeck.cli.logs import print_error
from holodeck.cli.options import allow_outside_option, untrusted_option
from holodeck.config.cases.suite_files import why_not_run
from holodeck.config.checks.agent import check
from holodeck.config.checks.findings import CheckContext, Finding
from holodeck.config.checks.programs import named_code
from holodeck.config.checks.tools import unknown_tool
from holodeck.config.loader import ConfigLoader, load_agent_with_config
from holodeck.config.model_calls import all_metrics
from holodeck.config.project_file import default_agent
from holodeck.config.secrets import collect
from holodeck.errors import ConfigError, ExitCode, HoloDeckError
from holodeck.lib.backends.base import NO_APPROVALS, AgentDescription
from holodeck.lib.backends.process.backend import ProcessBackend
from holodeck.lib.backends.python.backend import CallableBackend
from holodeck.lib.evaluators.build import RequiredInputs
from holodeck.lib.processes.process_exit import process_exit_forbidden
from holodeck.lib.support.safe_paths import inputs_noted
from holodeck.lib.support.text import plural, shorten
from holodeck.lib.support.tool_names import tools_named
from holodeck.lib.tools.function import load_function_tool
from holodeck.lib.ui.live import echo, protected_streams
from holodeck.lib.user_code.code_root import CodeFolders
from holodeck.lib.user_code.registry import load_callable
from holodeck.models.agent import Agent
from holodeck.models.backend import ProcessBackendConfig
from holodeck.models.base import KeyPath
from holodeck.models.tool import FunctionTool

_MAX_FINDINGS = 100
_MAX_NAMES = 5
_MAX_NAME_CHARACTERS = 80


@click.command()
@click.argument("agent_config", default=default_agent, type=click.Path())
@click.option("--strict", is_flag=True, help="Treat warnings as errors.")
@click.option("--load", is_flag=True, help="Import your code, too, and show what was found.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@allow_outside_option
@untrusted_option
@click.pass_context
def validate(
    context: click.Context, agent_config: str, strict: bool, load: bool, as_json: bool
) -> None:
    """Check AGENT_CONFIG without calling a model or running your code.

    AGENT_CONFIG is an agent.yaml, a suite file, or a folder that contains them; by default the
    agent.yaml in the current folder, else the nearest one above it. A suite is checked
    with the agent.yaml beside or above it, or alone without one. With --load, holodeck imports your
    code and creates the agent, but does not call it.

    Exit codes: 0 valid, 2 invalid.
    """
    cli_context = context.ensure_object(CliContext)
    rows: list[dict[str, str]] = []
    is_valid, read = True, set[Path]()
    found = find_checked(agent_config)
    for target in found.targets:
        try:
            agent, loader, findings = _read(target)
        except ConfigError as error:
            if not as_json and len(found.targets) == 1:
                raise
            is_valid = False
            if as_json:
                message = cli_context.brief(error.message)
                rows += _rows([Finding("error", "", message, error.field)])
            else:
                print_error(error, cli_context)
            continue
        loaded = None
        if load and not any(finding.severity == "error" for finding in findings):
            loaded = _load_code(agent, findings)
        errors = sum(1 for finding in findings if strict or finding.severity == "error")
        is_valid = is_valid and not errors
        read |= loader.cases_read
        rows += _rows(findings)
        cli_context.protect(collect(agent, loader.environment(agent.base_dir)))
        if not as_json:
            echo(cli_context.clean(_as_text(findings, target.path, agent, errors, loaded)))
        if (notice := loader.overridden_notice(agent)) is not None:
            cli_context.warn(notice)
    if as_json:
        cli_context.print_json(json.dumps(rows, indent=2))
    _warn_of_unchecked(found.others, read, cli_context)
    context.exit(ExitCode.PASSED if is_valid else ExitCode.CONFIG)


def _read(target: AgentTarget) -> tuple[Agent, ConfigLoader, list[Finding]]:
    """Return an agent, what has read it, and the findings. Raises ConfigError."""
    with inputs_noted():
        agent, _, loader = load_agent_with_config(
            target.path, suites=target.suites, adapter=target.adapter
        )
        return agent, loader, check(agent)


def _warn_of_unchecked(others: list[str], read: set[Path], context: CliContext) -> None:
    """Name the YAML files of a folder that are no suites and no agents, but may be meant to be."""
    for file in others:
        reason = None if Path(file).resolve() in read else why_not_run(file)
        if reason is not None:
            context.warn(f"not checked: {file}: {reason}")


def _rows(findings: list[Finding]) -> list[dict[str, str]]:
    return [
        {
            "severity": finding.severity,
            "place": finding.location,
            "path": finding.path,
            "message": finding.message,
        }
        for finding in findings
    ]


def _as_text(
    findings: list[Finding], path: str, agent: Agent, errors: int, loaded: list[str] | None
) -> str:
    """Return the findings and the verdict; `loaded` are lines about code, None if not loaded."""
    lines = list(map(str, findings))
    if len(findings) > _MAX_FINDINGS:
        errors_first = sorted(findings, key=lambda finding: finding.severity)
        more = f"and {len(findings) - _MAX_FINDINGS} more; --json shows all"
        lines = [*map(str, errors_first[:_MAX_FINDINGS]), more]
    lines += [f"{path}: {line}" for line in loaded or ()]
    code = list(dict.fromkeys(name for _, name in named_code(agent))) if loaded is None else []
    if code:
        names = ", ".join(shorten(name, _MAX_NAME_CHARACTERS) for name in code[:_MAX_NAMES])
        more = ", …" if len(code) > _MAX_NAMES else ""
        lines.append(f"{path}: your code was not imported or run: {names}{more} (--load does)")
    guarded = [tool.name for tool in agent.tools or [] if tool.side_effects]
    if guarded:
        names = ", ".join(guarded)
        lines.append(f"{path}: tools with side effects: {names} (run by --allow-side-effects)")
    verdict = "ok"
    if errors:
        verdict = plural(errors, "problem")
    elif findings:
        verdict = f"ok, {plural(len(findings), 'warning')}"
    return "\n".join([*lines, f"{path}: {_contents(agent)}: {verdict}"])


def _contents(agent: Agent) -> str:
    cases = agent.test_cases or []
    shared = agent.evaluations.metrics if agent.evaluations else []
    metrics = [*shared, *(metric for case in cases for metric in case.own_metrics)]
    counts = [
        plural(len(cases), "test case"),
        plural(len(agent.tools or []), "tool"),
        plural(len(metrics), "metric"),
    ]
    criteria = sum(len(case.criterion_settings) for case in cases)
    if criteria:
        counts.append(plural(criteria, "criterion", "criteria"))
    return ", ".join(counts)


def describe_agent(agent: str | ProcessBackendConfig, folder: CodeFolders) -> AgentDescription:
    """Return what the agent of `module:attribute`, or of a process, is.

    It is loaded and closed, not called. Raises ConfigError or BackendInitError.
    """

    async def load() -> AgentDescription:
        backend: CallableBackend | ProcessBackend
        if isinstance(agent, str):
            backend = CallableBackend(agent, folder)
        else:
            backend = ProcessBackend(agent, folder)
        try:
            await backend.initialize()
            return backend.describe()
        finally:
            await backend.teardown()

    with protected_streams(), process_exit_forbidden():
        return asyncio.run(load())


def _load_agent(context: CheckContext) -> list[str]:
    """Load the agent if it is the user's code; return a line about it, and add what is wrong."""
    agent = context.agent
    process = agent.backend if isinstance(agent.backend, ProcessBackendConfig) else None
    named = process or agent.target
    if named is None:
        return []
    try:
        found = describe_agent(named, agent.own_code_folders)
    except ConfigError as error:
        context.config_error(("backend",), error)
        return []
    except HoloDeckError as error:
        context.error(("backend",), str(error))
        return []
    for index, case in enumerate(agent.test_cases or ()):
        if case.expects_approvals and not found.answers_approvals:
            context.error(("test_cases", index, "expect_approval"), NO_APPROVALS)
        if case.is_sealed and found.seal_problem is not None:
            context.error(("test_cases", index, "tools_in_test"), found.seal_problem)
    tools = dict.fromkeys(found.tools or ())
    for path, name in _written_tools(agent) if found.tools is not None else ():
        if not tools_named(name, tools):
            context.error(path, unknown_tool(name, tools))
    return [f"loaded {agent.target or 'the process'}: {found}"]


def _written_tools(agent: Agent) -> Iterator[tuple[KeyPath, str]]:
    """Yield the names of tools that must be those of the agent, each after its path."""
    for index, name in enumerate(agent.retrieval_tools):
        yield ("retrieval_tools", index), name
    for index, case in enumerate(agent.test_cases or ()):
        for tool in case.stubs_of_tools:
            yield ("test_cases", index, "stubs", tool), tool


def _load_code(agent: Agent, findings: list[Finding]) -> list[str]:
    """Load the user's code; return a line for each part of it, and add what is wrong."""
    context = CheckContext(agent, RequiredInputs(agent), findings=findings)
    lines = _load_agent(context)
    for index, tool in enumerate(agent.tools or ()):
        if not isinstance(tool, FunctionTool):
            continue
        try:
            loaded = load_function_tool(tool, agent.own_code_folders)
            parameters = ", ".join(loaded.parameters.get("properties", {}))
            lines.append(f"loaded the tool {loaded.name}({parameters})")
        except ConfigError as error:
            context.config_error(("tools", index), error)
    for path, metric in all_metrics(agent):
        if metric.user_code is None or not metric.enabled:
            continue
        try:
            load_callable(metric.user_code, agent.code_folders, location="")
            lines.append(f"loaded the metric {metric.user_code}")
        except ConfigError as error:
            context.config_error(path, error)
    return list(dict.fromkeys(lines)) or ["nothing to load: no code of yours is named"]
