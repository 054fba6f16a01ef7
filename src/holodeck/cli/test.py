"""`holodeck test`: run the test cases of an agent.yaml, show and report what came out."""

from pathlib import Path
from typing import Any

import click

from holodeck.cli.allow_outside import allow_outside_option
from holodeck.cli.cli_context import CliContext
from holodeck.cli.debug_option import debug_option
from holodeck.cli.preview import preview_mode_of, preview_options
from holodeck.cli.report_output import output_options, report_targets
from holodeck.cli.selection_options import selection_options, selection_request
from holodeck.cli.skip_invalid import report_left_out, skip_invalid_option
from holodeck.cli.watch_options import watch_if_asked, watch_options
from holodeck.config.flags import cli_config, cli_options


@click.command()
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path())
@click.option(
    "--agent",
    "-a",
    type=click.Path(),
    metavar="FILE",
    help="The agent.yaml that suite files are for; else the nearest beside or above each.",
)
@output_options
@selection_options
@preview_options
@click.option(
    "--resume",
    metavar="[RUN]",
    is_flag=False,
    flag_value="last",
    help="Run only what an earlier run left out; without RUN the last one. See `holodeck runs`.",
)
@click.option(
    "--retry-errors", is_flag=True, help="With --resume: also run what ended in an error."
)
@click.option(
    "--force", is_flag=True, help="With --resume: accept changes; what they touch runs again."
)
@debug_option
@watch_options
@allow_outside_option
@skip_invalid_option
@cli_options()
@click.pass_context
def test(
    context: click.Context,
    /,
    paths: tuple[str, ...],
    outputs: tuple[Path, ...],
    report_format: str | None,
    resume: str | None,
    retry_errors: bool,
    force: bool,
    **options: Any,
) -> None:
    """Run the test cases of each PATH and exit with what came of them.

    A PATH is an agent.yaml, the file of a suite, or a folder, which means every agent.yaml in it
    and below; without one it is the agent.yaml here.

    Results go to stdout, logs to stderr. Exit codes: 0 all passed, 1 a test failed, 2 the
    configuration is wrong, 3 the agent could not be run, 4 a metric could not be computed,
    5 nothing or not everything was tested, 6 the budget is used up, 130 interrupted, 143
    terminated. Of several, the first of 3, 4, 6, 1, 5 is told.
    """
    if resume is None and (retry_errors or force):
        raise click.UsageError("--retry-errors and --force say how to resume; add --resume")
    runs = {f"--{name}": options[name] for name in ("debug", "watch")}
    look = preview_mode_of(
        options, {"--output": outputs, "--resume": resume, "--events": options["events"], **runs}
    )
    request = selection_request(options)
    if resume is not None and (request.last_failed or request.new or request.failed_first):
        raise click.UsageError("--resume repeats what the run had chosen; choose in no other way")
    watch_if_asked(context)
    from holodeck.cli.agent_paths import find_agents
    from holodeck.cli.run_agents import run_agents
    from holodeck.cli.test_options import TestOptions

    asked = TestOptions(
        request=request,
        settings=cli_config(options),
        targets=report_targets(outputs, report_format),
        look=look,
        as_json=options["as_json"],
        resume=resume,
        retry_errors=retry_errors,
        force=force,
        debug=options["debug"],
    )
    found = find_agents(paths, options["agent"])
    invocation = context.ensure_object(CliContext)
    context.exit(report_left_out(run_agents(asked, found, invocation), invocation))


test.__test__ = False  # type: ignore[attr-defined]  # or pytest takes it for a test
