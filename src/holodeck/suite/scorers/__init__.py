"""Scorers by name: the built-in ones, those registered here, and `module:attribute`."""

import inspect
from collections.abc import Awaitable
from importlib.util import find_spec
from pathlib import Path
from typing import Protocol, runtime_checkable

from holodeck.errors import ConfigError, MissingExtra
from holodeck.lib.registry import Registry, unknown_name
from holodeck.suite.faults import UnknownScorer
from holodeck.suite.results import AgentResult, ScoreResult
from holodeck.suite.scenario import Scenario

WHERE = "scorer"
SIMILARITY = "similarity"


@runtime_checkable
class Scorer(Protocol):
    """Judges answers; `score` may also be a coroutine function."""

    name: str

    def score(
        self, scenario: Scenario, result: AgentResult
    ) -> ScoreResult | Awaitable[ScoreResult]:
        """What it says of an answer."""
        ...


_BUILT_IN: Registry[type[Scorer]] = Registry(
    WHERE,
    {
        "passfail": "holodeck.suite.scorers.passfail:PassFailScorer",
        "exact": "holodeck.suite.scorers.exact:ExactMatchScorer",
        "regex": "holodeck.suite.scorers.pattern:RegexScorer",
        SIMILARITY: "holodeck.suite.scorers.similarity:SimilarityScorer",
    },
)
_registered: dict[str, Scorer] = {}


def register_scorer(scorer: Scorer, replace: bool = False) -> None:
    """Make a scorer known under its `name`.

    A name that is taken by another kind of scorer needs `replace`. Raises ConfigError.
    """
    if inspect.isclass(scorer) or not isinstance(scorer, Scorer) or not callable(scorer.score):
        raise ConfigError(
            WHERE, f"found {scorer!r}; wanted an object with 'name' and 'score(scenario, result)'"
        )
    if not isinstance(scorer.name, str) or not scorer.name.strip() or ":" in scorer.name:
        raise ConfigError(WHERE, f"'name' is {scorer.name!r}; wanted text without colons")
    if scorer.name in list_scorers() and not (replace or _is_same_kind(scorer)):
        raise ConfigError(WHERE, f"{scorer.name!r} is taken; write replace=True to replace it")
    _registered[scorer.name] = scorer


def _is_same_kind(scorer: Scorer) -> bool:
    """Whether its class is the one registered, if made anew: a cell of a notebook run again."""
    known = _registered.get(scorer.name)
    return known is not None and _full_name(known) == _full_name(scorer)


def _full_name(scorer: Scorer) -> tuple[str, str]:
    return type(scorer).__module__, type(scorer).__qualname__


def get_scorer(name: str, folder: Path | None = None) -> Scorer:
    """The scorer of that name; a `module:attribute` is looked for in `folder` first.

    Raises UnknownScorer, which is both a ConfigError and a KeyError, and MissingExtra.
    """
    if name in _registered:
        return _registered[name]
    if name == SIMILARITY and not _has_embeddings():
        raise MissingExtra("local", f"{WHERE} {name!r}")
    try:
        found: object = _BUILT_IN.load(name, base_dir=folder)
    except ConfigError as error:
        known = ":" in name or name in _BUILT_IN.names()
        why = error.message if known else unknown_name(WHERE, name, list_scorers())
        raise UnknownScorer(WHERE, why) from error
    made = found() if inspect.isclass(found) else found
    if not isinstance(made, Scorer):
        raise ConfigError(WHERE, f"{name!r} has no 'name' and 'score(scenario, result)'")
    return made


def list_scorers() -> list[str]:
    """The names that can be used, the built-in ones first."""
    built_in = (name for name in _BUILT_IN.names() if name != SIMILARITY or _has_embeddings())
    return list(dict.fromkeys((*built_in, *_registered)))


def _has_embeddings() -> bool:
    """Whether the library is installed that runs the model of embeddings."""
    return find_spec("xllamacpp") is not None
