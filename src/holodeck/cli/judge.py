"""`holodeck judge`: measures how well a model that judges agrees with people."""

import asyncio
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holodeck.cli.context import CliContext

if TYPE_CHECKING:
    from holodeck.lib.judging.check_report import JudgeCheckResult, Label
    from holodeck.lib.test_runner.judge_check import CheckedJudge


@click.group()
def judge() -> None:
    """Measure how well a model that judges agrees with people."""


@judge.command("check")
@click.argument("labels", required=False, type=click.Path(path_type=Path))
@click.option(
    "--agent",
    "agent_config",
    default="agent.yaml",
    show_default=True,
    metavar="FILE",
    help="Check the judge of this agent.",
)
@click.option("--model", "model", metavar="PROVIDER/NAME", help="Check this model instead.")
@click.option("--endpoint", metavar="URL", help="The endpoint of --model.")
@click.option("--metric", metavar="NAME", help="Use the prompt of this `type: judge` metric.")
@click.option(
    "--criterion",
    "criteria",
    multiple=True,
    metavar="TEXT",
    help="Only labels whose criterion contains TEXT; repeatable.",
)
@click.option(
    "--repeats",
    type=click.IntRange(1, 10),
    default=3,
    show_default=True,
    help="How often to judge each response, in other words each time.",
)
@click.option(
    "--quick",
    is_flag=True,
    help="Measure agreement only, with one call per response.",
)
@click.option(
    "--min-kappa",
    type=click.FloatRange(-1, 1),
    help="Exit with 1 if Cohen's kappa is lower. Needs at least 20 labels, 5 of each kind. An"
    " inconclusive response counts as wrong.",
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write the result as JSON.",
)
@click.pass_context
def check(  # noqa: PLR0913, PLR0917 - one parameter per option
    context: click.Context,
    labels: Path | None,
    agent_config: str,
    model: str | None,
    endpoint: str | None,
    metric: str | None,
    criteria: tuple[str, ...],
    repeats: int,
    quick: bool,
    min_kappa: float | None,
    json_file: Path | None,
) -> None:
    """Compare a judge with people, on the labelled responses in LABELS.

    Each line of LABELS is a JSON object with the keys input, response, criterion, label (pass or
    fail) and optionally ground_truth. The default is a set of forty labels that comes with
    holodeck. Exit code 4 means that some responses could not be judged.
    """
    from holodeck.errors import ExitCode
    from holodeck.lib.judging.check_report import (
        DEFAULT_LABELS,
        read_labels,
        render_table,
        require_enough_labels,
    )
    from holodeck.lib.test_runner.judge_check import load_agent_judge, load_named_judge
    from holodeck.lib.ui.live import write_text

    cli_context = context.ensure_object(CliContext)
    selected = _select(read_labels(labels or DEFAULT_LABELS), criteria)
    if min_kappa is not None:
        require_enough_labels(selected, str(labels or "the labels that come with holodeck"))
    if json_file is not None:
        _check_writable(json_file)
    if model is None and endpoint is not None:
        raise click.UsageError("--endpoint needs --model; add --model PROVIDER/NAME")
    if model is not None and metric is not None:
        raise click.UsageError("--metric belongs to an agent.yaml; remove --metric or --model")
    if model is None:
        subject = load_agent_judge(agent_config, metric, cli_context.protect)
    else:
        subject = load_named_judge(model, endpoint, cli_context.protect)
    found = asyncio.run(_check(subject, selected, None if quick else repeats))
    write_text(sys.stdout, cli_context.clean(render_table(found)))
    if json_file is not None:
        _write_json(json_file, found, cli_context)
    if found.errors:
        context.exit(ExitCode.EVALUATION)
    kappa = found.strict_agreement.kappa
    if min_kappa is not None and (kappa is None or kappa < min_kappa):
        value = "undefined" if kappa is None else f"{kappa:.2f}"
        count = found.inconclusive
        why = f" ({count} inconclusive responses count as wrong)" if count else ""
        click.echo(f"Cohen's kappa is {value}, which is less than {min_kappa:g}{why}", err=True)
        context.exit(ExitCode.TEST_FAILED)


def _select(labels: "list[Label]", criteria: tuple[str, ...]) -> "list[Label]":
    from holodeck.errors import NothingSelected

    if not criteria:
        return labels
    selected = [one for one in labels if any(text in one.criterion for text in criteria)]
    if not selected:
        known = "; ".join(dict.fromkeys(one.criterion for one in labels))
        raise NothingSelected(f"--criterion: no label has such a criterion; known: {known}")
    return selected


def _check_writable(path: Path) -> None:
    from holodeck.errors import ConfigError
    from holodeck.lib.reports.formats import check_writable

    try:
        check_writable(path)
    except ConfigError as error:
        raise ConfigError("--json", error.message) from error


async def _check(
    subject: "CheckedJudge", labels: "list[Label]", repeats: int | None
) -> "JudgeCheckResult":
    """Run the check; `repeats` None means a quick one."""
    try:
        if repeats is None:
            return await subject.quick_check(labels, _Progress())
        return await subject.check(labels, repeats, _Progress())
    finally:
        await subject.judge.close()


class _Progress:
    """Prints the progress to stderr: on one line of a terminal, elsewhere every tenth."""

    def __init__(self) -> None:
        self._is_live = sys.stderr.isatty()
        self._last_tenth = -1

    def __call__(self, done: int, planned: int) -> None:
        tenth = 10 * done // planned
        if self._is_live:
            end = "\n" if done == planned else ""
            click.echo(f"\rjudged {done} of {planned}{end}", err=True, nl=False)
        elif tenth > self._last_tenth:
            click.echo(f"judged {done} of {planned}", err=True)
        self._last_tenth = tenth


def _write_json(path: Path, found: "JudgeCheckResult", context: CliContext) -> None:
    from holodeck.errors import ReportError
    from holodeck.lib.judging.check_report import to_json

    text = json.dumps(to_json(found), indent=2, ensure_ascii=False) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(context.redactor.redact(text), "utf-8", "backslashreplace")
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror}") from error
