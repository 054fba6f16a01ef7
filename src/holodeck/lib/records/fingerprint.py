"""Hashes of what a result depends on, so that a resumed run keeps only what still holds."""

import hashlib
import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from holodeck.config.instructions import instructions_text
from holodeck.errors import ConfigError
from holodeck.lib.paths import file_inside
from holodeck.models.agent import Agent
from holodeck.models.evaluation import EvaluationMetric
from holodeck.models.record import PlannedCase
from holodeck.models.test_case import TestCaseModel

_DIGITS = 16


@dataclass(frozen=True)
class Fingerprint:
    """What a run is run with, in hashes."""

    parts: dict[str, str]
    """Part of the configuration → its hash."""
    cases: tuple[PlannedCase, ...]
    hashes: tuple[str, ...]
    """Of everything that the result of each case depends on, by place in the file."""


def fingerprint_of(agent: Agent) -> Fingerprint:
    """The agent's fingerprint. Keys and other secrets do not count: a new key changes nothing."""
    parts = {name: _hash(value) for name, value in _parts(agent).items()}
    with_metrics = _hash(parts)
    without = _hash({name: value for name, value in parts.items() if name != "metrics"})
    cases = agent.test_cases or []
    planned = tuple(_planned(case, agent.base_dir) for case in cases)
    hashes = tuple(
        _hash([with_metrics if case.evaluations is None else without, one.hash])
        for case, one in zip(cases, planned, strict=True)
    )
    return Fingerprint(parts, planned, hashes)


def _parts(agent: Agent) -> dict[str, Any]:
    folder = agent.base_dir
    tools = agent.tools or []
    metrics = agent.evaluations.metrics if agent.evaluations else []
    backend = agent.backend if isinstance(agent.backend, str) else _plain(agent.backend)
    return {
        "model": _plain(agent.model),
        "instructions": instructions_text(agent),
        "backend": [backend, *_code([agent.backend], folder)],
        "tools": [[_plain(tool), _digest(tool.file, folder)] for tool in tools],
        "response_format": [agent.response_format, _named_file(agent.response_format, folder)],
        "metrics": _metrics(metrics, folder),
    }


def _planned(case: TestCaseModel, folder: Path) -> PlannedCase:
    files = [_digest(file.path, folder) for file in case.files or []]
    code = _code([one.metric for one in case.evaluations or []], folder)
    return PlannedCase(name=case.name, hash=_hash([_text(case), files, code]))


def _text(case: TestCaseModel) -> str:
    try:
        return case.model_dump_json(exclude_none=True)  # several times as fast as the other way
    except ValueError:  # half a surrogate pair, say
        return repr(case)


def _metrics(metrics: Sequence[EvaluationMetric], folder: Path) -> list[Any]:
    return [[_plain(one) for one in metrics], _code([one.metric for one in metrics], folder)]


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


def _plain(value: BaseModel | None) -> Any:
    return None if value is None else value.model_dump(mode="json", exclude_none=True)


def _hash(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
