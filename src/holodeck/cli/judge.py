"""`holodeck judge`: how far a model that judges can be trusted."""

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from holodeck.cli.cli_context import CliContext

if TYPE_CHECKING:
    from holodeck.lib.judging.check_labels import Label
    from holodeck.lib.judging.check_result import JudgeCheck
    from holodeck.lib.test_runner.judge_check import Subject


@click.group()
def judge() -> None:
    """Find out how far a model that judges can be trusted."""


@judge.command("check")
@click.argument("labels", required=False, type=click.Path(path_type=Path))
@click.option(
    "--agent",
    "agent_config",
    default="agent.yaml",
    show_default=True,
    metavar="FILE",
    help="Check the model that judges there.",
)
@click.option("--model", "model", metavar="PROVIDER/NAME", help="Check this model instead.")
@click.option("--endpoint", metavar="URL", help="Where --model is reached.")
@click.option("--metric", metavar="NAME", help="Ask as the `type: judge` metric of this name does.")
@click.option(
    "--criterion",
    "criteria",
    multiple=True,
    metavar="TEXT",
    help="Only labels whose criterion contains TEXT. May be given several times.",
)
@click.option(
    "--repeats",
    type=click.IntRange(1, 10),
    default=3,
    show_default=True,
    help="How often each answer is judged, in other words each time.",
)
@click.option(
    "--quick",
    is_flag=True,
    help="Only agreement: one call for each answer, and nothing about order, length and repeats.",
)
@click.option(
    "--min-kappa",
    type=click.FloatRange(-1, 1),
    help="Exit with 1 if the agreement beyond chance is less than this; needs 20 labels or more,"
    " 5 of each kind. An inconclusive answer counts as wrong.",
)
@click.option(
    "--json", "json_file", type=click.Path(path_type=Path), metavar="FILE", help="Write JSON, too."
)
@click.pass_context
def check(  # noqa: PLR0913, PLR0917 - one parameter an option
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
    """Compare a judge with people, on the answers that LABELS holds.

    LABELS has a JSON object on each line: input, response, criterion, label (pass or fail) and
    perhaps ground_truth. Without LABELS, forty answers that come with holodeck are judged. Exit
    code 4 tells that some answers could not be judged.
    """
    from holodeck.errors import ExitCode
    from holodeck.lib.judging.check_labels import SHIPPED, read_labels, refuse_too_few
    from holodeck.lib.judging.check_result import as_table
    from holodeck.lib.test_runner.judge_check import subject_in, subject_named
    from holodeck.lib.ui.live import put

    invocation = context.ensure_object(CliContext)
    chosen = _chosen(read_labels(labels or SHIPPED), criteria)
    if min_kappa is not None:
        refuse_too_few(chosen, str(labels or "the labels that come with holodeck"))
    if json_file is not None:
        _refuse_unwritable(json_file)
    if model is None and endpoint is not None:
        raise click.UsageError("--endpoint says where --model is; add --model PROVIDER/NAME")
    if model is not None and metric is not None:
        raise click.UsageError("--metric is one of an agent.yaml; leave --model out")
    if model is None:
        subject = subject_in(agent_config, metric, invocation.protect)
    else:
        subject = subject_named(model, endpoint, invocation.protect)
    found = asyncio.run(_checked(subject, chosen, None if quick else repeats))
    put(sys.stdout, invocation.clean(as_table(found)))
    if json_file is not None:
        _write(json_file, found, invocation)
    if found.errors:
        context.exit(ExitCode.EVALUATION)
    if min_kappa is not None and (shortfall := _shortfall(found, min_kappa)) is not None:
        click.echo(shortfall, err=True)
        context.exit(ExitCode.TEST_FAILED)


def _shortfall(found: "JudgeCheck", min_kappa: float) -> str | None:
    """What to say of a judge that agrees too little with people; None if it agrees enough."""
    kappa = found.strict_agreement.kappa
    if kappa is not None and kappa >= min_kappa:
        return None
    value = "not defined" if kappa is None else f"{kappa:.2f}"
    unsure = found.inconclusive
    why = f" ({unsure} inconclusive answers count as wrong)" if unsure else ""
    return f"Cohen's kappa is {value}, which is less than {min_kappa:g}{why}"


def _chosen(labels: "list[Label]", criteria: tuple[str, ...]) -> "list[Label]":
    from holodeck.errors import NothingSelected

    if not criteria:
        return labels
    chosen = [one for one in labels if any(text in one.criterion for text in criteria)]
    if not chosen:
        known = "; ".join(dict.fromkeys(one.criterion for one in labels))
        raise NothingSelected(f"no label has such a criterion; there are: {known}")
    return chosen


def _refuse_unwritable(path: Path) -> None:
    from holodeck.errors import ConfigError
    from holodeck.lib.test_runner.reports import check_writable

    try:
        check_writable(path)
    except ConfigError as error:
        raise ConfigError("--json", error.message) from error


async def _checked(subject: "Subject", labels: "list[Label]", repeats: int | None) -> "JudgeCheck":
    """`repeats` None means a quick check."""
    try:
        if repeats is None:
            return await subject.quick_check(labels, _Progress())
        return await subject.check(labels, repeats, _Progress())
    finally:
        await subject.judge.close()


class _Progress:
    """Says on stderr how far the check is: in place on a terminal, else every tenth."""

    def __init__(self) -> None:
        self._is_live = sys.stderr.isatty()
        self._said = -1

    def __call__(self, done: int, planned: int) -> None:
        tenth = 10 * done // planned
        if self._is_live:
            end = "\n" if done == planned else ""
            click.echo(f"\rjudged {done} of {planned}{end}", err=True, nl=False)
        elif tenth > self._said:
            click.echo(f"judged {done} of {planned}", err=True)
        self._said = tenth


def _write(path: Path, found: "JudgeCheck", invocation: CliContext) -> None:
    import json

    from holodeck.errors import ReportError
    from holodeck.lib.judging.check_result import as_document

    text = json.dumps(as_document(found), indent=2, ensure_ascii=False) + "\n"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(invocation.redactor.redact(text), "utf-8", "backslashreplace")
    except OSError as error:
        raise ReportError(f"{path}: {error.strerror}") from error
