"""Whether the judge of a metric may decide, by the stored result of its check."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pydantic import ValidationError

from holodeck.errors import ConfigError
from holodeck.lib.test_runner.grading.judge_fingerprint import fingerprint_of_judge
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.llm import LLMProvider
from holodeck.models.metrics.base import JudgedMetric, MetricSettings
from holodeck.models.metrics.judge import JudgeMetric
from holodeck.models.metrics.judge_trust import (
    CHECKS_FILE,
    JudgeChecks,
    JudgeTrust,
    Limits,
    MetricCheck,
    TrustSetting,
    strictest_limits,
    strictest_mode,
)


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
    # Imported here because a run never writes this file.
    from holodeck.lib.reports.formats import write_report_text  # noqa: PLC0415

    write_report_text(checks.model_dump_json(indent=2) + "\n", folder / CHECKS_FILE)
    return folder / CHECKS_FILE


def with_check(checks: JudgeChecks, check: MetricCheck) -> JudgeChecks:
    """Return the checks with one in place of that of the same metric and judge."""
    others = [
        other
        for other in checks.metrics
        if (other.metric, other.judge) != (check.metric, check.judge)
    ]
    metrics = sorted(
        [*others, check], key=lambda metric_check: (metric_check.metric, metric_check.judge)
    )
    return checks.model_copy(update={"metrics": metrics})


@dataclass(frozen=True)
class RunTrust:
    """`judge_trust` of a run.

    Args:
        setting: The value.
        is_default: Whether nobody wrote it; then a metric may be less strict.
    """

    setting: TrustSetting = "warn"
    is_default: bool = True

    @classmethod
    def of(cls, config: ExecutionConfig) -> "RunTrust":
        """Return what the settings of a run say."""
        setting = config.judge_trust
        if setting is None or config.source_of("judge_trust") == "default":
            return cls()
        return cls(setting, is_default=False)


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
        run: `judge_trust` of the run; None if trust plays no part, as when a judge is checked.
    """

    def __init__(self, agent: Agent, run: RunTrust | None) -> None:
        self._agent = agent
        self._run = run
        self._untrusted: dict[str, JudgeTrust] = {}

    def trust_in(
        self, metric: MetricSettings | str, llm: LLMProvider, criterion: str | None = None
    ) -> Trust | None:
        """Return how far the judge of the metric is trusted; None if that plays no part.

        Of the judge of criteria, it is the trust in one of them.
        """
        settings = self._settings(metric)
        if strictest_mode(settings) == "off":
            return None
        name = metric if isinstance(metric, str) else metric.label
        check = self._check_of(name, metric, llm)
        if isinstance(check, MetricCheck):
            state = check.trust(_criteria(metric, criterion), self._floor(settings))
        else:
            state = check
        if state != "checked":
            self._untrusted[name] = state
        limits = check.limits if isinstance(check, MetricCheck) else None
        return Trust(state, limits, is_required=strictest_mode(settings) == "require")

    def _settings(self, metric: MetricSettings | str) -> list[TrustSetting]:
        """Return what run and metric say; a metric is less strict than the default only."""
        own = metric.judge_trust if isinstance(metric, JudgedMetric) else None
        if self._run is None:
            return ["off"]
        if own is None:
            return [self._run.setting]
        return [own] if self._run.is_default else [own, self._run.setting]

    def _floor(self, settings: Sequence[TrustSetting]) -> Limits:
        """Return the limits that a check must have used; those of the agent.yaml stay in force
        when the command line names another mode."""
        execution = self._agent.execution
        of_agent = None if execution is None else execution.judge_trust
        return strictest_limits([*settings, *([] if of_agent is None else [of_agent])])

    def _check_of(
        self, name: str, metric: MetricSettings | str, llm: LLMProvider
    ) -> "MetricCheck | JudgeTrust":
        """Return the check of exactly this judge, or why there is none."""
        checks = [check for check in self._checks.metrics if check.metric == name]
        if not checks:
            return "not checked"
        fingerprint = fingerprint_of_judge(metric, llm, self._agent.base_dir)
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


def _criteria(metric: MetricSettings | str, criterion: str | None) -> list[str]:
    """Return what the judge of a metric is asked."""
    if isinstance(metric, JudgeMetric):
        return [question.question for question in metric.questions]
    return [] if criterion is None else [criterion]
