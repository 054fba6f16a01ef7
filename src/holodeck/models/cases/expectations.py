"""What is expected of an answer: tool calls, agents, the right answer, metrics."""

from collections.abc import Mapping
from itertools import pairwise
from typing import Annotated, Any, ClassVar, Literal, get_args

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    WithJsonSchema,
    model_validator,
)

from holodeck.lib.support.text import did_you_mean
from holodeck.models.base import Json, Model, NonBlank
from holodeck.models.cases.matchers import (
    AS_ARGUMENT,
    AS_RESULT,
    ArgMatcher,
    ResultMatcher,
    TraceChecks,
    to_matcher,
)
from holodeck.models.evaluation import Metric

SCORERS: dict[str, tuple[str, ...]] = {
    "passfail": ("required",),
    "exact": ("normalize", "required"),
    "regex": ("pattern", "required"),
    "similarity": ("threshold", "required"),
}
"""Name → options."""


def scorer_to_metric(written: Any) -> Any:
    """Return the metric that a scorer means; a metric is returned unchanged."""
    if isinstance(written, str):
        return _named_metric(written, {})
    if not isinstance(written, dict) or {"metric", "type"} & written.keys():
        return written
    if len(written) != 1:
        raise ValueError("a scorer is a name, or one name with its options: '{exact: {…}}'")
    [(name, options)] = written.items()
    if not isinstance(options, dict):
        raise ValueError(f"the options of {name!r} must be a mapping")  # noqa: TRY004 - pydantic's
    return _named_metric(str(name), options)


def _named_metric(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    if ":" in name:
        return {"metric": name, **options}
    if name not in SCORERS:
        hint, known = did_you_mean(name, SCORERS, ";"), ", ".join(SCORERS)
        raise ValueError(f"unknown scorer {name!r}{hint} known: {known}, or 'module:callable'")
    for key in options:
        if key not in SCORERS[name]:
            known = ", ".join(SCORERS[name])
            raise ValueError(f"{name!r} has no option {key!r}; it has: {known}")
    if name == "exact":
        rest = {key: value for key, value in options.items() if key != "normalize"}
        normalize = options.get("normalize", True)
        return {"metric": "exact_match", "ignore_case": normalize, "strip": normalize, **rest}
    names = {"similarity": "semantic_similarity"}
    return {"metric": names.get(name, name), **options}


Scorer = Annotated[
    Metric,
    BeforeValidator(scorer_to_metric),
    WithJsonSchema({"anyOf": [{"type": "string"}, {"type": "object"}]}),
]
"""`passfail`, `exact`, `regex`, `similarity`, `module:callable`, or one of them with options."""


def _validate_scorer(written: Any) -> Any:
    scorer_to_metric(written)
    return written


WrittenScorer = Annotated[NonBlank | dict[NonBlank, Json], AfterValidator(_validate_scorer)]
"""A scorer whose options may still come from a case."""


class ExpectedTool(Model):
    """A strict expectation for one tool."""

    names_in: ClassVar[tuple[str, ...]] = ("name", "args", "agent")

    name: NonBlank
    """Name of the tool, with or without the prefix of its plugin or server, or part of it with
    `match: substring`."""
    args: dict[str, Annotated[Json, AS_ARGUMENT]] = {}
    """Expected value or matcher for each argument; other arguments are not checked."""
    result: Annotated[Json, AS_RESULT] = None
    """Expected result of the call, or a matcher: those of `args`, or `contains`. With `error:
    true`, the message of the error."""
    error: bool | None = None
    """Whether the call must have failed (true) or succeeded (false); by default either."""
    agent: NonBlank | None = None
    """Name of the agent that requested the call."""
    count: Annotated[int, Field(ge=1)] | None = None
    """Exact number of matching calls; by default at least one."""
    match: Literal["exact", "substring"] = "exact"
    """How the name is compared."""

    def matchers(self) -> dict[str, ArgMatcher]:
        """Return `args` with each literal as a matcher."""
        return {key: to_matcher(value, ArgMatcher) for key, value in self.args.items()}

    def result_matcher(self) -> ResultMatcher | None:
        """`result` as a matcher; None if the result is not checked."""
        return None if self.result is None else to_matcher(self.result, ResultMatcher)


class ExpectedApproval(Model):
    """An approval that the agent must ask for, and the answer that it gets."""

    names_in: ClassVar[tuple[str, ...]] = ("tool", "args")

    tool: NonBlank
    """Name of the tool whose call waits; `interrupt` for an interrupt of a LangGraph graph that is
    about no tool."""
    args: dict[str, Annotated[Json, AS_ARGUMENT]] = {}
    """Expected value or matcher for each argument of the call; others are not checked."""
    then: Literal["approve", "reject"]
    """The answer, with which the turn goes on."""

    @property
    def call(self) -> ExpectedTool:
        """The call that waits."""
        return ExpectedTool(name=self.tool, args=self.args)


class ForbiddenTool(Model):
    """A tool that must not be called, and tools of nearly its name that may be."""

    names_in: ClassVar[tuple[str, ...]] = ("name", "allow")

    name: NonBlank
    """Name of the tool; `*` stands for any characters."""
    allow: list[NonBlank] = []
    """Names of other tools, which may be called although their names are like it."""

    @model_validator(mode="after")
    def _forbids_something(self) -> "ForbiddenTool":
        if self.name in self.allow:
            raise ValueError(f"'allow' names {self.name!r} itself, which is forbidden; remove one")
        return self


ToolOrder = Literal["exact", "in_order", "any_order", "subset", "superset"]
"""How tool calls correspond to `expected_tools`. The first three are the match types of Google ADK,
the last two the modes of LangChain's agentevals. Each entry stands for one call, or for `count`.

- `exact`: the calls are the expected ones, in this order, and there are no others.
- `in_order`: the expected calls are made in this order; others may be made in between.
- `any_order`, `superset`: the expected calls are made, each of its own; others may be made, too.
- `subset`: every call is an expected one; not all expected calls need to be made.
"""
ORDERS: tuple[str, ...] = get_args(ToolOrder)
_ORDERS_OF_OTHERS = {
    "strict": "'exact'",
    "unordered": "'any_order' with 'max_tool_calls'",
    "ordered": "'in_order'",
}
_BOOLEANS = frozenset({"true", "false", "yes", "no", "on", "off", "y", "n", "t", "f", "1", "0"})


def _require_order(written: Any) -> Any:
    """Refuse text that is no order, with one message for both types of the key."""
    if not isinstance(written, str) or written in ORDERS or written.lower() in _BOOLEANS:
        return written
    meant = _ORDERS_OF_OTHERS.get(written.lower())
    hint = f"; did you mean {meant}?" if meant else did_you_mean(written, ORDERS, ";")
    raise ValueError(f"found {written!r}{hint} expected {', '.join(ORDERS)}, true or false")


class Expectations(Model):
    """Checks of a response."""

    names_in: ClassVar[tuple[str, ...]] = ("expected_tools", "forbidden_tools", "handoffs")
    parts_in: ClassVar[tuple[str, ...]] = ("expected_tools", "forbidden_tools", "expect_approval")

    expected_tools: list[NonBlank | ExpectedTool] | None = None
    """Tools that must be called. [] forbids all tools; if missing, tool calls are not checked."""
    forbidden_tools: list[NonBlank | ForbiddenTool] | None = None
    """Names of tools that must not be called; `*` stands for any characters. A call of nearly that
    name leaves the check undecided."""
    tool_order: Annotated[bool | ToolOrder, BeforeValidator(_require_order)] = False
    """How the calls must correspond to `expected_tools`; true is `in_order`."""
    only_expected_tools: bool = False
    """Whether calls of tools that `expected_tools` does not list fail the case."""
    max_tool_calls: Annotated[int, Field(ge=0)] | None = None
    """Maximum number of tool calls."""
    no_repeated_calls: bool = False
    """Whether two calls of a tool with equal arguments fail the case."""
    expect_approval: (
        ExpectedApproval | Annotated[list[ExpectedApproval], Field(min_length=1)] | None
    ) = None
    """Approvals that the agent must ask for, in any order, and their answers: `{tool: send_email,
    then: approve}` or `reject`."""
    trace: TraceChecks | None = None
    """Checks of the OpenTelemetry spans of the agent."""
    handoffs: list[NonBlank] | None = None
    """Names of the agents that speak, in this order and no others; consecutive messages of an agent
    count once."""
    ground_truth: NonBlank | None = None
    """The right answer, with which text metrics compare the response."""
    retrieval_context: list[str] | None = None
    """Retrieved passages; by default the results of retrieval tools."""
    evaluations: list[Metric] | None = None
    """Metrics of this response; they see the conversation up to this turn."""
    scorers: list[Scorer] | None = None
    """Checks in addition to the metrics: `passfail`, `exact`, `regex`, `similarity` or
    `module:callable`, also as `{regex: {pattern: …}}`."""

    @property
    def order(self) -> ToolOrder | None:
        """How the calls must correspond to `expected_tools`; None if that is not checked."""
        return "in_order" if self.tool_order is True else self.tool_order or None

    @property
    def forbidden(self) -> list[ForbiddenTool]:
        """`forbidden_tools`, each with what it allows."""
        return [
            ForbiddenTool(name=tool) if isinstance(tool, str) else tool
            for tool in self.forbidden_tools or ()
        ]

    @property
    def expected_approvals(self) -> list[ExpectedApproval]:
        """`expect_approval` as a list."""
        written = self.expect_approval
        return [written] if isinstance(written, ExpectedApproval) else written or []

    @property
    def metric_lists(self) -> tuple[tuple[str, list[Metric]], ...]:
        """The metrics and the scorers, each after its key."""
        return ("evaluations", self.evaluations or []), ("scorers", self.scorers or [])

    @property
    def checks_tool_calls(self) -> bool:
        """Whether a check needs to know the tool calls."""
        checks = (self.expected_tools, self.forbidden_tools, self.max_tool_calls)
        return self.no_repeated_calls or any(check is not None for check in checks)

    @property
    def checks_trajectory(self) -> bool:
        """Whether the tool calls, the agents that speak, or the approvals are checked."""
        parts = (self.handoffs, self.expect_approval)
        return self.checks_tool_calls or any(part is not None for part in parts)

    @property
    def has_checks(self) -> bool:
        """Whether a tool call, an agent, a span, a metric or a scorer is asked for."""
        is_observed = self.checks_trajectory or self.trace is not None
        return is_observed or bool(self.evaluations or self.scorers)

    @model_validator(mode="after")
    def _tool_settings_have_tools(self) -> "Expectations":
        if self.tool_order and not self.expected_tools:
            word = "true" if self.tool_order is True else self.tool_order
            raise ValueError(f"'tool_order: {word}' needs 'expected_tools' to put in order")
        if self.only_expected_tools and not self.expected_tools:
            raise ValueError(
                "'only_expected_tools: true' needs 'expected_tools';"
                " to forbid all tools, write 'expected_tools: []' alone"
            )
        if self.forbidden_tools is not None and not self.forbidden_tools:
            raise ValueError("'forbidden_tools: []' forbids nothing; name tools or remove it")
        return self

    @model_validator(mode="after")
    def _handoffs_can_take_place(self) -> "Expectations":
        if self.handoffs is not None and not self.handoffs:
            raise ValueError("'handoffs: []' checks nothing; name agents or remove it")
        for at, (name, following) in enumerate(pairwise(self.handoffs or ()), 1):
            if name == following:
                raise ValueError(
                    f"'handoffs[{at}]' repeats {name!r}: consecutive messages of an agent count"
                    " once; remove it"
                )
        return self
