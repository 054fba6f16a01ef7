"""The answer is JSON by a schema: our check, the judge's words on what is wrong."""

from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from holodeck.errors import ConfigError
from holodeck.lib.evaluators.deepeval.base import DeepEvalEvaluator, ReasonOptions
from holodeck.lib.evaluators.json_schema import JsonSchemaEvaluator
from holodeck.lib.evaluators.param_spec import EvalParam as P
from holodeck.lib.evaluators.param_spec import ParamSpec


class JsonCorrectnessEvaluator(DeepEvalEvaluator):
    """The answer is JSON that a schema accepts; the judge is asked only for what is wrong.

    Args:
        schema: The JSON schema, draft 2020-12; it refers to nothing outside of itself.
    """

    metric = "json_correctness"
    kind = "JsonCorrectnessMetric"
    PARAM_SPEC: ClassVar[ParamSpec] = ParamSpec(
        required=frozenset({P.ACTUAL_OUTPUT}), optional=frozenset({P.INPUT})
    )

    def __init__(self, *, schema: Mapping[str, Any] | None, **how: Unpack[ReasonOptions]) -> None:
        super().__init__(**how)
        if schema is None:
            raise ConfigError("schema", "is missing: say what the answer is to be")
        self._schema = schema
        self._fits = JsonSchemaEvaluator(schema=schema, timeout=None)

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        found = await self._fits.evaluate(response=kwargs[P.ACTUAL_OUTPUT])
        fault = None if found["passed"] else found["reasoning"]
        options = {**self._options(), "expected_schema": _Expected(self._schema, fault)}
        row = await self._measured(self._case(kwargs), options)
        return row if row["reasoning"] else {**row, "reasoning": found["reasoning"]}


class _Expected:
    """What DeepEval asks of a pydantic model, answered from a check that was already made."""

    def __init__(self, schema: Mapping[str, Any], fault: str | None) -> None:
        self._schema = schema
        self._fault = fault

    def model_validate_json(self, _: str) -> None:
        if self._fault is not None:
            error = PydanticCustomError("json_schema", "{fault}", {"fault": self._fault})
            raise ValidationError.from_exception_data("answer", [{"type": error, "input": None}])

    def model_json_schema(self) -> Mapping[str, Any]:
        return self._schema
