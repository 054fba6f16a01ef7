"""Metrics of Azure AI Evaluation that use any judge model, and classes in their shape.

The library writes the prompt and interprets the verdict. holodeck sends the prompt to the judge
with its own time limits, retries and usage meter, and checks the answer before the library does.
"""

import inspect
import json
import math
import typing
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators import azure_adapter as adapter
from holodeck.lib.evaluators.azure_adapter import (
    JudgedPrompt,
    LibraryEvaluator,
    Scale,
    load_evaluator,
    parse_verdict,
)
from holodeck.lib.evaluators.base import (
    BUILT_IN,
    JudgedEvaluator,
    Observation,
    OfferedTool,
    Score,
    to_python,
)
from holodeck.lib.evaluators.class_evaluator import (
    ClassEvaluator,
    check_arguments,
    named_parameters,
)
from holodeck.lib.evaluators.inputs import Exchange, history_of
from holodeck.lib.evaluators.param_spec import EvalParam, takes
from holodeck.lib.judging.judge import JsonObject
from holodeck.lib.llm.json_answer import parse_json_answer
from holodeck.lib.processes.threads import call_user_function, gather_all, run_in_thread
from holodeck.lib.support.text import describe, did_you_mean_or_list, is_blank, one_line
from holodeck.lib.user_code.code_root import CodeFolders
from holodeck.lib.user_code.registry import load_attribute
from holodeck.models.cases.messages import Message
from holodeck.models.llm import LLMProvider, ProviderEnum
from holodeck.models.metrics.azure import AzureClassMetric
from holodeck.models.results.evidence import UNSEEN_CALLS, Unknown, unknown_reason

_RESPONSE, _QUERY = EvalParam.RESPONSE, EvalParam.QUERY
EMPTY = "the response is empty; the judge was not asked"


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
    scale: ClassVar[Scale] = Scale(worst=1, best=5)
    answer_keys: ClassVar[Mapping[str, Any]] = {}
    """Properties of the judge's JSON that the prompt asks for before the reason."""
    _evaluator: LibraryEvaluator | None = None

    async def prepare(self) -> None:
        if self._evaluator is None:
            build = partial(load_evaluator, self.library_class, self._ask)
            self._evaluator = await run_in_thread(build, "holodeck-azure")

    async def _evaluate_impl(self, **kwargs: Any) -> Score:
        if _RESPONSE in self.required_params() and is_blank(kwargs[_RESPONSE]):
            return self.scale.to_score(self.scale.worst, EMPTY)
        return self.scale.to_score(*await self._ask_library(kwargs, self._inputs(kwargs)))

    async def _ask_library(
        self, kwargs: Mapping[str, Any], inputs: JsonObject
    ) -> tuple[float, str]:
        """Return the score on the library's scale, and the reason. Raises EvaluationError."""
        result = await self._evaluator_for(kwargs)(**inputs)
        raw, reason = result.get(self.metric), result.get(f"{self.metric}_reason")
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

    async def _ask(self, prompt: Sequence[Message]) -> JsonObject:
        schema = self.scale.schema(self.answer_keys)
        verdict: JsonObject = await self.judge.ask(prompt, schema, parse_verdict)
        return verdict


class GroundednessEvaluator(AzureAIEvaluator, metric="groundedness"):
    """Whether the context supports everything in the response."""

    PARAM_SPEC = takes("response", "context", optional=("query", "turns"))
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
        inputs = super()._inputs(kwargs)
        if not kwargs.get(_QUERY):
            return inputs
        # the library refuses some tools by their names, and omits all calls from the prompt
        turns = [replace(turn, tool_calls=()) for turn in kwargs.get(EvalParam.TURNS) or ()]
        return {**inputs, **_query({**kwargs, EvalParam.TURNS: turns})}


_WITH_HISTORY = takes("response", "query", optional=("turns",))


def _query(kwargs: Mapping[str, Any]) -> JsonObject:
    """Return the input of the user, as messages if a conversation comes before it."""
    history = history_of(kwargs.get(EvalParam.TURNS))
    text = kwargs[_QUERY]
    return {"query": adapter.dialogue(history, text) if history else text}


class RelevanceEvaluator(AzureAIEvaluator, metric="relevance"):
    """Whether the response answers the question, given the conversation before it."""

    PARAM_SPEC = _WITH_HISTORY

    def _inputs(self, kwargs: Mapping[str, Any]) -> JsonObject:
        return {**super()._inputs(kwargs), **_query(kwargs)}


class CoherenceEvaluator(AzureAIEvaluator, metric="coherence"):
    """Whether the response is logically coherent."""

    PARAM_SPEC = takes("response", "query")


class FluencyEvaluator(AzureAIEvaluator, metric="fluency"):
    """How well the response is written."""

    PARAM_SPEC = takes("response")


class SimilarityEvaluator(AzureAIEvaluator, metric="similarity"):
    """Whether the response means the same as the ground truth."""

    PARAM_SPEC = takes("response", "query", "ground_truth")


class RetrievalEvaluator(AzureAIEvaluator, metric="retrieval"):
    """Whether the retrieved passages are relevant, with the best ones first."""

    PARAM_SPEC = takes("query", "retrieval_context")
    answer_keys = {
        "properties": {"type": "object", "properties": {"thought_chain": {"type": "string"}}}
    }

    def _inputs(self, kwargs: Mapping[str, Any]) -> JsonObject:
        passages = json.dumps(kwargs[EvalParam.RETRIEVAL_CONTEXT], ensure_ascii=False)
        return {"query": kwargs[_QUERY], "context": passages}


class ResponseCompletenessEvaluator(AzureAIEvaluator, metric="response_completeness"):
    """Whether the response contains everything in the ground truth."""

    PARAM_SPEC = takes("response", "ground_truth")


class IntentResolutionEvaluator(AzureAIEvaluator, metric="intent_resolution"):
    """Whether the agent understood and fulfilled the user's intent."""

    PARAM_SPEC = _WITH_HISTORY

    def _inputs(self, kwargs: Mapping[str, Any]) -> JsonObject:
        return {
            "query": adapter.dialogue(history_of(kwargs.get(EvalParam.TURNS)), kwargs[_QUERY]),
            "response": adapter.agent_messages(kwargs[_RESPONSE]),
        }


class TaskAdherenceEvaluator(AzureAIEvaluator, metric="task_adherence"):
    """Whether the agent did its task by its instructions; yes (1) or no (0)."""

    PARAM_SPEC = takes("response", "query")
    scale = Scale(worst=0, best=1)
    uses_observation = True

    def _inputs(self, kwargs: Mapping[str, Any]) -> JsonObject:
        observation: Observation = kwargs["observation"]
        rules, [*_, last] = observation.instructions, observation.exchanges
        if isinstance(observation.tool_calls, Unknown):
            # otherwise the judge would assume that no tool was called
            rules = "\n\n".join(filter(None, [rules, UNSEEN_CALLS]))
        history = adapter.calls_as_text(last.history)
        return {
            "query": adapter.system_message(rules) + adapter.dialogue(history, kwargs[_QUERY]),
            "response": adapter.agent_messages(kwargs[_RESPONSE], last.response.tool_calls or ()),
        }


class ToolCallAccuracyEvaluator(AzureAIEvaluator, metric="tool_call_accuracy"):
    """Whether the agent called the right tools in the right way; of several turns the worst counts.

    The judge is asked once for each turn with tool calls, which it sees with the conversation up to
    the input of that turn. If the agent's tools are unknown because the agent.yaml does not list
    them, the judge sees only what the calls show of them, and the reason says so.
    """

    PARAM_SPEC = takes("query")
    uses_observation = True

    async def _evaluate_impl(self, **kwargs: Any) -> Score:
        observation: Observation = kwargs["observation"]
        exchanges = exchanges_with_calls(observation, kwargs[_QUERY], self.name)
        offered = None if isinstance(observation.tools, Unknown) else observation.tools
        verdicts = await gather_all(
            self._ask_library(kwargs, self._inputs_of(exchange, offered or ()))
            for exchange in exchanges.values()
        )
        reason = verdicts[0][1]
        if len(observation.exchanges) > 1:
            turns = zip(exchanges, verdicts, strict=True)
            reason = "; ".join(f"turn {number}: {raw:g}, {why}" for number, (raw, why) in turns)
        if offered is None:
            reason += f" ({unknown_reason('tools')}; judged by the calls alone)"
        return self.scale.to_score(min(raw for raw, _ in verdicts), reason)

    def _inputs_of(self, exchange: Exchange, offered: Sequence[OfferedTool]) -> JsonObject:
        calls = exchange.response.tool_calls or ()
        return {
            "query": adapter.dialogue(exchange.history, exchange.input),
            "tool_calls": adapter.tool_call_list(calls),
            "tool_definitions": adapter.tool_definitions(offered, calls),
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
    numbered = enumerate(exchanges, 1)
    with_calls = {number: item for number, item in numbered if item.response.tool_calls}
    if with_calls:
        return with_calls
    # the calls are of turns that an attacker has taken back
    response = replace(exchanges[-1].response, tool_calls=calls)
    return {len(exchanges): replace(exchanges[-1], response=response)}


_SET_BY_US = {
    "model_config": "write 'model' beside 'class'",
    "credential": "call what asks a project in Azure in 'type: code'",
    "threshold": "write 'threshold' beside 'class', from 0 to 1",
}
_INPUTS = ("query", "response", "context", "ground_truth")
"""The inputs that a run records as texts."""
_ABOUT_A_SCORE = (
    *("_result", "_passed", "_threshold", "_reason", "_status", "_properties", "_details"),
    *("_tokens", "_finish_reason", "_model", "_sample_input", "_sample_output"),
)
"""The ends of the keys that belong to a score and are none."""


class AzureClassEvaluator(ClassEvaluator, metric="azure class"):
    """Computes a class of Azure AI Evaluation, or a class of the user in its shape.

    Inputs are the parameters of `__call__`, or of the first of its overloads that a run can fill.
    The prompt of a class that derives from the library's base for prompts is sent to our judge.
    """

    settings: AzureClassMetric
    extra = "azure"
    libraries = ("azure.ai.evaluation",)
    PARAM_SPEC = takes(optional=_INPUTS)

    def _configure(self) -> None:
        settings, (known, prompting) = self.settings, adapter.library_classes()
        self._class = _find_class(settings.class_, self._base_dir, known)
        self._inputs = _inputs_of(self._class)
        self._scale = Scale(*settings.scale)
        check_arguments(self._class, settings.args, _SET_BY_US)
        self._evaluator = self._instance(prompting)

    @property
    def asks_judge(self) -> bool:
        return "model_config" in named_parameters(self._class)

    def required_params(self) -> frozenset[EvalParam]:
        return frozenset(EvalParam(name) for name, required in self._inputs.items() if required)

    def _instance(self, prompting: type[Any]) -> Any:
        """Return an object of the class whose prompt our judge answers. Raises ConfigError."""
        if self.asks_judge and not issubclass(self._class, prompting):
            raise ConfigError(
                "class",
                f"{self.name} takes 'model_config' and has no prompt of the library for which"
                " holodeck can lend its judge; write 'type: code' with 'judge: true'",
            )
        ours = {"model_config": adapter.UNUSED_ENDPOINT} if self.asks_judge else {}
        try:
            evaluator = self._class(**self.settings.args, **ours)
        except Exception as error:
            raise ConfigError("args", f"{self.name} refuses them: {describe(error)}") from error
        if not self.asks_judge:
            return evaluator
        evaluator._flow = JudgedPrompt(evaluator._flow, self._ask)  # noqa: SLF001 - see docs/decisions
        return evaluator._to_async()  # noqa: SLF001 - the way its batches call it

    async def _ask(self, prompt: Sequence[Message]) -> Any:
        text = (await self.judge.ask_for_text(prompt)).text
        try:
            answer = parse_json_answer(text)
        except ValueError:
            answer = None
        if isinstance(answer, dict) and "score" in answer:
            return answer
        # of any other text, the library would take the first digit for the score
        raise EvaluationError(
            f"the judge answered {self.name} without a score: {one_line(text, 160)!r}"
        )

    async def _evaluate_impl(self, **kwargs: Any) -> Score:
        values = {name: kwargs.get(name) for name in self._inputs}
        inputs = {name: value for name, value in values.items() if value is not None}
        result = await call_user_function(partial(self._evaluator, **inputs), self._evaluator)
        key = _key_of_score(result, self.settings.score_key, self.name)
        raw, reason = to_python(result[key]), str(_beside(result, key, "reason") or "")
        label = str(_beside(result, key, "result")).lower()
        is_void = label in {"not_applicable", "not applicable", "unknown"}
        is_skipped = _beside(result, key, "status") not in {None, "completed"}
        if raw is None or is_void or is_skipped or (isinstance(raw, float) and math.isnan(raw)):
            raise EvaluationError(f"{self.name} got no score: {reason or 'it gives no reason'}")
        if isinstance(raw, bool) and {self._scale.worst, self._scale.best} == {0, 1}:
            raw = int(raw)
        is_refused = label == "fail" or to_python(_beside(result, key, "passed")) is False
        return replace(self._scale.to_score(raw, reason), passed=False if is_refused else None)


def _find_class(
    name: str, base_dir: CodeFolders | None, known: Mapping[str, type[Any]]
) -> type[Any]:
    """Return the evaluator class. Raises ConfigError."""
    if ":" in name:
        value = load_attribute(name, base_dir, location="class")
        if not isinstance(value, type) or not inspect.isfunction(value.__call__):
            raise ConfigError("class", f"{name!r} is not a class whose objects can be called")
        return value
    short = name.rpartition(".")[2]
    named = {
        evaluator.__name__: evaluator.metric
        for evaluator in BUILT_IN.values()
        if issubclass(evaluator, AzureAIEvaluator)
    }
    if short in named:
        raise ConfigError("class", f"{short} has a name; write 'metric: {named[short]}' instead")
    if short not in known:
        hint = did_you_mean_or_list(short, known.keys() - named.keys())
        raise ConfigError("class", f"Azure AI Evaluation has no evaluator class {short!r}{hint}")
    return known[short]


def _inputs_of(evaluator_class: type[Any]) -> dict[str, bool]:
    """Return the inputs that the class reads, and whether it requires them.

    Of several overloads it is the first whose inputs a run records. Raises ConfigError.
    """
    name, call = evaluator_class.__name__, evaluator_class.__call__
    unknown: list[str] = []
    for signature in typing.get_overloads(call) or [call]:
        _self, *parameters = named_parameters(signature).values()
        required = {item.name: item.default is inspect.Parameter.empty for item in parameters}
        missing = [key for key in required if required[key] and key not in _INPUTS]
        if not missing and not required.keys().isdisjoint(_INPUTS):
            return {key: required[key] for key in _INPUTS if key in required}
        unknown += missing
    if unknown:
        raise ConfigError(
            "class",
            f"{name} reads {', '.join(dict.fromkeys(unknown))}, which a run does not give it;"
            f" known: {', '.join(_INPUTS)}. Write 'type: code' for anything else",
        )
    raise ConfigError(
        "class",
        f"{name}.__call__ names no input; write for example"
        " 'def __call__(self, *, query: str, response: str)'",
    )


def _key_of_score(result: Any, wanted: str | None, name: str) -> str:
    """Return the key of the score. Raises EvaluationError."""
    shown = one_line(repr(result), 160)
    if not isinstance(result, Mapping):
        raise EvaluationError(f"{name} returned {shown}; it must return a mapping")
    keys = [
        key
        for key, value in result.items()
        if isinstance(key, str)
        and not key.endswith(_ABOUT_A_SCORE)
        and (value is None or isinstance(to_python(value), bool | int | float))
    ]
    # the library repeats each score under older names
    older = {text for key in keys for text in (f"gpt_{key}", f"{key}_score", f"gpt_{key}_score")}
    keys = [key for key in keys if key not in older] if wanted is None else keys
    if wanted in keys or (len(keys) == 1 and wanted is None):
        return wanted or keys[0]
    if not keys:
        raise EvaluationError(f"{name} returned no score; its result is {shown}")
    choice = f"write 'score_key' with one of {', '.join(keys)}"
    several = "several scores" if wanted is None else f"no score {wanted!r}"
    raise EvaluationError(f"{name} returned {several}; {choice}")


def _beside(result: Mapping[str, Any], key: str, what: str) -> Any:
    """Return what belongs to a score, such as `fluency_reason` beside `fluency_score`."""
    stems = (key, key.removesuffix("_score"), key.removesuffix("_label"))
    values = (result.get(f"{stem}_{what}") for stem in stems)
    return next((value for value in values if value is not None), None)
