"""`holodeck compare` and `holodeck bless`: is it still right, compared with an earlier run?"""

import asyncio
import sys
from pathlib import Path
from typing import Any

import click

from holodeck.cli.context import CliContext
from holodeck.cli.options import (
    agent_option,
    check_formats,
    check_inputs,
    confirm_endpoints,
    file_option,
    output_option,
    report_targets,
    run_store_of,
    trust_option,
    untrusted_option,
)
from holodeck.config.loader import ConfigLoader
from holodeck.config.yaml.source import display_path
from holodeck.errors import ConfigError, ExitCode, ReportError
from holodeck.lib.compare.gate import require_later
from holodeck.lib.compare.run_comparison import (
    BASELINE_FILE,
    are_of_two_agents,
    baseline_of,
    compare_runs,
    read_side,
    side_to_bless,
)
from holodeck.lib.reports.against import comparison_exit_code, render_terminal
from holodeck.lib.reports.formats import (
    generate_json_report,
    print_report,
    write_report_text,
    write_reports,
)
from holodeck.lib.support.safe_paths import inputs_noted, refuse_input
from holodeck.lib.support.text import is_blank, plural
from holodeck.lib.ui.live import echo
from holodeck.models.records.comparison import ComparisonReport


@click.command()
@click.argument("base", default="baseline")
@click.argument("head", default="last")
@click.option("--format", "report_format", metavar="FORMAT", help="markdown, json or html.")
@output_option("Write the comparison to a file, too; repeatable.")
@click.option(
    "--fail-on",
    type=click.Choice(["regression"]),
    help="Exit with 1 if a case passed in BASE and fails in HEAD.",
)
@click.option(
    "--arena",
    metavar="CRITERIA",
    help="Also ask the judge of the agent.yaml which answer fulfils CRITERIA better.",
)
@click.option("--verbose", "-v", is_flag=True, help="List every case, not only regressions.")
@agent_option
@trust_option
@untrusted_option
@click.pass_context
def compare(
    context: click.Context,
    /,
    base: str,
    head: str,
    report_format: str | None,
    outputs: tuple[Path, ...],
    agent: Path,
    **options: Any,
) -> None:
    """Compare the run HEAD with the run BASE, case by case. No agent is run.

    Each is an id or its beginning, a tag, `last`, `previous` (the run before the last), `baseline`
    (made by `holodeck bless`), `main` (the baseline on that branch of git), or the path of a
    record, a JSON report or a baseline. HEAD must be another run than BASE, and not an older one.

    With --arena, only a judge is asked, once in each order of the two answers. Exit code 4 means
    that it gave no verdict on some.
    """
    cli_context = context.ensure_object(CliContext)
    targets = report_targets(outputs, report_format if outputs else None)
    check_formats([target.report_format for target in targets] or filter(None, [report_format]))
    store, folder = run_store_of(agent), _file_of(agent).absolute().parent
    first, second = (read_side(name, store, folder) for name in (base, head))
    check_inputs(targets)
    require_later(first, second)
    names = None
    if are_of_two_agents(first, second) and (file := _file_of(agent)).is_file():
        names = ConfigLoader().load_agent_yaml(file).names
    report = cli_context.redactor.redact_report(compare_runs(first, second, names))
    if options["arena"] is not None:
        report = _with_preferences(report, agent, options["arena"], cli_context)
    if report_format is not None and not targets:
        print_report(report.rendered(report_format), report_format, sys.stdout)
    else:
        text = render_terminal(report, verbose=options["verbose"]).removeprefix("\n")
        echo(cli_context.clean(text))
    failures = write_reports(report, targets, cli_context.clean)
    if failures:
        raise ReportError("\n".join(failures))
    if options["fail_on"] is not None:
        context.exit(comparison_exit_code(report, "regression"))
    if report.preferences is not None and report.preferences.undecided:
        context.exit(ExitCode.EVALUATION)


def _file_of(agent: Path) -> Path:
    return agent / "agent.yaml" if agent.is_dir() else agent


def _with_preferences(
    report: ComparisonReport, agent: Path, criteria: str, context: CliContext
) -> ComparisonReport:
    """Return the comparison with the answers that the judge of the agent.yaml prefers."""
    from holodeck.lib.compare.preferences import with_preferences
    from holodeck.lib.judge_check.judge_check import load_agent_judge

    if is_blank(criteria):
        raise ConfigError("--arena", "is empty; write what makes an answer the better one")
    subject = load_agent_judge(str(_file_of(agent)), None, context.protect)
    confirm_endpoints(subject.agent, context)

    async def judged() -> ComparisonReport:
        try:
            return await with_preferences(report, subject.judge, criteria)
        finally:
            await subject.judges.close()

    return context.redactor.redact_report(asyncio.run(judged()))


@click.command()
@click.argument("run", default="last")
@file_option("The file of the baseline (default: baseline.json beside agent.yaml).")
@agent_option
@click.pass_context
def bless(context: click.Context, run: str, output: Path | None, agent: Path) -> None:
    """Make RUN the baseline that later runs are compared with.

    The file contains no inputs and no answers: commit it. RUN is an id or its beginning, a tag,
    `last`, `previous`, or the path of a record or of a JSON report, which may be of merged runs.
    """
    cli_context = context.ensure_object(CliContext)
    store = run_store_of(agent)
    with inputs_noted():
        made = baseline_of(side_to_bless(run, store), store)
        if output is not None:
            refuse_input(output, "--output", ["baseline", "report"])
    shown = cli_context.redactor.redact_report(made)
    file = output or _file_of(agent).absolute().with_name(BASELINE_FILE)
    write_report_text(generate_json_report(shown), file)
    passed = sum(case.outcome.is_pass for case in made.cases)
    cases = plural(len(made.cases), "case")
    shown_file = display_path(file.absolute())
    echo(cli_context.clean(f"{shown_file}: run {made.run}, {passed} of {cases} passed"))
