"""How long test cases take whose agent is an object of Semantic Kernel, and built from YAML.

    python benchmarks/agent_object.py [--cases 500] [--runs 3] [--check]

The same model, instructions and HTTP library, once described in agent.yaml and once as
`backend: "support:agent"`; whole runs of the command, in turn, against a server that answers after
100 ms, 50 cases at a time. `--check` exits with 1 when the ratio exceeds the goal.
"""

import sys
import tempfile
from pathlib import Path

from loopback import server
from measure import median_ratio, middle
from pair import is_met, main, run_in_turn

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


def benchmark(cases: int, runs: int) -> bool:
    """Print the runs and the ratio; whether the goal was met."""
    with tempfile.TemporaryDirectory() as home, server(LATENCY_MS) as url:
        folders = {
            name: prepare(Path(home) / name, agent, url, cases) for name, agent in AGENTS.items()
        }
        found = run_in_turn(folders, cases, 50, runs)
    for name, measured in found.items():
        at = middle(measured)
        print(f"{name:10} {at.wall_s:7.2f} s  {at.cpu_s:6.2f} s of CPU  {at.peak_mb:5.0f} MB")
    ratio = median_ratio(found["an object"], found["from YAML"])
    return is_met("an object / from YAML", ratio, GOAL)


if __name__ == "__main__":
    sys.exit(main(__doc__, benchmark, cases=500))
