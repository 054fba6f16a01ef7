"""The metric `regex`: a pattern that finds something in the answer, within a time limit."""

from typing import Any, Unpack

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators.base import Score
from holodeck.lib.evaluators.scored import EvaluatorOptions, ScoredEvaluator, quote
from holodeck.lib.patterns import compiled, find
from holodeck.lib.threads import run_in_thread


class RegexEvaluator(ScoredEvaluator):
    """The pattern matches somewhere in the answer, or with `fullmatch` the whole of it.

    Patterns are those of the `regex` library, a superset of `re`. One that takes longer than
    `time_limit_ms` is an error, not a hang and not a verdict.
    """

    metric = "regex"

    def __init__(
        self,
        threshold: float | None = None,
        *,
        pattern: str,
        fullmatch: bool = False,
        ignore_case: bool = False,
        time_limit_ms: int = 1000,
        **how: Unpack[EvaluatorOptions],
    ) -> None:
        super().__init__(threshold, **how)
        if not pattern:
            raise ConfigError("pattern", "is empty and would match every answer")
        self._pattern = compiled(pattern, ignore_case=ignore_case)
        self._shown = quote(pattern)
        self._fullmatch = fullmatch
        self._seconds = time_limit_ms / 1000

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        response = self._response(kwargs)
        try:
            found = await run_in_thread(
                lambda: find(self._pattern, response, self._seconds, whole=self._fullmatch)
            )
        except TimeoutError as error:
            raise EvaluationError(
                f"pattern {self._shown} took longer than {self._seconds:g} s on an answer of "
                f"{len(response)} characters; make it simpler or raise 'time_limit_ms'"
            ) from error
        return self._row(self._grade(found, response))

    def _grade(self, found: str | None, response: str) -> Score:
        if found is not None:
            return Score(1.0, True, f"{self._shown} matches {quote(found)}")
        where = "is not the whole of" if self._fullmatch else "is nowhere in"
        return Score(0.0, False, f"{self._shown} {where} {quote(response)}")
