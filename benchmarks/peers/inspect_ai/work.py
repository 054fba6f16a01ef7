"""The task for inspect_ai: the cases as samples, one generation, an exact match."""

from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import FieldSpec, json_dataset
from inspect_ai.scorer import exact
from inspect_ai.solver import generate, system_message

FIELDS = FieldSpec(id="name", input="input", target="expected")


@task
def benchmark(folder: str) -> Task:
    return Task(
        dataset=json_dataset(str(Path(folder, "cases.json")), FIELDS),
        solver=[system_message("Do what the user says."), generate()],
        scorer=exact(),
    )
