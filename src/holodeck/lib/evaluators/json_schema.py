"""The metric `json_schema`: the answer is JSON that a schema accepts."""

import json
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, NoReturn, Unpack

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators.base import Grade
from holodeck.lib.evaluators.scored import How, ScoredEvaluator, short
from holodeck.lib.patterns import compiled, find
from holodeck.lib.threads import in_thread

_PATTERN_SECONDS = 1.0


class JsonSchemaEvaluator(ScoredEvaluator):
    """The answer is JSON and valid by a schema of draft 2020-12; `format` counts where it can.

    The answer must be JSON and nothing else; `allow_fenced` accepts it inside one Markdown fence.
    A schema cannot refer to other files or to the network.
    """

    metric = "json_schema"

    def __init__(
        self,
        threshold: float | None = None,
        *,
        schema: Mapping[str, Any],
        allow_fenced: bool = False,
        **how: Unpack[How],
    ) -> None:
        super().__init__(threshold, **how)
        self._validator = _validator(schema)
        self._allow_fenced = allow_fenced

    async def _evaluate_impl(self, **kwargs: Any) -> dict[str, Any]:
        response = self._response(kwargs)
        return self._row(await in_thread(lambda: self._grade(response)))

    def _grade(self, response: str) -> Grade:
        text = _without_fence(response) if self._allow_fenced else response
        try:
            document = json.loads(text, parse_constant=_refuse_constant)
        except (ValueError, RecursionError) as error:
            return Grade(0.0, False, f"not JSON ({error}): {short(response)}")
        faults = _faults(self._validator, document)
        if faults:
            return Grade(0.0, False, "; ".join(faults))
        return Grade(1.0, True, "valid JSON by the schema")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _without_fence(text: str) -> str:
    """What is inside the fence, if the text is one fence that says json or nothing."""
    inner = text.strip()
    first, _, rest = inner.partition("\n")
    if first.strip().lower() in {"```", "```json"} and rest.endswith("```"):
        return rest.removesuffix("```")
    return text


def _faults(validator: Any, document: Any) -> list[str]:
    """The first three faults, each with its place in the document."""
    from jsonschema.exceptions import best_match
    from referencing.exceptions import Unresolvable  # noqa: PLC0415 - part of jsonschema

    try:
        errors = list(islice(validator.iter_errors(document), 3))
    except Unresolvable as error:
        raise EvaluationError(f"json_schema: the schema refers to {error}, not in it") from error
    except TimeoutError as error:
        raise EvaluationError(
            f"json_schema: a pattern of the schema took longer than {_PATTERN_SECONDS:g} s"
        ) from error
    except RecursionError as error:
        raise EvaluationError("json_schema: the answer is nested too deep to check") from error
    causes = (best_match([error]) for error in errors)
    return [f"{cause.json_path}: {_cut(cause.message)}" for cause in causes]


def _cut(message: str, limit: int = 200) -> str:
    return message if len(message) <= limit else f"{message[:limit]}…"


def _validator(schema: Mapping[str, Any]) -> Any:
    from jsonschema import Draft202012Validator, SchemaError
    from jsonschema.validators import extend
    from referencing import Registry  # noqa: PLC0415 - part of jsonschema

    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        raise ConfigError("schema", f"{error.json_path}: {_cut(error.message)}") from error
    bounded = extend(Draft202012Validator, {"pattern": _pattern})
    # An empty registry: without one, a reference to a URL would be fetched
    return bounded(schema, registry=Registry(), format_checker=bounded.FORMAT_CHECKER)


def _pattern(_: Any, pattern: str, instance: Any, __: Any) -> Iterator[Exception]:
    """The keyword `pattern` with a time limit, which the library's own does not have."""
    from jsonschema import ValidationError

    if not isinstance(instance, str):
        return
    if find(compiled(pattern), instance, _PATTERN_SECONDS) is None:
        yield ValidationError(f"{short(instance)} does not match {short(pattern)}")
