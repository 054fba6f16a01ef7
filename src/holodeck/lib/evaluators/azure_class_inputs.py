"""The inputs of an evaluator class in the shape of Azure AI Evaluation, by its `__call__`."""

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from holodeck.errors import ConfigError, EvaluationError
from holodeck.lib.evaluators import azure_adapter
from holodeck.lib.evaluators.base import Observation
from holodeck.lib.evaluators.inputs import Exchange
from holodeck.lib.evaluators.param_spec import EvalParam
from holodeck.lib.judging.judge import JsonObject
from holodeck.models.evidence import UNSEEN_CALLS, Unknown
from holodeck.models.test_case import ExpectedTool


@dataclass(frozen=True, slots=True)
class Input:
    """An input of a class."""

    name: str
    is_required: bool
    is_list: bool = False
    """Whether it may be a list: messages, or the names of expected tools."""


def inputs_of(evaluator_class: type[Any]) -> list[Input]:
    """Return the inputs that the class declares. Raises ConfigError.

    Of several overloads it is the first whose inputs a run records.
    """
    name = evaluator_class.__name__
    call = evaluator_class.__call__
    refused: list[str] = []
    for one in typing.get_overloads(call) or [call]:
        inputs = list(_declared(one, getattr(evaluator_class, "_OPTIONAL_PARAMS", None) or ()))
        unseen = [each.name for each in inputs if each.is_required and each.name not in _MAKERS]
        known = [each for each in inputs if each.name in _MAKERS]
        if known and not unseen:
            return known
        refused += unseen
    if refused:
        raise ConfigError(
            "class",
            f"{name} reads {', '.join(dict.fromkeys(refused))}, which a run does not record;"
            f" known: {', '.join(_MAKERS)}",
        )
    raise ConfigError(
        "class",
        f"{name}.__call__ names no input; write for example"
        " 'def __call__(self, *, query: str, response: str)'",
    )


def _declared(call: Callable[..., Any], optional: Sequence[str]) -> typing.Iterator[Input]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    for name, one in list(inspect.signature(call).parameters.items())[1:]:
        if one.kind in kinds:
            is_required = one.default is inspect.Parameter.empty and name not in optional
            yield Input(name, is_required, "list" in str(one.annotation).lower())


def required_params(inputs: Sequence[Input]) -> frozenset[EvalParam]:
    """Return what a case must have."""
    by_name = {one.name: one for one in inputs}
    found = {_PARAMS[one.name] for one in inputs if one.is_required and one.name in _PARAMS}
    truth, query = by_name.get("ground_truth"), by_name.get("query")
    if truth is not None and truth.is_list:
        found = found - {EvalParam.GROUND_TRUTH} | {EvalParam.EXPECTED_TOOLS}
    shows_calls = truth is not None and truth.is_list
    if "response" in by_name and by_name["response"].is_list:
        # only among the messages of a query can be said that the calls are unknown
        shows_calls |= query is None or not query.is_list
    return frozenset({*found, EvalParam.TOOLS_CALLED} if shows_calls else found)


_PARAMS = {
    "query": EvalParam.QUERY,
    "response": EvalParam.RESPONSE,
    "context": EvalParam.CONTEXT,
    "ground_truth": EvalParam.GROUND_TRUTH,
    "tool_calls": EvalParam.TOOLS_CALLED,
}


def values_of(inputs: Sequence[Input], kwargs: Mapping[str, Any], exchange: Exchange) -> JsonObject:
    """Return the inputs for one response of the agent; optional ones that are absent are left out.

    May block.
    """
    values = {one.name: _MAKERS[one.name](one, kwargs, exchange) for one in inputs}
    return {name: value for name, value in values.items() if value is not None}


def _query(wanted: Input, kwargs: Mapping[str, Any], exchange: Exchange) -> Any:
    if not wanted.is_list:
        return exchange.input or None
    observation: Observation = kwargs["observation"]
    rules = observation.instructions
    if isinstance(observation.tool_calls, Unknown):
        # otherwise the judge would assume that no tool was called
        rules = "\n\n".join(filter(None, [rules, UNSEEN_CALLS]))
    history = azure_adapter.calls_as_text(exchange.history)
    return azure_adapter.system_message(rules) + azure_adapter.dialogue(history, exchange.input)


def _response(wanted: Input, _: Mapping[str, Any], exchange: Exchange) -> Any:
    text = exchange.response.content
    if not wanted.is_list:
        return text
    return azure_adapter.agent_messages(text, exchange.response.tool_calls or ())


def _context(_: Input, kwargs: Mapping[str, Any], __: Exchange) -> Any:
    return kwargs.get(EvalParam.CONTEXT)


def _ground_truth(wanted: Input, kwargs: Mapping[str, Any], _: Exchange) -> Any:
    if not wanted.is_list:
        return kwargs.get(EvalParam.GROUND_TRUTH)
    expected = kwargs.get(EvalParam.EXPECTED_TOOLS)
    return None if expected is None else [_tool_name(one) for one in expected]


def _tool_name(expected: str | ExpectedTool) -> str:
    """Return the name of an expected tool. Raises EvaluationError if more is expected of it.

    To compare the names alone would be less than the case asks for.
    """
    if isinstance(expected, str):
        return expected
    more = sorted(expected.model_fields_set - {"name"})
    if more:
        raise EvaluationError(
            f"expected_tools: the class compares names only, and {expected.name!r} has"
            f" {', '.join(more)}; write its name alone, or use 'trajectory' checks"
        )
    return expected.name


def _tool_calls(_: Input, __: Mapping[str, Any], exchange: Exchange) -> Any:
    return azure_adapter.tool_call_list(exchange.response.tool_calls or ())


def _tool_definitions(_: Input, kwargs: Mapping[str, Any], exchange: Exchange) -> Any:
    offered = kwargs["observation"].tools
    calls = exchange.response.tool_calls or ()
    known = () if isinstance(offered, Unknown) else offered
    return azure_adapter.tool_definitions(known, calls) or None


_MAKERS: Mapping[str, Callable[[Input, Mapping[str, Any], Exchange], Any]] = {
    "query": _query,
    "response": _response,
    "context": _context,
    "ground_truth": _ground_truth,
    "tool_calls": _tool_calls,
    "tool_definitions": _tool_definitions,
}
"""The inputs that a run records."""
