"""What the comparison with golden files leaves out: every other change is seen."""

import json
import re
from collections.abc import Iterator
from copy import deepcopy

import pytest

from fakes import case
from support.golden import FOLDER, normalize_file, normalize_markdown

AGENT = """
def answer(message):
    call = {"name": "look_up", "arguments": {"run": 1, "latency_ms": 2}, "result": {"timestamp": 3}}
    return {"response": "Order 7 took 12 ms.", "tool_calls": [call]}
"""
HIDDEN_IN_REPORT = {
    "environment.python_version", "holodeck_version", "origin.hashes.model", "origin.run",
    "results.agent_time_ms", "results.execution_time_ms",
    "results.metric_results.evaluation_time_ms",
    "results.metric_results.reasoning", "results.timestamp", "summary.total_duration_ms",
    "summary.wall_time_ms", "timestamp",
}  # fmt: skip
HIDDEN_IN_RECORD = {
    "case_finished.hash", "case_finished.result.agent_time_ms",
    "case_finished.result.execution_time_ms",
    "case_finished.result.metric_results.evaluation_time_ms",
    "case_finished.result.metric_results.reasoning", "case_finished.result.timestamp",
    "run_finished.libraries.openai",
    "run_finished.libraries.semantic_kernel", "run_finished.environment.python_version",
    "run_finished.summary.total_duration_ms",
    "run_finished.summary.wall_time_ms", "run_finished.timestamp", "run_started.hashes.model",
    "run_started.id", "run_started.started", "run_started.versions.holodeck",
    "run_started.versions.python",
}  # fmt: skip


@pytest.fixture
def folder(bot_dir, write_bot):
    """A folder with the reports and the record of a run."""
    bot_dir.write("bot.py", AGENT)
    write_bot(
        test_cases=[
            case(
                "calls a tool", "Where is order 7?",
                expected_tools=["look_up"],
                evaluations=[
                    {"metric": "contains", "value": "12 ms"},
                    {"metric": "latency", "max_ms": 60000},
                ],
            )
        ]
    )  # fmt: skip
    assert bot_dir.run("test", "-o", "report.json", "-o", "report.md").code == 0
    return bot_dir.path


def leaves(value, path=()) -> Iterator[tuple]:
    """Yield the paths of the numbers, texts and other leaves."""
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if isinstance(item, dict | list) and item:
            yield from leaves(item, (*path, key))
        else:
            yield (*path, key)


def changed(value):
    """Return another value of the same form."""
    if isinstance(value, bool) or value is None or value in ([], {}):
        return not value
    if isinstance(value, str):
        digit = re.search(r"\d", value)
        if digit is None:
            return value[:-1] + ("b" if value.endswith("a") else "a")
        return value.replace(digit[0], str((int(digit[0]) + 1) % 10), 1)
    return value + 1


def unseen_changes(document, normalized):
    """Return the paths whose values can change without a trace, without the numbers of lists."""
    before = normalized(document)
    unseen = set()
    for *parents, key in leaves(document):
        other = deepcopy(document)
        parent = other
        for step in parents:
            parent = parent[step]
        parent[key] = changed(parent[key])
        if normalized(other) == before:
            unseen.add(".".join(str(step) for step in (*parents, key) if isinstance(step, str)))
    return unseen


def test_in_json_reports_only_ids_times_durations_and_versions_can_change_unseen(folder, tmp_path):
    def normalized(document):
        (tmp_path / "other.json").write_text(json.dumps(document))
        return normalize_file(tmp_path / "other.json", folder)

    unseen = unseen_changes(json.loads((folder / "report.json").read_text()), normalized)

    assert unseen == HIDDEN_IN_REPORT


def test_in_records_only_ids_times_durations_and_versions_can_change_unseen(folder, tmp_path):
    def normalized(events):
        lines = [json.dumps(event) for [event] in map(dict.values, events)]
        (tmp_path / "other.jsonl").write_text("\n".join(lines))
        return normalize_file(tmp_path / "other.jsonl", folder)

    [record] = folder.glob(".holodeck/runs/*/run.jsonl")
    events = map(json.loads, record.read_text().splitlines())

    unseen = unseen_changes([{event["event"]: event} for event in events], normalized)

    assert unseen == HIDDEN_IN_RECORD


def test_in_markdown_only_ids_times_durations_and_versions_can_change_unseen(folder):
    report = (folder / "report.md").read_text()
    before = normalize_markdown(report, folder)

    words = [
        word
        for word in re.finditer(r"\w+", report)
        if normalize_markdown(
            report[: word.start()] + changed(word[0]) + report[word.end() :], folder
        )
        == before
    ]
    masked = report
    for word in reversed(words):
        masked = f"{masked[: word.start()]}\0{masked[word.end() :]}"
    hidden = re.sub(r"\0(?:\W{1,2}\0)*(?: m?s\b)?", "…", masked)

    assert [line for line in hidden.splitlines() if "…" in line] == [
        "**Generated:** …+00:00",
        "**HoloDeck Version:** …",
        "**Environment:** Python … on Linux",
        "**Run:** `…`",
        "| Total Duration | …) |",
        "| Time | … |",
        "[agent.yaml:3](agent.yaml#L3) · …",
        "| contains | 1 | ✅ pass | found '12 ms'; got 'Order 7 took 12 ms.' | … |",
        "| latency | 1 | ✅ pass | … of 60000 ms allowed | … |",
    ]


def test_a_text_of_the_agent_that_looks_like_a_duration_is_seen(folder):
    report = (folder / "report.md").read_text()

    other = report.replace("Order 7 took 12 ms.", "Order 7 took 13 ms.")

    assert normalize_markdown(other, folder) != normalize_markdown(report, folder)


def test_every_golden_file_belongs_to_an_example():
    examples = {path.name for path in (FOLDER.parents[2] / "examples").iterdir()}

    golden = {path.name for path in FOLDER.iterdir()}

    assert golden == (examples | {"weather"}) - {"weather.py", "notebook", "__pycache__"}
