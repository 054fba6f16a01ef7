"""The options of `holodeck test` that choose what runs."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from holodeck.cli.cli_context import CliContext

if TYPE_CHECKING:
    from holodeck.lib.selection.expression import Expression
    from holodeck.lib.selection.past import CasePast
    from holodeck.lib.selection.request import Request
    from holodeck.models.agent import Agent
    from holodeck.models.selection import Selection

F = TypeVar("F", bound=Callable[..., Any])

_MOST_SEEDS = 1_000_000
_OPTIONS = (
    click.option(
        "-k",
        "keyword",
        metavar="EXPR",
        help="Run the cases whose name, id or suite fits EXPR, such as 'refund and not slow'.",
    ),
    click.option("--tag", "tags", multiple=True, help="Run the cases with this tag; repeatable."),
    click.option(
        "--exclude-tag",
        "excluded_tags",
        metavar="TAG",
        multiple=True,
        help="Leave out the cases with this tag; repeatable.",
    ),
    click.option(
        "--suite",
        "suites",
        metavar="NAME",
        multiple=True,
        help="Run the cases of this suite; repeatable.",
    ),
    click.option(
        "--id", "ids", metavar="ID", multiple=True, help="Run the case with this id; repeatable."
    ),
    click.option(
        "--last-failed", is_flag=True, help="Run the cases that did not pass when they last ran."
    ),
    click.option("--new", is_flag=True, help="Run the cases that no recorded run has a result of."),
    click.option(
        "--failed-first", is_flag=True, help="Begin with the cases that did not pass last time."
    ),
    click.option(
        "--limit",
        "-n",
        type=click.IntRange(min=1),
        metavar="N",
        help="Run only the first N of the chosen cases.",
    ),
    click.option("--shuffle", is_flag=True, help="Run the chosen cases in an order by chance."),
    click.option(
        "--seed",
        type=click.IntRange(min=0),
        metavar="N",
        help="With --shuffle: the same order as an earlier run that said this seed.",
    ),
    click.option(
        "--shard",
        metavar="I/N",
        help="Run the I-th of N parts of the chosen cases, which together are all of them.",
    ),
    click.option(
        "--allow-empty", is_flag=True, help="Exit with 0, not 5, if there is no case to run."
    ),
)


def selection_options(command: F) -> F:
    """A decorator that gives a command the options that `request_of` reads."""
    for one in reversed(_OPTIONS):
        command = one(command)
    return command


def selection_request(options: Mapping[str, Any]) -> "Request":
    """What the options ask for. Raises ConfigError and UsageError."""
    from holodeck.lib.selection.request import Request, Shard

    shard = options["shard"]
    if shard is not None:
        _refuse_moving_shards(options)
    return Request(
        ids=options["ids"],
        suites=options["suites"],
        tags=options["tags"],
        excluded_tags=options["excluded_tags"],
        keyword=_keyword(options["keyword"]),
        last_failed=options["last_failed"],
        new=options["new"],
        seed=_seed(options),
        failed_first=options["failed_first"],
        limit=options["limit"],
        shard=None if shard is None else Shard.parse(shard),
        allow_empty=options["allow_empty"],
    )


def _keyword(written: str | None) -> "Expression | None":
    if written is None:
        return None
    from holodeck.lib.selection.expression import parse

    return parse(written)


def _refuse_moving_shards(options: Mapping[str, Any]) -> None:
    """Earlier runs must not decide what the whole is that shards are parts of."""
    moving = [name for name in ("last_failed", "new") if options[name]]
    if options["failed_first"] and options["limit"] is not None:
        moving.append("failed_first")
    if moving:
        flag = "--" + moving[0].replace("_", "-")
        raise click.UsageError(
            f"{flag} may mean other cases once another shard has run; leave out {flag} or --shard"
        )


def _seed(options: Mapping[str, Any]) -> int | None:
    seed: int | None = options["seed"]
    if not options["shuffle"]:
        if seed is not None:
            raise click.UsageError("--seed says how to shuffle; add --shuffle")
        return None
    if seed is None and options["shard"] is not None:
        raise click.UsageError("every shard must shuffle alike; add the same --seed N to each")
    if seed is None:
        from secrets import randbelow

        return randbelow(_MOST_SEEDS)
    return seed


def apply_selection(
    agent: "Agent", request: "Request", agent_config: str, invocation: CliContext
) -> "tuple[Agent, Selection | None]":
    """The agent with the chosen cases, and what was chosen; None if nothing was asked for."""
    if not request.args():
        return agent, None
    from holodeck.lib.selection.choose import choose

    past = None
    if request.asks_the_past:
        whole = request.shard is not None
        past = past_cases(agent, agent_config, request.most_results, whole_runs=whole)
    choice = choose(agent.test_cases or [], request, past)
    for warning in choice.warnings:
        click.echo(invocation.clean(f"WARNING: {warning}"), err=True)
    return agent.case_caches(choice.places), choice.selection


def past_cases(
    agent: "Agent", agent_config: str, most: int, *, whole_runs: bool = False
) -> "list[CasePast]":
    """What the recorded runs know of each case from its latest results, `most` of them.

    With `whole_runs`, so many of runs that were no shard.
    """
    from holodeck.lib.records.fingerprint import fingerprint_of
    from holodeck.lib.records.history import CaseQuery, case_history
    from holodeck.lib.records.run_store import RunStore

    planned = fingerprint_of(agent).cases
    currency = None if agent.prices is None else agent.prices.unit
    wanted = CaseQuery(agent.name, agent_config, planned, currency, whole_runs)
    return case_history(RunStore(agent.base_dir), wanted, most)
