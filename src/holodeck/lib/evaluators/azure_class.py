"""Evaluator classes in the shape of Azure AI Evaluation: `class:` of `type: azure`."""

import inspect
import math
import typing
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators import azure_ai
from holodeck.lib.evaluators.azure import adapter
from holodeck.lib.evaluators.azure.adapter import JudgedPrompt, Scale, library_classes
from holodeck.lib.evaluators.base import JudgedEvaluator, to_python
from holodeck.lib.evaluators.class_arguments import class_arguments
from holodeck.lib.evaluators.param_spec import EvalParam, ParamSpec
from holodeck.lib.judging.judge import Messages
from holodeck.lib.llm.json_answer import parse_json_answer
from holodeck.lib.processes.threads import call_user_function
from holodeck.lib.support.text import describe, did_you_mean_or_list, is_blank, one_line
from holodeck.lib.user_code.registry import load_attribute
from holodeck.models.metrics.azure import AzureClassMetric

_SET_BY_US = {
    "model_config": "write 'model' beside 'class'",
    "credential": "write 'model' beside 'class'",
    "threshold": "write 'threshold' beside 'class', from 0 to 1",
}
_INPUTS = {
    "query": EvalParam.QUERY,
    "response": EvalParam.RESPONSE,
    "context": EvalParam.CONTEXT,
    "ground_truth": EvalParam.GROUND_TRUTH,
}
"""The inputs that a run records as texts."""
_ABOUT_A_SCORE = (
    *("_result", "_passed", "_threshold", "_reason", "_status", "_properties", "_details"),
    *("_prompt_tokens", "_completion_tokens", "_total_tokens", "_finish_reason", "_model"),
    *("_sample_input", "_sample_output"),
)
"""The ends of the keys that belong to a score and are none."""
_ROWS: dict[str, type[azure_ai.AzureAIEvaluator]] = {
    value.library_class: value
    for value in vars(azure_ai).values()
    if isinstance(value, type)
    and issubclass(value, azure_ai.AzureAIEvaluator)
    and "library_class" in vars(value)
}
"""The judged classes of the library that have a name under `metric:`."""


class AzureClassEvaluator(JudgedEvaluator):
    """Computes a class of Azure AI Evaluation, or one of the user in its shape.

    Inputs are the parameters of `__call__`, or of the first of its overloads that a run can fill.
    The prompts of an evaluator of the library, or of its parts, are sent to our judge.

    Args:
        base_dir: Where the modules of the user are looked up first.
        options: As for `JudgedEvaluator`.
    """

    settings: AzureClassMetric
    metric = "azure class"
    uses = ("judge", "base_dir")
    extra = "azure"
    libraries = ("azure.ai.evaluation",)
    PARAM_SPEC = ParamSpec(required=frozenset(), optional=frozenset(_INPUTS.values()))

    def __init__(self, *, base_dir: Path | None = None, **options: Any) -> None:
        self._base_dir = base_dir
        super().__init__(**options)

    def _configure(self) -> None:
        settings, folder = self.settings, self._base_dir
        self._class = _find_class(settings.class_, folder)
        self._inputs = _inputs_of(self._class)
        self._scale = Scale(*settings.scale)
        self._evaluator = self._instance(
            class_arguments(self._class, settings.args, ours=_SET_BY_US, base_dir=folder)
        )

    @property
    def name(self) -> str:
        return self._class.__name__.lstrip("_")

    @property
    def asks_judge(self) -> bool:
        return "model_config" in inspect.signature(self._class).parameters

    def required_params(self) -> frozenset[EvalParam]:
        return frozenset(_INPUTS[name] for name, required in self._inputs.items() if required)

    def _instance(self, args: Mapping[str, Any]) -> Any:
        """Return an object of the class whose prompts our judge answers. Raises ConfigError."""
        ours: dict[str, Any] = {}
        if self.asks_judge:
            ours["model_config"] = adapter.UNUSED_ENDPOINT
        if "credential" in inspect.signature(self._class).parameters:
            ours["credential"] = adapter.NoCredential()
        try:
            evaluator = self._class(**args, **ours)
        except Exception as error:
            raise ConfigError("args", f"{self.name} refuses them: {describe(error)}") from error
        base = library_classes()
        parts = [evaluator]
        if isinstance(evaluator, base.composite):
            adapter.run_parts_together(evaluator)
            parts = evaluator._evaluators  # noqa: SLF001 - has no other name
        prompting = [part for part in parts if isinstance(part, base.prompting)]
        for part in prompting:
            ask = partial(self._ask, type(part))
            part._flow = JudgedPrompt(part._flow, ask)  # noqa: SLF001 - see docs/decisions
        if self.asks_judge and not prompting:
            raise ConfigError(
                "class",
                f"{self.name} takes 'model_config' and is no evaluator of the library to which"
                " holodeck can lend its judge; write 'type: code' with 'judge: true'",
            )
        return evaluator

    async def _ask(self, kind: type[Any], prompt: Messages) -> Any:
        """Return what the judge answers, checked as far as the prompt is known."""
        row = _ROWS.get(kind.__name__)
        if row is not None and kind.__module__.startswith("azure."):
            schema = row.scale.schema(row.answer_keys)
            return await self.judge.ask(prompt, schema, adapter.parse_verdict)
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

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        # the prompts of the library tell the judge to skip an empty response
        is_of_library = ":" not in self.settings.class_
        if is_of_library and self.asks_judge and is_blank(kwargs[EvalParam.RESPONSE]):
            reason = "the response is empty; the judge was not asked"
            return self._result(self._scale.to_score(self._scale.worst, reason))
        values = {name: kwargs.get(_INPUTS[name]) for name in self._inputs}
        inputs = {name: value for name, value in values.items() if value is not None}
        base = library_classes()
        if isinstance(self._evaluator, (base.prompting, base.composite)):
            result = await self._evaluator._to_async()(**inputs)  # noqa: SLF001 - as batches call it
        else:
            call = partial(self._evaluator, **inputs)
            result = await call_user_function(call, self._evaluator)
        key = _key_of_score(result, self.settings.score_key, self.name)
        reason = str(_beside(result, key, "reason") or "")
        raw = to_python(result[key])
        label = str(_beside(result, key, "result")).lower()
        is_void = label in {"not_applicable", "not applicable", "unknown"}
        is_skipped = _beside(result, key, "status") not in {None, "completed"}
        if raw is None or is_void or is_skipped or (isinstance(raw, float) and math.isnan(raw)):
            raise EvaluationError(f"{self.name} got no score: {reason or 'it gives no reason'}")
        if isinstance(raw, bool) and {self._scale.worst, self._scale.best} == {0, 1}:
            raw = int(raw)
        scored = self._result(self._scale.to_score(raw, reason))
        verdict = to_python(_beside(result, key, "passed"))
        passed = scored["passed"] and verdict is not False and label != "fail"
        return {**scored, "passed": passed}


def _find_class(name: str, base_dir: Path | None) -> type[Any]:
    """Return the evaluator class. Raises ConfigError."""
    if ":" in name:
        value = load_attribute(name, base_dir, location="class")
        if not isinstance(value, type) or not inspect.isfunction(value.__call__):
            raise ConfigError("class", f"{name!r} is not a class whose objects can be called")
        return value
    known = library_classes().by_name
    short = name.rpartition(".")[2].lstrip("_")
    if short in _ROWS:
        raise ConfigError(
            "class", f"{short} has a name; write 'metric: {_ROWS[short].metric}' instead of 'class'"
        )
    if short not in known:
        hint = did_you_mean_or_list(short, known.keys() - _ROWS.keys())
        raise ConfigError("class", f"Azure AI Evaluation has no evaluator class {short!r}{hint}")
    if issubclass(known[short], library_classes().service):
        raise ConfigError(
            "class", f"{short} asks a project in Azure; use 'metric: safety' or 'type: code'"
        )
    return known[short]


def _inputs_of(evaluator_class: type[Any]) -> dict[str, bool]:
    """Return the inputs that the class declares, and whether it requires them.

    Of several overloads it is the first whose inputs a run records. Raises ConfigError.
    """
    name, call = evaluator_class.__name__, evaluator_class.__call__
    refused: list[str] = []
    for signature in typing.get_overloads(call) or [call]:
        inputs = dict(_declared(signature))
        required = {key for key, is_required in inputs.items() if is_required}
        if inputs.keys() & _INPUTS.keys() and required <= _INPUTS.keys():
            return {key: is_required for key, is_required in inputs.items() if key in _INPUTS}
        refused += sorted(required - _INPUTS.keys())
    if not refused:
        raise ConfigError(
            "class",
            f"{name}.__call__ names no input; write for example"
            " 'def __call__(self, *, query: str, response: str)'",
        )
    raise ConfigError(
        "class",
        f"{name} reads {', '.join(dict.fromkeys(refused))}, which a run does not give it; known:"
        f" {', '.join(_INPUTS)}. Write 'type: code' for anything else",
    )


def _declared(call: Callable[..., Any]) -> typing.Iterator[tuple[str, bool]]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    for name, parameter in list(inspect.signature(call).parameters.items())[1:]:
        if parameter.kind in kinds:
            # a list holds messages with tool calls, of which a text would show nothing
            is_list = "list" in str(parameter.annotation).lower()
            shown = f"{name} as messages" if is_list else name
            yield shown, parameter.default is inspect.Parameter.empty


def _key_of_score(result: Any, wanted: str | None, name: str) -> str:
    """Return the key of the score. Raises EvaluationError."""
    if not isinstance(result, Mapping):
        shown = one_line(repr(result), 160)
        raise EvaluationError(f"{name} returned {shown}; it must return a mapping")
    keys = [
        key
        for key, value in result.items()
        if isinstance(key, str)
        and not key.endswith(_ABOUT_A_SCORE)
        and (value is None or isinstance(to_python(value), bool | int | float))
    ]
    # the library repeats each score under older names
    older = {name for key in keys for name in (f"gpt_{key}", f"{key}_score", f"gpt_{key}_score")}
    keys = [key for key in keys if key == wanted or key not in older]
    if wanted is not None and wanted not in keys:
        hint = did_you_mean_or_list(wanted, keys) or "; it has no score"
        raise EvaluationError(f"score_key: the result of {name} has no score {wanted!r}{hint}")
    if wanted is None and len(keys) > 1:
        raise EvaluationError(
            f"{name} returned several scores; write 'score_key' with one of {', '.join(keys)}"
        )
    if not keys:
        shown = one_line(repr(result), 160)
        raise EvaluationError(f"{name} returned no score; its result is {shown}")
    return wanted or keys[0]


def _beside(result: Mapping[str, Any], key: str, what: str) -> Any:
    """Return what belongs to a score, such as `fluency_reason` beside `fluency_score`."""
    stems = (key, key.removesuffix("_score"), key.removesuffix("_label"))
    values = (result.get(f"{stem}_{what}") for stem in stems)
    return next((value for value in values if value is not None), None)
