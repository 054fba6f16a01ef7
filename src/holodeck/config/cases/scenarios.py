"""Scenarios of AgenticAssure's files as test cases."""

from collections.abc import Sequence
from typing import Any

from holodeck.config.cases.files import in_words
from holodeck.config.nodes import short
from holodeck.config.places import Origin
from holodeck.errors import ConfigError
from holodeck.lib.suggestions import did_you_mean
from holodeck.models.suite import WrittenScenario

OPTIONS = {
    "regex": ("regex_pattern", "pattern"),
    "exact": ("exact_normalize", "normalize"),
    "similarity": ("similarity_threshold", "threshold"),
}
"""Scorer → the word of the metadata that is its option, and the option."""
DEFAULT = ("passfail",)


def scenario_to_case(
    scenario: WrittenScenario, default_scorers: Sequence[Any] | None, origin: Origin
) -> dict[str, Any]:
    """The test case that a scenario is. Raises ConfigError."""
    _check_metadata(scenario, origin)
    named: Sequence[Any] | None = scenario.scorers
    if named is None:
        named = DEFAULT if default_scorers is None else default_scorers
    _check_needs(scenario, named, origin)
    case: dict[str, Any] = {
        "id": scenario.id,
        "name": scenario.name,
        "description": scenario.description,
        "input": scenario.input,
        "ground_truth": scenario.expected_output,
        "tags": scenario.tags,
        "timeout": scenario.timeout_seconds,
    }
    said = {key: value for key, value in case.items() if value is not None}
    tools = _tools(scenario)
    return {
        **said,
        **({} if tools is None else {"expected_tools": tools}),
        "scorers": [_with_options(one, scenario) for one in named],
    }


def _tools(scenario: WrittenScenario) -> list[dict[str, Any]] | None:
    """The tools that must be called, by exact name; None if nothing is said about tools."""
    if scenario.expected_tools is None and not scenario.expected_tool_args:
        return None
    names = dict.fromkeys([*(scenario.expected_tools or ()), *scenario.expected_tool_args])
    wanted = scenario.expected_tool_args
    return [
        {"name": name, "args": {key: {"equals": one} for key, one in wanted.get(name, {}).items()}}
        for name in names
    ]


def _with_options(scorer: Any, scenario: WrittenScenario) -> Any:
    """The scorer with what the metadata says about it."""
    if not isinstance(scorer, str) or scorer not in OPTIONS:
        return scorer
    word, option = OPTIONS[scorer]
    if word not in scenario.metadata:
        return scorer
    return {scorer: {option: scenario.metadata[word]}}


def _check_needs(scenario: WrittenScenario, scorers: Sequence[Any], origin: Origin) -> None:
    """What scorers need is missed here in the words that the file is written in."""
    for index, scorer in enumerate(scorers):
        at = origin if scenario.scorers is None else origin.below("scorers", index)
        if scorer in ("exact", "similarity") and scenario.expected_output is None:
            message = f"{scorer!r} compares with 'expected_output'; write it"
            raise ConfigError(in_words(at), message)
        pattern = scenario.metadata.get("regex_pattern")
        if scorer == "regex" and not (isinstance(pattern, str) and pattern.strip()):
            message = "'regex' looks for 'metadata: {regex_pattern: …}'; write it"
            raise ConfigError(in_words(at), message)


def _check_metadata(scenario: WrittenScenario, origin: Origin) -> None:
    """A word that only nearly is an option would leave the scorer without it."""
    words = [word for word, _ in OPTIONS.values()]
    for key in scenario.metadata:
        _check_option(key, scenario.metadata[key], origin)
        hint = did_you_mean(key, words, cutoff=0.8)
        if hint and key not in words:
            at = origin.below("metadata", key)
            raise ConfigError(in_words(at), f"{short(key)} is no option{hint}")


def _check_option(key: str, value: Any, origin: Origin) -> None:
    """An option is checked here, where it still has its own place and name."""
    wanted = None
    if key == "exact_normalize" and not isinstance(value, bool):
        wanted = "true or false"
    elif key == "similarity_threshold":
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        wanted = None if is_number and 0 <= value <= 1 else "a number from 0 to 1"
    if wanted is not None:
        found = short(value) if isinstance(value, str) else str(value).lower()[:80]
        at = in_words(origin.below("metadata", key))
        raise ConfigError(at, f"found {found}; wanted {wanted}")
