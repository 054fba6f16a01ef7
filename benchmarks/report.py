"""Sizes, times and peak memory of each report format, for runs of 10, 1,000 and 10,000 cases.

    python benchmarks/report.py [--cases 10,1000,10000] [--formats markdown,json] [--failing 1]

Besides the formats, `recap` is what the terminal lists at the end,
and `github` is what GitHub shows. Each is rendered in a process of its own that has read the
results, so that a peak is that of rendering alone. CPU time does not depend on what else the
machine does.
"""

import argparse
import ctypes
import gc
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

from holodeck import __version__
from holodeck.cli.github_actions import annotations, step_summary
from holodeck.lib.reports.failures import recap_failures
from holodeck.lib.reports.formats import FORMATS, write_report
from holodeck.lib.reports.locations import SourceLinks
from holodeck.lib.reports.summary import summarize
from holodeck.models.test_result import (
    MetricResult,
    Outcome,
    TestReport,
    TestResult,
    ToolInvocation,
)
from holodeck.models.token_usage import TokenUsage

CASES = (10, 1_000, 10_000)
WORDS = (
    *("order", "refund", "parcel", "Oslo", "shoes", "size", "return", "label", "customer", "today"),
    *("sorry", "thanks", "invoice", "payment", "address", "status", "warranty", "store", "found"),
)


@dataclass(frozen=True)
class Rendered:
    """One format of one report."""

    report_format: str
    cases: int
    bytes: int
    cpu_s: float
    peak_mb: float
    """Beyond what the process had with the results in memory."""


def a_report(count: int, failing: int) -> TestReport:
    """Return a report with answers of 60 words, a tool call and two metrics a case.

    One case of `failing` fails, each for a reason of its own.
    """
    results = [_result(at, at % failing != 0, Random(at)) for at in range(count)]
    return TestReport(
        agent_name="shop",
        agent_config_path="agent.yaml",
        results=results,
        summary=summarize(results, 60_000),
        timestamp="2026-01-01T10:00:00+00:00",
        holodeck_version=__version__,
    )


def _result(at: int, is_right: bool, random: Random) -> TestResult:
    answer = " ".join(random.choices(WORDS, k=60))
    score = 1.0 if is_right else 0.0
    order = {"order": at, "city": random.choice(WORDS)}
    return TestResult(
        test_name=f"case {at}",
        suite=f"suite {at % 10}",
        tags=["smoke"] if at % 3 == 0 else [],
        location=f"cases.jsonl:{at + 1}:1",
        test_input=" ".join(random.choices(WORDS, k=12)),
        agent_response=answer,
        ground_truth=answer if is_right else "another answer",
        tool_calls=["order_status"],
        tool_invocations=[ToolInvocation(name="order_status", args=order, result=order, bytes=40)],
        metric_results=[
            MetricResult(
                metric_name=name,
                score=score,
                threshold=0.5,
                passed=is_right,
                reasoning=f"{' '.join(random.choices(WORDS, k=15))} {at}",
            )
            for name in ("contains", "rubric")
        ],
        passed=is_right,
        outcome=Outcome.PASSED if is_right else Outcome.FAILED,
        execution_time_ms=random.randint(200, 3_000),
        agent_time_ms=random.randint(200, 3_000),
        timestamp="2026-01-01T10:00:00+00:00",
        token_usage=TokenUsage(prompt_tokens=200, completion_tokens=80, total_tokens=280),
    )


def render(report_format: str, file: Path) -> Rendered:
    """Render the report in a file into another file, in this process."""
    report = TestReport.model_validate_json(file.read_bytes())
    output = file.with_suffix(f".{report_format}.out")
    before = _start_peak()
    started = time.process_time()
    if report_format == "recap":
        output.write_text(recap_failures(report.results, brief=False), "utf-8")
    elif report_format == "github":
        shown = annotations(report, Path("/work")) + step_summary(report, SourceLinks())
        output.write_text(shown, "utf-8")
    else:
        write_report(report_format, report, output)
    size = output.stat().st_size
    cpu_s = time.process_time() - started
    return Rendered(report_format, len(report.results), size, cpu_s, _peak_mb() - before)


def _start_peak() -> float:
    """Give freed memory back, let the peak start anew, and return what is in use in MB."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5", encoding="utf-8")
    return _peak_mb()


def _peak_mb() -> float:
    lines = Path("/proc/self/status").read_text(encoding="utf-8").splitlines()
    [peak] = [line for line in lines if line.startswith("VmHWM:")]
    return int(peak.split()[1]) / 1024


def measured(formats: Sequence[str], counts: Sequence[int], failing: int) -> Iterator[Rendered]:
    """Yield each format of each report, every one rendered in a process of its own."""
    with TemporaryDirectory() as folder:
        for count in counts:
            file = Path(folder) / f"{count}.json"
            file.write_text(a_report(count, failing).model_dump_json(), encoding="utf-8")
            for name in formats:
                args = [sys.executable, __file__, "--render", name, str(file)]
                ran = subprocess.run(args, capture_output=True, text=True, check=True)
                yield Rendered(**json.loads(ran.stdout))


def table(rows: Sequence[Rendered]) -> str:
    """Return the measurements as Markdown; growth is the CPU time a case against the row above."""
    lines = [
        "| Format | Cases | Size | CPU | CPU a case | Growth | Peak |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name in dict.fromkeys(row.report_format for row in rows):
        last: float | None = None
        for row in rows:
            if row.report_format != name:
                continue
            each = 1000 * row.cpu_s / row.cases
            growth = "" if last is None else f"{each / last:.2f} ×"
            last = each
            size = f"{row.bytes / 1024:,.0f} kB | {row.cpu_s:.3f} s"
            lines.append(
                f"| {name} | {row.cases:,} | {size} | {each:.3f} ms |"
                f" {growth} | {row.peak_mb:.0f} MB |"
            )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--cases", default=",".join(map(str, CASES)))
    parser.add_argument("--failing", type=int, default=20, help="one case of so many [20]")
    parser.add_argument("--formats", default=",".join((*FORMATS.names(), "recap", "github")))
    parser.add_argument("--render", nargs=2, metavar=("FORMAT", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.render is not None:
        name, file = options.render
        print(json.dumps(asdict(render(name, Path(file)))))
        return
    counts = [int(one) for one in options.cases.split(",")]
    formats = options.formats.split(",")
    print(table(list(measured(formats, counts, options.failing))))


if __name__ == "__main__":
    main()
