"""Evaluators of a scenario run: `evaluators=[scenario.evaluator(…)]`, and what their inputs read.

An evaluator is one of holodeck's, such as `F1ScoreEvaluator(threshold=0.8)`. A name refers to an
evaluator of the service that the original sends results to; holodeck calls no service, so such an
evaluator has the status `error`.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from holodeck.errors import ConfigError
from holodeck.lib.conversation.state import ScenarioState
from holodeck.lib.conversation.types import EvaluationResult, ScenarioResult
from holodeck.lib.evaluators.param_spec import EvalParam
from holodeck.lib.support.text import describe

if TYPE_CHECKING:
    from holodeck.lib.evaluators.base import BaseEvaluator

EvaluatorMapping: TypeAlias = Callable[[ScenarioState], Any] | str | int | float | bool
"""What an input of an evaluator reads: a function of the state, async or not, or a constant."""
_MAX_INPUT = 2000


@dataclass(frozen=True)
class StateMapping:
    """A function of the state that shows what it reads."""

    expression: str
    read: Callable[[ScenarioState], Any]

    def __call__(self, state: ScenarioState) -> Any:
        return self.read(state)

    def __repr__(self) -> str:
        return f"<mapping {self.expression}>"


@dataclass(frozen=True)
class ScenarioEvaluator:
    """An evaluator of a run, by its other name `evaluator`.

    Args:
        evaluator: An evaluator of holodeck, or the name of one of the original's service.
        required: Whether the scenario fails without its pass. None for yes if it gives a verdict,
            or cannot run.
        mappings: What its inputs read. The response, the first input of the user and the expected
            output (from a field with this name) need no mapping.
        settings: Settings of an evaluator of the service.

    Raises:
        ConfigError: It is no evaluator.
    """

    evaluator: str | BaseEvaluator
    required: bool | None = None
    mappings: Mapping[str, EvaluatorMapping] | None = None
    settings: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        # Imported here because few scenarios have evaluators.
        from holodeck.lib.evaluators.base import BaseEvaluator  # noqa: PLC0415

        if not self.evaluator or not isinstance(self.evaluator, str | BaseEvaluator):
            raise ConfigError(
                "scenario.evaluator",
                f"{self.evaluator!r} is no evaluator; write an evaluator of holodeck, such as"
                " F1ScoreEvaluator()",
            )

    @property
    def name(self) -> str:
        """The name in results."""
        return self.evaluator if isinstance(self.evaluator, str) else self.evaluator.name


evaluator = ScenarioEvaluator


def field(name: str) -> StateMapping:
    """Read a field of the scenario."""
    return StateMapping(f"state.field({name!r})", lambda state: state.field(name))


def value(literal: str | float | bool) -> StateMapping:
    """Give a constant."""
    return StateMapping(repr(literal), lambda _state: literal)


class conversation:  # noqa: N801 - as documented
    """What an input reads from the conversation."""

    first_user_message = StateMapping(
        "state.first_user_message()", lambda state: state.first_user_message() or None
    )
    last_agent_message = StateMapping(
        "state.last_agent_message()", lambda state: state.last_agent_message() or None
    )
    transcript = StateMapping("state.transcript()", lambda state: state.transcript())
    messages = StateMapping("state.messages", lambda state: state.messages)


class scenario_source:  # noqa: N801 - as documented
    """What an input reads from the scenario itself."""

    situation = StateMapping("state.description", lambda state: state.description)
    criteria = StateMapping("state.criteria", lambda state: "\n".join(state.criteria))


def _of_calls(name: str, path: str) -> StateMapping:
    """Read what the path leads to from the calls of a tool."""
    expression = f"state.tool_calls({name!r}).{path}"
    return StateMapping(expression, lambda state: attrgetter(path)(state.tool_calls(name)))


class _ToolCallMapping:
    def __init__(self, name: str, pick: str) -> None:
        self.input = _of_calls(name, f"{pick}.input")
        self.output = _of_calls(name, f"{pick}.output")


class _ToolCallsMapping:
    def __init__(self, name: str) -> None:
        self.first = _ToolCallMapping(name, "first")
        self.last = _ToolCallMapping(name, "last")
        self.inputs = _of_calls(name, "inputs")
        self.outputs = _of_calls(name, "outputs")


class trace:  # noqa: N801 - as documented
    """What an input reads from the tool calls of the run."""

    @staticmethod
    def tool_calls(name: str) -> _ToolCallsMapping:
        """Read the calls of a tool."""
        return _ToolCallsMapping(name)

    @staticmethod
    def tool_call(name: str) -> _ToolCallMapping:
        """Read the latest call of a tool."""
        return _ToolCallMapping(name, "last")


_INFERRED: dict[str, StateMapping] = {
    "response": conversation.last_agent_message,
    "actual_output": conversation.last_agent_message,
    "query": conversation.first_user_message,
    "input": conversation.first_user_message,
    "ground_truth": field("ground_truth"),
    "expected_output": field("expected_output"),
}
"""What inputs read that have no mapping."""


async def evaluate_run(
    attached: Sequence[ScenarioEvaluator], state: ScenarioState, result: ScenarioResult
) -> ScenarioResult:
    """Return the result with the evaluations; a required evaluator that does not pass fails it."""
    evaluations = [await _evaluate(evaluator, state) for evaluator in attached]
    missed = [
        evaluation
        for evaluation in evaluations
        if evaluation.required and evaluation.status not in {"passed", "scored"}
    ]
    if not missed:
        return result.model_copy(update={"evaluations": evaluations})
    reasons = [
        f"evaluator {evaluation.name}: {evaluation.status}: {evaluation.details or ''}"
        for evaluation in missed
    ]
    undecided = [evaluation for evaluation in missed if evaluation.status != "failed"]
    update: dict[str, Any] = {
        "evaluations": evaluations,
        "success": False,
        "reasoning": "\n".join([*([result.reasoning] if result.reasoning else []), *reasons]),
    }
    if result.success:
        update["reason_code"] = "evaluator_error" if undecided else "evaluator_failed"
    if undecided and result.error is None:
        update["error"] = f"evaluator {undecided[0].name}: {undecided[0].details}"
    return result.model_copy(update=update)


async def _evaluate(attached: ScenarioEvaluator, state: ScenarioState) -> EvaluationResult:
    result = EvaluationResult(
        evaluator_id=attached.name,
        name=attached.name,
        status="error",
        required=attached.required is not False,
    )
    if isinstance(attached.evaluator, str):
        details = (
            "it runs on a service that holodeck does not call; give an evaluator of holodeck, such"
            " as scenario.evaluator(F1ScoreEvaluator(threshold=0.8))"
        )
        return result.model_copy(update={"details": details})
    try:
        inputs = await _inputs(attached, attached.evaluator, state)
        missing = next((name for name, value in inputs.items() if value in (None, [])), None)
        if missing is not None:
            update = {"status": "skipped", "details": f"there is nothing for its input {missing!r}"}
            return result.model_copy(update=update)
        scores = await attached.evaluator.evaluate(**inputs)
    except Exception as error:  # noqa: BLE001 - an evaluation's fault is its row
        return result.model_copy(update={"details": describe(error)})
    passed, score = scores.get("passed"), scores.get("score")
    statuses = {None: "scored", True: "passed", False: "failed"}
    return result.model_copy(
        update={
            "status": statuses[passed],
            "required": passed is not None if attached.required is None else attached.required,
            "passed": passed,
            "score": score,
            "details": str(scores.get("reasoning") or "") or (f"score {score}" if score else None),
            "inputs": {name: _shown(value) for name, value in inputs.items()},
        }
    )


async def _inputs(
    attached: ScenarioEvaluator, evaluator: BaseEvaluator, state: ScenarioState
) -> dict[str, Any]:
    needed = [param.value for param in evaluator.required_params()]
    mappings = attached.mappings or {}
    inferred = {name: _INFERRED[name] for name in needed if name in _INFERRED}
    inputs: dict[str, Any] = _conversation_inputs(evaluator, state)
    for name, mapping in {**inferred, **mappings}.items():
        if name in inputs and name not in mappings:
            continue
        value = mapping(state) if callable(mapping) else mapping
        inputs[name] = await value if inspect.isawaitable(value) else value
    return inputs


def _conversation_inputs(evaluator: BaseEvaluator, state: ScenarioState) -> dict[str, Any]:
    """Return the inputs of an evaluator that sees the conversation, as a test case gives them.

    Its question is then what the last response answers.
    """
    spec = evaluator.get_param_spec()
    taken = spec.required | spec.optional
    if not (evaluator.uses_observation or taken & {EvalParam.TURNS, EvalParam.EXCHANGES}):
        return {}
    from holodeck.lib.evaluators.inputs import EvalKwargsBuilder  # noqa: PLC0415
    from holodeck.lib.test_runner.messages import observed_conversation  # noqa: PLC0415

    observation = observed_conversation(state.messages)
    if observation is None:
        return {}
    inputs = EvalKwargsBuilder(
        observation.response, observation.input, observation=observation
    ).build_for(evaluator)
    return {
        name: value for name, value in inputs.items() if name not in {"response", "actual_output"}
    }


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str, ensure_ascii=False)
    return text[:_MAX_INPUT]
