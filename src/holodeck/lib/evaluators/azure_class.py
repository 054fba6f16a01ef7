"""Evaluator classes in the shape of Azure AI Evaluation: `class:` of `type: azure`."""

import inspect
import math
import typing
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators import azure_adapter as adapter
from holodeck.lib.evaluators.azure_adapter import JudgedPrompt, Scale
from holodeck.lib.evaluators.azure_ai import AzureAIEvaluator
from holodeck.lib.evaluators.base import BUILT_IN, Score, to_python
from holodeck.lib.evaluators.class_evaluator import (
    ClassEvaluator,
    check_arguments,
    named_parameters,
)
from holodeck.lib.evaluators.param_spec import EvalParam, takes
from holodeck.lib.llm.json_answer import parse_json_answer
from holodeck.lib.processes.threads import call_user_function
from holodeck.lib.support.text import describe, did_you_mean_or_list, one_line
from holodeck.lib.user_code.code_root import CodeFolders
from holodeck.lib.user_code.registry import load_attribute
from holodeck.models.cases.messages import Message
from holodeck.models.metrics.azure import AzureClassMetric

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
