"""Hashes of what a result depends on, so that a resumed run keeps only what still holds."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holodeck.config.agent_files import load_instructions
from holodeck.errors import ConfigError
from holodeck.lib.safe_paths import file_inside
from holodeck.models.agent import Agent
from holodeck.models.evaluation import MetricSettings
from holodeck.models.history import TranscriptFile
from holodeck.models.record import PlannedCase
from holodeck.models.test_case import TestCaseModel

_DIGITS = 16
_OF_RETRIES = {"retries", "retry_on", "fail_fast", "cache_key"}


@dataclass(frozen=True)
class Fingerprint:
    """What a run is run with, in hashes."""

    parts: dict[str, str]
    """Part of the configuration → its hash."""
    cases: tuple[PlannedCase, ...]
    hashes: tuple[str, ...]
    """Of everything that the result of each case depends on, by place in the file."""
    config: dict[str, Any]
    """The agent as plain values, its keys and other secrets masked."""


def fingerprint_of(agent: Agent) -> Fingerprint:
    """The agent's fingerprint. Keys and other secrets do not count: a new key changes nothing."""
    # One dump of all: pydantic would prepare each part anew, which takes longer than a small run.
    config = agent.model_dump(mode="json", exclude_none=True)
    parts = {name: _hash(value) for name, value in _parts(agent, config).items()}
    with_metrics = _hash(parts)
    without = _hash({name: value for name, value in parts.items() if name != "metrics"})
    cases, plain, folder = agent.test_cases or [], config.get("test_cases", []), agent.base_dir
    planned = tuple(
        _planned(case, _text(_without_retries(one)), folder)
        for case, one in zip(cases, plain, strict=True)
    )
    hashes = tuple(
        _hash_of_text((with_metrics if _needs_shared(case) else without) + one.hash)
        for case, one in zip(cases, planned, strict=True)
    )
    return Fingerprint(parts, planned, hashes, config)


def _without_retries(case: Mapping[str, Any]) -> dict[str, Any]:
    """A case without what changes no answer, however it is set."""
    return {key: value for key, value in case.items() if key not in _OF_RETRIES}


def _needs_shared(case: TestCaseModel) -> bool:
    """Whether the result depends on the global `evaluations`: its metrics, or its model."""
    return case.evaluations is None or case.asks_judge or case.simulate is not None


def _parts(agent: Agent, config: Mapping[str, Any]) -> dict[str, Any]:
    folder = agent.base_dir
    metrics = agent.evaluations.metrics if agent.evaluations else []
    return {
        "model": config.get("model"),
        "instructions": load_instructions(agent),
        "backend": [config.get("backend"), *_code([agent.backend], folder)],
        "tools": [config.get("tools"), [_digest(one.file, folder) for one in agent.tools or []]],
        "response_format": [agent.response_format, _named_file(agent.response_format, folder)],
        "metrics": [config.get("evaluations"), *_metric_code(metrics, folder)],
    }


def _planned(case: TestCaseModel, text: str, folder: Path) -> PlannedCase:
    said = [case, *(one for _, one in case.parts)]
    files = [_digest(file.path, folder) for one in said for file in one.files or []]
    if isinstance(case.history, TranscriptFile):
        files.append(_digest(case.history.file, folder))
    parts = [
        text,
        *files,
        *_metric_code(case.own_evaluations, folder),
        *_code(case.own_code, folder),
    ]
    digest = _hash_of_text("\0".join(parts))
    return PlannedCase(name=case.name, id=case.id, suite=case.suite, hash=digest)


def _metric_code(metrics: Sequence[MetricSettings], folder: Path) -> list[str]:
    return _code([one.user_code for one in metrics], folder)


def _code(targets: Iterable[object], folder: Path) -> list[str]:
    """Hashes of the files beside the agent.yaml behind `module:attribute`."""
    modules = [one.partition(":")[0] for one in targets if isinstance(one, str) and ":" in one]
    stems = [Path(*module.split(".")) for module in modules]
    files = [file for stem in stems for file in (stem.with_suffix(".py"), stem / "__init__.py")]
    return [_digest(file, folder) for file in files]


def _named_file(value: object, folder: Path) -> str:
    return _digest(value, folder) if isinstance(value, str) else ""


def _digest(path: str | Path, folder: Path) -> str:
    """The hash of a file's bytes; empty where there is no such file, which the run itself tells."""
    with suppress(ConfigError, OSError):
        return hashlib.sha256(file_inside(path, folder).read_bytes()).hexdigest()[:_DIGITS]
    return ""


def _hash(value: Any) -> str:
    return _hash_of_text(_text(value))


def _text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _hash_of_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
