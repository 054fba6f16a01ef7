"""The work for langwatch-scenario: `python work.py [AT_ONCE]`; without a number one by one."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import scenario
from openai import AsyncOpenAI

SYSTEM = {"role": "system", "content": "Do what the user says."}


class Agent(scenario.AgentAdapter):
    def __init__(self, client: AsyncOpenAI) -> None:
        self._client = client

    async def call(self, input: scenario.AgentInput) -> scenario.AgentReturnTypes:  # noqa: A002
        answer = await self._client.chat.completions.create(
            model="fake", messages=[SYSTEM, *input.messages], temperature=0
        )
        return answer.choices[0].message.content


async def play(row: dict[str, str], client: AsyncOpenAI) -> dict[str, Any]:
    def is_expected(state: scenario.ScenarioState) -> None:
        said = state.last_message()["content"]
        assert said == row["expected"], said

    steps = [scenario.user(row["input"]), scenario.agent(), is_expected, scenario.succeed()]
    agents = [Agent(client), scenario.UserSimulatorAgent(model="openai/fake")]
    result = await scenario.arun(
        name=row["name"],
        description="one question",
        agents=agents,
        script=steps,
        verbose=False,
    )
    return {"name": row["name"], "passed": result.success, "reasoning": result.reasoning}


async def play_all(rows: list[dict[str, str]], at_once: int) -> list[dict[str, Any]]:
    client, slots = AsyncOpenAI(), asyncio.Semaphore(at_once)

    async def play_in_turn(row: dict[str, str]) -> dict[str, Any]:
        async with slots:
            return await play(row, client)

    return await asyncio.gather(*(play_in_turn(row) for row in rows))


def main(at_once: int) -> None:
    rows = json.loads(Path("cases.json").read_text("utf-8"))
    results = asyncio.run(play_all(rows, at_once))
    Path("report.json").write_text(json.dumps(results), "utf-8")


main(int(sys.argv[1]) if sys.argv[1:] else 1)
