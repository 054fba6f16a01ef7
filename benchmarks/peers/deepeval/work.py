"""The work for deepeval: `python work.py [AT_ONCE]`; without a number its own default of 20.

deepeval grades answers that are there already, so the asking is ours, in its cheapest form.
"""

import asyncio
import json
import sys
from pathlib import Path

from deepeval import evaluate
from deepeval.evaluate import AsyncConfig, CacheConfig, DisplayConfig
from deepeval.metrics import ExactMatchMetric
from deepeval.test_case import LLMTestCase
from openai import AsyncOpenAI

SYSTEM = {"role": "system", "content": "Do what the user says."}


async def answers(rows: list[dict[str, str]], at_once: int) -> list[str]:
    client, slots = AsyncOpenAI(), asyncio.Semaphore(at_once)

    async def ask(said: str) -> str:
        messages = [SYSTEM, {"role": "user", "content": said}]
        async with slots:
            answer = await client.chat.completions.create(
                model="fake", messages=messages, temperature=0
            )
        return answer.choices[0].message.content

    return await asyncio.gather(*(ask(row["input"]) for row in rows))


def main(config: AsyncConfig) -> None:
    rows = json.loads(Path("cases.json").read_text("utf-8"))
    said = asyncio.run(answers(rows, config.max_concurrent))
    cases = [
        LLMTestCase(
            name=row["name"],
            input=row["input"],
            actual_output=answer,
            expected_output=row["expected"],
        )
        for row, answer in zip(rows, said, strict=True)
    ]
    quiet = DisplayConfig(
        show_indicator=False,
        print_results=False,
        results_folder="results",
        inspect_after_run=False,
    )
    cache = CacheConfig(write_cache=False)
    evaluate(
        cases, [ExactMatchMetric()], async_config=config, display_config=quiet, cache_config=cache
    )


main(AsyncConfig(max_concurrent=int(sys.argv[1])) if sys.argv[1:] else AsyncConfig())
