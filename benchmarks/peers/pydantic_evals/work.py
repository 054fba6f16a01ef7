"""The work for pydantic-evals: `python work.py [AT_ONCE]`; without a number all at once."""

import asyncio
import json
import sys
from pathlib import Path

from openai import AsyncOpenAI
from pydantic_evals import Case, Dataset
from pydantic_evals.evaluators import EqualsExpected
from pydantic_evals.reporting import EvaluationReport, EvaluationReportAdapter

SYSTEM = {"role": "system", "content": "Do what the user says."}


async def evaluate(dataset: Dataset, at_once: int | None) -> EvaluationReport:
    client = AsyncOpenAI()

    async def ask(said: str) -> str:
        messages = [SYSTEM, {"role": "user", "content": said}]
        answer = await client.chat.completions.create(
            model="fake", messages=messages, temperature=0
        )
        return answer.choices[0].message.content

    return await dataset.evaluate(ask, max_concurrency=at_once, progress=False)


def main(at_once: int | None) -> None:
    rows = json.loads(Path("cases.json").read_text("utf-8"))
    cases = [
        Case(name=row["name"], inputs=row["input"], expected_output=row["expected"]) for row in rows
    ]
    dataset = Dataset(name="benchmark", cases=cases, evaluators=[EqualsExpected()])
    report = asyncio.run(evaluate(dataset, at_once))
    Path("report.json").write_bytes(EvaluationReportAdapter.dump_json(report))


main(int(sys.argv[1]) if sys.argv[1:] else None)
