"""The scorer `exact`: the answer is the expected text."""

from holodeck.errors import ConfigError
from holodeck.suite.results import AgentResult, ScoreResult
from holodeck.suite.scenario import Scenario
from holodeck.suite.scorers.base import BuiltInScorer


class ExactMatchScorer(BuiltInScorer):
    """Passes the expected answer; letter case and surrounding white space count only with
    `metadata: {exact_normalize: false}`."""

    name: str = "exact"

    def _score(self, scenario: Scenario, result: AgentResult) -> ScoreResult:
        """Return 1 if the answer is as expected, else 0."""
        if scenario.expected_output is None:
            raise ConfigError("expected_output", "'exact' compares with it; write it")
        normalize = scenario.metadata.get("exact_normalize", True)
        if not isinstance(normalize, bool):
            raise ConfigError("metadata.exact_normalize", f"found {normalize!r}; true or false")
        expected, output = scenario.expected_output, result.output
        if normalize:
            expected, output = expected.strip().lower(), output.strip().lower()
        passed = expected == output
        explanation = f"the answer is {'' if passed else 'not '}the expected one"
        return self._row(scenario, float(passed), passed=passed, explanation=explanation)
