"""Turn the cases of suites and the scenarios of AgenticAssure into test cases."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from holodeck.config.cases.data_files import describe_origin
from holodeck.config.yaml.nodes import quote
from holodeck.config.yaml.source import Origin
from holodeck.errors import ConfigError
from holodeck.lib.support.text import did_you_mean
from holodeck.models.suite import SuiteHeader, SuiteSettings, WrittenScenario

_MIN_PASS_KEYS = ("min_pass", "min_pass_rate")
_SHARED_KEYS = ("retries", "retry_on", "fail_fast", "repeat", *_MIN_PASS_KEYS)
"""Keys that suites and cases have in common."""


def with_suite_defaults(
    case: Mapping[str, Any], name: str, header: SuiteHeader, origin: Origin
) -> Any:
    """Return the case with missing keys taken from its suite. Raises ConfigError."""
    if case.get("suite", name) != name:
        raise ConfigError(
            describe_origin(origin.below("suite")),
            f"the case belongs to the suite {quote(name)}; remove this key",
        )
    tags = case.get("tags", [])
    if isinstance(tags, list) and all(isinstance(tag, str) for tag in tags):
        tags = list(dict.fromkeys([*header.tags, *tags]))
    settings = _settings(header.config)
    if any(case.get(key) is not None for key in _MIN_PASS_KEYS):
        settings = {key: value for key, value in settings.items() if key not in _MIN_PASS_KEYS}
    given = settings.keys() - {"scorers"}  # null is an error for these
    own = {key: value for key, value in case.items() if value is not None or key not in given}
    return {**settings, **own, **_context(case, header), "suite": name, "tags": tags}


def _context(case: Mapping[str, Any], header: SuiteHeader) -> dict[str, Any]:
    """Return the suite's context updated with the case's, if that is valid."""
    own = case.get("context")
    if not header.context or not isinstance(own, dict | None):
        return {}
    return {"context": {**header.context, **(own or {})}}


def _settings(config: SuiteSettings) -> dict[str, Any]:
    """Return the settings of a suite that its cases take over."""
    timeout = config.default_timeout if config.timeout is None else config.timeout
    said = {
        "timeout": timeout,
        "scorers": config.default_scorers,
        **{key: getattr(config, key) for key in _SHARED_KEYS},
    }
    return {key: value for key, value in said.items() if value is not None}


def with_moved_files(case: Mapping[str, Any], start: Path, folder: Path) -> dict[str, Any]:
    """Return the case with the paths of its files relative to `folder`, not to its suite."""
    changed = dict(case)
    if start == folder:
        return changed
    between = os.path.relpath(start, folder)
    if isinstance(case.get("files"), list):
        changed["files"] = [_move_file(file, between, "path") for file in case["files"]]
    if isinstance(case.get("history"), dict):
        changed["history"] = _move_file(case["history"], between, "file")
    if isinstance(case.get("turns"), list):
        changed["turns"] = [
            with_moved_files(turn, start, folder) if isinstance(turn, dict) else turn
            for turn in case["turns"]
        ]
    return changed


def _move_file(file: Any, between: str, key: str) -> Any:
    if not isinstance(file, dict) or not isinstance(file.get(key), str):
        return file
    return {**file, key: os.path.join(between, file[key])}  # noqa: PTH118 - not yet checked


OPTIONS = {
    "regex": ("regex_pattern", "pattern"),
    "exact": ("exact_normalize", "normalize"),
    "similarity": ("similarity_threshold", "threshold"),
}
"""Scorer → the key of `metadata` that sets its option, and the option."""
DEFAULT = ("passfail",)


def scenario_to_case(
    scenario: WrittenScenario, default_scorers: Sequence[Any] | None, origin: Origin
) -> dict[str, Any]:
    """Return the test case for a scenario. Raises ConfigError."""
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
    given = {key: value for key, value in case.items() if value is not None}
    tools = _tools(scenario)
    return {
        **given,
        **({} if tools is None else {"expected_tools": tools}),
        "scorers": [_with_options(one, scenario) for one in named],
    }


def _tools(scenario: WrittenScenario) -> list[dict[str, Any]] | None:
    """Return the expected tools by exact name; None if the scenario does not check tools."""
    if scenario.expected_tools is None and not scenario.expected_tool_args:
        return None
    names = dict.fromkeys([*(scenario.expected_tools or ()), *scenario.expected_tool_args])
    wanted = scenario.expected_tool_args
    return [
        {"name": name, "args": {key: {"equals": one} for key, one in wanted.get(name, {}).items()}}
        for name in names
    ]


def _with_options(scorer: Any, scenario: WrittenScenario) -> Any:
    """Return the scorer with its options from the metadata."""
    if not isinstance(scorer, str) or scorer not in OPTIONS:
        return scorer
    word, option = OPTIONS[scorer]
    if word not in scenario.metadata:
        return scorer
    return {scorer: {option: scenario.metadata[word]}}


def _check_needs(scenario: WrittenScenario, scorers: Sequence[Any], origin: Origin) -> None:
    """Raise ConfigError if a scorer lacks what it needs, in terms of the scenario."""
    for index, scorer in enumerate(scorers):
        at = origin if scenario.scorers is None else origin.below("scorers", index)
        if scorer in ("exact", "similarity") and scenario.expected_output is None:
            message = f"{scorer!r} needs 'expected_output'; write it"
            raise ConfigError(describe_origin(at), message)
        pattern = scenario.metadata.get("regex_pattern")
        if scorer == "regex" and not (isinstance(pattern, str) and pattern.strip()):
            message = "'regex' needs 'metadata: {regex_pattern: …}'; write it"
            raise ConfigError(describe_origin(at), message)


def _check_metadata(scenario: WrittenScenario, origin: Origin) -> None:
    """Raise ConfigError for a misspelt option, which the scorer would not see."""
    words = [word for word, _ in OPTIONS.values()]
    for key in scenario.metadata:
        _check_option(key, scenario.metadata[key], origin)
        hint = did_you_mean(key, words, cutoff=0.8)
        if hint and key not in words:
            at = origin.below("metadata", key)
            raise ConfigError(describe_origin(at), f"unknown option {quote(key)}{hint}")


def _check_option(key: str, value: Any, origin: Origin) -> None:
    """Raise ConfigError for an invalid option, while its location and name are known."""
    wanted = None
    if key == "exact_normalize" and not isinstance(value, bool):
        wanted = "true or false"
    elif key == "similarity_threshold":
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        wanted = None if is_number and 0 <= value <= 1 else "a number from 0 to 1"
    if wanted is not None:
        found = quote(value) if isinstance(value, str) else str(value).lower()[:80]
        at = describe_origin(origin.below("metadata", key))
        raise ConfigError(at, f"found {found}; expected {wanted}")
