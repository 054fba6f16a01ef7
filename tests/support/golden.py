"""Reports and records without what differs from run to run, and the golden files of the examples.

`pytest tests -k golden --update-golden` writes the files; `git diff` shows what changed.
"""

import json
import re
from difflib import unified_diff
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parents[1] / "e2e" / "golden"

RUN_ID = r"\d{8}-\d{6}-\d{6}-[0-9a-f]{6}"
HASH = "[0-9a-f]{16}"
TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?\+00:00"
VERSION = r"\d+(?:\.\d+)+[\w.+-]*"
MS = r"\d+(?:\.\d+)?"
DURATION = r"[\d,]+(?:\.\d+)? ?(?:ms|s)"

HIDDEN_VALUES = {
    # ids
    "run": f"^{RUN_ID}$",
    "run_started.id": f"^{RUN_ID}$",
    # hashes of what names the server's port
    "hashes.model": f"^{HASH}$",
    "case_finished.hash": f"^{HASH}$",
    # times
    "timestamp": f"^{TIME}$",
    "run_started.started": f"^{TIME}$",
    # durations
    "agent_time_ms": f"^{MS}$",
    "evaluation_time_ms": f"^{MS}$",
    "execution_time_ms": f"^{MS}$",
    "total_duration_ms": f"^{MS}$",
    "wall_time_ms": f"^{MS}$",
    "tool_invocations.duration_ms": f"^{MS}$",
    "model_requests.elapsed_ms": f"^{MS}$",
    "latency_ms": f"^{MS}$",
    "latency_ms.first": f"^{MS}$",
    "latency_ms.second": f"^{MS}$",
    "metric_results.reasoning": f"^{MS} ms(?= of {MS} ms allowed$)",
    # versions
    "holodeck_version": f"^{VERSION}$",
    "environment.python_version": f"(?<=^Python ){VERSION}$",
    "versions.*": f"^{VERSION}$",
    "libraries.*": f"^{VERSION}$",
    # the server's port
    "endpoint": r"(?<=^http://127\.0\.0\.1:)\d+(?=/v1$)",
}
"""In JSON: the ends of paths and, of the values there, what is hidden."""

AUTHORED = ("tool_invocations.args", "tool_invocations.result", "expected_tools.args")
"""Below these paths, agents and users chose the keys, so only the path of the folder is hidden."""

HIDDEN_TEXT = [
    rf"(?<=^\| Total Duration \| ){MS}ms \({MS}s\)(?= \|$)",
    rf"(?<=^\*\*Generated:\*\* ){TIME}$",
    rf"(?<=^\*\*HoloDeck Version:\*\* ){VERSION}$",
    rf"(?<=^\*\*Environment:\*\* Python ){VERSION}",
    rf"(?<=^\*\*Run:\*\* `){RUN_ID}(?=`$)",
    rf"(?<=\) · ){DURATION}$",
    # the last column of tool calls and metrics
    rf"(?<= \| ){DURATION}(?= \|$)",
    rf"(?<= \| ){MS} ms(?= of {MS} ms allowed \| )",
    # comparisons
    rf"(?<=, run `){RUN_ID}(?=`$)",
    rf"(?<=, run ){RUN_ID} of {TIME}(?=`$)",
    rf"(?<=^- \*\*Generated:\*\* ){TIME}$",
    rf"(?<=^\| mean latency \| ){DURATION} \| {DURATION} \| (?:same|[+-][^|]+)(?= \| )",
    rf"(?<= \| ){DURATION} \| {DURATION}(?= \| \d+ \| \d+ \|$)",
]
"""In Markdown: what is hidden, with the words around it."""


def normalize(value: Any, folder: Path, path: str = "") -> Any:
    """Return a JSON value without ids, times, durations, versions, port and the user's folders."""
    if isinstance(value, dict):
        return {key: normalize(item, folder, f"{path}.{key}") for key, item in value.items()}
    if isinstance(value, list):
        return [normalize(item, folder, path) for item in value]
    if value is None or isinstance(value, bool):
        return value
    text = str(value)
    if not any(f"{part}." in path for part in AUTHORED):
        for end, pattern in HIDDEN_VALUES.items():
            if fnmatchcase(path, f"*.{end}"):
                text = re.sub(pattern, "<hidden>", text)
    text = text.replace(str(folder), "<folder>").replace(f"{Path.home()}/", "<home>/")
    return value if text == str(value) else text


def normalize_markdown(text: str, folder: Path) -> str:
    """Return a Markdown report without ids, times, durations, versions and the folder's path."""
    for pattern in HIDDEN_TEXT:
        text = re.sub(pattern, "<hidden>", text, flags=re.MULTILINE)
    return text.replace(str(folder), "<folder>")


def normalize_record(text: str, folder: Path) -> list[Any]:
    """Return the events of a record, each below its kind; the cases in the order of the file."""
    events = [json.loads(line) for line in text.splitlines()]
    events.sort(key=lambda event: (event["event"] == "run_finished", event.get("index", -1)))
    return [normalize({event["event"]: event}, folder) for event in events]


def normalize_file(path: Path, folder: Path) -> str:
    """Return a report or a record as normalized text, with the keys of objects sorted."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        return normalize_markdown(text, folder)
    is_record = path.suffix == ".jsonl"
    value = normalize_record(text, folder) if is_record else normalize(json.loads(text), folder)
    return json.dumps(value, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def normalized_files(folder: Path, *reports: str) -> dict[str, str]:
    """Return the normalized reports and the records of a folder by the names of golden files."""
    files = {name: folder / name for name in reports}
    for record in folder.glob(".holodeck/runs/*/run.jsonl"):
        head = json.loads(record.read_text(encoding="utf-8").partition("\n")[0])
        files[f"record of {head['agent_config_path']}.json"] = record
    return {name: normalize_file(path, folder) for name, path in files.items()}


def compare_with_golden(example: str, folder: Path, *reports: str) -> None:
    """Fail with the differences between the folder's reports and records and the golden files."""
    paths = (FOLDER / example).iterdir()
    golden = {path.name: path.read_text(encoding="utf-8") for path in paths}
    files = normalized_files(folder, *reports)
    changes = [
        line
        for name in sorted(golden.keys() | files.keys())
        for line in unified_diff(
            golden.get(name, "").splitlines(), files.get(name, "").splitlines(),
            f"golden/{example}/{name}", "now", lineterm="",
        )
    ]  # fmt: skip
    assert not changes, "\n".join(changes)


def write_golden(example: str, folder: Path, *reports: str) -> None:
    """Write reports and records of the folder as the example's golden files."""
    golden = FOLDER / example
    golden.mkdir(parents=True, exist_ok=True)
    for path in golden.iterdir():
        path.unlink()
    for name, text in normalized_files(folder, *reports).items():
        (golden / name).write_text(text, encoding="utf-8")
