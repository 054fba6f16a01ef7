"""The adapter for DeepEval, and the only module that imports it."""

import asyncio
import json
import math
import threading
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

from pydantic import BaseModel

from holodeck.errors import EvaluationError, MissingExtra
from holodeck.lib.evaluators.class_evaluator import takes_argument
from holodeck.lib.judging.judge import JsonObject, Judge
from holodeck.lib.llm.model import Token
from holodeck.lib.processes.threads import run_in_thread
from holodeck.lib.support.environment import cache_dir, set_variables
from holodeck.lib.ui.activity import loading
from holodeck.models.cases.messages import Message

AnswerCheck = Callable[[JsonObject], None]
"""Raises ValueError, with a message for the judge, for a valid answer that makes no sense."""

_LEAST_PROBABILITY = 0.01
"""DeepEval ignores less likely tokens."""


class JudgeRequests:
    """The judge requests of a metric; DeepEval may send several at once.

    Args:
        judge: The judge; None for a metric without judge.
        takes_text: Whether an answer may be text, which nothing checks.
    """

    def __init__(self, judge: Judge | None, *, takes_text: bool = False) -> None:
        self._judge = judge
        self._takes_text = takes_text
        self._tasks: set[asyncio.Task[Any]] = set()
        self._is_stopped = False
        self.check: AnswerCheck = lambda _: None
        self.scale: tuple[int, int] | None = None
        """The whole numbers that G-Eval's judge scores with, to be weighted by their probabilities;
        None if its answer counts as it is."""
        self.why_unweighted: str | None = None
        """Why a score is not weighted; None if it is."""

    @property
    def judge_name(self) -> str:
        return "nobody" if self._judge is None else self._judge.name

    async def ask(self, prompt: str, schema: type[BaseModel] | None) -> BaseModel | str:
        """Return an answer that fits the schema and passes the check. Raises EvaluationError."""
        if schema is None:
            if not self._takes_text:
                raise EvaluationError(
                    "DeepEval sent a request to the judge whose answer cannot be checked"
                )
            question = Message(role="user", content=prompt)
            return (await self._free_judge().ask_for_text([question])).text
        value, _ = await self._send(prompt, schema)
        return schema.model_validate(value)

    async def ask_for_score(self, prompt: str, top_logprobs: int) -> SimpleNamespace:
        """Return the completion that DeepEval computes G-Eval's score from.

        It contains the probabilities of the last token that is the score, which is what DeepEval
        looks for, and only those of scores on the scale. Raises EvaluationError, and AttributeError
        to make DeepEval ask for the answer alone.
        """
        if self.scale is None:
            raise AttributeError("no probabilities are needed")
        value, tokens = await self._send(prompt, library().score_schema, top_logprobs)
        score = str(value["score"])
        token = next((token for token in reversed(tokens) if token.text == score), None)
        low, high = self.scale
        scores = [
            (text, probability)
            for text, probability in (() if token is None else token.alternatives)
            if text.isdecimal() and low <= int(text) <= high and probability >= _LEAST_PROBABILITY
        ]
        self.why_unweighted = _why_unweighted(tokens, scores, self.scale)
        alternatives = [
            SimpleNamespace(token=text, logprob=math.log(probability))
            for text, probability in scores
        ]
        chosen = SimpleNamespace(token=score, top_logprobs=alternatives)
        logprobs = None if self.why_unweighted else SimpleNamespace(content=[chosen])
        message = SimpleNamespace(content=json.dumps(value))
        return SimpleNamespace(choices=[SimpleNamespace(message=message, logprobs=logprobs)])

    async def _send(
        self, prompt: str, schema: type[BaseModel], top_logprobs: int | None = None
    ) -> tuple[JsonObject, Sequence[Token]]:
        """Return the JSON of a checked answer, and its tokens if they are asked for."""
        judge = self._free_judge()

        def parse(value: JsonObject) -> JsonObject:
            schema.model_validate(value)
            self.check(value)
            return value

        return await judge.ask_with_tokens(
            [{"role": "user", "content": prompt}],
            _json_schema(schema),
            parse,
            top_logprobs=top_logprobs,
        )

    def _free_judge(self) -> Judge:
        """Return the judge, and remember the task that asks it. Raises EvaluationError."""
        if self._is_stopped:
            raise EvaluationError("another request to the judge failed")
        if self._judge is None:
            raise EvaluationError(
                "DeepEval sent a request to the judge of a metric that needs none"
            )
        task = asyncio.current_task()
        if task is not None:
            self._tasks.add(task)
        return self._judge

    def stop(self) -> set[asyncio.Task[Any]]:
        """Refuse further requests and return the tasks that have made any."""
        self._is_stopped = True
        return self._tasks


def _why_unweighted(
    tokens: Sequence[Token], scores: Sequence[tuple[str, float]], scale: tuple[int, int]
) -> str | None:
    """Return why the answer counts as it is; None if the probabilities weight it.

    A tokenizer may write 10 as 1 and 0. Where 1 is likely and 10 is not among the alternatives,
    that 1 may mean 10.
    """
    if not tokens:
        return "the judge's endpoint returns none"
    texts = {text for text, _ in scores}
    if not texts:
        return "no token of the judge's answer is its score"
    low, high = scale
    names_ten = any(text == "10" for token in tokens for text, _ in token.alternatives)
    if low <= 1 and high >= 10 and "1" in texts and not names_ten:
        return "1 may be the first token of 10"
    return None


@cache
def _json_schema(schema: type[BaseModel]) -> JsonObject:
    """Cached: generating a schema takes longer than most of DeepEval's work."""
    return schema.model_json_schema()


def judge_model_class(base: type[Any]) -> type[Any]:
    """Return the class through which DeepEval calls the judge, derived from DeepEval's `base`."""

    class JudgeModel(base):  # type: ignore[misc]
        def __init__(self, requests: JudgeRequests) -> None:
            self._requests = requests
            super().__init__(requests.judge_name)

        def load_model(self, *_: Any, **__: Any) -> Any:
            return self

        def get_model_name(self, *_: Any, **__: Any) -> str:
            return self._requests.judge_name

        def generate(self, *_: Any, **__: Any) -> str:
            raise EvaluationError("DeepEval called the judge in a blocking way")

        async def a_generate(
            self, prompt: str, schema: type[BaseModel] | None = None, **_: Any
        ) -> BaseModel | str:
            return await self._requests.ask(prompt, schema)

        async def a_generate_raw_response(
            self, prompt: str, top_logprobs: int = 20, **_: Any
        ) -> tuple[SimpleNamespace, None]:
            return await self._requests.ask_for_score(prompt, top_logprobs), None

    return JudgeModel


_QUIET = {
    "DEEPEVAL_TELEMETRY_OPT_OUT": "1",
    "DEEPEVAL_DISABLE_DOTENV": "1",
    "DEEPEVAL_DISABLE_LEGACY_KEYFILE": "1",
    "DEEPEVAL_GRPC_LOGGING": "1",  # otherwise it sets variables that silence gRPC
}
"""No telemetry, and no reading of `.env` files; DeepEval takes these only from the environment."""

_PICTURE = "[DEEPEVAL:"
"""DeepEval reads this in a text as a picture, and would load it."""
_ITERATIONS_TO_END = 10
"""Iterations of the event loop in which tasks end that wait for nothing."""


_load_lock = threading.Lock()


@dataclass(frozen=True)
class Library:
    """The parts of DeepEval that holodeck uses."""

    metrics: Any
    cases: Any
    rubric: Any
    judge_model: Any
    score_schema: type[BaseModel]
    """The answer of G-Eval's judge: a reason and a score."""


def require_deepeval(needed_by: str) -> None:
    """Raise MissingExtra if DeepEval is not installed; imports nothing."""
    if find_spec("deepeval") is None:
        raise MissingExtra("deepeval", needed_by)


async def load() -> None:
    """Import DeepEval in a thread; the first time takes a second or two."""
    if not library.cache_info().currsize:
        await run_in_thread(library)


@cache
def library() -> Library:
    """Import DeepEval once. Raises MissingExtra, or EvaluationError if it cannot be loaded."""
    set_variables({**_QUIET, "DEEPEVAL_CACHE_FOLDER": str(cache_dir() / "deepeval")})
    try:
        with _load_lock, loading("DeepEval", "deepeval"):
            from deepeval import metrics, test_case
            from deepeval.metrics.g_eval.schema import ReasonScore
            from deepeval.metrics.g_eval.utils import Rubric
            from deepeval.models import DeepEvalBaseLLM
    except ImportError as error:
        raise MissingExtra("deepeval", "the metric") from error
    except ValueError as error:  # it validates every environment variable that it knows
        raise EvaluationError(f"DeepEval cannot be loaded: {error}") from error
    return Library(metrics, test_case, Rubric, judge_model_class(DeepEvalBaseLLM), ReasonScore)


def arena_prompt(**context: Any) -> str:
    """Return DeepEval's prompt that asks for the better of two answers."""
    from deepeval.metrics.arena_g_eval.arena_g_eval import ArenaGEvalTemplate

    return str(ArenaGEvalTemplate.generate_arena_winner(**context))


def clean_text(text: str) -> str:
    """Return the text in the form DeepEval accepts: not empty, valid Unicode, without pictures."""
    clean = text.encode(errors="replace").decode()
    return clean.replace(_PICTURE, "[DEEPEVAL :") or " "


async def _measure(metric: Any, case: Any) -> None:
    """Compute a metric; a class of the user may have only a blocking method."""
    bases = (library().metrics.BaseMetric, library().metrics.BaseConversationalMetric)
    is_blocking = type(metric).a_measure in {base.a_measure for base in bases}
    method = metric.measure if is_blocking else metric.a_measure
    quiet: dict[str, Any] = {}
    if takes_argument(method, "_show_indicator"):
        quiet["_show_indicator"] = False
    if is_blocking:
        await run_in_thread(lambda: method(case, **quiet))
    else:
        await method(case, **quiet)


class Measurement:
    """A metric of DeepEval, created for a case.

    Args:
        metric_class: The class.
        judge: The judge; None for a metric without judge.
        options: The arguments of the class.
        scale: The scores of G-Eval's judge; None for other metrics, and if the judge's answer
            counts as it is.
        takes_judge: Whether the class has an argument for the judge.
        takes_text: Whether the class may ask the judge for text, which nothing checks.
    """

    def __init__(
        self,
        metric_class: type[Any],
        judge: Judge | None,
        options: Mapping[str, Any],
        scale: tuple[int, int] | None = None,
        *,
        takes_judge: bool = True,
        takes_text: bool = False,
    ) -> None:
        self._requests = JudgeRequests(judge, takes_text=takes_text)
        self._requests.scale = scale
        arguments = dict(options)
        if takes_judge:
            arguments["model"] = library().judge_model(self._requests)
        with warnings.catch_warnings():  # it warns about scales that it has inverted
            warnings.simplefilter("ignore", DeprecationWarning)
            self.metric: Any = metric_class(**arguments)

    @property
    def note(self) -> str | None:
        """What the score is not; None if it is what the metric promises."""
        why = self._requests.why_unweighted
        return None if why is None else f"not weighted by token probabilities: {why}"

    async def run(self, case: Any, check: AnswerCheck) -> None:
        """Compute the metric; `check` gets each answer of the judge before DeepEval does."""
        self._requests.check = check
        try:
            await _measure(self.metric, case)
        except BaseException:
            await self._cancel_other_requests()
            raise

    async def _cancel_other_requests(self) -> None:
        """Cancel the requests that DeepEval leaves running when another fails."""
        current = asyncio.current_task()
        tasks = self._requests.stop()
        running = [task for task in tasks if task is not current and not task.done()]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)
        for _ in range(_ITERATIONS_TO_END):  # for tasks that waited for these
            await asyncio.sleep(0)
