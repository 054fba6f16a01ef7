"""Any evaluator class of Azure AI Evaluation, or one of the user in its shape: `class:`."""

import re
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Unpack

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators import azure_adapter, azure_ai
from holodeck.lib.evaluators.azure_adapter import JudgedPrompt, Scale, library_classes
from holodeck.lib.evaluators.azure_class_inputs import (
    inputs_of,
    required_params,
    values_of,
)
from holodeck.lib.evaluators.azure_class_library import (
    KNOWN,
    LIBRARY,
    ROWS,
    YES_NO,
    find_class,
)
from holodeck.lib.evaluators.azure_class_result import ClassResult, read_result
from holodeck.lib.evaluators.base import (
    DEFAULT_THRESHOLD,
    JudgedEvaluator,
    JudgedOptions,
    Observation,
    gather_all,
)
from holodeck.lib.evaluators.class_arguments import class_arguments, constructor_parameters
from holodeck.lib.evaluators.grader_judge import JudgeOfRun
from holodeck.lib.evaluators.inputs import Exchange
from holodeck.lib.evaluators.param_spec import EvalParam, ParamSpec
from holodeck.lib.exceptions import describe
from holodeck.lib.judging.judge import JsonObject, Messages
from holodeck.lib.llm.json_answer import parse_json_answer
from holodeck.lib.suggestions import did_you_mean_or_list
from holodeck.lib.text import is_blank, one_line
from holodeck.lib.threads import call_user_function, run_in_thread
from holodeck.models.evidence import Unknown, unknown_reason
from holodeck.models.judged_metrics import AzureProject

_SET_BY_US = {
    "model_config": "write 'model' beside 'class'",
    "azure_ai_project": "write 'azure_ai_project' beside 'class'",
    "threshold": "write 'threshold' beside 'class', from 0 to 1",
    "is_reasoning_model": "write the settings of the judge in 'model'",
    "eval_last_turn": "remove it",
    "not_singleton_inputs": "remove it",
    "conversation_aggregation_type": "remove it",
    "conversation_aggregator_override": "remove it",
}
_asking: ContextVar[JudgeOfRun] = ContextVar("holodeck_azure_class")
"""The judge of the evaluation that runs, also in the threads that a class starts."""


class AzureClassEvaluator(JudgedEvaluator):
    """Computes a class of Azure AI Evaluation, or one of the user in its shape.

    Inputs are the parameters of `__call__`, or of the first of its overloads that a run can fill.
    Every prompt of the library inside the class is sent to our judge. A response of the library's
    own defaults is no score: whatever the judge did not answer is an error.

    Args:
        class_name: The class in the library, or `module:Class`.
        args: The arguments of the class.
        base_dir: Where the modules of the user are looked up first.
        threshold: Score from 0 to 1 to reach; None for the verdict of the class.
        score_key: The key of the score in the result; None for the only one.
        scale: The worst and the best score of a class of the user.
        azure_ai_project: The project of a class that calls one.
    """

    metric = "class"
    extra = "azure"
    libraries = ("azure.ai.evaluation",)
    uses_observation = True
    PARAM_SPEC: ClassVar[ParamSpec] = ParamSpec(
        required=frozenset(),
        optional=frozenset(
            {
                *(EvalParam.RESPONSE, EvalParam.QUERY, EvalParam.CONTEXT, EvalParam.GROUND_TRUTH),
                *(EvalParam.TOOLS_CALLED, EvalParam.EXPECTED_TOOLS),
            }
        ),
        uses_context=True,
    )

    def __init__(
        self,
        *,
        class_name: str,
        args: Mapping[str, Any],
        base_dir: Path | None = None,
        threshold: float | None = None,
        score_key: str | None = None,
        scale: Sequence[float] | None = None,
        azure_ai_project: str | AzureProject | None = None,
        **options: Unpack[JudgedOptions],
    ) -> None:
        own = DEFAULT_THRESHOLD if threshold is None else threshold
        super().__init__(threshold=own, **options)
        self._class = find_class(class_name, base_dir)
        self._has_threshold = threshold is not None
        self._score_key = score_key
        self._lost: EvaluationError | None = None
        """A request of a thread that belongs to no evaluation; the class may have hidden it."""
        is_ours = ":" in class_name
        self._known = None if is_ours else KNOWN.get(self._class.__name__.lstrip("_"))
        self._check_score_key()
        self._inputs = list(self._known.inputs) if self._known else []
        self._inputs = self._inputs or inputs_of(self._class)
        # the account that is signed in to Azure is used, unless there is another
        ours = _SET_BY_US if "credential" in args else {"credential": "", **_SET_BY_US}
        self._args = class_arguments(self._class, args, ours=ours, base_dir=base_dir)
        takes, _ = constructor_parameters(self._class)
        self._takes = takes.keys() & {"model_config", "credential", "azure_ai_project"}
        self._project = self._checked_project(azure_ai_project)
        self._evaluator: Any = None if self._project else self._instance()
        self._scale = None if scale is None else Scale(*scale)
        self._scale = self._checked_scale()

    @property
    def name(self) -> str:
        return self._class.__name__.lstrip("_")

    @property
    def asks_judge(self) -> bool:
        return "model_config" in self._takes

    def required_params(self) -> frozenset[EvalParam]:
        required = required_params(self._inputs)
        return required | {EvalParam.TOOLS_CALLED} if self._is_by_turn else required

    @property
    def _is_by_turn(self) -> bool:
        return self._known is not None and self._known.by_turn

    def _check_score_key(self) -> None:
        """Raise ConfigError if a class of the library has no such score."""
        if self._known is None:
            return
        keys = self._known.scales
        if not keys and self._score_key is not None:
            raise ConfigError("score_key", f"{self.name} gives one score; remove this key")
        if keys and self._score_key is None:
            raise ConfigError(
                "score_key",
                f"is missing, because {self.name} gives several scores; write one of"
                f" {', '.join(keys)}",
            )
        if keys and self._score_key not in keys:
            hint = did_you_mean_or_list(self._score_key or "", keys)
            raise ConfigError("score_key", f"{self.name} has no score {self._score_key!r}{hint}")

    def _checked_project(self, project: str | AzureProject | None) -> Any:
        if "azure_ai_project" in self._takes:
            return azure_ai.library_project(project, self.name)
        if project is not None:
            raise ConfigError("azure_ai_project", f"{self.name} calls no project; remove this key")
        return None

    def _checked_scale(self) -> Scale | None:
        """Return the scale of a class of the user; None for the library's. Raises ConfigError."""
        if self._known is not None:
            if self._scale is not None:
                raise ConfigError(
                    "scale", f"the scale of {self.name} is {self._known.scale}; remove this key"
                )
            return None
        if self._scale is not None:
            return self._scale
        declared = getattr(self._evaluator, "_threshold", None)
        base = library_classes()
        # "less is better" is the default of prompting and composite classes, whatever they mean
        is_declared = isinstance(self._evaluator, base.base) and not isinstance(
            self._evaluator, (base.prompting, base.composite)
        )
        is_number = isinstance(declared, int | float) and not isinstance(declared, bool)
        if not is_declared or not is_number or not 0 < float(declared or 0) <= 1:
            raise ConfigError(
                "scale",
                f"is missing, because {self.name} declares no threshold from 0 to 1; write the"
                " worst and the best score, such as [1, 5]",
            )
        higher = getattr(self._evaluator, "_higher_is_better", True)
        return Scale(worst=0, best=1) if higher else Scale(worst=1, best=0)

    def _options(self) -> dict[str, Any]:
        """Return the arguments of the class, ours included."""
        options = dict(self._args)
        calls_project = "azure_ai_project" in self._takes
        if calls_project:
            options["azure_ai_project"] = self._project
        if "model_config" in self._takes:
            options["model_config"] = azure_adapter.UNUSED_ENDPOINT
        if "credential" in self._takes - options.keys():
            if calls_project:
                options["credential"] = azure_adapter.credential()
            elif "model_config" in options:
                options["credential"] = azure_adapter.NoCredential()
        return options

    def _instance(self) -> Any:
        """Return an object of the class whose prompts our judge answers. Raises ConfigError."""
        try:
            made = self._class(**self._options())
        except Exception as error:
            raise ConfigError("args", f"{self.name} refuses them: {describe(error)}") from error
        prompts = 0
        for one in _evaluators_in(made):
            if isinstance(one, library_classes().service):
                azure_adapter.require_labels(one)
            elif isinstance(one, library_classes().composite):
                azure_adapter.run_parts_together(one)
            elif isinstance(one, library_classes().prompting):
                self._ask_ourselves(one)
                prompts += 1
        if self.asks_judge and not prompts:
            raise ConfigError(
                "class",
                f"{self.name} takes 'model_config' and has no evaluator of the library to which"
                " holodeck can lend its judge; write 'type: code' with 'judge: true'",
            )
        return made

    def _ask_ourselves(self, evaluator: Any) -> None:
        """Replace the model of an evaluator of the library by our judge."""
        load_second = getattr(evaluator, "_ensure_query_prompty_loaded", None)
        if load_second is not None and any(one.name == "query" for one in self._inputs):
            load_second()  # its call would load it, with a model of its own
            evaluator._ensure_query_prompty_loaded = lambda: None  # noqa: SLF001
        ask = partial(self._ask, evaluator)
        evaluator._flow = JudgedPrompt(evaluator._flow, ask)  # noqa: SLF001 - see docs/decisions

    async def _ask(self, evaluator: Any, prompt: Messages) -> Any:
        asking = _asking.get(None)
        if asking is None:
            self._lost = EvaluationError(
                f"{self.name} asks the judge in a thread that has not the context of its call;"
                " start it with 'contextvars.copy_context().run'"
            )
            raise self._lost
        return await asking.await_in_run(partial(self._verdict, evaluator, prompt))

    async def _verdict(self, evaluator: Any, prompt: Messages) -> Any:
        """Return what the judge answers, checked as far as the prompt is known."""
        kind = type(evaluator)
        name = kind.__name__.lstrip("_")
        row = ROWS.get(name)
        if kind.__module__.startswith(LIBRARY) and (row is not None or name in KNOWN):
            scale, more = (YES_NO, {}) if row is None else (row.scale, row.answer_keys)
            return await self.judge.ask(prompt, scale.schema(more), azure_adapter.parse_verdict)
        text = (await self.judge.ask_for_text(prompt)).text
        try:
            answer = parse_json_answer(text)
        except ValueError:
            answer = text
        reads_itself = kind._do_eval is not library_classes().default_reading  # noqa: SLF001
        is_score = isinstance(answer, dict) and "score" in answer
        if reads_itself or is_score or re.fullmatch(r"\s*\d\s*", text):
            return answer if isinstance(answer, dict) else text
        # of any other text, the library would take the first digit for the score
        raise EvaluationError(f"the judge answered {name} without a score: {one_line(text, 160)!r}")

    async def prepare(self) -> None:
        if self._evaluator is None:
            self._evaluator = await run_in_thread(self._instance, "holodeck-azure")

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        exchanges = self._exchanges(kwargs)
        if self._is_skipped(kwargs):
            scale = self._scale_of(self._score_key)
            reason = "the response is empty; the judge was not asked"
            return self._row(0.0, scale.worst, reason, scale)
        asking = JudgeOfRun()
        token = _asking.set(asking)
        try:
            results = await gather_all(self._call(kwargs, one) for one in exchanges.values())
        finally:
            _asking.reset(token)
            asking.close()
        fault = asking.fault or self._lost
        if fault is not None:
            raise fault
        found = [read_result(one, self._score_key, self.name) for one in results]
        if self._project is not None and not all(one.reason for one in found):
            raise EvaluationError(f"the project in Azure gave {self.name} no reason")
        return self._result(found, list(exchanges), kwargs["observation"])

    def _exchanges(self, kwargs: Mapping[str, Any]) -> Mapping[int, Exchange]:
        """Return what is judged, by the number of its turn."""
        observation: Observation = kwargs["observation"]
        if self._is_by_turn:
            query = kwargs.get(EvalParam.QUERY, "")
            return azure_ai.exchanges_with_calls(observation, query, self.name)
        exchanges = observation.exchanges
        if not exchanges:
            raise EvaluationError(f"{self.name} needs a message of the agent")
        last = exchanges[-1]
        if EvalParam.TOOLS_CALLED in self.required_params():
            response = replace(last.response, tool_calls=tuple(observation.tool_calls))
            last = replace(last, response=response)
        return {len(exchanges): last}

    def _is_skipped(self, kwargs: Mapping[str, Any]) -> bool:
        """Whether the library's prompt would tell the judge to skip an empty response."""
        is_judged = self._known is not None and self.asks_judge and not self._is_by_turn
        return is_judged and is_blank(kwargs[EvalParam.RESPONSE])

    async def _call(self, kwargs: Mapping[str, Any], exchange: Exchange) -> Any:
        """Return the result of the class for one response."""
        given = values_of(self._inputs, kwargs, exchange)
        missing = [one.name for one in self._inputs if one.is_required and one.name not in given]
        if missing:
            raise EvaluationError(f"{self.name} needs {' and '.join(missing)}, which is missing")
        if self._known is None:
            return await call_user_function(partial(self._evaluator, **given), self._evaluator)
        base = library_classes()
        if isinstance(self._evaluator, (base.prompting, base.composite)):
            return await self._evaluator._to_async()(**given)  # noqa: SLF001 - as batches call it
        try:
            return await run_in_thread(partial(self._evaluator, **given), "holodeck-azure")
        except LookupError as error:
            if "nltk" not in str(error):
                raise
            raise EvaluationError(
                f"{self.name} needs data of nltk, which could not be downloaded; run"
                " 'python -m nltk.downloader punkt_tab perluniprops'"
            ) from error

    def _scale_of(self, score_key: str | None) -> Scale:
        if self._known is None:
            return self._scale or YES_NO
        return self._known.scales.get(score_key or "", self._known.scale)

    def _result(
        self, found: Sequence[ClassResult], turns: Sequence[int], observation: Observation
    ) -> dict[str, Any]:
        scale = self._scale_of(self._score_key)
        scores = [_score(one.raw, scale) for one in found]
        worst = found[scores.index(min(scores))]
        reason = worst.reason
        if len(observation.exchanges) > 1 and self._is_by_turn:
            reason = "; ".join(
                f"turn {at}: {one.raw:g}, {one.reason}"
                for at, one in zip(turns, found, strict=True)
            )
        if self._is_by_turn and isinstance(observation.tools, Unknown):
            reason += f" ({unknown_reason('tools')}; judged by the calls alone)"
        doubts = list(filter(None, (one.contradiction(scale) for one in found)))
        return {
            **self._row(min(scores), float(worst.raw), reason, scale),
            "passed": self._passes(min(scores), worst, scale),
            "inconclusive": bool(doubts),
            "note": doubts[0] if doubts else None,
        }

    def _passes(self, score: float, found: ClassResult, scale: Scale) -> bool:
        """Decide by the threshold of the user, else as the class does."""
        if self._has_threshold or self._known is not None:
            return score >= self.threshold
        if found.verdict is not None:
            return found.verdict
        if found.threshold is not None:
            return score >= scale.part(found.threshold)
        return score >= DEFAULT_THRESHOLD

    def _row(self, score: float, raw: float, reason: str, scale: Scale) -> JsonObject:
        row: JsonObject = {"score": score, self.metric: score, "passed": score >= self.threshold}
        if scale != YES_NO:
            good = f", {scale.best:g} is good" if scale.best < scale.worst else ""
            row |= {"raw_score": raw, "raw_scale": f"{scale}{good}"}
            row |= {"scale": "0-1, 1 is good"} if good else {}
        return {**row, "reasoning": reason}


def _score(raw: Any, scale: Scale) -> float:
    is_label = isinstance(raw, bool) and {scale.worst, scale.best} == {0, 1}
    return scale.score(float(raw) if is_label else raw)


def _evaluators_in(root: Any) -> Iterator[Any]:
    """Yield the evaluators of the library that an object holds or is, each once."""
    base, seen, left = library_classes().base, set(), [root]
    while left:
        one = left.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if isinstance(one, base):
            yield one
        if isinstance(one, Mapping):
            left += one.values()
        elif isinstance(one, list | tuple | set):
            left += one
        elif isinstance(one, base) or type(one).__module__ == type(root).__module__:
            left += getattr(one, "__dict__", {}).values()
