"""The checks of every case of an agent, built before any agent is called."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain
from typing import TYPE_CHECKING

from holodeck.config.checks.cases import NO_JUDGE
from holodeck.config.yaml.source import location_of
from holodeck.errors import ConfigError
from holodeck.lib.evaluators.base import BaseEvaluator
from holodeck.lib.evaluators.build import (
    RequiredInputs,
    build_evaluator,
    judge_model_of,
    metrics_of,
    metrics_of_turn,
    needs_judge,
)
from holodeck.lib.judging.judge import Judge
from holodeck.lib.judging.judges import Judges
from holodeck.lib.test_runner.grading.judge_trust import Trust, TrustBook
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.llm import DEFAULT_LOCAL_MODEL, LLMProvider, ProviderEnum
from holodeck.models.metrics.base import MetricSettings
from holodeck.models.metrics.judge_trust import CRITERIA
from holodeck.models.test_case import TestCaseModel, TurnModel

if TYPE_CHECKING:
    from holodeck.lib.evaluators.grader_process import GraderProcess
    from holodeck.lib.test_runner.grading.criteria import CaseCriteria

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Check:
    """A metric ready to be computed."""

    name: str
    evaluator: BaseEvaluator
    threshold: float | None = None
    fail_on_error: bool = False
    kind: str = "standard"
    required: bool = True
    trust: Trust | None = None
    """How far the judge is trusted; None without a judge, and if that plays no part."""

    @property
    def is_distrusted(self) -> bool:
        """Whether the verdict decides nothing, because the judge is not trusted."""
        return self.trust is not None and self.trust.is_missing


@dataclass(frozen=True)
class CaseChecks:
    """The checks of a case."""

    at_end: list[Check]
    """On the response, or on the last response and the whole conversation."""
    of_turns: list[list[Check]] = field(default_factory=list)
    """On each turn of a conversation."""
    of_steps: dict[str | int, list[Check]] = field(default_factory=dict)
    """On the last response, by the index of the step of the script."""
    criteria: "CaseCriteria | None" = None
    """What a judge decides, on the whole conversation and at checkpoints of the script."""


_IDENTITY = ("provider", "name", "endpoint")
"""The settings that say which model it is."""
_HERE = "(this metric)"
"""Begins the location of an error; only then is it looked up where the metric is written."""


class EvaluatorSet:
    """Builds the checks of every case, so that mistakes are found before any agent is called.

    `injected` evaluators replace those of configured metrics of the same name; the others are
    computed for every case. Without `settings`, trust in judges plays no part.
    """

    def __init__(
        self,
        agent: Agent,
        injected: Mapping[str, BaseEvaluator] | None = None,
        judges: Judges | None = None,
        settings: ExecutionConfig | None = None,
    ) -> None:
        self._agent = agent
        self._trust = TrustBook(agent, settings)
        self._injected = dict(injected or {})
        self._inputs = RequiredInputs(agent)
        self.judges = judges or Judges(base_dir=agent.base_dir)
        self.notes: list[str] = []
        """What readers of the report must know."""
        metrics = agent.evaluations.metrics if agent.evaluations else []
        self._global = self._build(metrics, "evaluations", "metrics")
        self._without_own = CaseChecks([*self._global])
        """The checks of cases that have none of their own, which thousands of cases share."""
        self._cases = [
            self._build_case(index, case) for index, case in enumerate(agent.test_cases or [])
        ]
        configured = {check.name for check in self._all_checks()}
        self._extra = [
            Check(name, evaluator)
            for name, evaluator in self._injected.items()
            if name not in configured
        ]
        for checks in {id(case): case for case in self._cases}.values():
            checks.at_end.extend(self._extra)
        self._require_inputs()
        del self._inputs  # an entry for each metric, which nothing needs any more
        if (note := self._trust.note()) is not None:
            self.notes.append(note)

    def judge_with(self, llm: LLMProvider) -> Judge:
        """Return the judge of a model."""
        return self.judges.of(llm, is_agents_own=llm is self._agent.model)

    def warn_of(self, llm: LLMProvider) -> None:
        """Note what makes a judge hard to trust."""
        name = llm.label
        own = self._agent.model
        if own is not None and all(getattr(own, key) == getattr(llm, key) for key in _IDENTITY):
            self.note(
                f"the judge {name} is the agent's own model, and models rate their own answers"
                " higher; use another with 'evaluations.model'"
            )
        if llm.provider is ProviderEnum.LOCAL and llm.name == DEFAULT_LOCAL_MODEL:
            self.note(
                f"the judge {name} is too small to judge: its verdicts are nearly random;"
                " use 'qwen2.5-coder-1.5b-instruct' or a larger model"
            )

    def note(self, text: str) -> None:
        """Add a note to the report and log it, once."""
        if text not in self.notes:
            self.notes.append(text)
            logger.warning("%s", text)

    @property
    def evaluators(self) -> dict[str, BaseEvaluator]:
        """The evaluators of cases without metrics of their own, by name."""
        return {check.name: check.evaluator for check in [*self._global, *self._extra]}

    def checks_of(self, index: int) -> CaseChecks:
        """Return the checks of the case at that index; its own metrics replace the global ones."""
        return self._cases[index]

    async def warm_up(self) -> None:
        """Load the libraries that evaluators need, in turn."""
        checks = chain(self._all_checks(), self._extra)
        for evaluator in {type(check.evaluator): check.evaluator for check in checks}.values():
            try:
                await evaluator.prepare()
            except Exception as error:  # noqa: BLE001 - computing the metric reports it
                logger.debug("%s is not ready: %s", evaluator.name, error)

    async def close(self) -> None:
        """Close the connections of judges, and end the process of graders."""
        await self.judges.close()
        if "_graders" in vars(self):
            await self._graders.close()

    def _all_checks(self) -> Iterator[Check]:
        yield from self._global
        for checks in self._cases:
            parts = (*checks.of_turns, *checks.of_steps.values())
            yield from chain(checks.at_end, *parts)

    def _build_case(self, index: int, case: TestCaseModel) -> CaseChecks:
        path = ("test_cases", index)
        metrics = self._global
        has_own = case.evaluations is not None or case.scorers is not None
        if not (has_own or case.uses_judge or case.checked_turns):
            return self._without_own
        if case.evaluations is not None:
            metrics = self._build(case.evaluations, *path, "evaluations")
        checks = CaseChecks([*metrics, *self._build_scorers(case, metrics, *path)])
        for at, part in case.checked_turns:
            of_part = self._build(part.evaluations or [], *path, *at, "evaluations")
            of_part += self._build_scorers(part, of_part, *path, *at)
            if at[0] == "turns":
                checks.of_turns.append(of_part)
            else:
                checks.of_steps[at[1]] = of_part
        if not case.uses_judge:
            return checks
        return replace(checks, criteria=self._build_criteria(index, case))

    def _build_criteria(self, index: int, case: TestCaseModel) -> "CaseCriteria":
        # The engine of conversations, which most runs do without.
        from holodeck.lib.test_runner.grading.criteria import CaseCriteria  # noqa: PLC0415

        llm = self._agent.judge_model
        key = "script" if case.criteria is None else "criteria"
        location = self._agent.location("test_cases", index, key)
        if llm is None:
            raise ConfigError(location, NO_JUDGE)
        self.warn_of(llm)
        return CaseCriteria(
            self.judge_with(llm),
            case.criterion_settings,
            case.about,
            trust={text: self._trust.trust_in(CRITERIA, llm, text) for text in case.all_criteria},
        )

    def _build_scorers(
        self, case: TurnModel, metrics: Sequence[Check], *path: str | int
    ) -> list[Check]:
        """Return the scorers of a case or turn, with names unlike those of its metrics."""
        names = {check.name for check in metrics}
        return self._build(case.scorers or [], *path, "scorers", used_names=names)

    def _build(
        self,
        metrics: Sequence[MetricSettings],
        *path: str | int,
        used_names: set[str] | None = None,
    ) -> list[Check]:
        used_names = set() if used_names is None else used_names
        return [
            self._build_check(metric, _free_name(metric.label, used_names), *path, index)
            for index, metric in enumerate(metrics)
            if metric.enabled
        ]

    @cached_property
    def _graders(self) -> "GraderProcess":
        """Made for the first grader that is the user's code."""
        # Imported here because many runs have none.
        from holodeck.lib.evaluators.grader_process import GraderProcess  # noqa: PLC0415

        return GraderProcess()

    def _build_check(self, metric: MetricSettings, name: str, *path: str | int) -> Check:
        try:
            return self._new_check(metric, name)
        except ConfigError as error:
            if not error.field.startswith(_HERE):
                raise
            location = location_of(self._agent, *path)
            raise type(error)(error.field.replace(_HERE, location), error.message) from error

    def _new_check(self, metric: MetricSettings, name: str) -> Check:
        evaluator, trust = self._injected.get(name), None
        if evaluator is None:
            llm = judge_model_of(self._agent, metric) if needs_judge(metric) else None
            evaluator = build_evaluator(
                metric,
                self._agent.code_folders,
                location=_HERE,
                judge=None if llm is None else self.judge_with(llm),
                embeddings=self.judges.embeddings,
                graders=lambda: self._graders,
            )
            self._inputs.register(metric, evaluator)
            if evaluator.asks_judge:
                if llm is None:
                    fix = "write 'model' here or in 'evaluations'"
                    raise ConfigError(_HERE, f"{metric.label!r} needs a model that judges; {fix}")
                self.warn_of(llm)
                trust = self._trust.trust_in(metric, llm)
        return Check(
            name,
            evaluator,
            metric.threshold,
            metric.fail_on_error,
            metric.kind,
            metric.required,
            trust,
        )

    def _require_inputs(self) -> None:
        """Raise ConfigError for a metric whose case or turn lacks an input that it needs."""
        for index, case in enumerate(self._agent.test_cases or []):
            self._require_inputs_of(metrics_of(self._agent, case), case, index)
            for at, part in case.checked_turns:
                self._require_inputs_of(metrics_of_turn(part), part, index, *at)

    def _require_inputs_of(
        self, metrics: Sequence[MetricSettings], case: TurnModel, *path: str | int
    ) -> None:
        for metric in metrics:
            missing = self._inputs.describe_missing(metric, case) if metric.enabled else None
            if missing is not None:
                raise ConfigError(location_of(self._agent, "test_cases", *path), missing)


def _free_name(label: str, used: set[str]) -> str:
    """Return the label, with a number from its second use on, so that names are unique."""
    name, number = label, 1
    while name in used:
        number += 1
        name = f"{label} #{number}"
    used.add(name)
    return name
