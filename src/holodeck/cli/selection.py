"""Selects the cases that `holodeck test` runs, and shows them for `--list` and `--dry-run`."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from secrets import randbelow
from typing import Any

import click

from holodeck.cli.context import CliContext
from holodeck.lib.records.fingerprint import fingerprint_of
from holodeck.lib.selection.request import (
    RESULTS_FOR_A_MEDIAN,
    CaseHistory,
    SelectionRequest,
    Shard,
    parse_expression,
)
from holodeck.lib.support.text import one_line, plural
from holodeck.lib.ui.terminal import format_table
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.results.origin import Selection

_MAX_SEED = 1_000_000
_MAX_CELL = 60


def selection_request(options: Mapping[str, Any]) -> SelectionRequest:
    """Return what the options select. Raises ConfigError and UsageError."""
    shard, keyword = options["shard"], options["keyword"]
    if shard is not None:
        _require_stable_shards(options)
    parsed = {
        "keyword": None if keyword is None else parse_expression(keyword),
        "seed": _seed(options),
        "shard": None if shard is None else Shard.parse(shard),
    }
    same = {field.name: options[field.name] for field in fields(SelectionRequest)}
    return SelectionRequest(**same | parsed)


def _require_stable_shards(options: Mapping[str, Any]) -> None:
    """Raise UsageError if a shard that ran earlier would change which cases the others select."""
    unstable = [name for name in ("last_failed", "new") if options[name]]
    if options["failed_first"] and options["limit"] is not None:
        unstable.append("failed_first")
    if unstable:
        flag = "--" + unstable[0].replace("_", "-")
        raise click.UsageError(
            f"{flag} may select other cases once another shard has run; remove {flag} or --shard"
        )


def _seed(options: Mapping[str, Any]) -> int | None:
    seed: int | None = options["seed"]
    if not options["shuffle"]:
        if seed is not None:
            raise click.UsageError("--seed needs --shuffle; add it")
        return None
    if seed is None and options["shard"] is not None:
        raise click.UsageError("all shards must use the same order; add the same --seed N to each")
    return randbelow(_MAX_SEED) if seed is None else seed


def apply_selection(
    agent: Agent, request: SelectionRequest, agent_config: str, context: CliContext
) -> tuple[Agent, Selection | None]:
    """Return the agent with the selected cases; no Selection if all of them run."""
    if not request.args():
        return agent, None
    from holodeck.lib.selection.select_cases import select

    history = None
    if request.needs_history:
        whole = request.shard is not None
        history = load_history(agent, agent_config, request.results_needed, whole_runs=whole)
    selected = select(agent.test_cases or [], request, history)
    for warning in selected.warnings:
        context.warn(warning)
    return agent.with_cases(selected.indexes), selected.selection


def load_history(
    agent: Agent, agent_config: str, limit: int, *, whole_runs: bool = False
) -> list[CaseHistory]:
    """Return what recorded runs know of each case, from its `limit` latest results.

    With `whole_runs`, only results of runs without `--shard` count.
    """
    from holodeck.lib.records.history import HistoryQuery, case_history
    from holodeck.lib.records.run_store import RunStore

    planned = fingerprint_of(agent).cases
    currency = None if agent.prices is None else agent.prices.unit
    query = HistoryQuery(agent.name, agent_config, planned, currency, whole_runs)
    return case_history(RunStore(agent.base_dir), query, limit)


def case_list(agent: Agent, selection: Selection | None, *, as_json: bool) -> str:
    """Return the agent's cases as a table, or as JSON."""
    rows = case_rows(agent)
    if as_json:
        return json.dumps(rows, indent=2)
    table = _table(rows) + "\n\n" if rows else ""
    return table + str(selection or plural(len(rows), "test case"))


def case_rows(agent: Agent) -> list[dict[str, Any]]:
    return [
        {
            "name": case.name,
            "id": case.id,
            "suite": case.suite,
            "tags": case.tags,
            "kind": case.input_kind,
            "skip": case.skip,
            "place": agent.location("test_cases", index),
            "input": case.user_input,
        }
        for index, case in enumerate(agent.test_cases or [])
    ]


def _table(rows: list[dict[str, Any]]) -> str:
    cells = []
    for row in rows:
        texts = (row["name"] or row["input"], row["id"], row["suite"], ", ".join(row["tags"]))
        kind = row["kind"] if row["skip"] is None else f"{row['kind']}, skipped"
        cells.append([*(one_line(text or "", _MAX_CELL) for text in texts), kind, row["place"]])
    header = ["NAME", "ID", "SUITE", "TAGS", "KIND", "PLACE"]
    used = [column for column in range(len(header)) if any(row[column] for row in cells)]
    return format_table([[row[column] for column in used] for row in [header, *cells]])


def plan_runs(
    agents: Sequence[tuple[Agent, str]],
    settings: ExecutionConfig,
    selection: Selection | None,
    *,
    as_json: bool,
) -> str:
    """Return the plan of a run, or those of both agents of a comparison, each with its file.

    Raises ConfigError if the run could not start.
    """
    from holodeck.lib.test_runner.executor import TestExecutor
    from holodeck.lib.test_runner.scheduling.plan import build_plan, describe_plan

    plans = []
    for agent, source in agents:
        TestExecutor(source, agent_config=agent, resolved_execution_config=settings)
        history = load_history(agent, source, RESULTS_FOR_A_MEDIAN)
        plans.append(build_plan(agent, source, settings, history, selection))
    if as_json:
        data = [plan.model_dump(mode="json") for plan in plans]
        return json.dumps(data[0] if len(data) == 1 else data, indent=2, ensure_ascii=False)
    if len(plans) == 1:
        return describe_plan(plans[0])
    return "\n\n".join(
        f"{who} ({source})\n{describe_plan(plan)}"
        for who, (_, source), plan in zip("AB", agents, plans, strict=True)
    )
