"""The stubs of one run of a test case: which call gets which, what it gets, and what none got."""

import builtins
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import pydantic_core

from holodeck.lib.checks.matching import Trajectory, matches, short
from holodeck.lib.support.stubs import ToPlain
from holodeck.lib.support.text import describe
from holodeck.lib.support.tool_names import tools_named
from holodeck.models.cases.stubs import StandIns, Stub
from holodeck.models.results.evidence import unknown_reason
from holodeck.models.results.turn import StubbedCall, StubUse, ToolCheck, ToolInvocation

MARK = "mark its function with holodeck.stubbed"


class StubError(Exception):
    """What a stub raises that names no other exception."""


@dataclass
class CaseStubs:
    """The stubs of one run of a test case, which count the calls of each tool."""

    settings: StandIns
    calls: list[StubbedCall] = field(default_factory=list)
    """The calls of tools with stubs, in order; if the tools are sealed, those of all tools."""
    _lock: Lock = field(default_factory=Lock)

    def take(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        *,
        refusal: str | None = None,
        has_run: bool = False,
    ) -> "TakenCall | None":
        """Return the call as the first stub takes it that fits; None if the tool runs.

        A sealed tool does not run: without a stub, its call gets an error as text, because an
        exception would end the turn of some frameworks. So does a call that the tool would refuse
        for the reason `refusal`. `has_run` says that it ran already.
        """
        stubs, args = self.settings.stubs_of_tools, to_plain_json(dict(arguments))
        meant = (name for name in stubs if tools_named(name, [tool]))
        name = tool if tool in stubs else next(meant, None)
        if name is None and not self.settings.is_sealed:
            return None
        with self._lock:  # marked functions may run in threads
            number = 1 + sum(call.stubs == name and call.tool == tool for call in self.calls)
            at, stub = _find_stub(stubs.get(name or "", ()), number, args)
            call = StubbedCall(tool=tool, args=args, stubs=name, index=at)
            is_sealed, reason = self.settings.is_sealed, None
            if refusal is not None and (stub is not None or is_sealed):
                reason = f"{tool!r} refuses the call: {refusal}"
                call = call.model_copy(update={"index": None, "problem": reason})
            elif stub is not None and not (is_sealed and stub.runs_tool):
                tool_ran = has_run or stub.runs_tool
                call = call.model_copy(update={"kind": stub.kind, "tool_ran": tool_ran})
            elif is_sealed:
                reason = f"{tool!r} was not run, because the test case has no stub for the call"
            if reason is not None:
                call = call.model_copy(update={"seen": {"error": reason}})
                stub = Stub(returns=f"Error: {reason}")
            self.calls.append(call)
            return None if stub is None else TakenCall(stub, self, len(self.calls) - 1)

    def marked(
        self, invocations: Sequence[ToolInvocation], calls: Sequence[StubbedCall]
    ) -> list[ToolInvocation]:
        """Return the tool calls of a turn, as the agent reports them, with what stubs did to them.

        `calls` are those of the turn that the stubs saw.
        """
        left, marked = list(calls), []
        for invocation in invocations:
            named = [call for call in left if invocation.name in (call.tool, call.stubs)]
            equal = [call for call in named if call.args == invocation.args]
            update: dict[str, Any] = {}
            for call in (equal or named)[:1]:
                left.remove(call)
                if invocation.blocked:  # by the stub, and by nothing of the user
                    update = {"blocked": False, "error": None}
                update |= call.seen
                if call.kind is not None:
                    update["stub"] = StubUse(kind=call.kind, tool_ran=call.tool_ran)
            marked.append(invocation.model_copy(update=update))
        return marked

    def note(self, at: int, **facts: Any) -> None:
        """Note further facts about a call."""
        self.calls[at] = self.calls[at].model_copy(update=facts)


def _find_stub(
    stubs: Sequence[Stub], number: int, arguments: Mapping[str, Any]
) -> tuple[int, Stub] | tuple[None, None]:
    """Return the first stub that fits the call of this number, after its index."""
    for at, stub in enumerate(stubs):
        has_arguments = all(
            name in arguments and matches(matcher, arguments[name])
            for name, matcher in stub.matchers().items()
        )
        if stub.call in (None, number) and has_arguments:
            return at, stub
    return None, None


class TakenCall:
    """A call that a stub has taken; `at` is its index in `case.calls`."""

    def __init__(self, stub: Stub, case: CaseStubs, at: int) -> None:
        self.stub, self.case, self.at = stub, case, at
        self.wait_seconds = stub.delay or stub.timeout or 0.0
        self.runs_tool = stub.runs_tool

    def note_failure(self, error: Exception) -> None:
        """Note that the tool failed, so that it has no result to change."""
        if self.stub.kind != "delay":
            self.case.note(self.at, problem=f"the tool failed: {describe(error)}")

    def result(self, value: Any, to_plain: ToPlain) -> Any:
        """Return the result of the call, from that of the tool if it ran. Raises what it raises."""
        stub = self.stub
        error = _exception(stub)
        if error is not None:
            self.case.note(self.at, seen={"error": describe(error)})
            raise error
        if stub.kind in {"returns", "delay"}:
            return stub.returns if stub.has_result else value
        plain = stub.returns if stub.has_result else to_plain_json(to_plain(value))
        changed = change(stub, plain)
        if changed == plain:
            self.case.note(self.at, problem=f"{stub.kind!r} changes nothing of {short(plain)}")
            return plain if stub.has_result else value
        self.case.note(self.at, seen={"result": changed, "error": None})
        return changed


def change(stub: Stub, value: Any) -> Any:
    """Return the result as the stub changes it; the same if nothing of it can be changed."""
    if stub.malformed:
        return _without_end(value)
    if not isinstance(value, str | list | dict):
        return value
    if stub.empty:
        return type(value)()
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    return text[: stub.truncated] if len(text) > (stub.truncated or 0) else value


def _without_end(value: Any) -> str:
    """Return JSON that ends too early."""
    if isinstance(value, str) and value.rstrip().endswith(("}", "]")):
        return value.rstrip()[:-1]
    is_open = isinstance(value, dict | list)
    return json.dumps(value if is_open else {"result": value}, ensure_ascii=False)[:-1]


def _exception(stub: Stub) -> Exception | None:
    """Return what the stub raises; None if it raises nothing."""
    if stub.timeout is not None:
        return TimeoutError(f"no result within {stub.timeout:g} s")
    if stub.raises is None:
        return None
    if stub.raises == "timeout":
        return TimeoutError("timeout")
    name, colon, message = stub.raises.partition(":")
    kind = getattr(builtins, name, None)
    if colon and isinstance(kind, type) and issubclass(kind, Exception):
        with suppress(TypeError):  # such as UnicodeDecodeError, which a message does not make
            return kind(message.strip())
    return StubError(stub.raises)


def to_plain_json(value: Any) -> Any:
    """Return a value as JSON holds it."""
    return pydantic_core.to_jsonable_python(value, fallback=str, inf_nan_mode="strings")


def check_deliveries(
    settings: StandIns, observed: Trajectory, calls: Sequence[StubbedCall]
) -> list[ToolCheck]:
    """Return the rows about stubs that no call got, about calls that their tools would refuse, and
    about sealed tools that may have run.

    A fault that was not delivered would pass as one that the agent has withstood.

    Args:
        settings: The stubs of the case.
        observed: The tool calls that the agent reports.
        calls: Those that the stubs saw.
    """
    rows = [
        ToolCheck(expectation=f"call of {call.tool}", passed=False, reason=call.problem)
        for call in calls
        if call.index is None and call.problem is not None
    ]
    for tool, stubs in settings.stubs_of_tools.items():
        seen = [call for call in calls if call.stubs == tool]
        for at, stub in enumerate(stubs):
            taken = [call for call in seen if call.index == at]
            problems = [call.problem for call in taken if call.problem is not None]
            if taken and len(problems) < len(taken):
                continue
            if taken or must_be_delivered(stub, at):
                error = problems[0] if problems else _not_delivered(tool, stub, observed, seen)
                row = ToolCheck(expectation=f"stub {tool}[{at}]", passed=False, error=error)
                rows.append(row)
    return [*rows, *(_check_seal(observed, calls) if settings.is_sealed else ())]


def _check_seal(observed: Trajectory, calls: Sequence[StubbedCall]) -> Iterator[ToolCheck]:
    """Yield a row for each call of a sealed tool without a stub, or past the stubs."""
    label, left = "no call without a stub", [call.tool for call in calls]
    for call in calls:
        if call.kind is None and call.problem is None:
            reason = f"{call.tool}({short(call.args)}) has no stub that keeps the tool from running"
            yield ToolCheck(expectation=label, passed=False, reason=reason)
    for invocation in observed.calls:
        if invocation.name in left:
            left.remove(invocation.name)
        elif invocation.transfer_to is None:
            reason = f"{invocation.name} was called past the stubs, so that it may have run; {MARK}"
            yield ToolCheck(expectation=label, passed=False, reason=reason)
    if observed.evidence.tool_calls is None:
        error = unknown_reason("tool_calls", observed.evidence)
        yield ToolCheck(expectation=label, passed=False, error=error)


def must_be_delivered(stub: Stub, at: int) -> bool:
    """Whether a case is an error without a call that gets this stub of a tool."""
    is_fallback = at > 0 and stub.is_for_any_call and stub.kind == "returns"
    return not (is_fallback if stub.optional is None else stub.optional)


def _not_delivered(
    tool: str, stub: Stub, observed: Trajectory, calls: Sequence[StubbedCall]
) -> str:
    past = [call for call in observed.calls if tools_named(tool, [call.name])]
    if past and not calls:
        return f"{tool} was called past the stubs; {MARK}"
    counts = {0: "was never called", 1: "was called once"}
    count = counts.get(len(calls), f"was called {len(calls)} times")
    what = f"{tool} {count}; {stub} was not delivered"
    return f"{what}, which needs {short(stub.when)}" if stub.when and calls else what
