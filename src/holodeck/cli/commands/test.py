"""`holodeck test`: its options, and which of them exclude each other."""

from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holodeck.cli.context import CliContext
from holodeck.cli.options import (
    allow_outside_option,
    github_step,
    output_options,
    report_targets,
    switch,
    trust_option,
    untrusted_option,
)
from holodeck.config.flags import cli_config, cli_options
from holodeck.lib.ui.help import GroupedCommand, GroupedOption

if TYPE_CHECKING:
    from holodeck.cli.agents import PreviewMode
    from holodeck.lib.compare.gate import GateOptions

F = TypeVar("F", bound=Callable[..., Any])

_input = partial(click.option, cls=GroupedOption, group="Input")
_compare = partial(click.option, cls=GroupedOption, group="Comparison")
_select = partial(click.option, cls=GroupedOption, group="Selection")
_selects = partial(_select, multiple=True)
_preview = partial(click.option, cls=GroupedOption, group="Preview")
_resume = partial(click.option, cls=GroupedOption, group="Resuming")
_run = partial(click.option, cls=GroupedOption, group="Run")
_SAME_NAME = ("as_json", "resume", "retry_errors", "force", "debug", "against", "fail_on")
"""Options that `TestOptions` has as they are."""
_EXCLUSIVE = {
    "only_list dry_run": "--list and --dry-run exclude each other; use one of them",
    "only_list outputs resume events debug watch": "--list runs nothing; remove {flag}",
    "dry_run outputs resume events debug watch": "--dry-run runs nothing; remove {flag}",
    "resume last_failed new failed_first": "--resume repeats the selection of its run; remove"
    " --last-failed, --new and --failed-first",
    "baseline against": "--baseline and --against are two comparisons; remove one of them",
    "against debug": "--debug works with one agent, because a person would play two conversations"
    " at once; remove it or --against",
    "against watch": "--watch works with one agent, because it reruns the cases that a change"
    " concerns, and both agents must run the same cases; remove it or --against",
    "adapter agent": "--agent and --adapter both name the agent; remove one of them",
    "adapter watch": "--watch needs an agent.yaml; write one with a 'backend'",
    "watch debug": "--debug needs a keyboard, which --watch does not pass on",
    "watch resume last_failed new failed_first": "--watch selects the cases to rerun itself; remove"
    " {flag}",
    "replay record_mode": "--record and --replay exclude each other; use one of them",
}
"""An option with those that it excludes, and what to do about it."""
_NEEDED = {
    "as_json only_list dry_run": "--json needs --list or --dry-run; for a run use -o FILE.json",
    "retry_errors resume": "--retry-errors and --force need a run to resume; add --resume",
    "force resume": "--retry-errors and --force need a run to resume; add --resume",
    "confirm baseline": "--confirm reruns regressions; add --baseline",
    "fail_on baseline against": "--fail-on regression needs a comparison; add --baseline for an"
    " earlier run, or --against FILE for another agent",
}
"""An option with those of which it needs one, and what to do about it."""


def _skip_invalid(context: click.Context) -> None:
    from holodeck.config.cases.suite_files import skip_invalid_suites

    context.with_resource(skip_invalid_suites())


_record = partial(click.option, cls=GroupedOption, group="Cache and recordings")


# These options have no YAML key: a file cannot know whether a person watches, and it must not
# be able to make a run smaller than it looks.
_OPTIONS = (
    _input(
        "--agent", "-a", type=click.Path(), metavar="FILE", help="The agent.yaml for suite files."
    ),
    _input("--adapter", metavar="MODULE:CLASS", help="Your agent for suite files; no agent.yaml."),
    switch("--skip-invalid", "Leave out invalid suite files; exit with 5.", _skip_invalid),
    _compare(
        "--against",
        metavar="FILE",
        help="Compare with another agent.yaml, or backend=….",
    ),
    _compare(
        "--baseline",
        is_flag=False,
        flag_value="baseline",
        metavar="[RUN]",
        help="Compare with a run (default: the blessed one).",
    ),
    _compare(
        "--fail-on",
        type=click.Choice(["regression"]),
        help="Exit with 1 only if a passing case broke.",
    ),
    _compare(
        "--confirm",
        type=click.IntRange(min=0, max=100),
        metavar="N",
        help="Rerun a regression N times to confirm it [3].",
    ),
    _select("-k", "keyword", metavar="EXPR", help="Run cases that match 'refund and not slow'."),
    _selects("--tag", "-t", "tags", metavar="TAG", help="Run cases with a tag; repeatable."),
    _selects(
        "--exclude-tag",
        "excluded_tags",
        metavar="TAG",
        help="Leave out cases with a tag; repeatable.",
    ),
    _selects("--suite", "-s", "suites", metavar="NAME", help="Run cases of a suite; repeatable."),
    _selects("--id", "ids", metavar="ID", help="Run the case with an id; repeatable."),
    _selects("--name", "names", metavar="NAME", help="Run the cases of a name; repeatable."),
    _select("--last-failed", "--lf", is_flag=True, help="Run cases that did not pass last time."),
    _select("--new", is_flag=True, help="Run cases without a recorded result."),
    _select(
        "--failed-first", "--ff", is_flag=True, help="Run cases that did not pass last time first."
    ),
    _select(
        "--limit",
        "-n",
        type=click.IntRange(min=1),
        metavar="N",
        help="Run only the first N selected cases.",
    ),
    _select("--shuffle", is_flag=True, help="Run the selected cases in random order."),
    _select(
        "--seed",
        type=click.IntRange(min=0),
        metavar="N",
        help="With --shuffle: repeat the order of seed N.",
    ),
    _select("--shard", metavar="I/N", help="Run part I of N of the selected cases."),
    _select("--allow-empty", is_flag=True, help="Exit with 0, not 5, if no case is selected."),
    _preview("--list", "only_list", is_flag=True, help="List the selected cases and exit."),
    _preview("--dry-run", is_flag=True, help="Validate, estimate calls and time, and exit."),
    _preview("--json", "as_json", is_flag=True, help="With --list or --dry-run: print JSON."),
    _resume(
        "--resume",
        metavar="[RUN]",
        is_flag=False,
        flag_value="last",
        help="Run what a run left out (default: the last).",
    ),
    _resume("--retry-errors", is_flag=True, help="With --resume: also rerun cases with errors."),
    _resume("--force", is_flag=True, help="With --resume: rerun cases that have changed."),
    _record(
        "--record",
        "record_mode",
        is_flag=False,
        flag_value="missing",
        type=click.Choice(["missing", "all", "failed"]),
        metavar="[WHAT]",
        help="Record: missing (default), all, failed.",
    ),
    _record("--replay", is_flag=True, help="Answer from recordings only."),
    _run("--debug", is_flag=True, help="Type messages in place of simulated users."),
    _run("--watch", is_flag=True, help="Rerun affected cases whenever a file changes."),
    _run("--tell-watcher", type=click.Path(path_type=Path), hidden=True),
)


def _test_options(command: F) -> F:
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


@click.command(cls=GroupedCommand)
@click.argument("paths", nargs=-1, metavar="[PATH]...", type=click.Path())
@_test_options
@output_options
@allow_outside_option
@trust_option
@untrusted_option
@cli_options()
@click.pass_context
def test(
    context: click.Context,
    /,
    paths: tuple[str, ...],
    outputs: tuple[Path, ...],
    report_format: str | None,
    **options: Any,
) -> None:
    """Run the test cases of each PATH.

    A PATH is an agent.yaml, a suite file, or a folder that contains them; FILE::NAME is one test
    case. The default is the agent.yaml in the current folder, else the nearest one above it.

    Results go to stdout, logs to stderr. Exit codes: 0 all tests passed, 1 a test failed, 2 invalid
    configuration or usage, 3 the agent could not be run, 4 a metric could not be computed, 5 no
    tests or not all tests ran, 6 the budget is used up, 130 interrupted, 143 terminated. If several
    apply, the order is 3, 4, 6, 1, 5.
    """
    _check_combinations({**options, "outputs": outputs})
    cli_context = context.ensure_object(CliContext)
    from holodeck.cli.selection import selection_request

    request = selection_request(options)
    preview_mode: PreviewMode | None = None
    if options["only_list"] or options["dry_run"]:
        preview_mode = "list" if options["only_list"] else "plan"
    from holodeck.cli.agents import find_agents, find_suites
    from holodeck.cli.run_agents import TestOptions, run_agents

    if options["watch"]:
        from holodeck.cli.watch import watch_command

        context.exit(watch_command(paths, options["agent"]))
    if options["tell_watcher"] is not None:
        from holodeck.cli.watch import track_reads

        tracking = track_reads(options["tell_watcher"], paths, options["agent"], cli_context)
        context.with_resource(tracking)
    recording = "replay" if options["replay"] else options["record_mode"]
    test_options = TestOptions(
        request=request,
        settings=cli_config(options | {"recording": recording}),
        targets=report_targets(outputs, report_format),
        preview_mode=preview_mode,
        gate=_gate_options(options),
        **{name: options[name] for name in _SAME_NAME},
    )
    if options["adapter"] is None:
        is_run = preview_mode is None
        found = find_agents(paths, options["agent"], needs_agent=is_run or bool(options["agent"]))
    else:
        found = find_suites(paths, options["adapter"])
    if preview_mode is None:
        cli_context.github = github_step(context)
    context.exit(run_agents(test_options, found, cli_context))


test.__test__ = False  # type: ignore[attr-defined]  # or pytest takes it for a test


def _check_combinations(options: Mapping[str, Any]) -> None:
    """Raise UsageError for options that exclude each other, or that need another one."""
    given = {
        name for name, value in options.items() if value not in (None, ()) and value is not False
    }
    for names, message in _EXCLUSIVE.items():
        name, *excluded = names.split()
        for other in excluded:
            if {name, other} <= given:
                flag = "--output" if other == "outputs" else f"--{other.replace('_', '-')}"
                raise click.UsageError(message.format(flag=flag))
    for names, message in _NEEDED.items():
        name, *needed = names.split()
        if name in given and given.isdisjoint(needed):
            raise click.UsageError(message)


def _gate_options(options: Mapping[str, Any]) -> "GateOptions | None":
    if options["baseline"] is None:
        return None
    from holodeck.lib.compare.gate import DEFAULT_CONFIRM, GateOptions

    confirm = DEFAULT_CONFIRM if options["confirm"] is None else options["confirm"]
    return GateOptions(options["baseline"], confirm, decides=options["fail_on"] is not None)
