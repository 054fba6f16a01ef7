"""Whether the judge of a metric may decide, by the stored result of its check."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache, cached_property
from importlib.util import find_spec
from pathlib import Path

from pydantic import ValidationError

from holodeck.errors import ConfigError
from holodeck.lib.evaluators.build import evaluator_class
from holodeck.lib.registry import module_source
from holodeck.models.agent import Agent
from holodeck.models.evaluation import CodeMetric, MetricSettings
from holodeck.models.judge_trust import (
    CHECKS_FILE,
    CRITERIA,
    JudgeChecks,
    JudgeTrust,
    MetricCheck,
    TrustMode,
)
from holodeck.models.llm import LLMProvider
from holodeck.models.metric import JudgedMetric

_WORDINGS = {
    "judge": "holodeck.lib.evaluators.judge_prompt",
    CRITERIA: "holodeck.lib.conversation.criteria_judge",
}
"""The modules that write our own prompts; the hash of their text is the version of the wording."""
_PROMPT_SETTINGS = ("provider", "name", "temperature", "top_p", "max_tokens")
_NOT_PROMPT = frozenset(
    {
        *("model", "enabled", "required", "fail_on_error", "retry_on_failure", "timeout_ms"),
        *("judge_trust", "name", "include_reason"),
    }
)
"""Settings of a metric that do not change its verdict."""


def fingerprint_of_judge(metric: MetricSettings | str, llm: LLMProvider, folder: Path) -> str:
    """Return a hash of everything that shapes the prompt and the verdict of a judged metric."""
    settings = llm.model_dump(mode="json", include=set(_PROMPT_SETTINGS))
    facts = {"judge": settings, "wording": _wording_version(metric, folder)}
    if isinstance(metric, MetricSettings):
        facts["metric"] = metric.model_dump(mode="json", exclude=set(_NOT_PROMPT))
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def _wording_version(metric: MetricSettings | str, folder: Path) -> str:
    """Return what changes with the words of the prompt, and with how the answer is scored."""
    if isinstance(metric, str):
        return _hash_of_module(_WORDINGS[CRITERIA])
    if metric.kind in _WORDINGS:
        return _hash_of_module(_WORDINGS[metric.kind])
    if isinstance(metric, CodeMetric):
        return hashlib.sha256(module_source(metric.grader, folder).encode()).hexdigest()[:16]
    kind = evaluator_class(metric)
    libraries = [_installed_version(one) for one in kind.libraries]
    sources = [module_source(one, folder) for one in metric.python_targets.values()]
    own = [hashlib.sha256(one.encode()).hexdigest()[:16] for one in sources]
    return " ".join([*libraries, _hash_of_adapter(kind.__module__), *own])


@cache
def _hash_of_module(name: str) -> str:
    return _hash_of_files([_file_of(name)])


@cache
def _hash_of_adapter(name: str) -> str:
    """Hash a module that calls a library with the modules beside it that do."""
    file = _file_of(name)
    is_package = file.parent.name != "evaluators"
    siblings = "*.py" if is_package else f"{file.stem.partition('_')[0]}*.py"
    return _hash_of_files(sorted(file.parent.glob(siblings)))


def _file_of(module: str) -> Path:
    spec = find_spec(module)
    if spec is None or spec.origin is None:
        raise LookupError(module)
    return Path(spec.origin)


def _hash_of_files(files: Iterable[Path]) -> str:
    return hashlib.sha256(b"".join(one.read_bytes() for one in files)).hexdigest()[:16]


@cache
def _installed_version(module: str) -> str:
    # Imported here because few metrics come from libraries, and it takes some milliseconds.
    from importlib.metadata import PackageNotFoundError, version  # noqa: PLC0415

    name = module.replace("_", "-").replace(".", "-")
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return name


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


def save_check(folder: Path, check: MetricCheck) -> Path:
    """Replace the stored check of the same metric and judge, and return the file."""
    # Imported here because a run never writes this file.
    from holodeck.lib.reports.formats import write_report_text  # noqa: PLC0415

    kept = [
        one
        for one in read_checks(folder).metrics
        if (one.metric, one.judge) != (check.metric, check.judge)
    ]
    checks = JudgeChecks(metrics=sorted([*kept, check], key=lambda one: (one.metric, one.judge)))
    write_report_text(checks.model_dump_json(indent=2) + "\n", folder / CHECKS_FILE)
    return folder / CHECKS_FILE


class TrustBook:
    """Knows how far the judges of an agent's metrics are trusted.

    Args:
        agent: The agent, beside whose file the checks are stored.
        mode: `judge_trust` of the run; None if trust plays no part, as when a judge is checked.
    """

    def __init__(self, agent: Agent, mode: TrustMode | None) -> None:
        self._agent = agent
        self._mode = mode
        self._untrusted: dict[str, JudgeTrust] = {}

    def mode_of(self, metric: MetricSettings | str) -> TrustMode:
        """Return what an untrusted judge of the metric means."""
        own = metric.judge_trust if isinstance(metric, JudgedMetric) else None
        return "off" if self._mode is None else own or self._mode

    def trust_in(self, metric: MetricSettings | str, llm: LLMProvider) -> JudgeTrust | None:
        """Return how far the judge of the metric is trusted; None if that plays no part."""
        if self.mode_of(metric) == "off":
            return None
        name = metric if isinstance(metric, str) else metric.label
        fingerprint = fingerprint_of_judge(metric, llm, self._agent.base_dir)
        known = self._by_fingerprint.get(fingerprint)
        found: JudgeTrust = "not checked"
        if known is not None and known.metric == name:
            found = known.trust
        elif any(one.metric == name for one in self._by_fingerprint.values()):
            found = "stale"
        if found != "checked":
            self._untrusted[name] = found
        return found

    def note(self) -> str | None:
        """Return what readers of the report must know; None if every judge is trusted."""
        if not self._untrusted:
            return None
        listed = ", ".join(f"{name} ({trust})" for name, trust in self._untrusted.items())
        return (
            f"no check with labels shows that these judged metrics may decide: {listed};"
            " see 'holodeck judge check --save'"
        )

    @cached_property
    def _by_fingerprint(self) -> Mapping[str, MetricCheck]:
        return {one.fingerprint: one for one in read_checks(self._agent.base_dir).metrics}
