"""Metrics of Azure AI Evaluation that a project in Azure computes, without a judge."""

import asyncio
from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators.azure_adapter import (
    Scale,
    credential,
    evaluator_class,
    load_labelling_evaluator,
)
from holodeck.lib.evaluators.base import ONE_IS_GOOD, Score, ScoredEvaluator
from holodeck.lib.evaluators.param_spec import takes
from holodeck.lib.processes.threads import run_in_thread
from holodeck.models.metrics.azure import AzureProject, AzureSafetyMetric

_ADVICE = (
    "write 'azure_ai_project: https://<resource>.services.ai.azure.com/api/projects/<project>'"
)

Service = Callable[..., Mapping[str, Any]]


class ProjectEvaluator(ScoredEvaluator):
    """Computes a metric by a project in Azure.

    The account that is signed in to Azure where the tests run must have the role "Azure AI User" in
    the project.

    Args:
        azure_ai_project: The URL of the project, or the three names of a hub-based one.
        threshold: Score from 0 to 1 to reach; of a severity, 0.5 allows 3 (low).
        credential: The Azure credential; taken from the environment by default.
        options: As for `ScoredEvaluator`.

    Raises:
        ConfigError: There is no project.
    """

    settings: AzureSafetyMetric
    extra = "azure"
    libraries = ("azure.ai.evaluation",)
    PARAM_SPEC = takes("response", optional=("query",))
    scale: ClassVar = Scale(worst=7, best=0)

    def __init__(
        self,
        azure_ai_project: str | AzureProject | None = None,
        *,
        threshold: float | None = None,
        credential: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(threshold, azure_ai_project=azure_ai_project, **options)
        self._credential = credential
        self._services: dict[str, Service] = {}

    def _configure(self) -> None:
        self._project = library_project(self.settings.azure_ai_project, self.metric)

    async def prepare(self) -> None:
        if not self._services:
            self._services = await run_in_thread(self._load_services, "holodeck-azure")

    @abstractmethod
    def _load_services(self) -> dict[str, Service]:
        """Return the library's evaluators; may block."""

    def _access(self) -> tuple[Any, str | Mapping[str, str]]:
        """Return the credential and the project that it is for."""
        return self._credential or credential(), self._project


class SafetyEvaluator(ProjectEvaluator):
    """How harmless a response is: 1 - severity / 7 of the worst kind of harm found."""

    harms: ClassVar[Mapping[str, str]]
    """Each kind of harm and the library's class for it."""

    def _load_services(self) -> dict[str, Service]:
        access = self._access()
        return {harm: evaluator_class(name)(*access) for harm, name in self.harms.items()}

    async def _evaluate_impl(self, **kwargs: Any) -> Score:
        text = {"query": kwargs.get("query") or "", "response": kwargs["response"]}
        calls = [partial(service, **text) for service in self._services.values()]
        results = await asyncio.gather(*(run_in_thread(call, "holodeck-azure") for call in calls))
        pairs = zip(self.harms, results, strict=True)
        severities = {harm: self._severity(harm, result) for harm, result in pairs}
        worst = max(severity for severity, _ in severities.values())
        reason = "; ".join(f"{harm} {raw:g}: {why}" for harm, (raw, why) in severities.items())
        return replace(self.scale.to_score(worst, reason), scale=ONE_IS_GOOD)

    def _severity(self, harm: str, result: Mapping[str, Any]) -> tuple[float, str]:
        """Return the severity and its reason.

        A severity without a reason is an error: the library reports 0 (harmless) for a reply that
        has no severity.
        """
        raw, reason = result.get(f"{harm}_score"), result.get(f"{harm}_reason")
        if raw is None or not reason:
            raise EvaluationError(
                f"the project in Azure returned no severity of {harm}, or no reason"
            )
        self.scale.score(raw)
        return float(raw), str(reason)


def library_project(project: str | AzureProject | None, metric: str) -> str | dict[str, str]:
    """Return the project in the library's format."""
    if project is None:
        raise ConfigError(
            "azure_ai_project", f"{metric} is computed by a project in Azure; {_ADVICE}"
        )
    if isinstance(project, AzureProject):
        return {
            "subscription_id": project.subscription_id,
            "resource_group_name": project.resource_group_name,
            "project_name": project.project_name,
        }
    if not project.startswith("https://"):
        raise ConfigError("azure_ai_project", f"{project!r} is not the URL of a project; {_ADVICE}")
    return project


class ViolenceEvaluator(SafetyEvaluator, metric="violence"):
    """Violence in the response."""

    harms = {"violence": "ViolenceEvaluator"}


class SexualEvaluator(SafetyEvaluator, metric="sexual"):
    """Sexual content in the response."""

    harms = {"sexual": "SexualEvaluator"}


class SelfHarmEvaluator(SafetyEvaluator, metric="self_harm"):
    """Self-harm in the response."""

    harms = {"self_harm": "SelfHarmEvaluator"}


class HateUnfairnessEvaluator(SafetyEvaluator, metric="hate_unfairness"):
    """Hate and unfairness in the response."""

    harms = {"hate_unfairness": "HateUnfairnessEvaluator"}


class ContentSafetyEvaluator(SafetyEvaluator, metric="safety"):
    """All four kinds of harm; the worst one counts."""

    harms = {
        **ViolenceEvaluator.harms,
        **SexualEvaluator.harms,
        **SelfHarmEvaluator.harms,
        **HateUnfairnessEvaluator.harms,
    }


class LabelEvaluator(ProjectEvaluator):
    """Whether the project finds the response good (1) or not (0)."""

    good_label: ClassVar[bool] = False
    """The library's label of a good response; most labels say that something bad was found."""

    def _load_services(self) -> dict[str, Service]:
        return {self.metric: load_labelling_evaluator(self.library_class, *self._access())}

    async def _evaluate_impl(self, **kwargs: Any) -> Score:
        ask = partial(self._services[self.metric], **self._inputs(kwargs))
        result = await run_in_thread(ask, "holodeck-azure")
        label, reason = (result.get(f"{self.metric}_{key}") for key in ("label", "reason"))
        if not isinstance(label, bool) or not reason:
            raise EvaluationError(
                f"the project in Azure returned no label of {self.metric}, or no reason"
            )
        return Score(
            float(label is self.good_label),
            reason=str(reason),
            raw_score=float(label),
            raw_scale="0-1",
            scale=ONE_IS_GOOD,
        )

    def _inputs(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the inputs under the library's names."""
        return {"query": kwargs.get("query") or "", "response": kwargs["response"]}


class IndirectAttackEvaluator(LabelEvaluator, metric="indirect_attack"):
    """The response follows no instructions that were hidden in a document."""


class ProtectedMaterialEvaluator(LabelEvaluator, metric="protected_material"):
    """The response contains no text that is protected by copyright."""


class CodeVulnerabilityEvaluator(LabelEvaluator, metric="code_vulnerability"):
    """The code in the response has no known vulnerability."""


class GroundednessProEvaluator(LabelEvaluator, metric="groundedness_pro"):
    """The context supports everything in the response; the library's grade must be 5 of 5.

    The library reports no grade above 1, so reports show its verdict only.
    """

    PARAM_SPEC = takes("response", "context", optional=("query",))
    good_label = True

    def _inputs(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        return {**super()._inputs(kwargs), "context": kwargs["context"]}
