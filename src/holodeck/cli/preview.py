"""`holodeck test --list` and `--dry-run`: what would run, without running it."""

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import click

if TYPE_CHECKING:
    from holodeck.models.agent import Agent
    from holodeck.models.config import ExecutionConfig
    from holodeck.models.selection import Selection
    from holodeck.models.test_case import TestCaseModel

F = TypeVar("F", bound=Callable[..., Any])

PreviewMode = Literal["list", "plan"]

_NAME_LIMIT = 60
_LOOKS = {"--list": "only_list", "--dry-run": "dry_run"}
_OPTIONS = (
    click.option(
        "--list", "only_list", is_flag=True, help="Show the chosen cases and run nothing."
    ),
    click.option(
        "--dry-run",
        is_flag=True,
        help="Check everything, show calls, time and tokens to expect, and run nothing.",
    ),
    click.option("--json", "as_json", is_flag=True, help="With --list or --dry-run: as JSON."),
)


def preview_options(command: F) -> F:
    """A decorator that gives a command the options to look before it leaps."""
    for one in reversed(_OPTIONS):
        command = one(command)
    return command


def preview_mode_of(
    options: Mapping[str, Any], only_runs: Mapping[str, object]
) -> PreviewMode | None:
    """What is to be shown instead of run; None for a run. Raises UsageError for what only a run,
    or only a look, has a use for."""
    looks = [flag for flag, name in _LOOKS.items() if options[name]]
    if len(looks) > 1:
        raise click.UsageError("--list and --dry-run show different things; choose one")
    if not looks:
        if options["as_json"]:
            raise click.UsageError("--json is for --list and --dry-run; a run has -o FILE.json")
        return None
    useless = [flag for flag, value in only_runs.items() if value]
    if useless:
        raise click.UsageError(f"{looks[0]} runs nothing; leave out {useless[0]}")
    return "list" if options["only_list"] else "plan"


def case_list(agent: "Agent", selection: "Selection | None", *, as_json: bool) -> str:
    """The agent's cases: names, ids, suites, tags, kinds and places."""
    rows = case_rows(agent)
    if as_json:
        return json.dumps(rows, indent=2)
    from holodeck.lib.text import plural

    return _table(rows) + str(selection or plural(len(rows), "test case"))


def case_rows(agent: "Agent") -> list[dict[str, Any]]:
    """A row for each of the agent's cases."""
    cases = agent.test_cases or []
    return [_row(case, agent.place("test_cases", index)) for index, case in enumerate(cases)]


def _row(case: "TestCaseModel", place: str) -> dict[str, Any]:
    return {
        "name": case.name,
        "id": case.id,
        "suite": case.suite,
        "tags": case.tags,
        "kind": case.form,
        "skip": case.skip,
        "place": place,
        "input": case.said,
    }


def _table(rows: list[dict[str, Any]]) -> str:
    from holodeck.lib.text import columns_of, one_line

    if not rows:
        return ""
    shown = [
        [
            one_line(row["name"] or row["input"], _NAME_LIMIT),
            one_line(row["id"] or "", _NAME_LIMIT),
            one_line(row["suite"] or "", _NAME_LIMIT),
            one_line(", ".join(row["tags"]), _NAME_LIMIT),
            row["kind"] if row["skip"] is None else f"{row['kind']}, skipped",
            row["place"],
        ]
        for row in rows
    ]
    table = [["NAME", "ID", "SUITE", "TAGS", "KIND", "PLACE"], *shown]
    widths = [max(map(columns_of, column)) for column in zip(*table, strict=True)]
    used = [at for at in range(len(widths)) if any(row[at] for row in shown)]
    lines = [
        "  ".join(row[at] + " " * (widths[at] - columns_of(row[at])) for at in used).rstrip()
        for row in table
    ]
    return "\n".join(lines) + "\n\n"


def plan_run(
    agent: "Agent",
    agent_config: str,
    settings: "ExecutionConfig",
    selection: "Selection | None",
    *,
    as_json: bool,
) -> str:
    """The plan of a run. Raises ConfigError for whatever would keep the run from starting."""
    from holodeck.cli.selection_options import past_cases
    from holodeck.lib.selection.request import RESULTS_FOR_A_MEDIAN
    from holodeck.lib.test_runner.executor import TestExecutor
    from holodeck.lib.test_runner.plan import plan_of
    from holodeck.lib.test_runner.plan_text import describe_plan

    TestExecutor(agent_config, agent_config=agent, resolved_execution_config=settings)
    past = past_cases(agent, agent_config, RESULTS_FOR_A_MEDIAN)
    plan = plan_of(agent, agent_config, settings, past, selection)
    return plan.model_dump_json(indent=2) if as_json else describe_plan(plan)
