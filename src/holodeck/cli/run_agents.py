"""`holodeck test` on the agents it found: all of them are loaded first, then run in turn."""

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from holodeck import __version__
from holodeck.cli.agents import CheckedAgent, FoundAgents, PreviewMode, load_checked
from holodeck.cli.context import CliContext
from holodeck.cli.logs import print_error
from holodeck.cli.options import check_formats, check_inputs
from holodeck.cli.selection import apply_selection, case_list, case_rows, plan_runs
from holodeck.config.cases.suite_files import current_invalid_suites, why_not_run
from holodeck.errors import (
    INTERRUPTED,
    ConfigError,
    ExitCode,
    HoloDeckError,
    NothingSelected,
    ReportError,
    worst_exit_code,
)
from holodeck.lib.processes.process_exit import collector_paused
from holodeck.lib.reports.formats import ReportTarget, write_reports
from holodeck.lib.selection.request import SelectionRequest
from holodeck.lib.support.safe_paths import note_input
from holodeck.lib.support.text import shorten_list
from holodeck.lib.ui.live import echo, write_text
from holodeck.models.agent import Agent
from holodeck.models.base import PathUse, paths_used
from holodeck.models.config import ExecutionConfig, ReportDetail
from holodeck.models.results.origin import RunOrigin, Selection

if TYPE_CHECKING:
    from holodeck.lib.compare.gate import GateOptions
    from holodeck.lib.test_runner.session import RunSession, SessionAgent
    from holodeck.models.test_result import TestReport

_MAX_FILES = 5


@dataclass(frozen=True)
class TestOptions:
    """The options of the command line."""

    __test__ = False

    request: SelectionRequest
    settings: ExecutionConfig
    targets: "Sequence[ReportTarget]" = ()
    preview_mode: PreviewMode | None = None
    """What to show instead of running; None for a run."""
    as_json: bool = False
    resume: str | None = None
    """The run to resume; None for a new run."""
    retry_errors: bool = False
    """Whether cases whose agent or metric failed run again."""
    force: bool = False
    """Whether the cases that have changed run again; otherwise a change is an error."""
    debug: bool = False
    """Whether a person types the messages of simulated users."""
    against: str | None = None
    """The agent to compare with; None for a run of the agent alone."""
    fail_on: Literal["regression"] | None = None
    """What makes a comparison fail; None if no verdict does."""
    gate: "GateOptions | None" = None
    """The earlier run to compare with; None for none."""


def _note_files(agents: Sequence[Agent], targets: "Sequence[ReportTarget]") -> None:
    """Note the files that agents name, some of which are read late, if a target exists."""
    for agent in agents if any(target.file.is_file() for target in targets) else ():
        for _, path in paths_used(agent, PathUse.READ):
            for folder in {agent.base_dir, agent.own_dir}:
                note_input(folder / path)


def run_agents(options: TestOptions, found: FoundAgents, context: CliContext) -> int:
    """Run, list or plan each agent; return the worst exit code."""
    _check_options(options, len(found.targets))
    with collector_paused():
        agents = [
            load_checked(
                target,
                options.settings,
                options.request,
                context,
                against=options.against,
                preview_mode=options.preview_mode,
            )
            for target in found.targets
        ]
    _note_files([loaded.agent for loaded in agents], options.targets)
    check_inputs(options.targets, [tested.events for tested in agents])
    read = {path for tested in agents for path in tested.loader.cases_read}
    unread = {file: why_not_run(file) for file in found.others if Path(file).resolve() not in read}
    unnamed = [file for file, reason in unread.items() if reason is None]
    for files, reason in (
        (unnamed, "no agent.yaml names them"),
        (found.unused_agents, "--adapter names the agent"),
    ):
        if files:
            _echo(f"Ignored, because {reason}: {shorten_list(files, _MAX_FILES)}", context)
    if len(agents) == 1:
        code = _run_agent(options, agents[0], context)
    elif options.preview_mode == "list" and options.as_json:
        code = _list_as_json(options, agents, context)
    else:
        code = _run_each(options, agents, context)
    not_run = [
        f"Not run: {file}: {reason}" for file, reason in unread.items() if reason is not None
    ]
    if (left_out := current_invalid_suites()) is not None:
        not_run += [
            f"Left out {file} (--skip-invalid): {error}" for file, error in left_out.errors.items()
        ]
    for line in not_run:
        _echo(line, context)
    return code or (ExitCode.NOTHING_SELECTED if not_run else ExitCode.PASSED)


def _echo(line: str, context: CliContext) -> None:
    echo(context.clean(line), err=True)


def _check_options(options: TestOptions, count: int) -> None:
    """Raise UsageError and ConfigError for options that do not fit each other or several agents."""
    for flag, is_given in (
        ("--resume", options.resume is not None),
        ("--debug", options.debug),
        ("--against", options.against is not None),
        ("--dry-run --json", options.preview_mode == "plan" and options.as_json),
    ):
        if is_given and count > 1:
            raise click.UsageError(f"{flag} works with one agent, and the paths contain {count}")
    if options.debug:
        from holodeck.lib.ui.conversation import find_missing_terminal

        if options.settings.parallel_test_cases not in {None, "auto", 1}:
            raise click.UsageError("--debug runs one case at a time; remove --parallel-test-cases")
        missing = find_missing_terminal()
        if missing is not None:
            raise click.UsageError(f"--debug needs a terminal, and {missing} is not one")
    if options.against is not None:
        check_formats(target.report_format for target in options.targets)


def _run_each(options: TestOptions, agents: Sequence[CheckedAgent], context: CliContext) -> int:
    """Run the agents in turn; after runs, print the exit code of each.

    A report of `--output` joins those of all agents.
    """
    codes: dict[str, int] = {}
    reports: dict[str, TestReport] = {}
    alone = replace(options, targets=())
    for number, tested in enumerate(agents, 1):
        title = tested.target.title
        write_text(sys.stdout, context.clean(f"\nAgent {number}/{len(agents)}: {title}\n"))
        try:
            codes[title] = _run_agent(alone, tested, context, reports)
        except NothingSelected as error:
            echo(context.brief(f"{title}: {error}"), err=True)
            if options.targets:
                reports[title] = _unselected_report(tested, context)
        except HoloDeckError as error:  # the others can still run
            print_error(error, context)
            codes[title] = error.exit_code
            origin = RunOrigin(exit_code=error.exit_code)
            # It may have a report from before it failed.
            reports.setdefault(title, _empty_report(tested, origin, context.clean(str(error))))
        if codes.get(title) in INTERRUPTED:
            break
    if options.preview_mode is None:
        _print_ends([tested.target.title for tested in agents], codes, context)
    if not codes:
        return ExitCode.NOTHING_SELECTED
    if options.targets:
        not_run = {
            tested.target.title: _empty_report(tested, RunOrigin(), "not run") for tested in agents
        }
        detail = agents[0].settings.report_detail
        _write_merged({**not_run, **reports}, options.targets, detail, context)
    return worst_exit_code(codes.values())


def _print_ends(titles: Sequence[str], codes: Mapping[str, int], context: CliContext) -> None:
    """Print the exit code of each agent."""
    is_interrupted = any(code in INTERRUPTED for code in codes.values())
    otherwise = "not run" if is_interrupted else "no case selected"
    ends = {title: f"exit {codes[title]}" if title in codes else otherwise for title in titles}
    lines = [f"  {end}  {title}" for title, end in ends.items()]
    write_text(sys.stdout, context.clean("\n".join(["", "Agents:", *lines])) + "\n")


def _unselected_report(tested: CheckedAgent, context: CliContext) -> "TestReport":
    """Return the report of an agent of which no case is selected."""
    from holodeck.lib.records.recorder import origin_of

    request = replace(tested.request, allow_empty=True)
    _, selection = apply_selection(tested.agent, request, tested.target.path, context)
    report = _empty_report(tested, origin_of(tested.agent))
    return report.model_copy(update={"selection": selection, "planned_tests": 0})


def _empty_report(
    tested: CheckedAgent, origin: RunOrigin, stopped: str | None = None
) -> "TestReport":
    from holodeck.lib.reports.summary import summarize
    from holodeck.models.test_result import TestReport

    return TestReport(
        agent_name=tested.agent.name,
        agent_config_path=tested.target.path,
        results=[],
        summary=summarize([], 0),
        timestamp=datetime.now(UTC).isoformat(timespec="seconds"),
        holodeck_version=__version__,
        origin=origin,
        stopped=stopped,
    )


def _write_merged(
    reports: "Mapping[str, TestReport]",
    targets: "Sequence[ReportTarget]",
    detail: "ReportDetail | None",
    context: CliContext,
) -> None:
    """Write the reports of all agents, by their titles, joined. Raises ReportError."""
    from holodeck.lib.reports.merge import NamedReport, merge_reports

    merged = merge_reports([NamedReport(*item) for item in reports.items()])
    shown = context.redactor.redact_report(merged)
    links = None if context.github is None else context.github.links
    failures = write_reports(shown, targets, context.clean, detail, links)
    if failures:
        raise ReportError("\n".join(failures))


def _list_as_json(options: TestOptions, agents: Sequence[CheckedAgent], context: CliContext) -> int:
    rows = []
    for tested in agents:
        try:
            agent, _ = tested.select(context)
        except NothingSelected as error:
            echo(context.brief(f"{tested.target.title}: {error}"), err=True)
        else:
            rows += [{"agent": tested.target.path, **row} for row in case_rows(agent)]
    context.print_json(json.dumps(rows, indent=2))
    is_ok = bool(rows) or options.request.allow_empty
    return ExitCode.PASSED if is_ok else ExitCode.NOTHING_SELECTED


def _run_agent(
    options: TestOptions,
    tested: CheckedAgent,
    context: CliContext,
    reports: "dict[str, TestReport] | None" = None,
) -> int:
    """Run, list or plan an agent; return the exit code, and add the report to `reports`."""
    if options.preview_mode is None:
        return _test(options, tested, context, reports)
    agent, selection = tested.select(context)
    second = tested.second
    if options.preview_mode == "list":
        text = case_list(agent, selection, as_json=options.as_json)
        if second is not None and not options.as_json:
            text += f", each on A ({tested.target.path}), then on B ({second.argument})"
    else:
        agents = [(agent, tested.target.path)]
        if second is not None:
            agents.append((second.with_tests_of(agent), second.argument))
        text = plan_runs(agents, tested.settings, selection, as_json=options.as_json)
    if options.as_json:
        context.print_json(text)
    else:
        echo(context.clean(text))
    is_ok = bool(agent.test_cases) or options.request.allow_empty
    return ExitCode.PASSED if is_ok else ExitCode.NOTHING_SELECTED


def _test(
    options: TestOptions,
    tested: CheckedAgent,
    context: CliContext,
    reports: "dict[str, TestReport] | None",
) -> int:
    """Run an agent, or it and the second; return the exit code."""
    with collector_paused():
        agents, selection = _agents_to_run(options, tested, context)
        session = _session(options, tested, agents, selection, context)

    def on_report(report: "TestReport") -> None:
        if reports is not None:
            reports[tested.target.title] = report
        if context.github is not None:
            context.github.show(report)

    if tested.second is None:
        session.on_report = on_report
    try:
        code = session.run()
    finally:
        if context.read_tracker is not None:
            context.read_tracker.run = session.run_id
    is_empty = not agents[0].agent.test_cases and code == ExitCode.NOTHING_SELECTED
    return ExitCode.PASSED if is_empty and options.request.allow_empty else code


def _agents_to_run(
    options: TestOptions, tested: CheckedAgent, context: CliContext
) -> "tuple[list[SessionAgent], Selection | None]":
    """Return the agents with the selected cases, and with the results that they keep."""
    from holodeck.lib.test_runner.session import SessionAgent

    second, resume, runs = tested.second, options.resume, []
    if resume is not None:
        from holodeck.lib.records.resume import find_runs, repeat_selection, resume_run

        runs = find_runs(resume, tested.agent.base_dir, is_comparison=second is not None)
    # A run of --watch gets the selection again, because cases may have been added since.
    is_watched = context.read_tracker is not None
    if runs and not options.request.args() and not is_watched:
        agent, selection = repeat_selection(tested.agent, runs[0])
    else:
        agent, selection = tested.select(context)
    if selection is not None:
        _echo(f"Running {selection}", context)
    agents = [(tested.target.path, agent)]
    if second is not None:
        agents.append((second.argument, second.with_tests_of(agent)))
    resumed = [
        resume_run(
            agent,
            run,
            context.warn,
            version=__version__,
            retry_errors=options.retry_errors,
            force=options.force,
        )
        for (_, agent), run in zip(agents, runs, strict=False)
    ]
    settings = tested.settings
    if options.debug:
        if not any(case.is_scripted_or_simulated for case in agent.test_cases or []):
            raise ConfigError("--debug", "none of the selected cases has a simulated user")
        settings = settings.model_copy(update={"parallel_test_cases": 1, "run_timeout": None})
    return [
        SessionAgent(source, agent, settings, earlier, config_loader=tested.loader)
        for (source, agent), earlier in zip_longest(agents, resumed)
    ], selection


def _session(
    options: TestOptions,
    tested: CheckedAgent,
    agents: "Sequence[SessionAgent]",
    selection: Selection | None,
    context: CliContext,
) -> "RunSession[Any]":
    """Return the run of an agent or two; a baseline is read now. Raises ConfigError."""
    from holodeck.lib.test_runner.progress import TextDisplay
    from holodeck.lib.test_runner.session import TestSession

    settings, redactor, tracker = agents[0].settings, context.redactor, context.read_tracker
    display = TextDisplay(
        redactor.redact,
        quiet=bool(settings.quiet),
        verbose=bool(settings.verbose),
        is_live=not options.debug,
    )
    command = ("holodeck", "test", *tested.target.args)
    if tested.second is not None:
        from holodeck.lib.compare.against import ComparisonSession

        return ComparisonSession(
            agents,
            redactor,
            display,
            selection=selection,
            is_checked=True,
            targets=options.targets,
            command=(*command, "--against", tested.second.argument),
            fail_on=options.fail_on,
        )
    gate = None
    if options.gate is not None:
        from holodeck.lib.compare.gate import RegressionGate

        gate = RegressionGate(options.gate, agents[0], redactor).judge
        check_inputs(options.targets)  # which the baseline is, too
    return TestSession(
        agents,
        redactor,
        display,
        selection=selection,
        is_checked=True,  # all agents were, before the first of them runs
        debug=options.debug,
        on_test_start=None if tracker is None else tracker.stop_tracking,
        targets=options.targets,
        command=command,
        gate=gate,
        links=None if context.github is None else context.github.links,
    )
