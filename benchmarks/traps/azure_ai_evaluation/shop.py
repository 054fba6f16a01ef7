"""The traps as evaluations. There is no command, so this exits with 0 if all rows passed."""

import sys
from pathlib import Path

from azure.ai.evaluation import F1ScoreEvaluator, evaluate

TRAP = sys.argv[1]


def answer(query: str) -> dict[str, str]:
    if TRAP == "raises":
        raise RuntimeError(f"the shop is closed, no answer to {query!r}")
    return {"response": "You can return it within 14 days."}


if __name__ == "__main__":
    data = f"{TRAP}.jsonl" if Path(f"{TRAP}.jsonl").exists() else "wrong.jsonl"
    result = evaluate(data=data, target=answer, evaluators={"f1": F1ScoreEvaluator(threshold=0.9)})
    sys.exit(0 if result["metrics"].get("f1.f1_score_passed") == 1 else 1)
