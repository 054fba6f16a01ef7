"""The metric `regex`: a pattern that finds something in the answer, within a time limit."""

from typing import Any, Unpack

import regex

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators.base import Grade
from holodeck.lib.evaluators.scored import How, ScoredEvaluator, short
from holodeck.lib.evaluators.threads import in_thread


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
        **how: Unpack[How],
    ) -> None:
        super().__init__(threshold, **how)
        self._pattern = _compiled(pattern, ignore_case)
        self._fullmatch = fullmatch
        self._seconds = time_limit_ms / 1000

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        response = self._response(kwargs)
        try:
            found = await in_thread(lambda: self._find(response))
        except TimeoutError as error:
            shown = short(self._pattern.pattern)
            raise EvaluationError(
                f"pattern {shown} took longer than {self._seconds:g} s on an answer of "
                f"{len(response)} characters; make it simpler or raise 'time_limit_ms'"
            ) from error
        return self._row(self._grade(found, response))

    def _find(self, response: str) -> regex.Match[str] | None:
        # concurrent=True lets go of the interpreter, so that the event loop runs meanwhile
        search = self._pattern.fullmatch if self._fullmatch else self._pattern.search
        return search(response, timeout=self._seconds, concurrent=True)

    def _grade(self, found: regex.Match[str] | None, response: str) -> Grade:
        pattern = short(self._pattern.pattern)
        if found is not None:
            return Grade(1.0, True, f"{pattern} matches {short(found.group())}")
        where = "is not the whole of" if self._fullmatch else "is nowhere in"
        return Grade(0.0, False, f"{pattern} {where} {short(response)}")


def _compiled(pattern: str, ignore_case: bool) -> regex.Pattern[str]:
    if not pattern:
        raise ConfigError("pattern", "is empty and would match every answer")
    try:
        return regex.compile(pattern, regex.IGNORECASE if ignore_case else 0)
    except (regex.error, RecursionError, OverflowError) as error:
        raise ConfigError(
            "pattern", f"{short(pattern)} is not a regular expression: {error}"
        ) from error
