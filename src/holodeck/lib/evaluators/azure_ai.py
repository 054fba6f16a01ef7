"""Metrics of Azure AI Evaluation: most use any judge model, those of safety a project in Azure.

The library writes the prompt and interprets the verdict. holodeck sends the prompt to the judge
with its own time limits, retries and usage meter, and checks the answer before the library does.
"""

import asyncio
import json
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, TypeVar, Unpack

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators import azure_adapter
from holodeck.lib.evaluators.azure_adapter import (
    LibraryEvaluator,
    Scale,
    credential,
    load_evaluator,
    load_safety_evaluator,
    parse_verdict,
)
from holodeck.lib.evaluators.base import (
    DEFAULT_THRESHOLD,
    BaseEvaluator,
    EvaluatorOptions,
    JudgedEvaluator,
    Observation,
    OfferedTool,
    gather_all,
)
from holodeck.lib.evaluators.inputs import Exchange, history_of
from holodeck.lib.evaluators.param_spec import EvalParam, ParamSpec
from holodeck.lib.judging.judge import JsonObject, Messages
from holodeck.lib.processes.threads import run_in_thread
from holodeck.lib.support.text import is_blank
from holodeck.models.llm import LLMProvider, ProviderEnum
from holodeck.models.metrics.azure import AzureProject
from holodeck.models.results.evidence import UNSEEN_CALLS, Unknown, unknown_reason

_RESPONSE, _QUERY = EvalParam.RESPONSE, EvalParam.QUERY
T = TypeVar("T")


class ModelConfig(LLMProvider):
    """A judge model on Azure, as `model_config` of a metric; an `LLMProvider` does the same.

    Args:
        azure_endpoint: The URL of the resource.
        api_key: The API key.
        azure_deployment: The deployment.
        api_version: The version of the API.
        settings: Further settings of an `LLMProvider`, such as `temperature`.
    """

    def __init__(
        self,
        azure_endpoint: str,
        api_key: str,
        azure_deployment: str,
        api_version: str = "2024-02-15-preview",
        **settings: Any,
    ) -> None:
        super().__init__(
            provider=ProviderEnum.AZURE_OPENAI,
            endpoint=azure_endpoint,
            api_key=api_key,
            name=azure_deployment,
            api_version=api_version,
            **settings,
        )


class AzureAIEvaluator(JudgedEvaluator):
    """Computes a metric of the library, whose scale of whole numbers becomes 0 to 1.

    An empty response gets the worst score without a request: the prompts tell the judge to skip it.
    If the judge skips any other response, that is an error.
    """

    extra = "azure"
    libraries = ("azure.ai.evaluation",)
    library_class: ClassVar[str]
    scale: ClassVar[Scale] = Scale(worst=1, best=5)
    answer_keys: ClassVar[Mapping[str, Any]] = {}
    """Properties of the judge's JSON that the prompt asks for before the reason."""
    _evaluator: LibraryEvaluator | None = None

    async def prepare(self) -> None:
        if self._evaluator is None:
            build = partial(load_evaluator, self.library_class, self._ask)
            self._evaluator = await run_in_thread(build, "holodeck-azure")

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        if _RESPONSE in self.required_params() and is_blank(kwargs[_RESPONSE]):
            return self._result(self.scale.worst, "the response is empty; the judge was not asked")
        return self._result(*await self._ask_library(kwargs, self._inputs(kwargs)))

    async def _ask_library(
        self, kwargs: Mapping[str, Any], inputs: JsonObject
    ) -> tuple[float, str]:
        """Return the score on the library's scale, and the reason. Raises EvaluationError."""
        found = await self._evaluator_for(kwargs)(**inputs)
        raw, reason = found.get(self.metric), found.get(f"{self.metric}_reason")
        if raw is None:
            raise EvaluationError(f"{self.name} got no score: {reason or 'without a reason'}")
        self.scale.score(raw)
        return raw, str(reason)

    def _evaluator_for(self, kwargs: Mapping[str, Any]) -> LibraryEvaluator:  # noqa: ARG002 - for evaluators with several prompts
        if self._evaluator is None:
            raise RuntimeError(f"{self.name}: call prepare() first")
        return self._evaluator

    def _inputs(self, kwargs: Mapping[str, Any]) -> JsonObject:
        """Return the inputs under the library's names."""
        taken = (self.PARAM_SPEC.required | self.PARAM_SPEC.optional) - {EvalParam.TURNS}
        return {name.value: kwargs[name] for name in taken if kwargs.get(name) is not None}

    async def _ask(self, prompt: Messages) -> JsonObject:
        schema = self.scale.schema(self.answer_keys)
        verdict: JsonObject = await self.judge.ask(prompt, schema, parse_verdict)
        return verdict

    def _result(self, raw: float, reason: str) -> dict[str, Any]:
        score = self.scale.score(raw)
        return {
            "score": score,
            self.metric: score,
            "raw_score": float(raw),
            "raw_scale": str(self.scale),
            "passed": score >= self.threshold,
            "reasoning": reason,
        }


class GroundednessEvaluator(AzureAIEvaluator):
    """Whether the context supports everything in the response."""

    PARAM_SPEC = ParamSpec(
        required=frozenset({_RESPONSE, EvalParam.CONTEXT}),
        optional=frozenset({_QUERY, EvalParam.TURNS}),
        uses_context=True,
    )
    metric = "groundedness"
    library_class = "GroundednessEvaluator"
    _with_query: LibraryEvaluator | None = None

    async def prepare(self) -> None:
        """Load the second prompt as well, which includes the question."""
        await super().prepare()
        if self._with_query is None:
            build = partial(load_evaluator, self.library_class, self._ask, with_query=True)
            self._with_query = await run_in_thread(build, "holodeck-azure")

    def _evaluator_for(self, kwargs: Mapping[str, Any]) -> LibraryEvaluator:
        with_query = self._with_query if kwargs.get(_QUERY) else None
        return with_query or super()._evaluator_for(kwargs)

    def _inputs(self, kwargs: Mapping[str, Any]) -> JsonObject:
        given = super()._inputs(kwargs)
        if not kwargs.get(_QUERY):
            return given
        # the library refuses some tools by their names, and omits all calls from the prompt
        turns = [replace(one, tool_calls=()) for one in kwargs.get(EvalParam.TURNS) or ()]
        return {**given, **_query({**kwargs, EvalParam.TURNS: turns})}


_WITH_HISTORY = ParamSpec(
    required=frozenset({_RESPONSE, _QUERY}), optional=frozenset({EvalParam.TURNS})
)


def _query(kwargs: Mapping[str, Any]) -> JsonObject:
    """Return the input of the user, as messages if a conversation comes before it."""
    history = history_of(kwargs.get(EvalParam.TURNS))
    text = kwargs[_QUERY]
    return {"query": azure_adapter.dialogue(history, text) if history else text}


class RelevanceEvaluator(AzureAIEvaluator):
    """Whether the response answers the question, given the conversation before it."""

    PARAM_SPEC = _WITH_HISTORY
    metric = "relevance"
    library_class = "RelevanceEvaluator"

    def _inputs(self, kwargs: Mapping[str, Any]) -> JsonObject:
        return {**super()._inputs(kwargs), **_query(kwargs)}


class CoherenceEvaluator(AzureAIEvaluator):
    """Whether the response is logically coherent."""

    PARAM_SPEC = ParamSpec(required=frozenset({_RESPONSE, _QUERY}))
    metric = "coherence"
    library_class = "CoherenceEvaluator"


class FluencyEvaluator(AzureAIEvaluator):
    """How well the response is written."""

    PARAM_SPEC = ParamSpec(required=frozenset({_RESPONSE}))
    metric = "fluency"
    library_class = "FluencyEvaluator"


class SimilarityEvaluator(AzureAIEvaluator):
    """Whether the response means the same as the ground truth."""

    PARAM_SPEC = ParamSpec(required=frozenset({_RESPONSE, _QUERY, EvalParam.GROUND_TRUTH}))
    metric = "similarity"
    library_class = "SimilarityEvaluator"


class RetrievalEvaluator(AzureAIEvaluator):
    """Whether the retrieved passages are relevant, with the best ones first."""

    PARAM_SPEC = ParamSpec(
        required=frozenset({_QUERY, EvalParam.RETRIEVAL_CONTEXT}), uses_retrieval_context=True
    )
    metric = "retrieval"
    library_class = "RetrievalEvaluator"
    answer_keys = {
        "properties": {"type": "object", "properties": {"thought_chain": {"type": "string"}}}
    }

    def _inputs(self, kwargs: Mapping[str, Any]) -> JsonObject:
        passages = json.dumps(kwargs[EvalParam.RETRIEVAL_CONTEXT], ensure_ascii=False)
        return {"query": kwargs[_QUERY], "context": passages}


class ResponseCompletenessEvaluator(AzureAIEvaluator):
    """Whether the response contains everything in the ground truth."""

    PARAM_SPEC = ParamSpec(required=frozenset({_RESPONSE, EvalParam.GROUND_TRUTH}))
    metric = "response_completeness"
    library_class = "ResponseCompletenessEvaluator"


class IntentResolutionEvaluator(AzureAIEvaluator):
    """Whether the agent understood and fulfilled the user's intent."""

    PARAM_SPEC = _WITH_HISTORY
    metric = "intent_resolution"
    library_class = "IntentResolutionEvaluator"

    def _inputs(self, kwargs: Mapping[str, Any]) -> JsonObject:
        return {
            "query": azure_adapter.dialogue(
                history_of(kwargs.get(EvalParam.TURNS)), kwargs[_QUERY]
            ),
            "response": azure_adapter.agent_messages(kwargs[_RESPONSE]),
        }


class TaskAdherenceEvaluator(AzureAIEvaluator):
    """Whether the agent did its task by its instructions; yes (1) or no (0)."""

    PARAM_SPEC = ParamSpec(required=frozenset({_RESPONSE, _QUERY}))
    metric = "task_adherence"
    library_class = "TaskAdherenceEvaluator"
    scale = Scale(worst=0, best=1)
    uses_observation = True

    def _inputs(self, kwargs: Mapping[str, Any]) -> JsonObject:
        observation: Observation = kwargs["observation"]
        rules, [*_, last] = observation.instructions, observation.exchanges
        if isinstance(observation.tool_calls, Unknown):
            # otherwise the judge would assume that no tool was called
            rules = "\n\n".join(filter(None, [rules, UNSEEN_CALLS]))
        history = azure_adapter.calls_as_text(last.history)
        return {
            "query": azure_adapter.system_message(rules)
            + azure_adapter.dialogue(history, kwargs[_QUERY]),
            "response": azure_adapter.agent_messages(
                kwargs[_RESPONSE], last.response.tool_calls or ()
            ),
        }


class ToolCallAccuracyEvaluator(AzureAIEvaluator):
    """Whether the agent called the right tools in the right way; of several turns the worst counts.

    The judge is asked once for each turn with tool calls, which it sees with the conversation up to
    the input of that turn. If the agent's tools are unknown because the agent.yaml does not list
    them, the judge sees only what the calls show of them, and the reason says so.
    """

    PARAM_SPEC = ParamSpec(required=frozenset({_QUERY}))
    metric = "tool_call_accuracy"
    library_class = "ToolCallAccuracyEvaluator"
    uses_observation = True

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        observation: Observation = kwargs["observation"]
        judged = exchanges_with_calls(observation, kwargs[_QUERY], self.name)
        offered = _none_if_unknown(observation.tools)
        found = await gather_all(
            self._ask_library(kwargs, self._inputs_of(one, offered or ()))
            for one in judged.values()
        )
        reason = found[0][1]
        if len(observation.exchanges) > 1:
            reason = "; ".join(
                f"turn {at}: {raw:g}, {why}" for at, (raw, why) in zip(judged, found, strict=True)
            )
        if offered is None:
            reason += f" ({unknown_reason('tools')}; judged by the calls alone)"
        return self._result(min(raw for raw, _ in found), reason)

    def _inputs_of(self, exchange: Exchange, offered: Sequence[OfferedTool]) -> JsonObject:
        calls = exchange.response.tool_calls or ()
        return {
            "query": azure_adapter.dialogue(exchange.history, exchange.input),
            "tool_calls": azure_adapter.tool_call_list(calls),
            "tool_definitions": azure_adapter.tool_definitions(offered, calls),
        }


def exchanges_with_calls(observation: Observation, query: str, name: str) -> dict[int, Exchange]:
    """Return the exchanges in which tools were called, by the number of their turn.

    `query` is the input of a case without turns. Raises EvaluationError if there are none.
    """
    calls = tuple(observation.tool_calls)
    if not calls:
        raise EvaluationError(f"{name} needs tool calls, and the agent called no tool")
    exchanges = observation.exchanges
    if not observation.turns:
        exchanges = [replace(exchanges[0], input=query)]
    judged = {at: one for at, one in enumerate(exchanges, 1) if one.response.tool_calls}
    if judged:
        return judged
    # the calls are of turns that an attacker has taken back
    response = replace(exchanges[-1].response, tool_calls=calls)
    return {len(exchanges): replace(exchanges[-1], response=response)}


def _none_if_unknown(values: Sequence[T] | Unknown) -> Sequence[T] | None:
    """Return the observed values; None if they are unknown."""
    return None if isinstance(values, Unknown) else values


SEVERITY = Scale(worst=7, best=0)
_ADVICE = (
    "write 'azure_ai_project: https://<resource>.services.ai.azure.com/api/projects/<project>'"
)

Service = Callable[..., Mapping[str, Any]]


class ProjectEvaluator(BaseEvaluator):
    """Computes a metric by a project in Azure.

    The account that is signed in to Azure where the tests run must have the role "Azure AI User" in
    the project.

    Args:
        azure_ai_project: The URL of the project, or the three names of a hub-based one.
        threshold: Score from 0 to 1 to reach; of a severity, 0.5 allows 3 (low).
        credential: The Azure credential; taken from the environment by default.
        options: `timeout` and `retry_config`.

    Raises:
        ConfigError: There is no project.
    """

    extra = "azure"
    libraries = ("azure.ai.evaluation",)
    PARAM_SPEC = ParamSpec(
        required=frozenset({EvalParam.RESPONSE}), optional=frozenset({EvalParam.QUERY})
    )

    def __init__(
        self,
        azure_ai_project: str | AzureProject | None = None,
        *,
        threshold: float = DEFAULT_THRESHOLD,
        credential: Any = None,
        **options: Unpack[EvaluatorOptions],
    ) -> None:
        super().__init__(**options)
        self.threshold = threshold
        self._project = library_project(azure_ai_project, self.metric)
        self._credential = credential
        self._services: dict[str, Service] = {}

    async def prepare(self) -> None:
        if not self._services:
            self._services = await run_in_thread(self._load_services, "holodeck-azure")

    @abstractmethod
    def _load_services(self) -> dict[str, Service]:
        """Return the library's evaluators; may block."""

    def _access(self) -> tuple[str | Mapping[str, str], Any]:
        """Return the project and the credential for it."""
        return self._project, self._credential or credential()


class SafetyEvaluator(ProjectEvaluator):
    """How harmless a response is: 1 - severity / 7 of the worst kind of harm found."""

    harms: ClassVar[Mapping[str, str]]
    """Each kind of harm and the library's class for it."""

    def _load_services(self) -> dict[str, Service]:
        access = self._access()
        return {harm: load_safety_evaluator(name, *access) for harm, name in self.harms.items()}

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        text = {"query": kwargs.get("query") or "", "response": kwargs["response"]}
        calls = [partial(one, **text) for one in self._services.values()]
        results = await asyncio.gather(*(run_in_thread(call, "holodeck-azure") for call in calls))
        found = {harm: _severity(harm, one) for harm, one in zip(self.harms, results, strict=True)}
        worst = max(severity for severity, _ in found.values())
        score = SEVERITY.score(worst)
        return {
            "score": score,
            self.metric: score,
            "raw_score": worst,
            "raw_scale": str(SEVERITY),
            "scale": "0-1, 1 is good",
            "passed": score >= self.threshold,
            "reasoning": "; ".join(f"{harm} {raw:g}: {why}" for harm, (raw, why) in found.items()),
        }


def _severity(harm: str, result: Mapping[str, Any]) -> tuple[float, str]:
    """Return the severity and its reason.

    A severity without a reason is an error: the library reports 0 (harmless) for a reply that has
    no severity.
    """
    raw, reason = result.get(f"{harm}_score"), result.get(f"{harm}_reason")
    if raw is None or not reason:
        raise EvaluationError(f"the project in Azure returned no severity of {harm}, or no reason")
    SEVERITY.score(raw)
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


class ViolenceEvaluator(SafetyEvaluator):
    """Violence in the response."""

    metric = "violence"
    harms = {"violence": "ViolenceEvaluator"}


class SexualEvaluator(SafetyEvaluator):
    """Sexual content in the response."""

    metric = "sexual"
    harms = {"sexual": "SexualEvaluator"}


class SelfHarmEvaluator(SafetyEvaluator):
    """Self-harm in the response."""

    metric = "self_harm"
    harms = {"self_harm": "SelfHarmEvaluator"}


class HateUnfairnessEvaluator(SafetyEvaluator):
    """Hate and unfairness in the response."""

    metric = "hate_unfairness"
    harms = {"hate_unfairness": "HateUnfairnessEvaluator"}


class ContentSafetyEvaluator(SafetyEvaluator):
    """All four kinds of harm; the worst one counts."""

    metric = "safety"
    harms = {
        **ViolenceEvaluator.harms,
        **SexualEvaluator.harms,
        **SelfHarmEvaluator.harms,
        **HateUnfairnessEvaluator.harms,
    }
