"""The scorer `regex`: a pattern is found in the answer."""

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.support.patterns import compile_pattern, find, passes_every_text
from holodeck.suite.results import AgentResult, ScoreResult
from holodeck.suite.scenario import Scenario
from holodeck.suite.scorers.base import BuiltInScorer

REGEX_TIMEOUT = 1.0


class RegexScorer(BuiltInScorer):
    """Passes an answer in which `metadata: {regex_pattern: …}` is found, within a time limit."""

    name: str = "regex"

    def _score(self, scenario: Scenario, result: AgentResult) -> ScoreResult:
        """Return 1 if the pattern is found, else 0."""
        pattern = scenario.metadata.get("regex_pattern")
        if not isinstance(pattern, str) or not pattern:
            raise ConfigError("metadata.regex_pattern", f"found {pattern!r}; expected a pattern")
        if passes_every_text(compile_pattern(pattern)) == "every":
            raise ConfigError("metadata.regex_pattern", f"{pattern!r} matches every text")
        try:
            match = find(compile_pattern(pattern), result.output, REGEX_TIMEOUT)
        except TimeoutError as error:
            raise EvaluationError(
                f"pattern {pattern!r} took longer than {REGEX_TIMEOUT:g} s on an answer of"
                f" {len(result.output)} characters; make it simpler"
            ) from error
        passed = match is not None
        return self._row(
            scenario,
            float(passed),
            passed=passed,
            explanation=f"{pattern!r} is {'found' if passed else 'nowhere'} in the answer",
            details={"pattern": pattern, "match": match},
        )
