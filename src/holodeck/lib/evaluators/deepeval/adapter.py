"""The one door to DeepEval: how it is loaded, and what it may not do."""

import asyncio
import threading
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any

from pydantic import BaseModel

from holodeck.config.environment import cache_dir, set_variables
from holodeck.errors import EvaluationError, MissingExtra
from holodeck.lib.judging.judge import JsonObject, Judge
from holodeck.lib.threads import run_in_thread

Check = Callable[[JsonObject], None]
"""Raises ValueError, in words for the judge, for an answer of the right shape without sense."""


class JudgeRequests:
    """What one metric asks of the judge; DeepEval may ask several questions at once.

    Args:
        judge: Who is asked; None for a metric that asks nobody.
    """

    def __init__(self, judge: Judge | None) -> None:
        self._judge = judge
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_over = False
        self.check: Check = lambda _: None

    @property
    def judge_name(self) -> str:
        """Who is asked."""
        return "nobody" if self._judge is None else self._judge.name

    async def ask(self, prompt: str, schema: type[BaseModel] | None) -> BaseModel:
        """An answer that fits its schema and passes the check. Raises EvaluationError."""
        if self._is_over:
            raise EvaluationError("another question has failed")
        if self._judge is None or schema is None:
            raise EvaluationError("DeepEval asked its judge for what cannot be checked")
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)

        def read(value: JsonObject) -> BaseModel:
            answer = schema.model_validate(value)
            self.check(value)
            return answer

        message = {"role": "user", "content": prompt}
        answer: BaseModel = await self._judge.ask([message], _as_json(schema), read)
        return answer

    def stop(self) -> set[asyncio.Task[Any]]:
        """Answer no more questions; the tasks that have asked one until now."""
        self._is_over = True
        return self._tasks


@cache
def _as_json(schema: type[BaseModel]) -> JsonObject:
    """The JSON schema, which takes longer to make than most of what DeepEval does."""
    return schema.model_json_schema()


def judge_model_class(base: type[Any]) -> type[Any]:
    """The class of judges, made from DeepEval's base class once that is loaded."""

    class JudgeModel(base):  # type: ignore[misc]
        """Hands DeepEval's questions on."""

        def __init__(self, questions: JudgeRequests) -> None:
            self._questions = questions
            super().__init__(questions.judge_name)

        def load_model(self, *_: Any, **__: Any) -> Any:
            return self

        def get_model_name(self, *_: Any, **__: Any) -> str:
            return self._questions.judge_name

        def generate(self, *_: Any, **__: Any) -> str:
            raise EvaluationError("DeepEval asked its judge in a way that blocks")

        async def a_generate(
            self, prompt: str, schema: type[BaseModel] | None = None, **_: Any
        ) -> BaseModel:
            return await self._questions.ask(prompt, schema)

    return JudgeModel


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
