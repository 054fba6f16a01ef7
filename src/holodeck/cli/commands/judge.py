"""`holodeck judge`: collects the verdicts of people, and measures how well a judge agrees."""

import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import click

from holodeck.cli.context import CliContext
from holodeck.cli.options import (
    F,
    confirm_endpoints,
    file_option,
    read_run,
    run_store_of,
    trust_option,
    untrusted_option,
)
from holodeck.config.loader import load_agent_with_config
from holodeck.config.project_file import default_agent
from holodeck.config.secrets import collect
from holodeck.errors import ConfigError, ExitCode, NothingSelected
from holodeck.lib.judge_check.check_report import describe_gate, render_table, to_json
from holodeck.lib.judge_check.check_result import JudgeCheckResult
from holodeck.lib.judge_check.gate import DEFAULT_LIMITS, labels_needed
from holodeck.lib.judge_check.judge_check import (
    CheckedJudge,
    find_judged_metric,
    load_agent_judge,
    load_named_judge,
)
from holodeck.lib.judge_check.judge_pair import compare_judges, read_verdicts
from holodeck.lib.judge_check.labelled_cases import UnlabelledResponse, responses_to_label
from holodeck.lib.judge_check.labels import (
    DEFAULT_LABELS,
    Label,
    agreement_of_people,
    count_kinds,
    read_labels,
    require_enough_labels,
    with_verdict,
)
from holodeck.lib.reports.formats import check_writable, write_report_text
from holodeck.lib.support.files import open_file
from holodeck.lib.support.safe_paths import refuse_input
from holodeck.lib.support.text import plural
from holodeck.lib.ui.live import echo, write_raw, write_text
from holodeck.models.metrics.judge_trust import (
    CHECKS_FILE,
    DEFAULT_MAX_FALSE_PASSES,
    DEFAULT_MIN_KAPPA,
    Limits,
)

_ANSWERS = ("pass", "fail", "skip", "undo", "quit")
_PROMPT = "pass, fail, skip, undo or quit (p/f/s/u/q)"
_MAX_SHOWN = 4000


def _agent_option(description: str) -> Callable[[F], F]:
    return click.option(
        "--agent",
        "agent_config",
        default=default_agent,
        show_default="agent.yaml",
        metavar="FILE",
        help=description,
    )


@click.group()
def judge() -> None:
    """Measure how well a model that judges agrees with people."""


@judge.command("check")
@click.argument("labels", required=False, type=click.Path(path_type=Path))
@_agent_option("Check the judge of this agent.")
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
        location = str(labels or "the labels of holodeck")
        reused = len(selected) - len(look.counted)
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


@judge.command("label")
@click.argument("run", default="last")
@click.option("--metric", required=True, metavar="NAME", help="The judged metric, or `criteria`.")
@file_option("Append the labels to FILE.", default="labels.jsonl", show_default=True)
@_agent_option("The agent with the metric.")
@click.option(
    "--labeler",
    metavar="NAME",
    help="Who judges, if several people label the same responses in FILE.",
)
@click.pass_context
def label(
    context: click.Context,
    run: str,
    metric: str,
    output: Path,
    agent_config: str,
    labeler: str | None,
) -> None:
    """Judge the responses of RUN yourself, to check a judge with your labels.

    Shows one response after the other, in random order and without the judge's verdict, and appends
    each answer to a file at once. A response that the file already contains is not shown again.
    RUN is an id or its beginning, a tag, `last`, `previous`, or the path of a record.
    """
    cli_context = context.ensure_object(CliContext)
    agent, _, loader = load_agent_with_config(agent_config)
    cli_context.protect(collect(agent, loader.environment(agent.base_dir)))
    subject = find_judged_metric(agent, metric)
    recorded = read_run(run_store_of(agent.base_dir), run, cli_context)
    labels = read_labels(output) if _has_text(output) else []
    # a label without a name cannot have a second beside it
    known = {
        known_label.question
        for known_label in labels
        if labeler is None or known_label.labels is None or labeler in known_label.verdicts
    }
    redact = cli_context.redactor.redact
    responses = responses_to_label(agent, recorded, subject, redact)
    left = [response for response in responses if response.question not in known]
    known_count = len(responses) - len(left)
    if not left:
        echo(f"All {len(responses)} responses of run {recorded.id} have labels")
    else:
        count = f"{len(left)} to label" + (f", {known_count} already done" if known_count else "")
        echo(
            f"Run {recorded.id}: {count}. Judge by the text alone; `q` stops, and nothing is lost."
        )
        with os.fdopen(open_file(output, os.O_RDWR | os.O_APPEND), "a+b") as file:
            _ask(left, file, cli_context, labeler)
    _print_summary(output, metric)


def _has_text(path: Path) -> bool:
    return path.exists() and path.stat().st_size > 0


def _ask(
    responses: list[UnlabelledResponse],
    file: BinaryIO,
    context: CliContext,
    labeler: str | None,
) -> None:
    """Ask for each response until the person quits; each answer is in the file before the next."""
    sizes: list[int] = []
    answers: list[str] = []
    at = 0
    while at < len(responses):
        echo(context.clean(_render(responses[at], at + 1, len(responses))))
        answer = _answer()
        if answer == "quit":
            break
        if answer == "undo":
            if not answers:
                echo("There is nothing to undo")
                continue
            at -= 1
            if answers.pop() != "skip":
                file.truncate(sizes.pop())
            continue
        answers.append(answer)
        if answer != "skip":
            sizes.append(_append(file, responses[at].label(answer, labeler)))
        at += 1


def _answer() -> str:
    """Return the next answer, `quit` at the end of the input."""
    while True:
        try:
            text = click.prompt(_PROMPT, default="", show_default=False).strip().lower()
        except click.Abort:
            echo()
            return "quit"
        answers = [answer for answer in _ANSWERS if text and answer.startswith(text)]
        if answers:
            return answers[0]
        echo(f"{text!r} is no answer; write one of {', '.join(_ANSWERS)}")


def _append(file: BinaryIO, label: Label) -> int:
    """Write the label; return the size of the file before."""
    size = file.seek(0, os.SEEK_END)
    hidden = {"label"} if label.labels else None  # it follows from the labels of people
    data = label.model_dump(mode="json", exclude=hidden, exclude_none=True, exclude_defaults=True)
    line = json.dumps(data, ensure_ascii=False) + "\n"
    if size:
        file.seek(size - 1)
        line = line if file.read(1) == b"\n" else "\n" + line
    file.write(line.encode("utf-8", "surrogatepass"))
    file.flush()
    os.fsync(file.fileno())
    return size


def _render(response: UnlabelledResponse, number: int, of: int) -> str:
    """Return the response and everything that its metric may read, except verdicts."""
    keys = response.keys
    parts = [f"── {number} of {of} " + "─" * 40]
    history = [
        f"{message['role']}: {message['content']}"
        for message in keys.get("history", ())
        if "content" in message
    ]
    texts = (
        ("Earlier", "\n".join(history)),
        ("Input", keys["input"]),
        ("Passages", "\n".join(keys.get("retrieval_context", ()))),
        ("Tool calls", "\n".join(map(_call_line, keys.get("tool_calls", ())))),
        ("Ground truth", keys.get("ground_truth", "")),
        ("Response", keys["response"] or "(empty)"),
        ("Is it true?", keys.get("criterion", "Is this response good by the metric?")),
    )
    parts += [f"{title}: {_cut(text)}" for title, text in texts if text]
    return "\n".join(parts)


def _call_line(call: dict[str, object]) -> str:
    return f"{call['name']}({json.dumps(call['arguments'], ensure_ascii=False)}) → {call['result']}"


def _cut(text: str) -> str:
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}… ({len(text)} characters)"


def _print_summary(path: Path, metric: str) -> None:
    good, bad = count_kinds(read_labels(path) if _has_text(path) else [])
    more = zip(labels_needed(good, bad, DEFAULT_LIMITS), ("pass", "fail"), strict=True)
    missing = " and ".join(f"{count} more with {kind!r}" for count, kind in more if count)
    echo(f"{path}: {plural(good + bad, 'label')} ({good} pass, {bad} fail)")
    if missing:
        echo(f"A decision needs at least {missing}")
    echo(f"Next: holodeck judge check {path} --metric {metric}")
