"""The traps as tasks."""

from inspect_ai import Task, task
from inspect_ai.dataset import json_dataset
from inspect_ai.model import ModelOutput
from inspect_ai.scorer import includes
from inspect_ai.solver import Generate, Solver, TaskState, solver


@solver
def shop(*, is_closed: bool = False) -> Solver:
    async def solve(state: TaskState, _generate: Generate) -> TaskState:
        if is_closed:
            raise RuntimeError("the shop is closed")
        state.output = ModelOutput.from_content(
            "mockllm/model", "You can return it within 14 days."
        )
        return state

    return solve


@task
def right() -> Task:
    return Task(dataset=json_dataset("right.jsonl"), solver=shop(), scorer=includes())


@task
def wrong() -> Task:
    return Task(dataset=json_dataset("wrong.jsonl"), solver=shop(), scorer=includes())


@task
def misspelt() -> Task:
    return Task(dataset=json_dataset("misspelt.jsonl"), solver=shop(), scorer=includes())


@task
def raises() -> Task:
    return Task(dataset=json_dataset("wrong.jsonl"), solver=shop(is_closed=True), scorer=includes())
