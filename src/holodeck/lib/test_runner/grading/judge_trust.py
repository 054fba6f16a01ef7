"""Whether the judge of a metric may decide, by the stored result of its check.

The hash of a check says whether anything that shapes the prompts and verdicts of the judge changed.
"""

import hashlib
import json
import os
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError

from holodeck.errors import ConfigError
from holodeck.lib.evaluators import FAMILIES
from holodeck.lib.evaluators.build import evaluator_class
from holodeck.lib.reports.formats import write_report_text
from holodeck.lib.user_code.code_root import CodeFolders, folders_of, imports_of
from holodeck.lib.user_code.registry import module_file
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.llm import PROVIDERS, LLMProvider, ProviderEnum
from holodeck.models.metrics.base import JudgedMetric, MetricSettings
from holodeck.models.metrics.judge import JudgeMetric
from holodeck.models.metrics.judge_trust import (
    CHECKS_FILE,
    CRITERIA,
    JudgeChecks,
    JudgeTrust,
    Limits,
    LookLog,
    MetricCheck,
    TrustSetting,
    strictest_limits,
    strictest_mode,
)

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
    "holodeck.lib.judging.judges",
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


def read_checks(folder: Path) -> JudgeChecks:
    """Read the stored checks beside an agent.yaml; none without a file. Raises ConfigError."""
    path = folder / CHECKS_FILE
    try:
        return JudgeChecks.model_validate_json(path.read_bytes())
    except FileNotFoundError:
        return JudgeChecks()
    except OSError as error:
        raise ConfigError(str(path), f"cannot be read: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        key = ".".join(map(str, first["loc"])) or "the file"
        raise ConfigError(
            str(path),
            f"{key}: {first['msg']}; remove the file and run 'holodeck judge check --save' again",
        ) from error


def write_checks(folder: Path, checks: JudgeChecks) -> Path:
    """Write the stored checks, and return the file. Raises ReportError."""
    write_report_text(checks.model_dump_json(indent=2) + "\n", folder / CHECKS_FILE)
    return folder / CHECKS_FILE


Entry = TypeVar("Entry", MetricCheck, LookLog)


def with_entry(entries: Iterable[Entry], entry: Entry) -> list[Entry]:
    """Return the entries with another in place of that of the same metric and judge."""
    by_name = {(other.metric, other.judge): other for other in entries}
    by_name[entry.metric, entry.judge] = entry
    return [by_name[name] for name in sorted(by_name)]


@dataclass(frozen=True)
class Trust:
    """How far the judge of a metric or criterion is trusted."""

    state: JudgeTrust
    limits: Limits | None = None
    """What it had to reach in its check; None without a check that is up to date."""
    is_required: bool = False
    """Whether a judge that is not `checked` decides nothing."""

    @property
    def is_missing(self) -> bool:
        """Whether the judge may not decide."""
        return self.is_required and self.state != "checked"


class TrustBook:
    """Knows how far the judges of an agent's metrics are trusted.

    Args:
        agent: The agent, beside whose file the checks are stored.
        settings: Those of the run; None if trust plays no part, as when a judge is checked.
    """

    def __init__(self, agent: Agent, settings: ExecutionConfig | None) -> None:
        self._agent = agent
        self._settings = settings
        self._untrusted: dict[str, JudgeTrust] = {}

    def trust_in(
        self, metric: MetricSettings | str, llm: LLMProvider, criterion: str | None = None
    ) -> Trust | None:
        """Return how far the judge of the metric is trusted; None if that plays no part.

        Of the judge of criteria, it is the trust in that one. A metric is less strict than the
        run only if nobody wrote the setting of the run. The limits of the agent.yaml stay in force
        when the command line names another mode.
        """
        run = self._settings
        if run is None:
            return None
        own = metric.judge_trust if isinstance(metric, JudgedMetric) else None
        of_run = None if run.source_of("judge_trust") == "default" else run.judge_trust
        settings: list[TrustSetting] = [each for each in (own, of_run) if each is not None]
        settings = settings or ["warn"]
        if strictest_mode(settings) == "off":
            return None
        name, limits = metric if isinstance(metric, str) else metric.label, None
        check = self._check_of(name, metric, llm)
        if isinstance(check, MetricCheck):
            execution, limits = self._agent.execution, check.limits
            of_agent = None if execution is None else execution.judge_trust
            least = strictest_limits([*settings, *([] if of_agent is None else [of_agent])])
            asked = [] if criterion is None else [criterion]
            if isinstance(metric, JudgeMetric):
                asked = [question.question for question in metric.questions]
            state = check.trust(asked, least)
        else:
            state = check
        if state != "checked":
            self._untrusted[name] = state
        return Trust(state, limits, is_required=strictest_mode(settings) == "require")

    def _check_of(
        self, name: str, metric: MetricSettings | str, llm: LLMProvider
    ) -> "MetricCheck | JudgeTrust":
        """Return the check of exactly this judge, or why there is none."""
        checks = [check for check in self._checks.metrics if check.metric == name]
        if not checks:
            return "not checked"
        fingerprint = fingerprint_of_judge(metric, llm, self._agent.code_folders)
        return next((check for check in checks if check.fingerprint == fingerprint), "stale")

    def note(self) -> str | None:
        """Return what readers of the report must know; None if every judge is trusted."""
        if not self._untrusted:
            return None
        listed = ", ".join(f"{name} ({state})" for name, state in self._untrusted.items())
        return (
            f"no check with labels shows that these judged metrics may decide: {listed};"
            " see 'holodeck judge check --save'"
        )

    @cached_property
    def _checks(self) -> JudgeChecks:
        return read_checks(self._agent.base_dir)


def fingerprint_of_judge(
    metric: MetricSettings | str, llm: LLMProvider, folders: CodeFolders
) -> str:
    """Return a hash of everything that shapes the prompt and the verdict of a judged metric."""
    facts = {
        "settings": hash_settings(metric, llm, folders),
        "model": _served_model(llm, folders_of(folders)[0]),
        "code": _scoring_code(metric),
    }
    return _hash_facts(facts)


def hash_settings(metric: MetricSettings | str, llm: LLMProvider, folders: CodeFolders) -> str:
    """Return a hash of what people tune: the metric, its own code, and how the judge samples."""
    facts: dict[str, Any] = {"judge": llm.model_dump(mode="json", include=set(_SAMPLING))}
    if isinstance(metric, MetricSettings):
        facts["metric"] = metric.model_dump(mode="json", exclude=set(_NOT_PROMPT))
        targets = filter(None, [metric.user_code, metric.user_class])
        modules = (module_file(target, folders) for target in targets)
        roots = folders_of(folders)
        read = {file for path in modules if path for file in imports_of(path, roots).files}
        facts["files"] = {os.path.relpath(file, roots[0]): _hash_files([file]) for file in read}
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
    name = module.replace("_", "-").replace(".", "-")
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return name
