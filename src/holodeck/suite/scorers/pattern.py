"""The scorer `regex`: a pattern matches somewhere in the answer, within a time limit."""

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.patterns import compiled, find, passes_every_text
from holodeck.suite.results import AgentResult, ScoreResult
from holodeck.suite.scenario import Scenario

LIMIT_S = 1.0


class RegexScorer:
    """Passes what `metadata: {regex_pattern: …}` is found in."""

    name: str = "regex"

    def score(self, scenario: Scenario, result: AgentResult) -> ScoreResult:
        """1 if the pattern is found, else 0."""
        pattern = scenario.metadata.get("regex_pattern")
        if not isinstance(pattern, str) or not pattern:
            raise ConfigError("metadata.regex_pattern", f"found {pattern!r}; wanted a pattern")
        if passes_every_text(compiled(pattern)) == "every":
            raise ConfigError("metadata.regex_pattern", f"{pattern!r} matches every text")
        match = self._found(pattern, result.output)
        return ScoreResult(
            scenario_id=scenario.id,
            scorer_name=self.name,
            score=float(match is not None),
            passed=match is not None,
            explanation=f"{pattern!r} is {'nowhere' if match is None else 'found'} in the answer",
            details={"pattern": pattern, "match": match},
        )

    @staticmethod
    def _found(pattern: str, text: str) -> str | None:
        try:
            return find(compiled(pattern), text, LIMIT_S)
        except TimeoutError as error:
            raise EvaluationError(
                f"pattern {pattern!r} took longer than {LIMIT_S:g} s on an answer of"
                f" {len(text)} characters; make it simpler"
            ) from error
