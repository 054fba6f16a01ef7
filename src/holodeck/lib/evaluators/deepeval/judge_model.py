"""Our judge as a model of DeepEval's."""

import asyncio
from collections.abc import Callable
from functools import cache
from typing import Any

from pydantic import BaseModel

from holodeck.errors import EvaluationError
from holodeck.lib.judging.judge import JsonObject, Judge

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
