"""Scorers: the built-in ones, those registered in Python, and `module:attribute`."""

import inspect
import logging
from collections.abc import Awaitable, Iterator, Mapping
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from holodeck.errors import ConfigError, EvaluationError, MissingExtra
from holodeck.lib.patterns import compile_pattern, find, passes_every_text
from holodeck.lib.registry import Registry, unknown_name
from holodeck.lib.test_runner.tool_matchers import matches
from holodeck.models.test_case import ArgMatcher
from holodeck.suite.results import AgentResult, ScoreResult, ToolCall
from holodeck.suite.scenario import Scenario

if TYPE_CHECKING:
    from holodeck.lib.evaluators.nlp_metrics import TextSimilarity

logger = logging.getLogger(__name__)

WHERE = "scorer"
SIMILARITY = "similarity"
REGEX_TIMEOUT = 1.0

ONLY_AN_ANSWER = (
    "'passfail' only checks that there is an answer; write 'expected_output', 'expected_tools'"
    " or 'expected_tool_args'"
)
UNKNOWN_TOOL_CALLS = (
    "the agent's tool calls are unknown, because its adapter does not report them; return"
    " AgentResult(output=…, tool_calls=[…]), with [] if no tool was called"
)


class UnknownScorer(ConfigError, KeyError):
    """No scorer has this name."""

    def __str__(self) -> str:
        return f"{self.field}: {self.message}"  # a KeyError shows its message in quotes


@runtime_checkable
class Scorer(Protocol):
    """Scores answers; `score` may also be a coroutine function."""

    name: str

    def score(
        self, scenario: Scenario, result: AgentResult
    ) -> ScoreResult | Awaitable[ScoreResult]:
        """Return the score of an answer."""
        ...


class PassFailScorer:
    """Passes an answer that is not blank if it contains the expected text in any letter case, every
    expected tool was called by its exact name, and one call of each has the expected arguments.

    A scenario that expects none of this passes with any answer that is not blank, as in
    AgenticAssure; the explanation and a warning say so.
    """

    name: str = "passfail"

    def score(self, scenario: Scenario, result: AgentResult) -> ScoreResult:
        """Return 1 if everything is as expected, else 0 with the differences."""
        if scenario.expected_output == "":
            raise ConfigError("expected_output", "is empty, which every answer contains; remove it")
        expects_tools = scenario.expected_tools is not None or bool(scenario.expected_tool_args)
        if expects_tools and not result.knows_tool_calls:
            return _score_result(self, scenario, 0.0, passed=False, error=UNKNOWN_TOOL_CALLS)
        wrong = list(_differences_from_expected(scenario, result))
        explanation = "; ".join(wrong) or "the answer and its tool calls are as expected"
        if scenario.expected_output is None and not expects_tools:
            logger.warning("%r: %s", scenario.name, ONLY_AN_ANSWER)
            explanation = "; ".join(wrong) or ONLY_AN_ANSWER
        return _score_result(
            self, scenario, float(not wrong), passed=not wrong, explanation=explanation
        )


class ExactMatchScorer:
    """Passes the expected answer; letter case and surrounding white space count only with
    `metadata: {exact_normalize: false}`."""

    name: str = "exact"

    def score(self, scenario: Scenario, result: AgentResult) -> ScoreResult:
        """Return 1 if the answer is the expected one, else 0."""
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
        return _score_result(self, scenario, float(passed), passed=passed, explanation=explanation)


class RegexScorer:
    """Passes an answer in which `metadata: {regex_pattern: …}` is found, within a time limit."""

    name: str = "regex"

    def score(self, scenario: Scenario, result: AgentResult) -> ScoreResult:
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
        return _score_result(
            self,
            scenario,
            float(passed),
            passed=passed,
            explanation=f"{pattern!r} is {'found' if passed else 'nowhere'} in the answer",
            details={"pattern": pattern, "match": match},
        )


class SimilarityScorer:
    """Passes an answer whose embedding has a cosine of at least 0.7 with the expected one's, or of
    `metadata: {similarity_threshold: …}`. It blocks: coroutines call it in a thread.
    """

    name: str = SIMILARITY

    @cached_property
    def _model(self) -> "TextSimilarity":
        # Imported here because few suites compare meanings.
        from holodeck.lib.judging.judge import Judges  # noqa: PLC0415

        return Judges().embeddings()

    def score(self, scenario: Scenario, result: AgentResult) -> ScoreResult:
        """Return the cosine, or 0 where it is negative or the answer is blank."""
        if scenario.expected_output is None or not scenario.expected_output.strip():
            raise ConfigError("expected_output", "'similarity' compares with it; write it")
        threshold = _similarity_threshold(scenario)
        similarity = self._model.similarity(scenario.expected_output, result.output)
        return _score_result(
            self,
            scenario,
            similarity,
            passed=similarity >= threshold,
            explanation=f"similarity {similarity:.3f}; expected {threshold:g} or more",
            details={"similarity": similarity, "threshold": threshold},
        )


QUICK = (PassFailScorer, ExactMatchScorer, RegexScorer)
"""Built-in scorers that need no thread."""
_BUILT_IN: Registry[type[Scorer]] = Registry(
    WHERE,
    {
        "passfail": "holodeck.suite.scorers:PassFailScorer",
        "exact": "holodeck.suite.scorers:ExactMatchScorer",
        "regex": "holodeck.suite.scorers:RegexScorer",
        SIMILARITY: "holodeck.suite.scorers:SimilarityScorer",
    },
)
_registered: dict[str, Scorer] = {}


def register_scorer(scorer: Scorer, replace: bool = False) -> None:
    """Make a scorer available under its `name`.

    A name that another kind of scorer has needs `replace`. Raises ConfigError.
    """
    if inspect.isclass(scorer) or not isinstance(scorer, Scorer) or not callable(scorer.score):
        raise ConfigError(
            WHERE, f"found {scorer!r}; expected an object with 'name' and 'score(scenario, result)'"
        )
    if not isinstance(scorer.name, str) or not scorer.name.strip() or ":" in scorer.name:
        raise ConfigError(WHERE, f"'name' is {scorer.name!r}; expected text without colons")
    # A cell of a notebook that runs again defines the same class anew.
    earlier = _registered.get(scorer.name)
    is_same_class = earlier is not None and _class_name(earlier) == _class_name(scorer)
    if scorer.name in list_scorers() and not (replace or is_same_class):
        raise ConfigError(WHERE, f"{scorer.name!r} is taken; write replace=True to replace it")
    _registered[scorer.name] = scorer


def get_scorer(name: str, folder: Path | None = None) -> Scorer:
    """Return the scorer of that name; a `module:attribute` is looked for in `folder` first.

    Raises UnknownScorer, which is both a ConfigError and a KeyError, and MissingExtra.
    """
    if name in _registered:
        return _registered[name]
    if name == SIMILARITY and not _has_embeddings():
        raise MissingExtra("local", f"{WHERE} {name!r}")
    try:
        found: object = _BUILT_IN.load(name, base_dir=folder)
    except ConfigError as error:
        is_known = ":" in name or name in _BUILT_IN.names()
        why = error.message if is_known else unknown_name(WHERE, name, list_scorers())
        raise UnknownScorer(WHERE, why) from error
    scorer = found() if inspect.isclass(found) else found
    if not isinstance(scorer, Scorer):
        raise ConfigError(WHERE, f"{name!r} has no 'name' and 'score(scenario, result)'")
    return scorer


def list_scorers() -> list[str]:
    """Return the available names, the built-in ones first."""
    built_in = (name for name in _BUILT_IN.names() if name != SIMILARITY or _has_embeddings())
    return list(dict.fromkeys((*built_in, *_registered)))


def _class_name(scorer: Scorer) -> tuple[str, str]:
    return type(scorer).__module__, type(scorer).__qualname__


def _has_embeddings() -> bool:
    """Whether the library is installed that runs the embedding model."""
    return find_spec("xllamacpp") is not None


def _score_result(
    scorer: Scorer, scenario: Scenario, score: float, *, passed: bool, **fields: Any
) -> ScoreResult:
    return ScoreResult(
        scenario_id=scenario.id, scorer_name=scorer.name, score=score, passed=passed, **fields
    )


def _differences_from_expected(scenario: Scenario, result: AgentResult) -> Iterator[str]:
    if not result.output.strip():
        yield "the agent answered nothing"
    called = {call.name for call in result.tool_calls}
    if scenario.expected_tools == [] and not scenario.expected_tool_args and called:
        yield f"no tool may be called, but {', '.join(sorted(called))} was"
    for tool in dict.fromkeys(scenario.expected_tools or ()):
        if tool not in called:
            yield f"tool {tool!r} was not called"
    for tool, arguments in (scenario.expected_tool_args or {}).items():
        calls = [call for call in result.tool_calls if call.name == tool]
        if not calls:
            yield f"tool {tool!r} was not called, so its arguments are wrong"
        differences = [list(_argument_differences(arguments, call)) for call in calls]
        if differences and all(differences):  # of the first call, as none is right
            yield from (f"tool {tool!r}: {one}" for one in differences[0])
    expected = scenario.expected_output
    if expected is not None and expected.lower() not in result.output.lower():
        yield f"{expected[:80]!r} is not in the answer"


def _argument_differences(expected: Mapping[str, Any], call: ToolCall) -> Iterator[str]:
    for key, value in expected.items():
        if key not in call.arguments:
            yield f"argument {key!r} is missing"
        elif not matches(ArgMatcher(equals=value), call.arguments[key]):
            found = call.arguments[key]
            yield f"argument {key!r} is {str(found)[:80]!r}; expected {str(value)[:80]!r}"


def _similarity_threshold(scenario: Scenario) -> float:
    # Imported here because few suites compare meanings.
    from holodeck.lib.evaluators.nlp_metrics import SIMILARITY_THRESHOLD  # noqa: PLC0415

    threshold = scenario.metadata.get("similarity_threshold", SIMILARITY_THRESHOLD)
    is_number = isinstance(threshold, int | float) and not isinstance(threshold, bool)
    if not is_number or not 0 < threshold <= 1:
        raise ConfigError(
            "metadata.similarity_threshold",
            f"found {threshold!r}; expected a number above 0 and up to 1",
        )
    return float(threshold)
