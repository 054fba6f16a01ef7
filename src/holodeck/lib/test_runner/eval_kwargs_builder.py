"""Collect the inputs of each metric under the parameter names that it uses."""

import json
from typing import Any

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.base import BaseEvaluator, Observation
from holodeck.lib.evaluators.param_spec import EvalParam, ParamSpec
from holodeck.models.evidence import Unknown, unknown_reason

_RESPONSE = (EvalParam.RESPONSE, EvalParam.ACTUAL_OUTPUT)
_QUERY = (EvalParam.QUERY, EvalParam.INPUT)
_GROUND_TRUTH = (EvalParam.GROUND_TRUTH, EvalParam.EXPECTED_OUTPUT)


class EvalKwargsBuilder:
    """The inputs that one test case offers to metrics.

    Args:
        agent_response: The response of the agent; an empty one is passed on like any other.
        input_query: What the user said.
        ground_truth: The expected response.
        file_content: The text of the case's files.
        retrieval_context: Retrieved passages.
        observation: The observation of the case, for metrics that need it.
    """

    def __init__(
        self,
        agent_response: str,
        input_query: str | None = None,
        ground_truth: str | None = None,
        file_content: str | None = None,
        retrieval_context: list[str] | None = None,
        *,
        observation: Observation | None = None,
    ) -> None:
        self._agent_response = agent_response
        self._input_query = input_query
        self._ground_truth = ground_truth
        self._file_content = file_content
        self._retrieval_context = retrieval_context
        self._observation = observation

    def build_for(self, evaluator: BaseEvaluator) -> dict[str, Any]:
        """Return keyword arguments for `evaluator.evaluate()`.

        Inputs that the metric does not accept, or that the case does not have (None), are omitted.
        Metrics with DeepEval's parameter names get `context` as a list, others as one text.
        """
        spec = evaluator.get_param_spec()
        deepeval = spec.uses_deepeval_params()
        offers = {
            _QUERY[deepeval]: self._input_query if _takes(spec, *_QUERY) else None,
            _GROUND_TRUTH[deepeval]: self._ground_truth if _takes(spec, *_GROUND_TRUTH) else None,
            EvalParam.CONTEXT: self._context(spec),
            EvalParam.RETRIEVAL_CONTEXT: self._retrieved(spec),
            **self._observed(spec),
        }
        kwargs: dict[str, Any] = {_RESPONSE[deepeval].value: self._agent_response}
        kwargs |= {name.value: value for name, value in offers.items() if value is not None}
        if evaluator.uses_observation and self._observation is not None:
            kwargs["observation"] = self._observation
        return kwargs

    def _context(self, spec: ParamSpec) -> str | list[str] | None:
        """Return the text of the files, otherwise the retrieved passages."""
        if not (spec.uses_context or _takes(spec, EvalParam.CONTEXT)):
            return None
        texts = self._retrieval_context if self._file_content is None else [self._file_content]
        if not texts:
            return None
        return texts if spec.uses_deepeval_params() else "\n\n".join(texts)

    def _observed(self, spec: ParamSpec) -> dict[EvalParam, Any]:
        """Return the inputs that only the observation has."""
        observation = self._observation
        if observation is None:
            return {}
        is_unknown = isinstance(observation.tool_calls, Unknown)
        if is_unknown and EvalParam.TOOLS_CALLED in spec.required:
            raise EvaluationError(unknown_reason("tool_calls"))
        found = {
            EvalParam.TOOLS_CALLED: None if is_unknown else observation.tool_calls,
            EvalParam.EXPECTED_TOOLS: observation.expected_tools,
            EvalParam.TURNS: observation.turns or None,
        }
        return {param: value for param, value in found.items() if _takes(spec, param)}

    def _retrieved(self, spec: ParamSpec) -> list[str] | None:
        takes = spec.uses_retrieval_context or _takes(spec, EvalParam.RETRIEVAL_CONTEXT)
        return self._retrieval_context if takes else None


def _takes(spec: ParamSpec, *params: EvalParam) -> bool:
    return not (spec.required | spec.optional).isdisjoint(params)


def build_retrieval_context_from_tools(
    tool_results: list[dict[str, Any]],
    retrieval_tool_names: set[str],
) -> list[str] | None:
    """Return the passages that retrieval tools returned, in order; None if there are none.

    Args:
        tool_results: Mappings with `name` and `result`. Each item of a list is a passage; values
            that are not text become JSON; None and empty text are ignored.
        retrieval_tool_names: The tools whose results are passages.
    """
    passages = [
        passage
        for result in tool_results
        if result.get("name") in retrieval_tool_names
        for passage in _passages(result.get("result"))
    ]
    return passages or None


def _passages(result: Any) -> list[str]:
    items = result if isinstance(result, list) else [result]
    texts = (item if isinstance(item, str) else _as_json(item) for item in items)
    return [text for text in texts if text]


def _as_json(value: Any) -> str:
    if value is None:
        return ""
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except (TypeError, ValueError):  # keys that are not text, or a value that contains itself
        return str(value)
