"""Asks an agent of Semantic Kernel every case of `cases.json`, and compares the answers."""

import asyncio
import json
from pathlib import Path

from agent import make_agent


async def ask_all(inputs: list[str]) -> list[str]:
    agent = make_agent()
    responses = await asyncio.gather(*map(agent.get_response, inputs))
    return [str(response) for response in responses]


def main() -> None:
    cases = json.loads(Path("cases.json").read_text("utf-8"))
    answers = asyncio.run(ask_all([case["input"] for case in cases]))
    passed = sum(answer == case["expected"] for answer, case in zip(answers, cases, strict=True))
    Path("report.json").write_text(json.dumps({"passed": passed}), "utf-8")


main()
