"""`holodeck score`: grades the responses of a recorded run again, without calling the agent."""

from pathlib import Path

import click

from holodeck.cli.context import CliContext
from holodeck.cli.options import (
    allow_outside_option,
    check_inputs,
    confirm_endpoints,
    github_step,
    output_options,
    read_run,
    report_targets,
    run_store_of,
    trust_option,
    untrusted_option,
)
from holodeck.config.checks.agent import check, raise_on_errors
from holodeck.config.loader import load_agent_with_config
from holodeck.config.project_file import default_agent
from holodeck.config.secrets import collect
from holodeck.lib.records.run_store import is_of_second_agent
from holodeck.lib.support.text import plural
from holodeck.lib.test_runner.progress import TextDisplay
from holodeck.lib.test_runner.rescore import RescoringSession
from holodeck.lib.test_runner.session import SessionAgent

_MAX_NAMES = 10
_SAME_KEYS = ("suite", "name", "input", "history", "script")


@click.command()
@click.argument("run", default="last")
@click.argument("agent_config", default=default_agent, type=click.Path())
@output_options
@allow_outside_option
@trust_option
@untrusted_option
@click.option("--verbose", "-v", is_flag=True, help="Show every metric of every test.")
@click.pass_context
def score(
    context: click.Context,
    run: str,
    agent_config: str,
    outputs: tuple[Path, ...],
    report_format: str | None,
    verbose: bool,
) -> None:
    """Grade the responses of RUN with the metrics and expectations of AGENT_CONFIG.

    RUN is an id or its beginning, a tag, `last`, `previous`, or the path of a record. The agent is
    not called and the record does not change. Exit codes are those of `holodeck test`; 5 also means
    that cases have no recorded response.
    """
    cli_context = context.ensure_object(CliContext)
    targets = report_targets(outputs, report_format)
    agent, settings, loader = load_agent_with_config(agent_config)
    cli_context.protect(collect(agent, loader.environment(agent.base_dir)))
    raise_on_errors(check(agent))
    confirm_endpoints(agent, cli_context)
    recorded = read_run(run_store_of(agent.base_dir), run, cli_context)
    check_inputs(targets)
    if is_of_second_agent(recorded):
        cli_context.warn(
            f"run {recorded.id} is that of the second agent of a comparison; metrics that need"
            " instructions or tools get those of the first"
        )
    github_step(context)
    redactor = cli_context.redactor
    session = RescoringSession(
        [SessionAgent(agent_config, agent, settings)],
        redactor,
        TextDisplay(redactor.redact, verbose=verbose, is_live=False),
        targets=targets,
        recorded=recorded,
    )
    session.on_report = lambda _: _warn_of_differences(session, cli_context)
    context.exit(session.run())


def _warn_of_differences(graded: RescoringSession, context: CliContext) -> None:
    """Warn of cases without a recorded response, and of responses without a case."""
    no_case = f"no case with the same {', '.join(_SAME_KEYS)} and context"
    for singular, several, problem, names in (
        ("case has", "cases have", "no recorded response", graded.ungraded),
        ("recorded response has", "recorded responses have", no_case, graded.unused),
    ):
        if names:
            listed = ", ".join(names[:_MAX_NAMES]) + (", …" if len(names) > _MAX_NAMES else "")
            context.warn(f"{plural(len(names), singular, several)} {problem}: {listed}")
