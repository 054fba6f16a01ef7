"""Compare the tool calls and hand-offs of two agents, A and B, in the same test case."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, zip_longest
from typing import Any

from holodeck.lib.checks.matching import equal_json
from holodeck.lib.support.text import one_line, value_in_text
from holodeck.lib.support.tool_names import unprefixed
from holodeck.models.records.comparison import AgentsDivergence, Divergence, Trajectories
from holodeck.models.results.outcome import Outcome
from holodeck.models.test_result import TestResult, ToolInvocation

NO_CALL = "called no further tool"
ENDED = "had ended the conversation"
_MAX_ARGUMENT = 60
_MAX_STEP = 160


_Runs = Sequence[tuple[TestResult, TestResult]]


class _Unknown(Exception):
    """Raised where nothing more is known; the message says why."""


@dataclass(frozen=True)
class _Turn:
    """What is known of the tool calls in a turn."""

    calls: Sequence[ToolInvocation]
    unknown: str | None = None
    """Why there may be further calls; None if these are all."""


def compare_trajectories(
    first: TestResult | None, second: TestResult | None, names: Mapping[str, str] | None = None
) -> Trajectories:
    """Return whether the agents called the same tools and handed off alike, or where they parted.

    What the first agent did is compared, and shown, with the `names` that the second one has.
    The repetitions of a case are compared in their order. Unknown calls are never equal.
    """
    if first is None or first.outcome is Outcome.SKIPPED:
        return Trajectories(state="unknown", reason="A did not run the case")
    if second is None or second.outcome is Outcome.SKIPPED:
        return Trajectories(state="unknown", reason="B did not run the case")
    runs = list(zip(repetitions(first), repetitions(second), strict=False))
    is_repeated = first.repeats is not None
    names = names or {}
    trajectories = _compare_calls(runs, names, is_repeated=is_repeated)
    return trajectories.model_copy(update=_compare_agents(runs, names, is_repeated=is_repeated))


def observed_names(results: Iterable[TestResult]) -> set[str]:
    """Return the names of the tools, arguments and agents in results."""
    names: set[str] = set()
    for part in (part for result in results for run in repetitions(result) for part in run.parts):
        names.update(part.agents or ())
        names.update(call.transfer_to for call in part.tool_invocations if call.transfer_to)
        for call in part.tool_invocations:
            names.update((call.name, *unprefixed(call.name), *call.args))
    return names


def _compare_calls(runs: _Runs, names: Mapping[str, str], *, is_repeated: bool) -> Trajectories:
    divergences, reasons, unknown_results = [], [], 0
    for number, (first, second) in enumerate(runs, 1):
        comparison = _Comparison(_turns("A", first, names), _turns("B", second, {}))
        try:
            divergence = comparison.find_divergence()
        except _Unknown as error:
            reasons.append(str(error))
        else:
            unknown_results += comparison.unknown_results
            if divergence is not None:
                repetition = number if is_repeated else None
                divergences.append(divergence.model_copy(update={"repetition": repetition}))
    if divergences:
        return Trajectories(
            state="parted",
            divergence=divergences[0],
            compared=len(runs) - len(reasons),
            parted=len(divergences),
        )
    if reasons or not runs:
        reason = reasons[0] if reasons else "no repetition was run"
        return Trajectories(state="unknown", reason=reason, compared=len(runs) - len(reasons))
    return Trajectories(state="same", compared=len(runs), unknown_results=unknown_results)


def _compare_agents(runs: _Runs, names: Mapping[str, str], *, is_repeated: bool) -> dict[str, Any]:
    """Return the fields about hand-offs; none if they are unknown, or if no agent hands off."""
    known = [(_agents(first, names), _agents(second, {})) for first, second in runs]
    spoke = [turns for pair in known for turns in pair]
    if not any(turns is not None and len({*chain(*turns)}) > 1 for turns in spoke):
        return {}
    for number, (first, second) in enumerate(known, 1):
        for turn, (ours, theirs) in enumerate(zip(first or (), second or (), strict=False), 1):
            if ours != theirs:
                at = AgentsDivergence(
                    repetition=number if is_repeated else None, turn=turn, first=ours, second=theirs
                )
                return {"agents": "parted", "agents_divergence": at}
    is_known = None not in spoke and not any(_is_broken(side) for pair in runs for side in pair)
    return {"agents": "same"} if is_known else {}


def _agents(run: TestResult, names: Mapping[str, str]) -> list[list[str]] | None:
    """Return who spoke in each complete turn; None if that is not known of every one."""
    complete = run.parts[:-1] if _is_broken(run) else run.parts
    known = [
        [names.get(agent, agent) for agent in part.agents]
        for part in complete
        if part.agents is not None
    ]
    return known if len(known) == len(complete) else None


def _is_broken(run: TestResult) -> bool:
    """Whether the run ended with an error, so that its last turn is incomplete."""
    return run.outcome is Outcome.AGENT_ERROR


def repetitions(result: TestResult) -> list[TestResult]:
    """Return the runs of a case that count, in their order."""
    return [result] if result.repeats is None else result.repeats.runs


def _turns(who: str, run: TestResult, names: Mapping[str, str]) -> list[_Turn]:
    """Return what is known of each turn; a run that broke off has unknown calls at its end."""
    turns = []
    for part in run.parts:
        is_known = part.evidence.tool_calls is not None
        unknown = None if is_known else f"the tool calls of {who} are unknown"
        calls = [_renamed(call, names) for call in part.tool_invocations] if is_known else ()
        turns.append(_Turn(calls, unknown))
    if _is_broken(run):
        turns[-1] = _Turn(turns[-1].calls, f"{who} ended with an error")
    return turns


def _renamed(call: ToolInvocation, names: Mapping[str, str]) -> ToolInvocation:
    """Return a call with other names; that of a tool may stand after the name of a plugin."""
    if not names:
        return call
    tool = next(
        (names[name] for name in (call.name, *unprefixed(call.name)) if name in names), call.name
    )
    agent = names.get(call.transfer_to or "", call.transfer_to)
    values = (value if value != call.transfer_to else agent for value in call.args.values())
    args = {names.get(name, name): value for name, value in zip(call.args, values, strict=True)}
    return call.model_copy(update={"name": tool, "args": args, "transfer_to": agent})


@dataclass
class _Comparison:
    """The comparison of a run of agent A with a run of agent B."""

    first: Sequence[_Turn]
    second: Sequence[_Turn]
    unknown_results: int = 0
    _number: int = field(default=0, init=False)
    """Of the turn, from 1."""
    _unknown_arguments: list[str] = field(default_factory=list, init=False)
    """Messages about arguments that could not be compared."""

    def find_divergence(self) -> Divergence | None:
        """Return the first step that differs; None if all are the same. Raises _Unknown."""
        for ours, theirs in zip_longest(self.first, self.second):
            self._number += 1
            if ours is None:
                return self._divergence(1, "missing", ENDED, _continuation(theirs))
            if theirs is None:
                return self._divergence(1, "missing", _continuation(ours), ENDED)
            divergence = self._compare_turns(ours, theirs)
            if divergence is not None:
                return divergence
        if self._unknown_arguments:
            raise _Unknown(self._unknown_arguments[0])
        return None

    def _compare_turns(self, ours: _Turn, theirs: _Turn) -> Divergence | None:
        for number, (call, others) in enumerate(zip(ours.calls, theirs.calls, strict=False), 1):
            divergence = self._compare_calls(number, call, others, ours, theirs)
            if divergence is not None:
                return divergence
        both = min(len(ours.calls), len(theirs.calls))
        if len(ours.calls) > both and theirs.unknown is None:
            return self._divergence(both + 1, "missing", _called(ours.calls[both]), NO_CALL)
        if len(theirs.calls) > both and ours.unknown is None:
            return self._divergence(both + 1, "missing", NO_CALL, _called(theirs.calls[both]))
        if ours.unknown or theirs.unknown:
            raise _Unknown(" and ".join(filter(None, (ours.unknown, theirs.unknown))))
        return None

    def _compare_calls(
        self, number: int, first: ToolInvocation, second: ToolInvocation, ours: _Turn, theirs: _Turn
    ) -> Divergence | None:
        called = _called(first), _called(second)
        is_same_transfer = _is_same_transfer(first, second)
        if not _is_same_tool(first.name, second.name, ours.calls, theirs.calls):
            if is_same_transfer:
                return None
            kind = "order" if _are_reordered(ours.calls, theirs.calls) else "tool"
            return self._divergence(number, kind, *called)
        unknown = [who for who, call in (("A", first), ("B", second)) if "args" in call.unknown]
        if unknown:
            self._unknown_arguments.append(
                f"the arguments of {first.name!r} on {' and '.join(unknown)} are unknown"
            )
        elif not equal_json(first.args, second.args):
            return self._divergence(number, "arguments", *called)
        return None if is_same_transfer else self._compare_results(number, first, second)

    def _compare_results(
        self, number: int, first: ToolInvocation, second: ToolInvocation
    ) -> Divergence | None:
        if (first.stub is None) != (second.stub is None):  # no agent is to blame for that
            self.unknown_results += 1
            return None
        if not all(
            call.is_result_known and "error" not in call.unknown for call in (first, second)
        ):
            self.unknown_results += 1
            return None
        if (first.error is None) != (second.error is None):
            return self._divergence(number, "error", _returned(first), _returned(second))
        if first.error is None and not equal_json(
            value_in_text(first.result), value_in_text(second.result)
        ):
            return self._divergence(number, "result", _returned(first), _returned(second))
        return None

    def _divergence(self, call: int, kind: Any, first: str, second: str) -> Divergence:
        return Divergence(turn=self._number, call=call, kind=kind, first=first, second=second)


def _is_same_transfer(first: ToolInvocation, second: ToolInvocation) -> bool:
    """Whether both transferred the conversation to the same agent.

    Each framework has its own tool for that, and its own words for the result.
    """
    return first.transfer_to is not None and first.transfer_to == second.transfer_to


def _continuation(turn: _Turn) -> str:
    return _called(turn.calls[0]) if turn.calls else "continued without a tool call"


def _is_same_tool(
    name: str, other: str, ours: Sequence[ToolInvocation], theirs: Sequence[ToolInvocation]
) -> bool:
    """Whether both names mean the same tool, such as `OrderPlugin-lookup` and `lookup`.

    A short name that fits several called tools means none of them.
    """
    if name == other:
        return True
    if not _is_short_for(name, other):
        return False
    return _is_only_match(name, theirs) and _is_only_match(other, ours)


def _is_short_for(name: str, other: str) -> bool:
    """Whether one of the names is the other without a prefix."""
    return name in unprefixed(other) or other in unprefixed(name)


def _is_only_match(name: str, calls: Sequence[ToolInvocation]) -> bool:
    names = {call.name for call in calls}
    return sum(name == called or _is_short_for(name, called) for called in names) == 1


def _are_reordered(ours: Sequence[ToolInvocation], theirs: Sequence[ToolInvocation]) -> bool:
    """Whether both are the same calls in another order."""
    left = list(theirs)
    for call in ours:
        same = [
            candidate
            for candidate in left
            if _is_same_transfer(call, candidate)
            or (
                _is_same_tool(call.name, candidate.name, ours, theirs)
                and equal_json(call.args, candidate.args)
            )
        ]
        if not same:
            return False
        left.remove(same[0])
    return not left


def _called(call: ToolInvocation) -> str:
    return f"called {_step(call)}"


def _step(call: ToolInvocation) -> str:
    arguments = ", ".join(
        f"{name}={one_line(repr(value), _MAX_ARGUMENT)}" for name, value in call.args.items()
    )
    arguments = "…" if "args" in call.unknown else arguments
    return one_line(f"{call.name}({arguments})", _MAX_STEP)


def _returned(call: ToolInvocation) -> str:
    if call.error is not None:
        return f"{_step(call)} failed: {one_line(call.error, _MAX_STEP)}"
    return f"{_step(call)} returned {one_line(repr(call.result), _MAX_STEP)}"
