"""The one door to DeepEval: how it is loaded, and what it may not do."""

import asyncio
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from holodeck.config.environment import cache_dir, set_variables
from holodeck.errors import EvaluationError, MissingExtra
from holodeck.lib.evaluators.deepeval.judge_model import Check, JudgeRequests, judge_model_class
from holodeck.lib.judging.judge import Judge
from holodeck.lib.threads import run_in_thread

_QUIET = {
    "DEEPEVAL_TELEMETRY_OPT_OUT": "1",
    "DEEPEVAL_DISABLE_DOTENV": "1",
    "DEEPEVAL_DISABLE_LEGACY_KEYFILE": "1",
    "DEEPEVAL_GRPC_LOGGING": "1",  # else it changes the environment to keep gRPC quiet
}
"""It takes these from the environment only: reports nothing and reads no `.env`."""

_PICTURE = "[DEEPEVAL:"
"""What it takes for a picture when it stands in a text, and would load."""


_TURNS_TO_END = 10
"""Turns of the event loop in which tasks end that have nothing to wait for."""


@dataclass(frozen=True)
class Library:
    """The parts of DeepEval that are used."""

    metrics: Any
    cases: Any
    rubric: Any
    judge_model: Any


_loading = threading.Lock()
_loaded: list[Library] = []


def require_deepeval(needed_by: str) -> None:
    """Raise MissingExtra if DeepEval is not installed; nothing is imported."""
    if find_spec("deepeval") is None:
        raise MissingExtra("deepeval", needed_by)


async def load() -> None:
    """Import DeepEval beside the event loop; takes a second or two, once."""
    if not _loaded:
        await run_in_thread(library)


def library() -> Library:
    """DeepEval, imported once. Raises MissingExtra, and EvaluationError if it cannot be loaded."""
    with _loading:
        if not _loaded:
            _loaded.append(_imported())
    return _loaded[0]


def _imported() -> Library:
    set_variables({**_QUIET, "DEEPEVAL_CACHE_FOLDER": str(cache_dir() / "deepeval")})
    try:
        from deepeval import metrics, test_case
        from deepeval.metrics.g_eval.utils import Rubric
        from deepeval.models import DeepEvalBaseLLM
    except ImportError as error:
        raise MissingExtra("deepeval", "the metric") from error
    except ValueError as error:  # it checks every variable of the environment that it knows
        raise EvaluationError(f"DeepEval cannot be loaded: {error}") from error
    return Library(metrics, test_case, Rubric, judge_model_class(DeepEvalBaseLLM))


def clean_text(text: str) -> str:
    """The text as DeepEval takes it: never empty, in Unicode, and without pictures to load."""
    clean = text.encode(errors="replace").decode()
    return clean.replace(_PICTURE, "[DEEPEVAL :") or " "


class Measurement:
    """One metric of DeepEval, made for one case.

    Args:
        kind: The class in `deepeval.metrics`.
        judge: Who is asked; None for a metric that asks nobody.
        options: What the class is made with.
    """

    def __init__(self, kind: str, judge: Judge | None, options: Mapping[str, Any]) -> None:
        made = library()
        self._questions = JudgeRequests(judge)
        model = made.judge_model(self._questions)
        with warnings.catch_warnings():  # it announces which scales it has turned round
            warnings.simplefilter("ignore", DeprecationWarning)
            self.metric: Any = getattr(made.metrics, kind)(model=model, **options)

    async def run(self, case: Any, check: Check) -> None:
        """Compute the metric; `check` sees each answer of the judge before DeepEval does."""
        self._questions.check = check
        try:
            await self.metric.a_measure(case, _show_indicator=False)
        except BaseException:
            await self._stop_the_rest()
            raise

    async def _stop_the_rest(self) -> None:
        """DeepEval leaves the other questions running when one fails."""
        mine = asyncio.current_task()
        left = [task for task in self._questions.stop() if task is not mine and not task.done()]
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        for _ in range(_TURNS_TO_END):  # for those who waited for these; they cannot ask any more
            await asyncio.sleep(0)
