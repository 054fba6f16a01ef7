"""The traps as data sets. There is no command, so this exits with 0 if all assertions passed."""

import sys

from pydantic_evals import Dataset

TRAP = sys.argv[1]


def answer(_message: str) -> str:
    if TRAP == "raises":
        raise RuntimeError("the shop is closed")
    return "You can return it within 14 days."


dataset = Dataset.from_file(f"{TRAP}.yaml" if TRAP in {"right", "misspelt"} else "wrong.yaml")
if TRAP == "nothing":
    dataset.cases = [case for case in dataset.cases if case.name == "nothing"]
averages = dataset.evaluate_sync(answer, progress=False).averages()
sys.exit(0 if averages is not None and averages.assertions == 1 else 1)
