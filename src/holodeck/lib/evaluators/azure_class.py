"""Evaluator classes in the shape of Azure AI Evaluation: `class:` of `type: azure`."""

import inspect
import math
import typing
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Unpack

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators import azure_adapter, azure_ai
from holodeck.lib.evaluators.azure_adapter import JudgedPrompt, Scale, library_classes
from holodeck.lib.evaluators.base import JudgedEvaluator, JudgedOptions, to_python
from holodeck.lib.evaluators.class_arguments import class_arguments
from holodeck.lib.evaluators.param_spec import EvalParam, ParamSpec
from holodeck.lib.judging.judge import JsonObject, Messages
from holodeck.lib.llm.json_answer import parse_json_answer
from holodeck.lib.processes.threads import call_user_function
from holodeck.lib.support.text import describe, did_you_mean_or_list, is_blank, one_line
from holodeck.lib.user_code.registry import load_attribute

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
    one.library_class: one
    for one in vars(azure_ai).values()
    if isinstance(one, type)
    and issubclass(one, azure_ai.AzureAIEvaluator)
    and "library_class" in vars(one)
}
"""The judged classes of the library that have a name under `metric:`."""


class AzureClassEvaluator(JudgedEvaluator):
    """Computes a class of Azure AI Evaluation, or one of the user in its shape.

    Inputs are the parameters of `__call__`, or of the first of its overloads that a run can fill.
    The prompts of an evaluator of the library, or of its parts, are sent to our judge.

    Args:
        class_name: The class in the library, or `module:Class`.
        args: The arguments of the class.
        scale: The worst and the best score of the class.
        base_dir: Where the modules of the user are looked up first.
        score_key: The key of the score in the result; None for the only one.
    """

    metric = "class"
    extra = "azure"
    libraries = ("azure.ai.evaluation",)
    PARAM_SPEC: ClassVar[ParamSpec] = ParamSpec(
        required=frozenset(), optional=frozenset(_INPUTS.values()), uses_context=True
    )

    def __init__(
        self,
        *,
        class_name: str,
        args: Mapping[str, Any],
        scale: Sequence[float],
        base_dir: Path | None = None,
        score_key: str | None = None,
        **options: Unpack[JudgedOptions],
    ) -> None:
        super().__init__(**options)
        self._class = _find_class(class_name, base_dir)
        self._is_of_library = ":" not in class_name
        self._inputs = _inputs_of(self._class)
        self._args = class_arguments(self._class, args, ours=_SET_BY_US, base_dir=base_dir)
        self._scale = Scale(*scale)
        self._score_key = score_key
        self._evaluator = self._instance()

    @property
    def name(self) -> str:
        return self._class.__name__.lstrip("_")

    @property
    def asks_judge(self) -> bool:
        return "model_config" in inspect.signature(self._class).parameters

    def required_params(self) -> frozenset[EvalParam]:
        return frozenset(_INPUTS[name] for name, required in self._inputs.items() if required)

    def _instance(self) -> Any:
        """Return an object of the class whose prompts our judge answers. Raises ConfigError."""
        ours: dict[str, Any] = {}
        if self.asks_judge:
            ours["model_config"] = azure_adapter.UNUSED_ENDPOINT
        if "credential" in inspect.signature(self._class).parameters:
            ours["credential"] = azure_adapter.NoCredential()
        try:
            made = self._class(**self._args, **ours)
        except Exception as error:
            raise ConfigError("args", f"{self.name} refuses them: {describe(error)}") from error
        base = library_classes()
        parts = [made]
        if isinstance(made, base.composite):
            azure_adapter.run_parts_together(made)
            parts = made._evaluators  # noqa: SLF001 - has no other name
        prompting = [one for one in parts if isinstance(one, base.prompting)]
        for one in prompting:
            ask = partial(self._ask, type(one))
            one._flow = JudgedPrompt(one._flow, ask)  # noqa: SLF001 - see docs/decisions
        if self.asks_judge and not prompting:
            raise ConfigError(
                "class",
                f"{self.name} takes 'model_config' and is no evaluator of the library to which"
                " holodeck can lend its judge; write 'type: code' with 'judge: true'",
            )
        return made

    async def _ask(self, kind: type[Any], prompt: Messages) -> Any:
        """Return what the judge answers, checked as far as the prompt is known."""
        row = _ROWS.get(kind.__name__)
        if row is not None and kind.__module__.startswith("azure."):
            schema = row.scale.schema(row.answer_keys)
            return await self.judge.ask(prompt, schema, azure_adapter.parse_verdict)
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
        if self._is_of_library and self.asks_judge and is_blank(kwargs[EvalParam.RESPONSE]):
            return self._row(self._scale.worst, "the response is empty; the judge was not asked")
        given = {name: kwargs.get(_INPUTS[name]) for name in self._inputs}
        given = {name: value for name, value in given.items() if value is not None}
        base = library_classes()
        if isinstance(self._evaluator, (base.prompting, base.composite)):
            result = await self._evaluator._to_async()(**given)  # noqa: SLF001 - as batches call it
        else:
            call = partial(self._evaluator, **given)
            result = await call_user_function(call, self._evaluator)
        key = _key_of_score(result, self._score_key, self.name)
        reason = str(_beside(result, key, "reason") or "")
        raw = to_python(result[key])
        said = str(_beside(result, key, "result")).lower()
        is_void = said in {"not_applicable", "not applicable", "unknown"}
        is_skipped = _beside(result, key, "status") not in {None, "completed"}
        if raw is None or is_void or is_skipped or (isinstance(raw, float) and math.isnan(raw)):
            raise EvaluationError(f"{self.name} got no score: {reason or 'it gives no reason'}")
        if isinstance(raw, bool) and {self._scale.worst, self._scale.best} == {0, 1}:
            raw = int(raw)
        row = self._row(raw, reason)
        verdict = to_python(_beside(result, key, "passed"))
        return row | {"passed": row["passed"] and verdict is not False and said != "fail"}

    def _row(self, raw: float, reason: str) -> JsonObject:
        score = self._scale.score(raw)
        return {
            "score": score,
            self.metric: score,
            "passed": score >= self.threshold,
            "reasoning": reason,
            "raw_score": float(raw),
            "raw_scale": str(self._scale),
        }


def _find_class(name: str, base_dir: Path | None) -> type[Any]:
    """Return the evaluator class. Raises ConfigError."""
    if ":" in name:
        found = load_attribute(name, base_dir, location="class")
        if not isinstance(found, type) or not inspect.isfunction(found.__call__):
            raise ConfigError("class", f"{name!r} is not a class whose objects can be called")
        return found
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
    for one in typing.get_overloads(call) or [call]:
        found = dict(_declared(one))
        required = {key for key, is_required in found.items() if is_required}
        if found.keys() & _INPUTS.keys() and required <= _INPUTS.keys():
            return {key: is_required for key, is_required in found.items() if key in _INPUTS}
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
    for name, one in list(inspect.signature(call).parameters.items())[1:]:
        if one.kind in kinds:
            # a list holds messages with tool calls, of which a text would show nothing
            is_list = "list" in str(one.annotation).lower()
            shown = f"{name} as messages" if is_list else name
            yield shown, one.default is inspect.Parameter.empty


def _key_of_score(result: Any, wanted: str | None, name: str) -> str:
    """Return the key of the score. Raises EvaluationError."""
    if not isinstance(result, Mapping):
        shown = one_line(repr(result), 160)
        raise EvaluationError(f"{name} returned {shown}; it must return a mapping")
    found = [
        key
        for key, value in result.items()
        if isinstance(key, str)
        and not key.endswith(_ABOUT_A_SCORE)
        and (value is None or isinstance(to_python(value), bool | int | float))
    ]
    # the library repeats each score under older names
    older = {name for key in found for name in (f"gpt_{key}", f"{key}_score", f"gpt_{key}_score")}
    found = [key for key in found if key == wanted or key not in older]
    if wanted is not None and wanted not in found:
        hint = did_you_mean_or_list(wanted, found) or "; it has no score"
        raise EvaluationError(f"score_key: the result of {name} has no score {wanted!r}{hint}")
    if wanted is None and len(found) > 1:
        raise EvaluationError(
            f"{name} returned several scores; write 'score_key' with one of {', '.join(found)}"
        )
    if not found:
        shown = one_line(repr(result), 160)
        raise EvaluationError(f"{name} returned no score; its result is {shown}")
    return wanted or found[0]


def _beside(result: Mapping[str, Any], key: str, what: str) -> Any:
    """Return what belongs to a score, such as `fluency_reason` beside `fluency_score`."""
    stems = (key, key.removesuffix("_score"), key.removesuffix("_label"))
    found = (result.get(f"{stem}_{what}") for stem in stems)
    return next((one for one in found if one is not None), None)
