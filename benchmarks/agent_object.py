"""How long test cases take whose agent is an object of Semantic Kernel, and built from YAML.

    python benchmarks/agent_object.py [--cases 500] [--runs 3] [--check]

The same model, instructions and HTTP library, once described in agent.yaml and once as
`backend: "support:agent"`; whole runs of the command, in turn, against a server that answers after
100 ms, 50 cases at a time. `--check` exits with 1 when the ratio exceeds the goal.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from loopback import server
from measure import Measured, measure, median_ratio, middle

GOAL = 1.1
LATENCY_MS = 100
OBJECT = """\
from openai import AsyncOpenAI, DefaultAioHttpClient
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion


def make_agent():
    client = AsyncOpenAI(base_url="{url}", api_key="none", http_client=DefaultAioHttpClient())
    service = OpenAIChatCompletion(ai_model_id="fake", async_client=client)
    return ChatCompletionAgent(service=service, name="support", instructions="Be brief.")
"""
AGENTS = {
    "from YAML": """\
model: {{provider: openai, name: fake, endpoint: "{url}", api_key: none}}
instructions: {{inline: Be brief.}}
""",
    "an object": 'backend: {{type: python, target: "support:make_agent", scope: run}}\n',
}


def prepare(folder: Path, agent: str, url: str, cases: int) -> Path:
    """A folder with the agent and its test cases."""
    folder.mkdir(parents=True)
    rows = "".join(
        f"  - {{input: case {i}, evaluations: [{{metric: not_contains, value: zebra}}]}}\n"
        for i in range(cases)
    )
    text = f"name: support\n{agent.format(url=url)}test_cases:\n{rows}"
    (folder / "agent.yaml").write_text(text, "utf-8")
    (folder / "support.py").write_text(OBJECT.format(url=url), "utf-8")
    return folder


def run(folder: Path, cases: int) -> Measured:
    """One whole run of the command. Raises RuntimeError if it did not pass every case."""
    command = [sys.executable, "-P", "-m", "holodeck", "test", "-q", "-j", "50", "--no-record"]
    ran = measure(command, folder, {"PATH": "/usr/bin:/bin", "HOME": str(folder)})
    if ran.code != 0 or f"{cases}/{cases} passed" not in ran.output:
        raise RuntimeError(f"{folder}: exit {ran.code}\n{ran.output[-2000:]}")
    return ran


def benchmark(cases: int, runs: int) -> bool:
    """Print the runs and the ratios; whether the goal was met."""
    found: dict[str, list[Measured]] = {name: [] for name in AGENTS}
    with tempfile.TemporaryDirectory() as home, server(LATENCY_MS) as url:
        folders = {
            name: prepare(Path(home) / name, agent, url, cases) for name, agent in AGENTS.items()
        }
        for _ in range(runs + 1):
            for name, folder in folders.items():
                found[name].append(run(folder, cases))
    kept = {name: measured[1:] for name, measured in found.items()}  # the first wrote byte code
    for name, measured in kept.items():
        at = middle(measured)
        print(f"{name:10} {at.wall_s:7.2f} s  {at.cpu_s:6.2f} s of CPU  {at.peak_mb:5.0f} MB")
    ratio = median_ratio(kept["an object"], kept["from YAML"])
    is_met = ratio <= GOAL
    verdict = "ok" if is_met else "MISSED"
    print(f"an object / from YAML: {ratio:.2f}   goal <= {GOAL:g}  {verdict}")
    return is_met


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", type=int, default=500)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--check", action="store_true", help="exit with 1 when the goal is missed")
    given = parser.parse_args()
    try:
        met = benchmark(given.cases, given.runs)
    except RuntimeError as error:
        print(f"not counted: {error}", file=sys.stderr)
        return 1
    return 1 if given.check and not met else 0


if __name__ == "__main__":
    sys.exit(main())
