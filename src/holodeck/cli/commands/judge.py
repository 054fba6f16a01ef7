"""`holodeck judge`: measures how well a model that judges agrees with people."""

import asyncio
import json
import sys
from pathlib import Path

import click

from holodeck.cli.commands.judge_label import label
from holodeck.cli.context import CliContext
from holodeck.cli.options import confirm_endpoints, trust_option, untrusted_option
from holodeck.errors import ConfigError, ExitCode, NothingSelected
from holodeck.lib.judge_check.check_report import describe_gate, render_table, to_json
from holodeck.lib.judge_check.check_result import JudgeCheckResult
from holodeck.lib.judge_check.judge_check import CheckedJudge, load_agent_judge, load_named_judge
from holodeck.lib.judge_check.judge_pair import compare_judges, read_verdicts
from holodeck.lib.judge_check.labels import (
    DEFAULT_LABELS,
    Label,
    agreement_of_people,
    read_labels,
    require_enough_labels,
    with_verdict,
)
from holodeck.lib.reports.formats import check_writable, write_report_text
from holodeck.lib.support.safe_paths import refuse_input
from holodeck.lib.ui.live import echo, write_raw, write_text
from holodeck.models.metrics.judge_trust import (
    CHECKS_FILE,
    DEFAULT_MAX_FALSE_PASSES,
    DEFAULT_MIN_KAPPA,
    Limits,
)


@click.group()
def judge() -> None:
    """Measure how well a model that judges agrees with people."""


judge.add_command(label)


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
@click.option("--metric", metavar="NAME", help="Check this judged metric, or `criteria`.")
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
    help="Judge each response once, as `--repeats 1` does.",
)
@click.option(
    "--probe",
    is_flag=True,
    help="Also judge variants of the responses: injections, filler, wrong numbers, …",
)
@click.option(
    "--gate",
    is_flag=True,
    help="Exit with 1 if the judge may not gate, and with 4 if more labels are needed to know.",
)
@click.option(
    "--min-kappa",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    help="Cohen's kappa must surely be at least this. Implies --gate.  [default: 0.6]",
)
@click.option(
    "--max-false-passes",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    metavar="SHARE",
    help="Surely at most this share of bad responses may pass. Implies --gate.  [default: 0.1]",
)
@click.option(
    "--against",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="CHECK.json",
    help="Also compare with another judge, whose check wrote this file with --json.",
)
@click.option(
    "--save",
    is_flag=True,
    help="Store the result beside the agent.yaml, for `judge_trust`. Needs --metric.",
)
@click.option(
    "--json",
    "json_file",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Also write the result as JSON.",
)
@trust_option
@untrusted_option
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
    probe: bool,
    gate: bool,
    min_kappa: float | None,
    max_false_passes: float | None,
    against: Path | None,
    save: bool,
    json_file: Path | None,
) -> None:
    """Compare a judge with people, on the labelled responses in LABELS.

    Each line of LABELS is a JSON object with the keys input, response, criterion, label (pass or
    fail) and optionally ground_truth; labels of several people are written as labels: {NAME: pass,
    NAME: fail}. The default is a set of forty labels that comes with holodeck. Exit code 4 means
    that some responses could not be judged.
    """
    cli_context = context.ensure_object(CliContext)
    labelled = _select(read_labels(labels or DEFAULT_LABELS), criteria)
    people, selected = agreement_of_people(labelled), with_verdict(labelled, str(labels))
    other = None if against is None else read_verdicts(against, selected)
    limits = Limits(min_kappa or DEFAULT_MIN_KAPPA, max_false_passes or DEFAULT_MAX_FALSE_PASSES)
    if json_file is not None:
        refuse_input(json_file, "--json", ["report"])
        _check_writable(json_file, "--json")
    _require_fitting(model, endpoint, metric, save=save)
    if model is None:
        subject = load_agent_judge(agent_config, metric, cli_context.protect)
    else:
        subject = load_named_judge(model, endpoint, cli_context.protect)
    confirm_endpoints(subject.agent, cli_context)
    look = subject.plan(selected)
    gate = bool(gate or min_kappa or max_false_passes)
    if gate:
        location, reused = (
            str(labels or "the labels of holodeck"),
            len(selected) - len(look.counted),
        )
        require_enough_labels(look.counted, limits, location, look.number, reused)
    if metric is not None:
        _check_writable(subject.agent.base_dir / CHECKS_FILE, CHECKS_FILE)
    result = look.result(
        asyncio.run(_check(subject, selected, 1 if quick else repeats, is_probed=probe))
    )
    pair = None if other is None else compare_judges(result, other)
    write_text(sys.stdout, cli_context.clean(render_table(result, limits, people, pair)))
    if json_file is not None:
        data = to_json(result, limits, people, pair)
        text = json.dumps(data, indent=2, ensure_ascii=False) + "\n"
        write_report_text(cli_context.redactor.redact(text), json_file)
    if metric is not None:
        path = subject.save(look, result, limits, is_trusted=save)
        what = "Stored" if save else "Stored the look, but not the result,"
        echo(f"{what} in {cli_context.clean(str(path))}", err=True)
    if result.errors:
        context.exit(ExitCode.EVALUATION)
    decision = result.gate(limits)
    if gate and decision.verdict != "may gate":
        echo(f"may it gate? {describe_gate(decision)}", err=True)
        is_known = decision.verdict == "may not gate"
        context.exit(ExitCode.TEST_FAILED if is_known else ExitCode.EVALUATION)


def _require_fitting(
    model: str | None, endpoint: str | None, metric: str | None, *, save: bool
) -> None:
    """Raise UsageError for options that contradict each other."""
    if model is None and endpoint is not None:
        raise click.UsageError("--endpoint needs --model; add --model PROVIDER/NAME")
    if model is not None and metric is not None:
        raise click.UsageError("--metric belongs to an agent.yaml; remove --metric or --model")
    if save and metric is None:
        raise click.UsageError("--save needs --metric: what is trusted is the judge of a metric")


def _select(labels: list[Label], criteria: tuple[str, ...]) -> list[Label]:
    if not criteria:
        return labels
    selected = [
        label for label in labels if any(text in (label.criterion or "") for text in criteria)
    ]
    if not selected:
        known = "; ".join(dict.fromkeys(label.criterion or "(none)" for label in labels))
        raise NothingSelected(f"--criterion: no label has such a criterion; known: {known}")
    return selected


def _check_writable(path: Path, name: str) -> None:
    try:
        check_writable(path)
    except ConfigError as error:
        raise ConfigError(name, error.message) from error


async def _check(
    subject: CheckedJudge, labels: list[Label], repeats: int, *, is_probed: bool
) -> JudgeCheckResult:
    """Run the check, and close the judge."""
    try:
        return await subject.check(labels, repeats, _Progress(), is_probed=is_probed)
    finally:
        await subject.judges.close()


class _Progress:
    """Prints the progress to stderr: on a line of a terminal, elsewhere every tenth."""

    def __init__(self) -> None:
        self._is_live = sys.stderr.isatty()
        self._last_tenth = -1

    def __call__(self, done: int, planned: int) -> None:
        tenth = 10 * done // planned
        if self._is_live:
            end = "\n" if done == planned else ""
            write_raw(sys.stderr, f"\rjudged {done} of {planned}{end}")
        elif tenth > self._last_tenth:
            echo(f"judged {done} of {planned}", err=True)
        self._last_tenth = tenth
