"""Hashes of what shapes the prompts and verdicts of a judge."""

import hashlib
import json
import os
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any

from holodeck.lib.evaluators import FAMILIES
from holodeck.lib.evaluators.build import evaluator_class
from holodeck.lib.user_code.registry import module_file
from holodeck.lib.user_code.source_imports import imports_of
from holodeck.models.llm import PROVIDERS, LLMProvider, ProviderEnum
from holodeck.models.metrics.base import MetricSettings
from holodeck.models.metrics.judge_trust import CRITERIA

_OWN_CODE = {
    "judge": ("holodeck.lib.evaluators.judge_prompt", "holodeck.lib.evaluators.judge_metric"),
    "code": ("holodeck.lib.evaluators.observation_metrics",),
    CRITERIA: ("holodeck.lib.conversation.criteria_judge", "holodeck.lib.conversation.messages"),
}
"""The modules that write our own prompts, and that turn answers into verdicts."""
_SHARED_CODE = (
    "holodeck.lib.evaluators.base",
    "holodeck.lib.evaluators.inputs",
    "holodeck.lib.judging.judge",
    "holodeck.lib.llm.json_answer",
    "holodeck.lib.test_runner.grading.scoring",
)
"""The modules that ask every judge, and read its answers."""
_SAMPLING = ("provider", "name", "temperature", "top_p", "max_tokens")
_NOT_PROMPT = frozenset(
    {
        *("model", "enabled", "required", "fail_on_error", "retry_on_failure", "timeout_ms"),
        *("judge_trust", "name", "include_reason"),
    }
)
"""Settings of a metric that do not change its verdict."""


def fingerprint_of_judge(metric: MetricSettings | str, llm: LLMProvider, folder: Path) -> str:
    """Return a hash of everything that shapes the prompt and the verdict of a judged metric."""
    facts = {
        "settings": hash_settings(metric, llm, folder),
        "model": _served_model(llm, folder),
        "code": _scoring_code(metric),
    }
    return _hash_facts(facts)


def hash_settings(metric: MetricSettings | str, llm: LLMProvider, folder: Path) -> str:
    """Return a hash of what people tune: the metric, its own code, and how the judge samples."""
    facts: dict[str, Any] = {"judge": llm.model_dump(mode="json", include=set(_SAMPLING))}
    if isinstance(metric, MetricSettings):
        facts["metric"] = metric.model_dump(mode="json", exclude=set(_NOT_PROMPT))
        targets = [*filter(None, [metric.user_code]), *metric.python_targets.values()]
        modules = (module_file(target, folder) for target in targets)
        read = {file for path in modules if path for file in imports_of(path, [folder]).files}
        facts["files"] = {os.path.relpath(file, folder): _hash_files([file]) for file in read}
    return _hash_facts(facts)


def _served_model(llm: LLMProvider, folder: Path) -> str:
    """Return which model answers: where it is served, or the sha256 of local weights."""
    if llm.provider is not ProviderEnum.LOCAL:
        return (llm.endpoint or PROVIDERS[llm.provider].url or "").rstrip("/")
    # Imported here because most judges are not local.
    from holodeck.lib.local_models.catalog import known_model
    from holodeck.lib.local_models.store import is_path, user_file

    if not is_path(llm.name):
        return known_model(llm.name).sha256  # the store loads no other file
    path = user_file(llm.name, folder)
    stat = path.stat()
    return _hash_of_weights(path, stat.st_size, stat.st_mtime_ns)


@cache
def _hash_of_weights(path: Path, _size: int, _mtime_ns: int) -> str:
    """Return the sha256 of a file, which several metrics may share."""
    # Imported here because most judges are not local.
    from holodeck.lib.local_models.weights import sha256_of

    return sha256_of(path)


def _scoring_code(metric: MetricSettings | str) -> str:
    """Return what changes with the words of the prompt, and with how the answer is scored."""
    names = _OWN_CODE.get(metric if isinstance(metric, str) else metric.kind)
    if names is not None:
        return _hash_modules(*_SHARED_CODE, *names)
    assert isinstance(metric, MetricSettings)  # noqa: S101 - `criteria` is in the table
    libraries = [_installed_version(library) for library in evaluator_class(metric).libraries]
    return " ".join([*libraries, _hash_modules(*_SHARED_CODE), _hash_of_family(metric.family)])


@cache
def _hash_modules(*names: str) -> str:
    return _hash_files(map(_file_of, names))


@cache
def _hash_of_family(family: str) -> str:
    """Hash the modules of a family of metrics, with those that call its library."""
    paths, shared = map(_file_of, FAMILIES[family]), _file_of("holodeck.lib.evaluators").parent
    folders = (path.parent.glob("*.py") if path.parent != shared else [path] for path in paths)
    return _hash_files(sorted(set(chain.from_iterable(folders))))


def _file_of(module: str) -> Path:
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise LookupError(module)
    return Path(spec.origin)


def _hash_files(files: Iterable[Path]) -> str:
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:16]


def _hash_facts(facts: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


@cache
def _installed_version(module: str) -> str:
    # Imported here because few metrics come from libraries, and it takes some milliseconds.
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

    name = module.replace("_", "-").replace(".", "-")
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return name
