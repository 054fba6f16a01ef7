"""The scorer `exact`: the answer is the expected one."""

from holodeck.errors import ConfigError
from holodeck.suite.results import AgentResult, ScoreResult
from holodeck.suite.scenario import Scenario


class ExactMatchScorer:
    """Passes the expected answer, but for case and surrounding white space unless
    `metadata: {exact_normalize: false}`."""

    name: str = "exact"

    def score(self, scenario: Scenario, result: AgentResult) -> ScoreResult:
        """1 if the answer is the expected one, else 0."""
        if scenario.expected_output is None:
            raise ConfigError("expected_output", "'exact' compares with it; write it")
        normalize = scenario.metadata.get("exact_normalize", True)
        if not isinstance(normalize, bool):
            raise ConfigError("metadata.exact_normalize", f"found {normalize!r}; true or false")
        wanted, found = scenario.expected_output, result.output
        if normalize:
            wanted, found = wanted.strip().lower(), found.strip().lower()
        passed = wanted == found
        return ScoreResult(
            scenario_id=scenario.id,
            scorer_name=self.name,
            score=float(passed),
            passed=passed,
            explanation=f"the answer is {'' if passed else 'not '}the expected one",
        )
