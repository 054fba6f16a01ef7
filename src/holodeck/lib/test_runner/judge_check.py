"""Which judge a check is about: the one of an agent.yaml, or one that is named."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from pydantic import ValidationError

from holodeck.config.loader import ConfigLoader, load_agent_with_config
from holodeck.config.providers import missing_key_message, with_provider_variables
from holodeck.config.secrets import collect
from holodeck.errors import ConfigError
from holodeck.lib.evaluators.judged import DEFAULT_THRESHOLD
from holodeck.lib.evaluators.metric_table import judge_of
from holodeck.lib.evaluators.short_judge import JudgeEvaluator
from holodeck.lib.evaluators.short_judge_check import Check, Told
from holodeck.lib.judging.check_labels import Label
from holodeck.lib.judging.check_result import JudgeCheck
from holodeck.lib.judging.judge import Judge
from holodeck.lib.judging.judges import Judges
from holodeck.models.agent import Agent
from holodeck.models.judge_metric import Criterion, JudgeMetric, Shown
from holodeck.models.llm import LLMProvider, ProviderEnum

Protect = Callable[[Iterable[str]], None]
"""Hears of the secrets that must not be shown."""


@dataclass
class Subject:
    """A judge to be checked, and how it is asked."""

    judge: Judge
    metric: JudgeMetric | None = None
    """Whose settings hold; None for the defaults."""
    _evaluators: dict[tuple[str, bool, int], JudgeEvaluator] = field(default_factory=dict)

    async def check(self, labels: list[Label], repeats: int, on_progress: Told) -> JudgeCheck:
        """What the judge is worth, by these labels."""
        return await self._check(on_progress).run(labels, repeats, self._threshold)

    async def quick_check(self, labels: list[Label], on_progress: Told) -> JudgeCheck:
        """How far the judge agrees with the labels, in one call for each."""
        return await self._check(on_progress).quick(labels, self._threshold)

    def _check(self, on_progress: Told) -> Check:
        return Check(self.judge, self._evaluator_for, on_progress)

    @property
    def _threshold(self) -> float:
        return self.metric.threshold if self.metric else DEFAULT_THRESHOLD

    def _evaluator_for(self, label: Label, wording: int) -> JudgeEvaluator:
        """One for each criterion, so that what is learnt about the endpoint is kept."""
        key = (label.criterion, label.ground_truth is not None, wording)
        if key not in self._evaluators:
            shown: list[Shown] = ["input", "response"]
            if label.ground_truth is not None:
                shown.append("ground_truth")
            options = {**self._options(label.criterion), "inputs": shown}
            self._evaluators[key] = JudgeEvaluator(
                **options, first_wording=wording, judge=self.judge, timeout=None
            )
        return self._evaluators[key]

    def _options(self, criterion: str) -> dict[str, Any]:
        """Those of the metric, as far as they are not about its own questions."""
        if self.metric is None:
            return {"criteria": [criterion]}
        options = {**self.metric.options(), "threshold": self.metric.threshold}
        own = [one for one in self.metric.questions if one.question == criterion]
        number = self.metric.questions.index(own[0]) if own else None
        examples = [
            one.model_copy(update={"answers": [one.answers[number]]})
            for one in (self.metric.examples if number is not None else [])
            if number is not None
        ]
        criteria = own[:1] or [Criterion(question=criterion)]
        return {**options, "criteria": criteria, "examples": examples, "include_reason": False}


def subject_in(agent_config: str, metric_name: str | None, protect: Protect) -> Subject:
    """The judge of an agent.yaml, asked as a metric of it is. Raises ConfigError."""
    agent, execution, loader = load_agent_with_config(agent_config)
    protect(collect(agent, loader.environment(agent.base_dir)))
    metric = None if metric_name is None else _metric(agent, metric_name)
    shared = agent.evaluations.model if agent.evaluations else None
    llm = judge_of(agent, metric) if metric else shared or agent.model
    if llm is None:
        raise ConfigError(agent_config, "names no model that judges; write 'evaluations.model'")
    _refuse_without_key(llm)
    judges = Judges(execution, agent.base_dir)
    return Subject(judges.of(llm, is_agents_own=llm is agent.model), metric)


def subject_named(name: str, endpoint: str | None, protect: Protect) -> Subject:
    """The judge called PROVIDER/NAME. Raises ConfigError."""
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
    _refuse_without_key(llm)
    return Subject(Judges().of(llm))


def _metric(agent: Agent, name: str) -> JudgeMetric:
    cases = agent.test_cases or []
    metrics = [
        *(agent.evaluations.metrics if agent.evaluations else []),
        *(metric for case in cases for metric in case.own_evaluations),
    ]
    known = [one for one in metrics if isinstance(one, JudgeMetric)]
    found = next((one for one in known if one.name == name), None)
    if found is None:
        names = ", ".join(one.name for one in known) or "none"
        raise ConfigError("--metric", f"no 'type: judge' metric is called {name!r}; known: {names}")
    return found


def _refuse_without_key(llm: LLMProvider) -> None:
    missing = missing_key_message(llm)
    if missing is not None:
        raise ConfigError("model", missing)
