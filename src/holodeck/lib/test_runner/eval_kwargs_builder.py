"""Gathers for each metric the inputs that it takes, under the names it knows them by."""

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
    """The inputs that one test case has to offer to metrics.

    Args:
        agent_response: What the agent answered; an empty answer is passed on like any other.
        input_query: What the user said.
        ground_truth: The right answer.
        file_content: Text of the case's files.
        retrieval_context: Retrieved passages.
        observation: The whole case, for metrics that ask for it.
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
        """Keyword arguments for `evaluator.evaluate()`.

        Inputs the metric does not take, and those that the case does not have (None), are left out.
        Metrics in DeepEval's words get `context` as a list, others as one text.
        """
        spec = evaluator.get_param_spec()
        deepeval = spec.uses_deepeval_params()
        offers = {
            _QUERY[deepeval]: self._input_query if _takes(spec, *_QUERY) else None,
            _GROUND_TRUTH[deepeval]: self._ground_truth if _takes(spec, *_GROUND_TRUTH) else None,
            EvalParam.CONTEXT: self._context(spec),
            EvalParam.RETRIEVAL_CONTEXT: self._retrieved(spec),
            **self._seen(spec),
        }
        kwargs: dict[str, Any] = {_RESPONSE[deepeval].value: self._agent_response}
        kwargs |= {name.value: value for name, value in offers.items() if value is not None}
        if evaluator.uses_observation and self._observation is not None:
            kwargs["observation"] = self._observation
        return kwargs

    def _context(self, spec: ParamSpec) -> str | list[str] | None:
        """The text of the files, else what was retrieved."""
        if not (spec.uses_context or _takes(spec, EvalParam.CONTEXT)):
            return None
        texts = self._retrieval_context if self._file_content is None else [self._file_content]
        if not texts:
            return None
        return texts if spec.uses_deepeval_params() else "\n\n".join(texts)

    def _seen(self, spec: ParamSpec) -> dict[EvalParam, Any]:
        """What only the observation holds, as far as the metric takes it."""
        seen = self._observation
        if seen is None:
            return {}
        is_unknown = isinstance(seen.tool_calls, Unknown)
        if is_unknown and EvalParam.TOOLS_CALLED in spec.required:
            raise EvaluationError(unknown_reason("tool_calls"))
        found = {
            EvalParam.TOOLS_CALLED: None if is_unknown else seen.tool_calls,
            EvalParam.EXPECTED_TOOLS: seen.expected_tools,
            EvalParam.TURNS: seen.turns or None,
        }
        return {param: value for param, value in found.items() if _takes(spec, param)}

    def _retrieved(self, spec: ParamSpec) -> list[str] | None:
        wanted = spec.uses_retrieval_context or _takes(spec, EvalParam.RETRIEVAL_CONTEXT)
        return self._retrieval_context if wanted else None


def _takes(spec: ParamSpec, *params: EvalParam) -> bool:
    return not (spec.required | spec.optional).isdisjoint(params)


def build_retrieval_context_from_tools(
    tool_results: list[dict[str, Any]],
    retrieval_tool_names: set[str],
) -> list[str] | None:
    """The passages that retrieval tools gave back, in order; None if there are none.

    Args:
        tool_results: Mappings with `name` and `result`. A list is one passage per item; whatever
            is not text becomes JSON; None and empty text are no passages.
        retrieval_tool_names: The tools whose results count.
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
    except (TypeError, ValueError):  # keys that are not text, or a value that holds itself
        return str(value)
