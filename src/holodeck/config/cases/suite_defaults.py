"""What a suite gives to its cases."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from holodeck.config.cases.files import in_words
from holodeck.config.nodes import short
from holodeck.config.places import Origin
from holodeck.errors import ConfigError
from holodeck.models.suite import SuiteConfig, SuiteHeader

_BAR = ("min_pass", "min_pass_rate")
_ALIKE = ("retries", "retry_on", "fail_fast", "repeat", *_BAR)
"""Keys that suites and cases have in common."""


def with_suite_defaults(
    case: Mapping[str, Any], name: str, header: SuiteHeader, origin: Origin
) -> Any:
    """The case with what its suite says where it says nothing itself. Raises ConfigError."""
    if case.get("suite", name) != name:
        raise ConfigError(
            in_words(origin.below("suite")), f"the case belongs to {short(name)}; remove it"
        )
    tags = case.get("tags", [])
    if isinstance(tags, list) and all(isinstance(tag, str) for tag in tags):
        tags = list(dict.fromkeys([*header.tags, *tags]))
    settings = _settings(header.config)
    if any(case.get(key) is not None for key in _BAR):
        settings = {key: value for key, value in settings.items() if key not in _BAR}
    given = settings.keys() - {"scorers"}  # whose null is refused
    own = {key: value for key, value in case.items() if value is not None or key not in given}
    return {**settings, **own, **_context(case, header), "suite": name, "tags": tags}


def _context(case: Mapping[str, Any], header: SuiteHeader) -> dict[str, Any]:
    """The suite's context under the case's; nothing where the case's is none."""
    own = case.get("context")
    if not header.context or not isinstance(own, dict | None):
        return {}
    return {"context": {**header.context, **(own or {})}}


def _settings(config: SuiteConfig) -> dict[str, Any]:
    """What the suite says about how its cases are run."""
    timeout = config.default_timeout if config.timeout is None else config.timeout
    said = {
        "timeout": timeout,
        "scorers": config.default_scorers,
        **{key: getattr(config, key) for key in _ALIKE},
    }
    return {key: value for key, value in said.items() if value is not None}


def with_moved_files(case: Mapping[str, Any], start: Path, folder: Path) -> dict[str, Any]:
    """The case with the paths of its files, which start from its suite's folder, from `folder`."""
    changed = dict(case)
    if start == folder:
        return changed
    between = os.path.relpath(start, folder)
    if isinstance(case.get("files"), list):
        changed["files"] = [_file_moved(file, between, "path") for file in case["files"]]
    if isinstance(case.get("history"), dict):
        changed["history"] = _file_moved(case["history"], between, "file")
    if isinstance(case.get("turns"), list):
        changed["turns"] = [
            with_moved_files(turn, start, folder) if isinstance(turn, dict) else turn
            for turn in case["turns"]
        ]
    return changed


def _file_moved(file: Any, between: str, key: str) -> Any:
    if not isinstance(file, dict) or not isinstance(file.get(key), str):
        return file
    return {**file, key: os.path.join(between, file[key])}  # noqa: PTH118 - not yet checked
