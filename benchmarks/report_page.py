"""How long the HTML report of many cases takes: to be written, and to be open in Chromium.

    python benchmarks/report_page.py [--cases 10000] [--runs 3]

A case has an input, an answer, a tool call and two metrics, 7 kB as JSON. The page is open when the
first rows and a case are shown. Needs Chromium (`apt-get install chromium`).
"""

import argparse
import random
import sys
import tempfile
import time
import tracemalloc
from pathlib import Path
from statistics import median

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from holodeck.lib.reports.formats import generate_json_report
from holodeck.lib.reports.html import generate_html_report
from holodeck.models.results.outcome import Outcome
from holodeck.models.test_result import MetricResult, TestReport, TestResult, ToolInvocation
from support.chromium import running_chromium
from support.results import a_report, a_result

WORDS = (
    "order",
    "refund",
    "shoes",
    "parcel",
    "thirty",
    "days",
    "please",
    "return",
    "invoice",
    "Oslo",
)


def report(cases: int) -> TestReport:
    draw = random.Random(1)
    return a_report(*(case(number, draw) for number in range(cases)))


def case(number: int, draw: random.Random) -> TestResult:
    def text(words: int) -> str:
        return " ".join(draw.choices(WORDS, k=words))

    passed = draw.random() > 0.05
    return a_result(
        Outcome.PASSED if passed else Outcome.FAILED,
        test_name=f"case {number}",
        test_input=text(100),
        agent_response=text(400),
        tool_invocations=[ToolInvocation(name="search", args={"query": text(4)}, result=text(150))],
        metric_results=[
            MetricResult(metric_name="contains", score=float(passed), threshold=1, passed=passed),
            MetricResult(metric_name="quality", score=draw.random(), reasoning=text(60)),
        ],
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    found = report(options.cases)
    json_size = len(generate_json_report(found))
    start = time.perf_counter()
    html = generate_html_report(found)
    written = time.perf_counter() - start
    tracemalloc.start()
    generate_html_report(found)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    with tempfile.TemporaryDirectory() as folder, running_chromium() as browser:
        page = Path(folder) / "report.html"
        page.write_text(html, "utf-8")
        times = []
        for _ in range(options.runs):
            start = time.perf_counter()
            with browser.open(page.as_uri()) as tab:
                times.append(time.perf_counter() - start)
                shown = tab.js("document.querySelectorAll('.row').length")
    print(f"{options.cases:,} cases: JSON {json_size / 1e6:.1f} MB, page {len(html) / 1e6:.1f} MB")
    print(f"written in {written:.1f} s, with {peak / 1e6:.0f} MB beside the report")
    print(f"open in {median(times):.2f} s (first {times[0]:.2f} s), {shown} rows are elements")


if __name__ == "__main__":
    main()
