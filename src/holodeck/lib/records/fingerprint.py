"""Hashes of everything that a result depends on; equal hashes let a resumed run reuse it."""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holodeck.config.agent_files import load_instructions
from holodeck.errors import ConfigError
from holodeck.lib.support.safe_paths import file_inside
from holodeck.lib.user_code.code_root import code_roots
from holodeck.models.agent import Agent
from holodeck.models.backend import HttpBackendConfig, McpBackendConfig, ProcessBackendConfig
from holodeck.models.cases.messages import TranscriptFile
from holodeck.models.metrics.base import MetricSettings
from holodeck.models.records.record import PlannedCase
from holodeck.models.test_case import TestCaseModel
from holodeck.models.tools.config import ToolConfig
from holodeck.models.tools.knowledge import KnowledgeTool

_DIGITS = 16
_CASES_AT_ONCE = 1_000
_IRRELEVANT_KEYS = {"retries", "retry_on", "fail_fast"}
"""Keys of a case that change no response."""


@dataclass(frozen=True)
class Fingerprint:
    """The configuration of a run in hashes."""

    parts: dict[str, str]
    """Part of the configuration → its hash."""
    cases: Sequence[PlannedCase]
    hashes: Sequence[str]
    """Of everything that the result of each case depends on, by the case's index."""
    config: dict[str, Any]
    """The agent as plain values without its cases; keys and other secrets are masked."""


def fingerprint_of(agent: Agent) -> Fingerprint:
    """Return the agent's fingerprint. Secrets do not count: a new API key changes nothing."""
    parts, config = hash_parts(agent)
    all_parts = _hash_value(parts)
    without_metrics = _hash_value(
        {name: value for name, value in parts.items() if name != "metrics"}
    )
    cases, roots = agent.test_cases or [], code_roots(agent.code_folders)
    own_hashes = [
        _hash_case(case, values, roots)
        for case, values in zip(cases, dump_cases(agent), strict=True)
    ]
    hashes = [
        _hash_text((all_parts if _uses_evaluations(case) else without_metrics) + own)
        for case, own in zip(cases, own_hashes, strict=True)
    ]
    planned = [
        PlannedCase(name=case.name, id=case.id, suite=case.suite, hash=own)
        for case, own in zip(cases, own_hashes, strict=True)
    ]
    return Fingerprint(parts, planned, hashes, config)


def hash_parts(agent: Agent) -> tuple[dict[str, str], dict[str, Any]]:
    """Return the hash of each part of the configuration, and the agent as plain values without its
    cases."""
    # One dump of all: pydantic would prepare each part anew, which takes longer than a small run.
    config = agent.model_dump(mode="json", exclude_none=True, exclude={"test_cases"})
    return {name: _hash_value(value) for name, value in _parts(agent, config).items()}, config


def dump_cases(agent: Agent) -> Iterator[dict[str, Any]]:
    """Yield the test cases as plain values."""
    cases = agent.test_cases or []
    for start in range(0, len(cases), _CASES_AT_ONCE):
        part = agent.model_copy(update={"test_cases": cases[start : start + _CASES_AT_ONCE]})
        dump = part.model_dump(mode="json", exclude_none=True, include={"test_cases"})
        yield from dump["test_cases"]


def _uses_evaluations(case: TestCaseModel) -> bool:
    """Return whether the result depends on the agent's `evaluations`: its metrics or its model."""
    return case.evaluations is None or case.uses_judge or case.simulate is not None


def _parts(agent: Agent, config: Mapping[str, Any]) -> dict[str, Any]:
    folder = agent.own_dir
    metrics = agent.evaluations.metrics if agent.evaluations else []
    response_format = agent.response_format
    schema_file = response_format if isinstance(response_format, str) else None
    return {
        "model": config.get("model"),
        "instructions": load_instructions(agent),
        "backend": [config.get("backend"), *_hash_agent(agent)],
        "tools": [
            config.get("tools"),
            [_hash_file(file, folder) for tool in agent.tools or [] for file in tool.own_files],
            *_hash_documents(agent.tools or [], folder),
        ],
        "response_format": [
            response_format,
            "" if schema_file is None else _hash_file(schema_file, folder),
        ],
        "metrics": [
            config.get("evaluations"),
            *agent.retrieval_tools,
            *_hash_metric_code(metrics, code_roots(agent.code_folders)),
        ],
    }


def _hash_case(case: TestCaseModel, values: Mapping[str, Any], roots: Sequence[Path]) -> str:
    """Return the hash of a case alone, whatever the agent."""
    relevant = {key: value for key, value in values.items() if key not in _IRRELEVANT_KEYS}
    parts = [case, *(turn for _, turn in case.checked_turns)]
    files = [
        _hash_file(file.path, roots[0])
        for part in parts
        for file in part.files or []
        if file.path is not None
    ]
    if isinstance(case.history, TranscriptFile):
        files.append(_hash_file(case.history.file, roots[0]))
    digests = [
        _to_text(relevant),
        *files,
        *_hash_metric_code(case.own_metrics, roots),
        *_hash_code(case.called_functions, roots),
    ]
    return _hash_text("\0".join(digests))


def _hash_agent(agent: Agent) -> list[str]:
    """Hash the user's code that is the agent: its module, or the files that its command names."""
    backend, folder = agent.backend, agent.own_dir
    if isinstance(backend, ProcessBackendConfig | McpBackendConfig) and backend.command is not None:
        start = Path(backend.cwd or "")
        return [_hash_file(start / argument, folder) for argument in backend.command]
    functions = backend.functions.values() if isinstance(backend, HttpBackendConfig) else ()
    return _hash_code([agent.target, *functions], code_roots(agent.own_code_folders))


def _hash_documents(tools: Sequence[ToolConfig], folder: Path) -> list[str]:
    """Hash the files that tools search; what a URL returns is not known before the run."""
    searching = [tool for tool in tools if tool.type in {"vectorstore", "hierarchical_document"}]
    if not searching:
        return []
    # Imported here because few agents search documents.
    from holodeck.lib.knowledge import collect, documents  # noqa: PLC0415

    hashes = []
    for tool in searching:
        assert isinstance(tool, KnowledgeTool)  # noqa: S101 - by its type
        if documents.is_remote(tool.source):
            continue
        with suppress(ConfigError):  # an error of the run itself
            files = documents.find_files(tool.source, folder, collect.suffixes_of(tool))
            hashes += [f"{file.relative_to(folder)} {_hash_file(file, folder)}" for file in files]
    return hashes


def _hash_metric_code(metrics: Sequence[MetricSettings], roots: Sequence[Path]) -> list[str]:
    return _hash_code([metric.user_code or metric.user_class for metric in metrics], roots)


def _hash_code(targets: Iterable[object], roots: Sequence[Path]) -> list[str]:
    """Hash the files of each `module:attribute`, beside the agent.yaml and in its other roots."""
    modules = [
        target.partition(":")[0] for target in targets if isinstance(target, str) and ":" in target
    ]
    stems = [Path(*module.split(".")) for module in modules]
    files = [file for stem in stems for file in (stem.with_suffix(".py"), stem / "__init__.py")]
    beside, *others = roots
    elsewhere = (_hash_file(file, root) for root in others for file in files)
    return [*(_hash_file(file, beside) for file in files), *filter(None, elsewhere)]


def _hash_file(path: str | Path, folder: Path) -> str:
    """Hash a file; a missing file has no hash here, and is an error of the run itself."""
    with suppress(ConfigError, OSError), file_inside(path, folder).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:_DIGITS]
    return ""


def _hash_value(value: Any) -> str:
    return _hash_text(_to_text(value))


def _to_text(value: Any) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _hash_text(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGITS]
