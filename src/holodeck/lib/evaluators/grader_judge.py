"""The judge of the run, as code in other threads and graders of `type: code` may ask it."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeVar

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.judging.judge import Judge

T = TypeVar("T")

VERDICT: Mapping[str, Any] = {
    "type": "object",
    "properties": {"reason": {"type": "string"}, "passed": {"type": "boolean"}},
    "required": ["reason", "passed"],
    "additionalProperties": False,
}
"""What the judge answers unless the grader says otherwise; a grader may return it as it is."""


class JudgeOfRun:
    """Lets code that may run in any thread or event loop ask the judge of the run.

    Made in the event loop of the run, to which the judge's connections belong, for one evaluation.
    The first fault is kept, so that code that hides the exception passes nothing.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._asked: set[Future[Any]] = set()
        self._is_closed = False
        self.fault: EvaluationError | ConfigError | None = None

    async def await_in_run(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Return what `ask` returns in the event loop of the run."""
        if _is_running(self._loop):
            return await self._keep_fault(ask)
        return await asyncio.wrap_future(self._submit(ask))

    def close(self) -> None:
        """Withdraw what is still asked, for example after a time limit."""
        self._is_closed = True
        for question in tuple(self._asked):  # a canceled one removes itself
            question.cancel()

    def _submit(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> Future[T]:
        if self._is_closed:
            raise EvaluationError("the time of the metric is over; the judge is not asked any more")
        asked = asyncio.run_coroutine_threadsafe(self._keep_fault(ask), self._loop)
        self._asked.add(asked)
        asked.add_done_callback(self._asked.discard)
        return asked

    async def _keep_fault(self, ask: Callable[[], Coroutine[Any, Any, T]]) -> T:
        try:
            return await ask()
        except (EvaluationError, ConfigError) as error:
            self.fault = self.fault or error
            raise


class GraderJudge(JudgeOfRun):
    """Asks the judge of the run: `ask` in a plain function, `await aask` in a coroutine."""

    def __init__(self, judge: Judge) -> None:
        super().__init__()
        self._judge = judge

    @property
    def name(self) -> str:
        """The provider and name of the model."""
        return self._judge.name

    def ask(self, prompt: str, schema: Mapping[str, Any] = VERDICT) -> Any:
        """Return the judge's answer, JSON that is valid by the schema. Raises EvaluationError.

        By default, the answer is a mapping with `passed` and `reason`.
        """
        if _is_running(self._loop):
            self.fault = EvaluationError(
                "judge.ask() would block the run; write 'await judge.aask(…)' in a coroutine"
            )
            raise self.fault
        return self._submit(partial(self._ask, prompt, schema)).result()

    async def aask(self, prompt: str, schema: Mapping[str, Any] = VERDICT) -> Any:
        """Return the judge's answer as `ask` does."""
        return await self.await_in_run(partial(self._ask, prompt, schema))

    async def _ask(self, prompt: str, schema: Mapping[str, Any]) -> Any:
        form = json.dumps(schema, ensure_ascii=False)
        text = f"{prompt}\n\nAnswer with nothing but JSON that is valid by this schema:\n{form}"
        return await self._judge.ask([{"role": "user", "content": text}], schema)


def _is_running(loop: asyncio.AbstractEventLoop) -> bool:
    """Whether the calling thread runs the event loop."""
    try:
        return asyncio.get_running_loop() is loop
    except RuntimeError:
        return False
