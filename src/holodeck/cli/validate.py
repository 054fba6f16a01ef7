"""`holodeck validate`: everything that can be checked without calling a model."""

from typing import TYPE_CHECKING

import click

from holodeck.cli.agent_paths import find_target
from holodeck.cli.allow_outside import allow_outside_option
from holodeck.cli.cli_context import CliContext
from holodeck.lib.text import plural

if TYPE_CHECKING:
    from holodeck.config.findings import Finding
    from holodeck.models.agent import Agent

MOST_SHOWN = 100
"""Findings; nobody reads more before mending these."""
MOST_CODE = 5
MOST_CHARACTERS = 80
"""Names of the user's code."""


@click.command()
@click.argument("agent_config", default="agent.yaml", type=click.Path())
@click.option("--strict", is_flag=True, help="Let warnings fail as errors do.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
@allow_outside_option
@click.pass_context
def validate(context: click.Context, agent_config: str, strict: bool, as_json: bool) -> None:
    """Check AGENT_CONFIG without calling a model or running your code.

    It is an agent.yaml, or the file of a suite, which is checked with the agent.yaml above it.

    Exits with 0 if all is well and with 2 if something is wrong.
    """
    from holodeck.config.check import check
    from holodeck.config.findings import Finding
    from holodeck.config.loader import load_agent_with_config
    from holodeck.config.secrets import collect
    from holodeck.errors import ConfigError, ExitCode

    try:
        subject = find_target(agent_config)
        agent, _, loader = load_agent_with_config(subject.path, suites=subject.suites)
    except ConfigError as error:
        if not as_json:
            raise
        invocation = context.ensure_object(CliContext)
        found = [Finding("error", "", invocation.brief(error.message), error.field)]
        click.echo(invocation.clean(_as_json(found)))
        context.exit(ExitCode.CONFIG)
    findings = check(agent)
    wrong = sum(1 for one in findings if strict or one.severity == "error")
    text = _as_json(findings) if as_json else _as_text(findings, subject.path, agent, wrong)
    invocation = context.ensure_object(CliContext)
    invocation.protect(collect(agent, loader.environment(agent.base_dir)))
    click.echo(invocation.clean(text))
    notice = loader.overruled_notice(agent)
    if notice is not None:
        click.echo(invocation.clean(f"WARNING: {notice}"), err=True)
    context.exit(ExitCode.CONFIG if wrong else ExitCode.PASSED)


def _as_text(findings: "list[Finding]", name: str, agent: "Agent", wrong: int) -> str:
    lines = list(map(str, findings))
    if len(findings) > MOST_SHOWN:
        errors_first = sorted(findings, key=lambda one: one.severity)
        lines = list(map(str, errors_first[:MOST_SHOWN]))
        lines.append(f"and {len(findings) - MOST_SHOWN} more; --json tells all")
    code = _user_code(agent)
    if code:
        # Imported here, as the help of the command needs nothing but click.
        from holodeck.lib.text import shorten

        shown = [shorten(one, MOST_CHARACTERS) for one in code[:MOST_CODE]]
        names = f"{', '.join(shown)}{', …' if len(code) > MOST_CODE else ''}"
        lines.append(f"{name}: your code was not imported or run: {names}")
    return "\n".join([*lines, f"{name}: {_contents(agent)}: {_verdict(findings, wrong)}"])


def _user_code(agent: "Agent") -> "list[str]":
    """What a run imports and this command does not, in the order of the file's parts."""
    from holodeck.config.keys import metrics_in
    from holodeck.models.agent import HttpBackendConfig

    backend = None if isinstance(agent.backend, HttpBackendConfig) else agent.backend
    named = [backend if backend and ":" in backend else None]
    named += [tool.file for tool in agent.tools or []]
    named += [metric.user_code for _, metric in metrics_in(agent) if metric.enabled]
    return list(dict.fromkeys(filter(None, named)))


def _verdict(findings: "list[Finding]", wrong: int) -> str:
    if wrong:
        return plural(wrong, "problem")
    return f"ok, {plural(len(findings), 'warning')}" if findings else "ok"


def _contents(agent: "Agent") -> str:
    cases = agent.test_cases or []
    shared = agent.evaluations.metrics if agent.evaluations else []
    metrics = [*shared, *(one for case in cases for one in case.own_evaluations)]
    counted = (
        (len(cases), "test case"),
        (len(agent.tools or []), "tool"),
        (len(metrics), "metric"),
    )
    told = [plural(number, thing) for number, thing in counted]
    judged = sum(len(case.judged) for case in cases)
    return ", ".join([*told, *([plural(judged, "criterion", "criteria")] if judged else [])])


def _as_json(findings: "list[Finding]") -> str:
    import json
    from dataclasses import asdict

    keys = ("severity", "place", "path", "message")
    rows = [{key: asdict(one)[key] for key in keys} for one in findings]
    return json.dumps(rows, indent=2)
