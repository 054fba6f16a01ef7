"""Metrics of Azure AI Evaluation, answered by any model that can judge.

The library words the question and reads the verdict; the judge is asked by holodeck, with its time
limits, retries and counts, and what it answers is checked before the library sees it.
"""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, ClassVar, TypeVar

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.azure import messages
from holodeck.lib.evaluators.azure.adapter import Grader, load_evaluator
from holodeck.lib.evaluators.azure.prompt import JsonObject, Messages
from holodeck.lib.evaluators.azure.verdict import Scale, parse_verdict
from holodeck.lib.evaluators.base import Observation
from holodeck.lib.evaluators.judged import JudgedEvaluator
from holodeck.lib.evaluators.param_spec import EvalParam, ParamSpec
from holodeck.lib.threads import run_in_thread
from holodeck.models.evidence import UNSEEN_CALLS, Unknown, unknown_reason

_RESPONSE, _QUERY = EvalParam.RESPONSE, EvalParam.QUERY
T = TypeVar("T")


class AzureEvaluator(JudgedEvaluator):
    """A metric of the library, on a scale of whole numbers that becomes 0 to 1.

    An empty answer gets the worst score, and nobody is asked about it: the prompts tell the judge
    to skip such a case. A judge that skips another one gives an error.
    """

    metric: ClassVar[str]
    library_class: ClassVar[str]
    scale: ClassVar[Scale] = Scale(worst=1, best=5)
    answer_keys: ClassVar[Mapping[str, Any]] = {}
    """What the prompt wants written before the reason."""
    _grader: Grader | None = None

    async def prepare(self) -> None:
        """Import the library and read the prompt."""
        if self._grader is None:
            build = partial(load_evaluator, self.library_class, self._ask)
            self._grader = await run_in_thread(build, "holodeck-azure")

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        if _RESPONSE in self.required_params() and not kwargs[_RESPONSE].strip():
            return self._row(self.scale.worst, "the answer is empty; the judge was not asked")
        found = await self._grader_for(kwargs)(**self._inputs(kwargs))
        raw, reason = found.get(self.metric), found.get(f"{self.metric}_reason")
        if raw is None:
            raise EvaluationError(f"{self.name} got no score: {reason or 'no reason was given'}")
        return self._row(raw, str(reason))

    def _grader_for(self, kwargs: Mapping[str, Any]) -> Grader:  # noqa: ARG002 - for those with several prompts
        if self._grader is None:
            raise RuntimeError(f"{self.name}: prepare() comes first")
        return self._grader

    def _inputs(self, kwargs: Mapping[str, Any]) -> JsonObject:
        """The inputs under the library's names."""
        taken = self.PARAM_SPEC.required | self.PARAM_SPEC.optional
        return {name.value: kwargs[name] for name in taken if kwargs.get(name) is not None}

    async def _ask(self, prompt: Messages) -> JsonObject:
        schema = self.scale.schema(self.answer_keys)
        verdict: JsonObject = await self.judge.ask(prompt, schema, parse_verdict)
        return verdict

    def _row(self, raw: float, reason: str) -> dict[str, Any]:
        score = self.scale.score(raw)
        return {
            "score": score,
            self.metric: score,
            "raw_score": float(raw),
            "raw_scale": str(self.scale),
            "passed": score >= self.threshold,
            "reasoning": reason,
        }


class GroundednessEvaluator(AzureEvaluator):
    """Whether the answer says nothing but what the context supports."""

    PARAM_SPEC = ParamSpec(
        required=frozenset({_RESPONSE, EvalParam.CONTEXT}),
        optional=frozenset({_QUERY}),
        uses_context=True,
    )
    metric = "groundedness"
    library_class = "GroundednessEvaluator"
    _with_query: Grader | None = None

    async def prepare(self) -> None:
        """Read the second prompt, too: the one that also shows the question."""
        await super().prepare()
        if self._with_query is None:
            build = partial(load_evaluator, self.library_class, self._ask, with_query=True)
            self._with_query = await run_in_thread(build, "holodeck-azure")

    def _grader_for(self, kwargs: Mapping[str, Any]) -> Grader:
        with_query = self._with_query if kwargs.get(_QUERY) else None
        return with_query or super()._grader_for(kwargs)


class RelevanceEvaluator(AzureEvaluator):
    """Whether the answer answers the question."""

    PARAM_SPEC = ParamSpec(required=frozenset({_RESPONSE, _QUERY}))
    metric = "relevance"
    library_class = "RelevanceEvaluator"


class CoherenceEvaluator(AzureEvaluator):
    """Whether the thoughts of the answer follow from each other."""

    PARAM_SPEC = ParamSpec(required=frozenset({_RESPONSE, _QUERY}))
    metric = "coherence"
    library_class = "CoherenceEvaluator"


class FluencyEvaluator(AzureEvaluator):
    """How well the answer is written."""

    PARAM_SPEC = ParamSpec(required=frozenset({_RESPONSE}))
    metric = "fluency"
    library_class = "FluencyEvaluator"


class SimilarityEvaluator(AzureEvaluator):
    """Whether the answer says the same as the right one."""

    PARAM_SPEC = ParamSpec(required=frozenset({_RESPONSE, _QUERY, EvalParam.GROUND_TRUTH}))
    metric = "similarity"
    library_class = "SimilarityEvaluator"


class RetrievalEvaluator(AzureEvaluator):
    """Whether what was retrieved helps with the question, the best of it first."""

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


class ResponseCompletenessEvaluator(AzureEvaluator):
    """Whether the answer says everything that the right one says."""

    PARAM_SPEC = ParamSpec(required=frozenset({_RESPONSE, EvalParam.GROUND_TRUTH}))
    metric = "response_completeness"
    library_class = "ResponseCompletenessEvaluator"


class IntentResolutionEvaluator(AzureEvaluator):
    """Whether the agent understood what the user wanted, and did it."""

    PARAM_SPEC = ParamSpec(required=frozenset({_RESPONSE, _QUERY}))
    metric = "intent_resolution"
    library_class = "IntentResolutionEvaluator"

    def _inputs(self, kwargs: Mapping[str, Any]) -> JsonObject:
        return {
            "query": messages.user_message(kwargs[_QUERY]),
            "response": messages.agent_messages(kwargs[_RESPONSE]),
        }


class TaskAdherenceEvaluator(AzureEvaluator):
    """Whether the agent did what it was told, by the rules; yes (1) or no (0)."""

    PARAM_SPEC = ParamSpec(required=frozenset({_RESPONSE, _QUERY}))
    metric = "task_adherence"
    library_class = "TaskAdherenceEvaluator"
    scale = Scale(worst=0, best=1)
    uses_observation = True

    def _inputs(self, kwargs: Mapping[str, Any]) -> JsonObject:
        seen: Observation = kwargs["observation"]
        calls, rules = _known(seen.tool_calls), seen.instructions
        if calls is None:  # the judge would believe that no tool was called
            rules = "\n\n".join(filter(None, [rules, UNSEEN_CALLS]))
        return {
            "query": messages.system_message(rules) + messages.user_message(kwargs[_QUERY]),
            "response": messages.agent_messages(kwargs[_RESPONSE], calls or ()),
        }


class ToolCallAccuracyEvaluator(AzureEvaluator):
    """Whether the agent called the right tools in the right way.

    If the agent's tools are unknown, as they are not in the agent.yaml, the judge is given what the
    calls show of them, and the reason says so.
    """

    PARAM_SPEC = ParamSpec(required=frozenset({_QUERY}))
    metric = "tool_call_accuracy"
    library_class = "ToolCallAccuracyEvaluator"
    uses_observation = True

    def _inputs(self, kwargs: Mapping[str, Any]) -> JsonObject:
        seen: Observation = kwargs["observation"]
        calls = tuple(seen.tool_calls)
        if not calls:
            raise EvaluationError(f"{self.name} needs tool calls, and the agent called no tool")
        return {
            "query": messages.user_message(kwargs[_QUERY]),
            "tool_calls": messages.tool_call_list(calls),
            "tool_definitions": messages.tool_definitions(_known(seen.tools) or (), calls),
        }

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        row = await super()._evaluate_impl(**kwargs)
        if _known(kwargs["observation"].tools) is None:
            row["reasoning"] += f" ({unknown_reason('tools')}; judged by the calls alone)"
        return row


def _known(seen: Sequence[T] | Unknown) -> Sequence[T] | None:
    """Return what was seen; None if it is unknown."""
    return None if isinstance(seen, Unknown) else seen
