"""Checks how well a judge agrees with people, and which judge that is."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain, count
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from holodeck import __version__
from holodeck.config.loader import ConfigLoader, load_agent_with_config
from holodeck.config.providers import missing_key_message, with_provider_variables
from holodeck.config.secrets import collect
from holodeck.errors import ConfigError
from holodeck.lib.evaluators.base import DEFAULT_THRESHOLD
from holodeck.lib.evaluators.build import judge_model_of, needs_judge
from holodeck.lib.judge_check.check_result import (
    JudgeCheckResult,
    Judgement,
    LookKeeper,
    PlannedLook,
    ProbedResponse,
    find_log,
)
from holodeck.lib.judge_check.labelled_cases import LabelledCases, with_one_criterion
from holodeck.lib.judge_check.labels import Label
from holodeck.lib.judge_check.probes import probes_of
from holodeck.lib.judging.agreement import Proportion
from holodeck.lib.judging.judge import Judge
from holodeck.lib.judging.judges import Judges
from holodeck.lib.processes.threads import gather_all
from holodeck.lib.test_runner.grading.judge_trust import (
    fingerprint_of_judge,
    hash_settings,
    read_checks,
    with_entry,
    write_checks,
)
from holodeck.models.agent import IN_PYTHON, Agent
from holodeck.models.evaluation import EvaluationConfig
from holodeck.models.llm import LLMProvider, ProviderEnum
from holodeck.models.metrics.base import MetricSettings
from holodeck.models.metrics.judge import JudgeMetric
from holodeck.models.metrics.judge_trust import CRITERIA, Limits, MetricCheck

MAX_CONCURRENCY = 20
ProgressCallback = Callable[[int, int], None]
"""Gets the numbers of answered and of planned questions."""


def _consistency(rounds: Sequence[Sequence[Judgement]]) -> Proportion:
    """Count responses with the same verdict in all rounds, of those with a verdict in each."""
    responses = zip(*rounds, strict=True)
    verdicts = [{judgement.passed for judgement in judgements} for judgements in responses]
    complete = [kinds for kinds in verdicts if None not in kinds]
    return Proportion(sum(len(kinds) == 1 for kinds in complete), len(complete))


Protect = Callable[[Iterable[str]], None]
"""Gets the secrets that must not be printed."""


@dataclass(frozen=True)
class CheckedJudge:
    """A judge to check, as it is used by an agent's metric."""

    agent: Agent
    judge: Judge
    llm: LLMProvider
    judges: Judges
    metric: MetricSettings | str | None = None
    """None for yes-or-no questions with default settings; `criteria` for those of test cases."""

    async def check(
        self,
        labels: Sequence[Label],
        repeats: int,
        on_progress: ProgressCallback,
        *,
        is_probed: bool = False,
    ) -> JudgeCheckResult:
        """Compare the judge with the people who wrote these labels.

        Args:
            labels: What people said.
            repeats: How often each label is judged, with other words each time. There are fewer
                repetitions if the metric has not enough different wordings.
            on_progress: Called after each question.
            is_probed: Whether variants of the responses are judged, too.

        Raises ConfigError if the labels do not fit the metric.
        """
        cases = LabelledCases(self.agent, self.metric, labels, self.judges)
        repeats = repeats if cases.rounds is None else min(repeats, cases.rounds)
        probes = probes_of(labels) if is_probed else []
        slots, done = asyncio.Semaphore(MAX_CONCURRENCY), count(1)
        planned = len(labels) * repeats + len(probes)

        async def judge(at: int, *, words: int = 0, variant: Label | None = None) -> Judgement:
            async with slots:
                judgement = await cases.judge(at, words=words, variant=variant)
            on_progress(next(done), planned)
            return judgement

        rounds = [
            await gather_all(judge(at, words=words) for at in range(len(labels)))
            for words in range(repeats)
        ]
        variants = await gather_all(judge(probe.original, variant=probe.label) for probe in probes)
        threshold = self.metric.threshold if isinstance(self.metric, MetricSettings) else None
        return JudgeCheckResult(
            judge=self.judge.name,
            threshold=DEFAULT_THRESHOLD if threshold is None else threshold,
            judgements=rounds[0],
            errors=[
                judgement.error
                for judgement in chain(*rounds, variants)
                if judgement.error is not None
            ],
            usage=cases.usage,
            repeats=repeats,
            has_wordings=cases.rounds is not None,
            same_each_time=_consistency(rounds) if repeats > 1 else None,
            probed=[
                ProbedResponse(probe, rounds[0][probe.original], after)
                for probe, after in zip(probes, variants, strict=True)
            ],
        )

    def plan(self, labels: Sequence[Label]) -> PlannedLook:
        """Return which of the labels count, and which look at them it is.

        Without a metric, no looks are stored, and each is the first. Raises ConfigError.
        """
        if self.metric is None:
            return PlannedLook(labels)
        return self._look_keeper(self.metric).plan(labels)

    def save(
        self, planned: PlannedLook, result: JudgeCheckResult, limits: Limits, *, is_trusted: bool
    ) -> Path:
        """Store the look at labels of a metric, and if it `is_trusted` what it shows, too."""
        if self.metric is None:
            raise ValueError("without a metric there is nothing to store")
        looks = self._look_keeper(self.metric)
        folder = self.agent.base_dir
        checks = read_checks(folder)
        update: dict[str, Any] = {
            "looks": with_entry(checks.looks, looks.add(planned, result, limits))
        }
        if is_trusted:
            check = self._check(self.metric, result, limits)
            update["metrics"] = with_entry(checks.metrics, check)
        return write_checks(folder, checks.model_copy(update=update))

    def _look_keeper(self, metric: MetricSettings | str) -> LookKeeper:
        folders, known = self.agent.code_folders, dict[str | None, str]()

        def settings_of(label: Label) -> str:
            if label.criterion not in known:
                asked = metric
                if isinstance(metric, JudgeMetric):
                    asked = with_one_criterion(metric, label)
                known[label.criterion] = hash_settings(asked, self.llm, folders)
            return known[label.criterion]

        return LookKeeper(
            find_log(read_checks(self.agent.base_dir), _name_of(metric), self.judge.name),
            hash_settings(metric, self.llm, folders),
            fingerprint_of_judge(metric, self.llm, folders),
            settings_of,
        )

    def _check(
        self, metric: MetricSettings | str, result: JudgeCheckResult, limits: Limits
    ) -> MetricCheck:
        gate = result.gate(limits)
        return MetricCheck(
            metric=_name_of(metric),
            judge=self.judge.name,
            fingerprint=fingerprint_of_judge(metric, self.llm, self.agent.code_folders),
            verdict=gate.verdict,
            good_labels=gate.good,
            bad_labels=gate.bad,
            labelled=result.labelled_criteria,
            limits=limits,
            look=gate.look,
            kappa=gate.kappa_bounds,
            false_passes=gate.false_pass_bounds,
            injected_passes=gate.injected_bounds,
            checked=datetime.now(UTC).date().isoformat(),
            holodeck_version=__version__,
        )


def _name_of(metric: MetricSettings | str) -> str:
    return metric if isinstance(metric, str) else metric.label


def load_agent_judge(agent_config: str, metric_name: str | None, protect: Protect) -> CheckedJudge:
    """Return the judge of an agent.yaml, with the settings of a metric. Raises ConfigError."""
    agent, execution, loader = load_agent_with_config(agent_config)
    protect(collect(agent, loader.environment(agent.base_dir)))
    metric = None if metric_name is None else find_judged_metric(agent, metric_name)
    llm = agent.judge_model
    if isinstance(metric, MetricSettings):
        llm = judge_model_of(agent, metric)
    if llm is None:
        raise ConfigError(agent_config, "names no model that judges; write 'evaluations.model'")
    _require_key(llm)
    judges = Judges(execution, agent.base_dir)
    judge = judges.of(llm, is_agents_own=llm is agent.model)
    return CheckedJudge(agent, judge, llm, judges, metric)


def load_named_judge(name: str, endpoint: str | None, protect: Protect) -> CheckedJudge:
    """Return the judge named PROVIDER/NAME. Raises ConfigError."""
    provider, _, model = name.partition("/")
    if provider not in list(ProviderEnum) or not model:
        known = ", ".join(ProviderEnum)
        raise ConfigError("--model", f"{name!r}; write PROVIDER/NAME, the provider one of {known}")
    env = ConfigLoader().environment()
    written = {"provider": provider, "name": model, "endpoint": endpoint}
    data = with_provider_variables(
        {key: value for key, value in written.items() if value is not None}, env
    )
    try:
        llm = LLMProvider.model_validate(data)
    except ValidationError as error:
        raise ConfigError("--model", str(error.errors()[0]["msg"])) from None
    protect(collect(llm, env))
    _require_key(llm)
    judges = Judges()
    agent = Agent(name="labels", backend=IN_PYTHON, evaluations=EvaluationConfig(model=llm))
    return CheckedJudge(agent, judges.of(llm), llm, judges)


def find_judged_metric(agent: Agent, name: str) -> MetricSettings | str:
    """Return the judged metric of that name, in agent.yaml or one of its cases.

    `criteria` is the judge of test cases. Raises ConfigError for an unknown name.
    """
    cases = agent.test_cases or []
    metrics = [
        *(agent.evaluations.metrics if agent.evaluations else []),
        *(metric for case in cases for metric in case.own_metrics),
    ]
    judged: dict[str, MetricSettings | str] = {}
    for metric in filter(needs_judge, metrics):
        judged.setdefault(metric.label, metric)
    judged.setdefault(CRITERIA, CRITERIA)
    if name in judged:
        return judged[name]
    names = ", ".join(judged)
    raise ConfigError("--metric", f"no judged metric is named {name!r}; known: {names}")


def _require_key(llm: LLMProvider) -> None:
    missing = missing_key_message(llm)
    if missing is not None:
        raise ConfigError("model", missing)
