"""What stands in for tools and models in a test case, and the faults that they have in it."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Literal, Self, get_args

from pydantic import Field, model_validator

from holodeck.models.base import Json, Model, NonBlank, ReadPath, Seconds
from holodeck.models.cases.matchers import AS_ARGUMENT, ArgMatcher, to_matcher

StubKind = Literal["returns", "raises", "timeout", "delay", "empty", "malformed", "truncated"]
FaultKind = Literal["status", "refusal", "cut_off", "delay"]
STUB_KINDS: tuple[StubKind, ...] = get_args(StubKind)
FAULT_KINDS: tuple[FaultKind, ...] = get_args(FaultKind)
_WITHOUT_RESULT = ("raises", "timeout")
"""Kinds after which there is no result."""


class Stub(Model):
    """What one call of a tool gets, or several. `delay`, `empty`, `malformed` and `truncated`
    change the result of the tool, or `returns`."""

    names_in: ClassVar[tuple[str, ...]] = ("when",)

    call: Annotated[int, Field(ge=1)] | None = None
    """Number of the call of the tool in the test case, from 1; any call without it."""
    when: dict[NonBlank, Annotated[Json, AS_ARGUMENT]] = {}
    """Value or matcher for each argument that the call must have, as in `expected_tools`."""
    returns: Json = None
    """The result; the tool does not run."""
    raises: NonBlank | None = None
    """The message of the error that the call raises, also behind the name of an exception
    (`PermissionError: no access`); `timeout` for a TimeoutError."""
    timeout: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """Seconds after which the call raises a TimeoutError; the tool does not run."""
    delay: Seconds | None = None
    """Seconds by which the result is late."""
    empty: Literal[True] | None = None
    """The result, which is text, a list or a mapping, has nothing in it."""
    malformed: Literal[True] | None = None
    """The result is JSON without its end."""
    truncated: Annotated[int, Field(ge=0)] | None = None
    """How many characters of the result are left, which is text, or JSON of a list or mapping."""
    optional: bool | None = None
    """Whether the case may end without a call that gets it; by default true of `returns` without
    `call` and `when` after other stubs of its tool, and of `returns` of a suite or the agent."""

    @property
    def kind(self) -> StubKind:
        """What it does; `returns` only if it does nothing else."""
        return [kind for kind in STUB_KINDS if kind in self.model_fields_set][-1]

    @property
    def runs_tool(self) -> bool:
        """Whether the tool runs, whose result is changed or late."""
        return self.kind not in ("returns", *_WITHOUT_RESULT) and not self.has_result

    @property
    def has_result(self) -> bool:
        """Whether `returns` is given, which may be null."""
        return "returns" in self.model_fields_set

    @property
    def is_for_any_call(self) -> bool:
        """Whether every call gets it that no stub before it takes."""
        return self.call is None and not self.when

    def matchers(self) -> dict[str, ArgMatcher]:
        """Return `when` with each literal as a matcher."""
        return {name: to_matcher(value, ArgMatcher) for name, value in self.when.items()}

    def shared(self) -> Self:
        """Return the stub for a case of the suite or agent that has it."""
        may_be_missing = self.kind == "returns" and self.optional is None
        return self.model_copy(update={"optional": True}) if may_be_missing else self

    def __str__(self) -> str:
        """`the fault 'timeout' at call 2`."""
        what = "'returns'" if self.kind == "returns" else f"the fault {self.kind!r}"
        return what + ("" if self.call is None else f" at call {self.call}")

    @model_validator(mode="after")
    def _has_one_kind(self) -> Self:
        faults = [kind for kind in STUB_KINDS[1:] if kind in self.model_fields_set]
        if not faults and not self.has_result:
            raise ValueError(f"does nothing; write one of {', '.join(map(repr, STUB_KINDS))}")
        if len(faults) > 1:
            raise ValueError(f"has {faults[0]!r} and {faults[1]!r}; write a stub for each")
        if self.has_result and self.kind in _WITHOUT_RESULT:
            raise ValueError(f"has {self.kind!r}, after which nothing returns; remove 'returns'")
        return self


Stubs = Annotated[dict[NonBlank, Annotated[list[Stub], Field(min_length=1)]], Field(min_length=1)]
"""Tool → its stubs; a call gets the first one that fits it."""


class StubFile(Model):
    """A file with stubs."""

    stubs: Stubs
    """Tool → its stubs."""


class ModelFault(Model):
    """What goes wrong with one of the agent's requests to its model; it has one kind."""

    call: Annotated[int, Field(ge=1)]
    """Number of the request in the test case, from 1."""
    status: Annotated[int, Field(ge=400, le=599)] | None = None
    """The HTTP status of an error with which the request is answered."""
    refusal: NonBlank | None = None
    """The text with which the model refuses to answer."""
    cut_off: Literal[True] | None = None
    """The response ends in the middle, because of its length."""
    delay: Seconds | None = None
    """Seconds by which the response is late."""

    @property
    def replaces_response(self) -> bool:
        """Whether it is an answer itself, so that the model is not asked."""
        return self.kind in {"status", "refusal"}

    @property
    def kind(self) -> FaultKind:
        """What goes wrong."""
        return next(kind for kind in FAULT_KINDS if kind in self.model_fields_set)

    @model_validator(mode="after")
    def _has_one_kind(self) -> Self:
        kinds = [kind for kind in FAULT_KINDS if kind in self.model_fields_set]
        if not kinds:
            raise ValueError(f"does nothing; write one of {', '.join(map(repr, FAULT_KINDS))}")
        if len(kinds) > 1:
            raise ValueError(f"has {kinds[0]!r} and {kinds[1]!r}; write a fault for each")
        return self


class ModelReply(Model):
    """What the scripted model answers to one request."""

    tool_calls: (
        Annotated[list[dict[NonBlank, dict[NonBlank, Json]]], Field(min_length=1)] | None
    ) = None
    """Tool → arguments, one tool for each call."""
    text: str | None = None
    """The text of the response."""

    @property
    def calls(self) -> list[tuple[str, dict[str, Any]]]:
        """The tools that it calls, each with the arguments."""
        return [call for calls in self.tool_calls or () for call in calls.items()]

    @model_validator(mode="after")
    def _answers_something(self) -> Self:
        if self.tool_calls is None and self.text is None:
            raise ValueError("answers nothing; write 'text' or 'tool_calls'")
        for index, call in enumerate(self.tool_calls or ()):
            if len(call) != 1:
                raise ValueError(
                    f"'tool_calls[{index}]' names {len(call)} tools; write an item of the list for"
                    " each call: [{get_order: {id: 7}}]"
                )
        return self


class StandIns(Model):
    """What stands in for tools and models in test cases."""

    tools_in_test: Literal["live", "sealed"] | None = None
    """Whether tools without a stub run (`live`, the default), or no tool at all: with `sealed`, a
    call that no stub takes fails the case."""
    stubs: Stubs | ReadPath | None = None
    """What calls of tools get in place of the results of the tools: tool → list of stubs, or the
    path of a file with them."""
    model_faults: Annotated[list[ModelFault], Field(min_length=1)] | None = None
    """What goes wrong with the agent's requests to its model."""
    model_replies: Annotated[list[ModelReply], Field(min_length=1)] | None = None
    """What the scripted model answers, in this order."""

    @property
    def has_stand_ins(self) -> bool:
        """Whether anything stands in."""
        parts = (self.tools_in_test, self.stubs, self.model_faults, self.model_replies)
        return any(part is not None for part in parts)

    @property
    def is_sealed(self) -> bool:
        """Whether no tool runs."""
        return self.tools_in_test == "sealed"

    @property
    def stubs_of_tools(self) -> Mapping[str, Sequence[Stub]]:
        """The stubs, by tool; those of a file are there once it is loaded."""
        return self.stubs if isinstance(self.stubs, dict) else {}

    def with_shared(self, shared: "StandIns") -> Self:
        """Return the same for a case of a suite or agent that has these, after its own stubs."""
        both = {tool: [*stubs] for tool, stubs in self.stubs_of_tools.items()}
        for tool, stubs in shared.stubs_of_tools.items():
            own = both.setdefault(tool, [])
            if not any(stub.is_for_any_call for stub in own):
                own += [stub.shared() for stub in stubs]
        update: dict[str, Any] = {"stubs": both} if both else {}
        for key in ("tools_in_test", "model_faults", "model_replies"):
            if getattr(self, key) is None and getattr(shared, key) is not None:
                update[key] = getattr(shared, key)
        return self.model_copy(update=update) if update else self

    @model_validator(mode="after")
    def _stubs_can_be_reached(self) -> Self:
        for tool, stubs in self.stubs_of_tools.items():
            taken = next((at for at, stub in enumerate(stubs) if stub.is_for_any_call), None)
            if taken is not None and taken < len(stubs) - 1:
                raise ValueError(
                    f"'stubs.{tool}[{taken + 1}]' gets no call, because the stub before it takes"
                    " any; write 'call' or 'when' there, or move it to the end"
                )
        return self

    @model_validator(mode="after")
    def _faults_can_be_delivered(self) -> Self:
        first: dict[tuple[int, bool], ModelFault] = {}
        for fault in self.model_faults or ():
            other = first.setdefault((fault.call, fault.delay is not None), fault)
            if other is not fault:
                raise ValueError(
                    f"'model_faults' has {other.kind!r} and {fault.kind!r} at call {fault.call},"
                    " which cannot both happen; remove one"
                )
        return self
