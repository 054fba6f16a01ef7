"""`holodeck test`: run the test cases of an agent.yaml, show and report what came out."""

import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from holodeck.cli.invocation import Invocation
from holodeck.cli.outside import outside_option
from holodeck.cli.selecting import request_of, selected, selection_options
from holodeck.config.flags import cli_config, cli_options
from holodeck.errors import ExitCode

if TYPE_CHECKING:
    from holodeck.models.agent import Agent
    from holodeck.models.config import ExecutionConfig

logger = logging.getLogger(__name__)

MOST_WARNINGS = 20
"""`holodeck validate` tells them all."""


@click.command()
@click.argument("agent_config", default="agent.yaml", type=click.Path())
@click.option(
    "--output",
    "-o",
    "outputs",
    multiple=True,
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Write the report to FILE; .md and .json tell the format. May be given several times.",
)
@click.option(
    "--format",
    "report_format",
    metavar="FORMAT",
    help="Format of an --output whose name does not tell it: markdown or json.",
)
@selection_options
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
@outside_option
@cli_options()
@click.pass_context
def test(
    context: click.Context,
    /,
    agent_config: str,
    outputs: tuple[Path, ...],
    report_format: str | None,
    resume: str | None,
    retry_errors: bool,
    force: bool,
    **options: Any,
) -> None:
    """Run the test cases of AGENT_CONFIG and exit with what came of it.

    Results go to stdout, logs to stderr. Exit codes: 0 all passed, 1 a test failed, 2 the
    configuration is wrong, 3 the agent could not be run, 4 a metric could not be computed,
    5 nothing or not everything was tested, 130 interrupted, 143 terminated. Of several, the first
    of 3, 4, 1, 5 is told.
    """
    from holodeck.cli.outputs import targets_for
    from holodeck.cli.resuming import resumed, selected_again
    from holodeck.cli.test_run import TestRun
    from holodeck.lib.records.shelf import Shelf

    if resume is None and (retry_errors or force):
        raise click.UsageError("--retry-errors and --force say how to resume; add --resume")
    invocation = context.ensure_object(Invocation)
    request = request_of(options)
    if resume is not None and (request.last_failed or request.new or request.failed_first):
        raise click.UsageError("--resume repeats what the run had chosen; choose in no other way")
    targets = targets_for(outputs, report_format)
    agent, settings = _loaded(agent_config, cli_config(options), invocation)
    before = None if resume is None else Shelf(agent.base_dir).read(resume)
    if before is not None and not request.args():
        agent, selection = selected_again(agent, before)
    else:
        agent, selection = selected(agent, request, agent_config, invocation)
    if selection is not None:
        click.echo(invocation.clean(f"Running {selection}"), err=True)
    earlier = None
    if before is not None:
        earlier = resumed(agent, before, retry_errors=retry_errors, force=force)
    run = TestRun(agent_config, agent, settings, targets, invocation, selection, earlier)
    code = run.to_exit_code()
    is_empty = not agent.test_cases and code == ExitCode.NOTHING_SELECTED
    context.exit(ExitCode.PASSED if is_empty and request.allow_empty else code)


test.__test__ = False  # type: ignore[attr-defined]  # or pytest takes it for a test


def _loaded(
    agent_config: str, given: "ExecutionConfig", invocation: Invocation
) -> "tuple[Agent, ExecutionConfig]":
    """The agent, free of errors that can be known before the run, and its settings."""
    from holodeck.cli.logs import start_logging
    from holodeck.config.check import check, raise_on_errors
    from holodeck.config.keys import missing_keys
    from holodeck.config.loader import ConfigLoader, agent_file, load_agent_with_config
    from holodeck.config.secrets import collect
    from holodeck.config.source import dotted
    from holodeck.errors import ConfigError

    env = ConfigLoader().environment(agent_file(agent_config).parent)
    invocation.protect(collect(None, env))
    start_logging(invocation.verbosity, env, invocation.clean)
    agent, settings, _ = load_agent_with_config(agent_config, given)
    invocation.protect(collect(agent, env))
    _log_sources(settings)
    findings = check(agent)
    raise_on_errors(findings)
    for path, lacking in missing_keys(agent):  # to `validate`, which may run anywhere, a warning
        raise ConfigError(f"{agent.place(*path)}: {dotted(path)}", lacking)
    for finding in findings[:MOST_WARNINGS]:
        logger.warning("%s: %s: %s", finding.place, finding.path, finding.message)
    if len(findings) > MOST_WARNINGS:
        logger.warning("and %d more; see `holodeck validate`", len(findings) - MOST_WARNINGS)
    return agent, settings


def _log_sources(settings: "ExecutionConfig") -> None:
    """Tell where each setting came from; those that somebody set with -v, all of them with -vv."""
    for name in type(settings).model_fields:
        source = settings.source_of(name)
        level = logging.DEBUG if source == "default" else logging.INFO
        logger.log(level, "setting %s = %s (%s)", name, getattr(settings, name), source)
