"""The registry of scorers: built-in, registered in Python, or `module:attribute`."""

import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from holodeck.errors import ConfigError, HoloDeckError, MissingExtra
from holodeck.lib.support.text import describe
from holodeck.lib.user_code.raised import raised_error, with_location
from holodeck.lib.user_code.registry import Registry, unknown_name
from holodeck.suite.results import AgentResult, ScoreResult
from holodeck.suite.scenario import Scenario

logger = logging.getLogger(__name__)

WHERE = "scorer"
SIMILARITY = "similarity"


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


class BuiltInScorer(ABC):
    """A scorer that never raises: where it lacks an input, it gives a row with the error."""

    name: str

    def score(self, scenario: Scenario, result: AgentResult) -> ScoreResult:
        """Return the score of an answer, with an `error` if it cannot be decided."""
        try:
            return self._score(scenario, result)
        except HoloDeckError as error:
            return error_row(self, scenario, error)

    @abstractmethod
    def _score(self, scenario: Scenario, result: AgentResult) -> ScoreResult:
        """Return the score of an answer. Raises HoloDeckError if it cannot be decided."""

    def _row(self, scenario: Scenario, score: float, *, passed: bool, **fields: Any) -> ScoreResult:
        return ScoreResult(
            scenario_id=scenario.id, scorer_name=self.name, score=score, passed=passed, **fields
        )


def error_row(scorer: Scorer, scenario: Scenario, error: Exception) -> ScoreResult:
    """Return the row of a scorer that could not decide, which never passes."""
    return ScoreResult(
        scenario_id=scenario.id,
        scorer_name=scorer.name,
        score=0.0,
        passed=False,
        explanation=f"could not be scored: {with_location(error)}",
        error=describe(error),
        raised=raised_error(error),
    )


_BUILT_IN: Registry[type[Scorer]] = Registry(
    WHERE,
    {
        "passfail": "holodeck.suite.scorers.passfail:PassFailScorer",
        "exact": "holodeck.suite.scorers.exact:ExactMatchScorer",
        "regex": "holodeck.suite.scorers.regex:RegexScorer",
        SIMILARITY: "holodeck.suite.scorers.similarity:SimilarityScorer",
    },
)
_registered: dict[str, Scorer] = {}


def register_scorer(scorer: Scorer, replace: bool = False) -> None:
    """Make a scorer available under its `name`, in place of any other of this name.

    A warning names what it replaces, unless `replace` is True or both are of the same class. Raises
    ConfigError.
    """
    if inspect.isclass(scorer) or not isinstance(scorer, Scorer) or not callable(scorer.score):
        raise ConfigError(
            WHERE, f"found {scorer!r}; expected an object with 'name' and 'score(scenario, result)'"
        )
    if not isinstance(scorer.name, str) or not scorer.name.strip() or ":" in scorer.name:
        raise ConfigError(WHERE, f"'name' is {scorer.name!r}; expected text without colons")
    if scorer.name in list_scorers() and not replace:
        # A cell of a notebook that runs again defines the same class anew.
        classes = (type(get_scorer(scorer.name)), type(scorer))
        earlier, new = (f"{kind.__module__}.{kind.__qualname__}" for kind in classes)
        if earlier != new:
            message = "scorer %r is now %s instead of %s; replace=True silences this"
            logger.warning(message, scorer.name, new, earlier)
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
        value: object = _BUILT_IN.load(name, base_dir=folder)
    except ConfigError as error:
        is_known = ":" in name or name in _BUILT_IN.names()
        why = error.message if is_known else unknown_name(WHERE, name, list_scorers())
        raise UnknownScorer(WHERE, why) from error
    scorer = value() if inspect.isclass(value) else value
    if not isinstance(scorer, Scorer):
        raise ConfigError(WHERE, f"{name!r} has no 'name' and 'score(scenario, result)'")
    return scorer


def list_scorers() -> list[str]:
    """Return the available names, the built-in ones first."""
    built_in = (name for name in _BUILT_IN.names() if name != SIMILARITY or _has_embeddings())
    return list(dict.fromkeys((*built_in, *_registered)))


def _has_embeddings() -> bool:
    """Whether the library is installed that runs the embedding model."""
    return find_spec("xllamacpp") is not None
