"""Scorers: `base` has the registry, and each other module a built-in scorer."""

from holodeck.suite.scorers.base import Scorer, get_scorer, list_scorers, register_scorer
from holodeck.suite.scorers.exact import ExactMatchScorer
from holodeck.suite.scorers.passfail import PassFailScorer
from holodeck.suite.scorers.regex import RegexScorer
from holodeck.suite.scorers.similarity import SimilarityScorer

__all__ = [
    "ExactMatchScorer",
    "PassFailScorer",
    "RegexScorer",
    "Scorer",
    "SimilarityScorer",
    "get_scorer",
    "list_scorers",
    "register_scorer",
]
