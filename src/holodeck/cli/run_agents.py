"""`holodeck test` on the agents it found: all of them are loaded first, then run one by one."""

import json
import logging
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from holodeck.cli.agent_paths import AgentTarget, FoundAgents
from holodeck.cli.agent_reports import AgentReports
from holodeck.cli.context import CliContext
from holodeck.cli.logs import print_error, start_logging
from holodeck.cli.options import ReportTarget, check_inputs
from holodeck.cli.selection import apply_selection, case_list, case_rows, plan_comparison, plan_run
from holodeck.cli.test_run import TestRun, find_run, repeat_selection, resume_run
from holodeck.config.cases.suite_files import current_invalid_suites, why_not_run
from holodeck.config.yaml.source import display_path
from holodeck.errors import (
    INTERRUPTED,
    ConfigError,
    ExitCode,
    HoloDeckError,
    NothingSelected,
    worst_exit_code,
)
from holodeck.lib.selection.request import SelectionRequest
from holodeck.lib.support.safe_paths import note_input
from holodeck.lib.support.text import did_you_mean_or_list
from holodeck.lib.ui.live import echo, write_text
from holodeck.models.agent import Agent
from holodeck.models.base import PathUse, paths_used
from holodeck.models.config import ExecutionConfig
from holodeck.models.selection import Selection

if TYPE_CHECKING:
    from holodeck.cli.comparison_run import SecondAgent
    from holodeck.cli.regression_gate import GateOptions, RegressionGate
    from holodeck.config.checks.findings import Finding
    from holodeck.lib.records.run_store import Run

logger = logging.getLogger(__name__)

_MAX_FILES = 5


@dataclass(frozen=True)
class TestOptions:
    """The options of the command line."""

    __test__ = False

    request: SelectionRequest
    settings: ExecutionConfig
    targets: Sequence[ReportTarget] = ()
    preview_mode: Literal["list", "plan"] | None = None
    """What to show instead of running; None for a run."""
    as_json: bool = False
    resume: str | None = None
    """The run to resume; None for a new one."""
    retry_errors: bool = False
    force: bool = False
    debug: bool = False
    """Whether a person types the messages of simulated users."""
    against: str | None = None
    """The agent to compare with; None for a run of one agent."""
    fail_on: Literal["regression"] | None = None
    """What makes a comparison fail; None if no verdict does."""
    gate: "GateOptions | None" = None
    """The earlier run to compare with; None for none."""


@dataclass(frozen=True)
class LoadedAgent:
    """An agent whose configuration was read and, for a run, checked."""

    target: AgentTarget
    agent: Agent
    settings: ExecutionConfig
    request: SelectionRequest
    case_files: frozenset[Path]
    """The files other than its own that contain test cases of it."""
    second: "SecondAgent | None" = None
    """The agent to compare with."""

    @property
    def events(self) -> tuple[Path | None, str]:
        """The file for events, and where it is named."""
        path = self.settings.path_of("events", self.agent.base_dir)
        return path, self.settings.source_of("events")

    def select(self, context: CliContext) -> tuple[Agent, Selection | None]:
        """Return the agent with the selected cases. Raises NothingSelected."""
        return apply_selection(self.agent, self.request, self.target.path, context)


def _note_files(agents: Sequence[Agent], targets: Sequence[ReportTarget]) -> None:
    """Note the files that agents name, some of which are read late, if a target exists."""
    for agent in agents if any(target.file.is_file() for target in targets) else ():
        for _, path in paths_used(agent, PathUse.READ):
            for folder in {agent.base_dir, agent.own_dir}:
                note_input(folder / path)


def run_agents(options: TestOptions, found: FoundAgents, context: CliContext) -> int:
    """Run, list or plan each agent; return the worst exit code."""
    if len(found.targets) > 1:
        _require_one_agent(options, len(found.targets))
    agents = [_load(options, target, context) for target in found.targets]
    _note_files([loaded.agent for loaded in agents], options.targets)
    check_inputs(options.targets, [one.events for one in agents])
    read = {path for one in agents for path in one.case_files}
    unread = {one: why_not_run(one) for one in found.others if Path(one).resolve() not in read}
    unnamed = [one for one, reason in unread.items() if reason is None]
    if unnamed:
        names = ", ".join(unnamed[:_MAX_FILES])
        more = f" and {len(unnamed) - _MAX_FILES} more" if unnamed[_MAX_FILES:] else ""
        _echo(f"Ignored, because no agent.yaml names them: {names}{more}", context)
    if found.unused_agents:
        names = ", ".join(found.unused_agents[:_MAX_FILES])
        _echo(f"Ignored, because --adapter names the agent: {names}", context)
    if len(agents) == 1:
        code = _run_one(options, agents[0], context)
    elif options.preview_mode == "list" and options.as_json:
        code = _list_as_json(options, agents, context)
    else:
        code = _run_each(options, agents, context)
    not_run = [f"Not run: {one}: {reason}" for one, reason in unread.items() if reason is not None]
    left_out = current_invalid_suites()
    if left_out is not None:
        for file, error in left_out.errors.items():
            not_run.append(f"Left out {file} (--skip-invalid): {error}")
    for line in not_run:
        _echo(line, context)
    return code or (ExitCode.NOTHING_SELECTED if not_run else ExitCode.PASSED)


def _echo(line: str, context: CliContext) -> None:
    echo(context.clean(line), err=True)


def _require_one_agent(options: TestOptions, count: int) -> None:
    """Raise UsageError for options that work with one agent only."""
    for flag, is_given in (
        ("--resume", options.resume is not None),
        ("--debug", options.debug),
        ("--against", options.against is not None),
        ("--dry-run --json", options.preview_mode == "plan" and options.as_json),
    ):
        if is_given:
            raise click.UsageError(f"{flag} works with one agent, and the paths contain {count}")


def _load(options: TestOptions, target: AgentTarget, context: CliContext) -> LoadedAgent:
    """Read the agent and, unless its cases are only listed, check it. Raises ConfigError."""
    from holodeck.config.loader import ConfigLoader, agent_file, load_agent_with_config
    from holodeck.config.secrets import collect

    if options.debug:
        _check_debug(options.settings)
    folder = Path.cwd() if target.adapter is not None else agent_file(target.path).parent
    env = ConfigLoader().environment(folder)
    context.protect(collect(None, env))
    start_logging(context.verbosity, env, context.clean)
    agent, settings, loader = load_agent_with_config(
        target.path, options.settings, target.suites, target.adapter
    )
    context.protect(collect(agent, env))
    notice = loader.overridden_notice(agent, options.settings)
    if notice is not None and context.is_new_notice(notice):
        logger.warning("%s", notice)
    findings = []
    if options.preview_mode != "list":  # a list helps to fix the rest
        findings = _check_before_run(agent, settings)
    request = _request_for(options.request, target)
    second = None
    if options.against is not None:
        from holodeck.cli.comparison_run import (
            check_formats,
            check_second_agent,
            load_second_agent,
        )

        check_formats(options.targets)
        second = load_second_agent(options.against, agent, context)
        if options.preview_mode != "list":
            check_second_agent(second, agent, settings, findings)
    if options.preview_mode is None:
        from holodeck.cli.trust import confirm_endpoints

        for tested in (agent, *([second.agent] if second is not None else ())):
            confirm_endpoints(tested, context)
    return LoadedAgent(target, agent, settings, request, frozenset(loader.cases_read), second)


def _check_debug(settings: ExecutionConfig) -> None:
    """Raise UsageError if several cases would ask at once, or if nobody can be asked."""
    from holodeck.lib.ui.conversation import find_missing_terminal

    if settings.parallel_test_cases not in {None, "auto", 1}:
        raise click.UsageError("--debug runs one case at a time; remove --parallel-test-cases")
    missing = find_missing_terminal()
    if missing is not None:
        raise click.UsageError(f"--debug needs a terminal, and {missing} is not one")


def _check_before_run(agent: Agent, settings: ExecutionConfig) -> "list[Finding]":
    """Raise ConfigError for every error that can be found without a run; log warnings."""
    from holodeck.config.checks.agent import check_before_run, log_findings

    for name in type(settings).model_fields:
        source = settings.source_of(name)
        level = logging.DEBUG if source == "default" else logging.INFO
        logger.log(level, "setting %s = %s (%s)", name, getattr(settings, name), source)
    findings = check_before_run(agent, settings)
    log_findings(findings)
    return findings


def _request_for(request: SelectionRequest, target: AgentTarget) -> SelectionRequest:
    """Return the request, limited to the suites whose files are the target."""
    if not target.suites:
        return request
    from holodeck.config.cases.suites import suite_name

    left_out = current_invalid_suites()
    errors = left_out.errors if left_out is not None else {}
    files = [one for one in target.suites if display_path(Path(one).absolute()) not in errors]
    if not files:
        raise next(iter(errors.values()))
    suites = tuple(suite_name(Path(one)) for one in files)
    for name in request.suites:
        if name not in suites:
            raise NothingSelected(
                f"--suite: no file contains the suite {name!r}{did_you_mean_or_list(name, suites)}"
            )
    return replace(request, suites=request.suites or suites)


def _run_each(options: TestOptions, agents: Sequence[LoadedAgent], context: CliContext) -> int:
    """Run one agent after the other; after runs, print the exit code of each.

    A report of `--output` joins those of all agents.
    """
    codes: dict[str, int] = {}
    reports = AgentReports(context)
    alone = replace(options, targets=())
    for number, one in enumerate(agents, 1):
        write_text(
            sys.stdout, context.clean(f"\nAgent {number}/{len(agents)}: {one.target.title}\n")
        )
        try:
            codes[one.target.title] = _run_one(alone, one, context, reports)
        except NothingSelected as error:
            echo(context.brief(f"{one.target.title}: {error}"), err=True)
            if options.targets:
                reports.add_unselected(one)
        except HoloDeckError as error:  # the others can still run
            print_error(error, context)
            codes[one.target.title] = error.exit_code
            reports.add_failed(one, str(error), error.exit_code)
        if codes.get(one.target.title) in INTERRUPTED:
            break
    if options.preview_mode is None:
        is_interrupted = any(code in INTERRUPTED for code in codes.values())
        otherwise = "not run" if is_interrupted else "no case selected"
        ends = {
            one.target.title: f"exit {codes[one.target.title]}"
            if one.target.title in codes
            else otherwise
            for one in agents
        }
        lines = [f"  {end}  {title}" for title, end in ends.items()]
        write_text(sys.stdout, context.clean("\n".join(["", "Agents:", *lines])) + "\n")
    if not codes:
        return ExitCode.NOTHING_SELECTED
    if options.targets:
        for one in agents:
            reports.add_failed(one, "not run")
        reports.write(options.targets, agents[0].settings.report_detail)
    return worst_exit_code(codes.values())


def _list_as_json(options: TestOptions, agents: Sequence[LoadedAgent], context: CliContext) -> int:
    rows = []
    for one in agents:
        try:
            agent, _ = one.select(context)
        except NothingSelected as error:
            echo(context.brief(f"{one.target.title}: {error}"), err=True)
        else:
            rows += [{"agent": one.target.path, **row} for row in case_rows(agent)]
    context.print_json(json.dumps(rows, indent=2))
    is_ok = bool(rows) or options.request.allow_empty
    return ExitCode.PASSED if is_ok else ExitCode.NOTHING_SELECTED


def _run_one(
    options: TestOptions,
    one: LoadedAgent,
    context: CliContext,
    reports: AgentReports | None = None,
) -> int:
    """Run, list or plan one agent; return the exit code, and add the report to `reports`."""
    if options.preview_mode is None:
        return _test(options, one, context, reports)
    agent, selection = one.select(context)
    if options.preview_mode == "list":
        text = case_list(agent, selection, as_json=options.as_json)
        if one.second is not None and not options.as_json:
            text += f", each on A ({one.target.path}) and B ({one.second.argument})"
    elif one.second is not None:
        agents = ((agent, one.target.path), (one.second.with_tests_of(agent), one.second.argument))
        text = plan_comparison(agents, one.settings, selection, as_json=options.as_json)
    else:
        text = plan_run(agent, one.target.path, one.settings, selection, as_json=options.as_json)
    if options.as_json:
        context.print_json(text)
    else:
        echo(context.clean(text))
    is_ok = bool(agent.test_cases) or options.request.allow_empty
    return ExitCode.PASSED if is_ok else ExitCode.NOTHING_SELECTED


def _test(
    options: TestOptions,
    one: LoadedAgent,
    context: CliContext,
    reports: AgentReports | None,
) -> int:
    if one.second is not None:
        return _compare(options, one, one.second, context)
    earlier = None if options.resume is None else find_run(options.resume, one.agent.base_dir)
    if earlier is not None:
        _require_own_run(earlier)
    # A run of --watch gets the selection again, because cases may have been added since.
    is_watched = context.read_tracker is not None
    if earlier is not None and not options.request.args() and not is_watched:
        agent, selection = repeat_selection(one.agent, earlier)
    else:
        agent, selection = one.select(context)
    if selection is not None:
        _echo(f"Running {selection}", context)
    resumed = None
    if earlier is not None:
        resumed = resume_run(
            agent, earlier, context, retry_errors=options.retry_errors, force=options.force
        )
    settings = one.settings
    if options.debug:
        if not any(case.is_scripted_or_simulated for case in agent.test_cases or []):
            raise ConfigError("--debug", "none of the selected cases has a simulated user")
        settings = settings.model_copy(update={"parallel_test_cases": 1, "run_timeout": None})
    run = TestRun(
        one.target, agent, settings, options.targets, context, selection, resumed, options.debug
    )
    if options.gate is not None:
        run.gate = _gate(options.gate, one, agent, settings, context)
        check_inputs(options.targets)  # the baseline is one
    try:
        code = run.run()
    finally:
        if reports is not None and run.report is not None:
            reports.found[one.target.title] = run.report
    is_empty = not agent.test_cases and code == ExitCode.NOTHING_SELECTED
    return ExitCode.PASSED if is_empty and options.request.allow_empty else code


def _gate(
    options: "GateOptions",
    one: LoadedAgent,
    agent: Agent,
    settings: ExecutionConfig,
    context: CliContext,
) -> "RegressionGate":
    """Return the gate, whose baseline is read before anything runs. Raises ConfigError."""
    from holodeck.cli.regression_gate import RegressionGate
    from holodeck.lib.compare.run_comparison import of_one_agent, read_side
    from holodeck.lib.records.run_store import RunStore

    folder = agent.base_dir
    base = of_one_agent(read_side(options.baseline, RunStore(folder), folder), agent.name)
    return RegressionGate(base, options, one.target.path, agent, settings, context)


def _require_own_run(run: "Run") -> None:
    """Raise ConfigError for the run of a second agent, whose cases are in another file."""
    from holodeck.lib.records.run_store import is_of_second_agent

    if is_of_second_agent(run):
        raise ConfigError(
            "--resume", f"run {run.id} is that of a second agent; add --against to resume both"
        )


def _compare(
    options: TestOptions, one: LoadedAgent, second: "SecondAgent", context: CliContext
) -> int:
    from holodeck.cli.comparison_run import ComparisonRun, find_compared_runs, resume_runs

    runs = None
    if options.resume is not None:
        runs = find_compared_runs(options.resume, one.agent.base_dir)
    if runs is not None and not options.request.args():
        agent, selection = repeat_selection(one.agent, runs[0])
    else:
        agent, selection = one.select(context)
    if selection is not None:
        _echo(f"Running {selection}", context)
    resumed = None
    if runs is not None:
        resumed = resume_runs(
            (agent, second.with_tests_of(agent)),
            runs,
            context,
            retry_errors=options.retry_errors,
            force=options.force,
        )
    code = ComparisonRun(
        one.target,
        agent,
        second,
        one.settings,
        options.targets,
        context,
        selection,
        resumed,
        options.fail_on,
    ).run()
    is_empty = not agent.test_cases and code == ExitCode.NOTHING_SELECTED
    return ExitCode.PASSED if is_empty and options.request.allow_empty else code
