"""`holodeck import`: test cases from chat logs, transcripts, run records and promptfoo."""

import sys
from collections.abc import Sequence
from pathlib import Path

import click

from holodeck.cli.context import CliContext
from holodeck.cli.options import agent_option, run_store_of
from holodeck.errors import ConfigError, NothingSelected
from holodeck.lib.case_import.case import ImportedCase
from holodeck.lib.case_import.read import Format, read_source
from holodeck.lib.case_import.suite_text import (
    Expect,
    choose,
    leave_out_duplicates,
    make_redact,
    redact_case,
    render_suite,
    split_turns,
)
from holodeck.lib.reports.formats import check_writable, write_report_text
from holodeck.lib.support.text import inert_json, plural
from holodeck.lib.ui.live import echo, write_raw


@click.command("import")
@click.argument("source")
@click.option(
    "--from",
    "written_as",
    type=click.Choice(["openai", "jsonl", "record", "promptfoo"]),
    help="The format of SOURCE (default: holodeck finds it out).",
)
@click.option("-o", "--output", type=click.Path(path_type=Path), help="Write the cases to a file.")
@click.option("--force", is_flag=True, help="Overwrite the file.")
@click.option(
    "--expect",
    type=click.Choice(["nothing", "recorded"]),
    default="nothing",
    help="What to expect: nothing yet (default), or what was recorded.",
)
@click.option(
    "--split",
    type=click.Choice(["multi-turn"]),
    help="Make each turn of a conversation a case of its own.",
)
@click.option("--limit", type=click.IntRange(min=1), metavar="N", help="At most N cases.")
@click.option("--sample", type=click.IntRange(min=1), metavar="N", help="N cases at random.")
@click.option("--seed", type=int, default=0, metavar="N", help="Seed of --sample (default: 0).")
@click.option(
    "--redact",
    "patterns",
    multiple=True,
    metavar="NAME=REGEX",
    help="Replace what matches by <NAME>; repeatable.",
)
@agent_option
@click.pass_context
def import_cases(  # noqa: PLR0913, PLR0917 - one parameter for each option
    context: click.Context,
    /,
    source: str,
    written_as: Format | None,
    output: Path | None,
    force: bool,
    expect: Expect,
    split: str | None,
    limit: int | None,
    sample: int | None,
    seed: int,
    patterns: tuple[str, ...],
    agent: Path,
) -> None:
    """Write test cases from SOURCE, one for each conversation, as a suite file.

    SOURCE is a chat log in OpenAI's format (.json, .jsonl), a transcript with one message a line
    (.jsonl), a run (an ID, `last`, or the file of a record), or a promptfooconfig.yaml.

    Secrets, e-mail addresses, phone and card numbers are replaced, and conversations in which the
    user says the same are left out. Each case has a `todo` where you must write what you expect: a
    case with a `todo` cannot pass. What is not imported is listed with its line.
    """
    cli_context = context.ensure_object(CliContext)
    if output is not None:
        check_writable(output)
        if not force and (output.exists() or output.is_symlink()):
            raise ConfigError(
                str(output), "exists; add --force to overwrite it, or name another file"
            )
    redact = make_redact(cli_context.redactor.redact, patterns)
    imported = read_source(source, run_store_of(agent), written_as)
    imported.cases = [redact_case(case, redact) for case in imported.cases]
    if split is not None:
        imported.cases = split_turns(imported.cases)
    leave_out_duplicates(imported)
    choose(imported, limit, sample, seed)
    for note in imported.notes:
        echo(cli_context.brief(redact(note)), err=True)
    if not imported.cases:
        raise NothingSelected(f"{source} holds no conversation to import")
    name = (output or Path(source)).name.partition(".")[0]
    suite = render_suite(imported.cases, name or "imported", Path(source).name, expect)
    if output is None:
        write_raw(sys.stdout, inert_json(suite.text))
    else:
        write_report_text(suite.text, output)
    _say_what_is_next(imported.cases, suite.todos, output, cli_context)


def _say_what_is_next(
    cases: Sequence[ImportedCase], todos: int, output: Path | None, context: CliContext
) -> None:
    target = "" if output is None else f" to {output}"
    wrote = f"Wrote {plural(len(cases), 'case')}{target}"
    have = plural(todos, "case has", "cases have")
    left = f"; {have} a 'todo' and cannot pass yet" if todos else ""
    echo(context.clean(f"{wrote}{left}"), err=True)
    if any(case.criteria or any("type" in metric for metric in case.evaluations) for case in cases):
        text = "criteria and metrics with a 'type' need a judge: write 'evaluations: {model: …}' in"
        echo(f"{text} the agent.yaml", err=True)
