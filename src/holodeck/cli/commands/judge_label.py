"""`holodeck judge label`: collects a person's verdicts on the responses of a recorded run."""

import json
import os
from pathlib import Path
from typing import BinaryIO

import click

from holodeck.cli.context import CliContext
from holodeck.cli.options import read_run, run_store_of
from holodeck.config.loader import load_agent_with_config
from holodeck.config.secrets import collect
from holodeck.lib.judge_check.gate import DEFAULT_LIMITS, labels_needed
from holodeck.lib.judge_check.judge_check import find_judged_metric
from holodeck.lib.judge_check.labelled_cases import UnlabelledResponse, responses_to_label
from holodeck.lib.judge_check.labels import Label, count_kinds, read_labels
from holodeck.lib.support.files import open_file
from holodeck.lib.support.text import plural
from holodeck.lib.ui.live import echo

_ANSWERS = ("pass", "fail", "skip", "undo", "quit")
_PROMPT = "pass, fail, skip, undo or quit (p/f/s/u/q)"
_MAX_SHOWN = 4000


@click.command("label")
@click.argument("run", default="last")
@click.option("--metric", required=True, metavar="NAME", help="The judged metric, or `criteria`.")
@click.option(
    "--output",
    "-o",
    "labels_file",
    default="labels.jsonl",
    show_default=True,
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Append the labels to FILE.",
)
@click.option(
    "--agent",
    "agent_config",
    default="agent.yaml",
    show_default=True,
    metavar="FILE",
    help="The agent with the metric.",
)
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
    labels_file: Path,
    agent_config: str,
    labeler: str | None,
) -> None:
    """Judge the responses of RUN yourself, to check a judge with your labels.

    Shows one response after the other, in random order and without the judge's verdict, and appends
    each answer to a file at once. A response that the file already contains is not shown again.
    RUN is an id, the beginning of one, `last`, or the path of a record.
    """
    cli_context = context.ensure_object(CliContext)
    agent, _, loader = load_agent_with_config(agent_config)
    cli_context.protect(collect(agent, loader.environment(agent.base_dir)))
    subject = find_judged_metric(agent, metric)
    recorded = read_run(run_store_of(agent.base_dir), run, cli_context)
    labels = read_labels(labels_file) if _has_text(labels_file) else []
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
        with os.fdopen(open_file(labels_file, os.O_RDWR | os.O_APPEND), "a+b") as file:
            _ask(left, file, cli_context, labeler)
    _print_summary(labels_file, metric)


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
        ("Tool calls", "\n".join(_call_line(call) for call in keys.get("tool_calls", ()))),
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
