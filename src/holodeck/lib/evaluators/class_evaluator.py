"""What metrics have in common that compute a class: its arguments, its name and its verdict."""

import inspect
from collections.abc import Mapping
from typing import Any

from holodeck.errors import ConfigError
from holodeck.lib.evaluators.base import JudgedEvaluator, Score
from holodeck.lib.support.text import did_you_mean_or_list
from holodeck.lib.user_code.code_root import CodeFolders


class ClassEvaluator(JudgedEvaluator):
    """Computes a class of a library or of the user, which sets `_class`.

    Args:
        base_dir: Where the modules of the user are looked up first.
        options: As for `JudgedEvaluator`.
    """

    uses = ("judge", "base_dir")
    _class: type[Any]

    def __init__(self, *, base_dir: CodeFolders | None = None, **options: Any) -> None:
        self._base_dir = base_dir
        super().__init__(**options)

    @property
    def name(self) -> str:
        return self._class.__name__

    def _decide(self, score: Score) -> Score:
        """Return the score with its verdict: a class that says no is believed."""
        return score if score.passed is False else super()._decide(score)


def check_arguments(
    metric_class: type[Any], args: Mapping[str, Any], ours: Mapping[str, str]
) -> None:
    """Raise ConfigError for an unknown or missing argument of the class.

    `ours` names the arguments that holodeck sets, and what to write instead.
    """
    name, parameters = metric_class.__name__, named_parameters(metric_class)
    usable = [key for key in parameters if key not in ours]
    for key in args:
        if key in ours:
            raise ConfigError(f"args.{key}", f"is set by holodeck; {ours[key]}")
        if not takes_argument(metric_class, key):
            hint = did_you_mean_or_list(key, usable) or "; it takes none"
            raise ConfigError(f"args.{key}", f"{name} has no argument {key!r}{hint}")
    for key in usable:
        if parameters[key].default is inspect.Parameter.empty and key not in args:
            raise ConfigError(f"args.{key}", f"is missing, which {name} requires")


def named_parameters(callable_: Any) -> dict[str, inspect.Parameter]:
    """Return the parameters that an argument can name."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = inspect.signature(callable_).parameters
    return {name: item for name, item in parameters.items() if item.kind in named}


def takes_argument(callable_: Any, name: str) -> bool:
    """Whether it can be called with an argument of that name."""
    kinds = {parameter.kind for parameter in inspect.signature(callable_).parameters.values()}
    return name in named_parameters(callable_) or inspect.Parameter.VAR_KEYWORD in kinds
