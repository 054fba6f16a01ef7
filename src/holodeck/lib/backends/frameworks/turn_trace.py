"""What agent frameworks do in this process while an agent takes a turn, as their tracing tells it.

An adapter reads the run that it started. A tool, a filter or a context provider of that run may
run further agents, of which the result of the run tells nothing. Their tracing does.
"""

from collections import Counter
from collections.abc import Callable, Container, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from threading import Lock
from types import MappingProxyType
from typing import Any, Literal

Operation = Literal["request", "tool", "agent", "other"]
_PARENTS = frozenset({"agent", "tool", "other"})
"""What a step of another framework may be inside of: one in a request would not be a request."""
WITHOUT_SPANS = frozenset({"", "LangChain", "Claude Agent SDK"})
"""Frameworks of whose own runs no span is expected: their adapters see them in another way."""
WAYS_OUT = (
    "write 'tap: true', or 'tools_run_no_agents: true' if no tool of it runs an agent, beside"
    " 'target'"
)


@dataclass(eq=False)
class TraceStep:
    """A request to a model, a call of a tool, or a run of an agent."""

    framework: str
    operation: Operation
    name: str = ""
    """Of the tool or the agent."""
    parent: "TraceStep | None" = None
    is_open: bool = True
    failed: bool = False
    calls: list[dict[str, Any]] | None = None
    """The tool calls that a request yielded; None if unknown."""
    left_out: list[str] = field(default_factory=list)
    """Names of tools by which a request's answer is structured."""
    usage: tuple[int | None, int | None] = (None, None)
    """Prompt and completion tokens of a request."""
    model: str | None = None
    """The model that answered a request; None if unknown."""
    call_id: str | None = None
    arguments: Any = None
    """Of a tool; None if unknown."""
    result: Any = None
    """Of a tool; None if unknown."""

    def around(self, operation: Operation) -> "TraceStep | None":
        """Return the innermost step of that kind around this one; None if there is none."""
        step = self.parent
        while step is not None and step.operation != operation:
            step = step.parent
        return step

    @property
    def agent(self) -> "TraceStep | None":
        """The agent whose step it is; None if it is unknown."""
        step = self.parent
        while step is not None and step.operation not in {"agent", "tool"}:
            step = step.parent
        return step if step is not None and step.operation == "agent" else None


@dataclass
class OtherWork:
    """What happened in a turn beyond what its adapter read."""

    calls: list[dict[str, Any]] = field(default_factory=list)
    """Further tool calls, with `name` and `call_id`, and perhaps `arguments` and `agent`."""
    tools: list[TraceStep | None] = field(default_factory=list)
    """By the call: the outermost tool inside of which it was requested; None outside of tools."""
    outer_tools: list[TraceStep] = field(default_factory=list)
    """All tools that ran outside of other tools."""
    results: list[dict[str, Any]] = field(default_factory=list)
    """The results of these calls, as far as they are known."""
    requests: list[TraceStep] = field(default_factory=list)
    """The requests that are not, or not certainly, among those that the adapter counted."""
    counts_all: bool = False
    """Whether `requests` are all requests of the turn, those of the adapter among them."""
    left_out: list[str] = field(default_factory=list)
    """Names of tools by which a model gives a structured answer; their calls are no tool calls."""
    seen_tools: frozenset[str] = frozenset()
    """The names of the tools inside of which requests were seen."""
    problem: str | None = None
    """Why there may be still more calls."""

    def inserted_into(self, calls: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
        """Return all calls in order: those of a tool's agents follow the call of the tool."""
        groups = [[dict(call)] for call in calls]
        further: list[dict[str, Any]] = []
        for call, tool in zip(self.calls, self.tools, strict=True):
            around = [group for group in groups if tool is not None and _is_of(tool, group[0])]
            if tool is None or not around:
                further.append(call)
            else:  # calls without ids, or with the same: the tools ran in the order of the calls
                same = [other for other in self.outer_tools if other.name == tool.name]
                named = [group for group in around if group[0]["name"] == tool.name] or around
                named[min(same.index(tool), len(named) - 1)].append(call)
        return [call for group in groups for call in group] + further

    @property
    def usage(self) -> tuple[int | None, int | None]:
        """The tokens of `requests`; None where one of them is unknown."""
        prompts = [step.usage[0] for step in self.requests]
        completions = [step.usage[1] for step in self.requests]
        return _sum(prompts), _sum(completions)


def _is_of(tool: TraceStep, call: Mapping[str, Any]) -> bool:
    if tool.call_id is None:
        return bool(tool.name == call["name"])
    return bool(tool.call_id == call.get("call_id"))


def _sum(counts: list[int | None]) -> int | None:
    known = [count for count in counts if count is not None]
    return sum(known) if len(known) == len(counts) else None


class TurnTrace:
    """The steps of a turn, from any thread.

    Args:
        framework: The framework whose adapter takes the turn.
        imported: Returns the packages of frameworks that this process has imported.
    """

    def __init__(self, framework: str, imported: Callable[[], frozenset[str]]) -> None:
        self.framework = framework
        self.packages = imported()
        """The packages whose tracing is listened to."""
        self._imported = imported
        self.unheard: frozenset[str] = frozenset()
        """Those whose tracing is off, or that record a part of their work only."""
        self.strays: list[str] = []
        """What began outside of every turn, and may belong to this one."""
        self._untraced: list[str] = []
        """The frameworks of the runs that said that their tracing is off."""
        self._saw_own_run = False
        """Whether the run that the adapter started was seen, and not only others."""
        self._steps: list[TraceStep] = []
        self._by_key: dict[Hashable, TraceStep] = {}
        self._lock = Lock()

    def begin(
        self, key: Hashable, parent: Hashable, step: TraceStep, around: TraceStep | None
    ) -> None:
        """Note a step that begins, by the keys that its framework gives to it and its parent.

        A parent that is a step of another framework has no such key; it is the innermost one that
        is open in the context, where `around` is the latest.
        """
        with self._lock:
            step.parent = self._by_key.get(parent) or _open_step(around, _PARENTS)
            self._by_key[key] = step
            self._steps.append(step)

    def note_untraced(self, framework: str) -> None:
        """Note that a run of the framework began whose tracing is off."""
        self._untraced.append(framework)

    def blind_spot(self, *, has_run_tools: bool) -> str | None:
        """Return why agents may have run unseen; None if none can.

        Called after `other_work`.

        Args:
            has_run_tools: Whether tools ran that may run an agent.
        """
        if self.strays:
            return (
                f"{self.strays[0]} began in a thread without the context of a turn, and may belong"
                " to this one"
            )
        if self._untraced and (self._saw_own_run or self.framework not in self._untraced):
            return (
                f"an agent of the {self._untraced[0]} ran with its tracing off, and is not seen;"
                " turn it on" + (", or write 'tap: true' beside 'target'" if self.framework else "")
            )
        return self._silence() if has_run_tools else None

    def _silence(self) -> str | None:
        """Return why an agent would not be seen inside of a tool; None if it would be."""
        late = self._imported() - self.packages
        if late:
            return (
                f"a tool imported {min(late)!r} while the agent answered, too late to see what it"
                " does; import it at the top of the module"
            )
        if not self._saw_own_run and self.framework not in WITHOUT_SPANS:
            return (
                f"a tool ran, and the tracing of {self.framework} is off, so that an agent inside"
                f" of the tool would not be seen; turn it on, or {WAYS_OUT}"
            )
        if self.unheard:
            return (
                f"a tool ran, and the tracing of {min(self.unheard)!r} is off, or records only some"
                " runs, so that an agent of it inside of the tool might not be seen; turn it on"
                + (f", or {WAYS_OUT}" if self.framework else "")
            )
        return None

    def tools_that_ran(self) -> set[str | None] | None:
        """Return the ids of the calls for which a tool ran; None if not all were seen."""
        if not self._saw_own_run or self.unheard or self.strays:
            return None
        return {step.call_id for step in self._steps if step.operation == "tool"}

    def other_work(
        self,
        calls: Iterable[Mapping[str, Any]],
        requests: int | None,
        left_out: Iterable[str],
        counted: Mapping[str | None, int] = MappingProxyType({}),
    ) -> OtherWork | None:
        """Return what the adapter did not read; None if that is nothing.

        Args:
            calls: The tool calls that the adapter read.
            requests: How many requests to models it counted; None if it cannot.
            left_out: Names of tools whose calls the adapter leaves out on purpose.
            counted: How many requests it counted of each agent, whose calls it read.
        """
        made = [step for step in self._steps if _is_request(step)]
        self._saw_own_run = self._is_own_run_here([*calls], requests, made)
        inner = [step for step in made if self._is_foreign(step)]
        own = len(made) - len(inner)
        blind = [step for step in self._steps if self._is_blind(step)]
        is_uncounted = requests is not None and own > requests
        counts_all = bool(own) and (requests is None or own >= requests)
        work = OtherWork(
            requests=made if counts_all else inner,
            counts_all=counts_all,
            seen_tools=frozenset(tool.name for step in inner if (tool := step.around("tool"))),
            problem=_problem(inner, _unread(made, counted) if is_uncounted else [], blind),
        )
        further = self._calls(calls, inner, made if is_uncounted else [], {*left_out})
        work.calls = [call for _, call in further]
        work.tools = [_outermost(step) for step, _ in further]
        work.outer_tools = [
            step for step in self._steps if step.operation == "tool" and step.around("tool") is None
        ]
        if not (inner or blind or is_uncounted or work.calls or (requests is None and own)):
            return None
        work.results = self._results(work.calls)
        work.left_out = [name for step in work.requests for name in step.left_out]
        work.requests = [*work.requests, *blind]  # nobody tells the tokens of these agents
        return work

    def _is_own_run_here(
        self, calls: list[Mapping[str, Any]], requests: int | None, made: list[TraceStep]
    ) -> bool:
        own = [step for step in self._steps if step.framework == self.framework]
        outer = [step for step in own if step.around("tool") is None]
        tools = [step for step in outer if step.operation == "tool"]
        if calls and tools and not any(_is_of(tool, call) for tool in tools for call in calls):
            return False
        seen = sum(step in outer for step in made)
        return bool(own) and (requests is None or not 0 < seen < requests)

    def _is_foreign(self, step: TraceStep) -> bool:
        """Whether it is the work of a tool or of another framework, not of the adapter's run."""
        is_own = step.framework == self.framework and self._saw_own_run
        return not is_own or step.around("tool") is not None

    def _is_blind(self, step: TraceStep) -> bool:
        """Whether an agent ran inside of a tool, but none of its requests was seen."""
        if step.operation != "agent" or not self._is_foreign(step):
            return False
        return not any(other.agent is step for other in self._steps)

    def _calls(
        self,
        known: Iterable[Mapping[str, Any]],
        inner: list[TraceStep],
        uncounted: list[TraceStep],
        left_out: set[str],
    ) -> list[tuple[TraceStep, dict[str, Any]]]:
        """Return the calls that were requested or executed, and that the adapter did not read.

        Each comes with the request, or with the tool itself. `uncounted` are all requests, if the
        adapter did not read some of its own run.
        """
        tools = [(step, _call_of(step)) for step in self._steps if step.operation == "tool"]
        executed = [(step, call) for step, call in tools if call["call_id"] is not None]
        requests = uncounted or inner
        requested = [(step, call) for step in requests for call in step.calls or ()]
        read = Counter((call["name"], call.get("call_id")) for call in known)
        left = _counted(executed) - read
        left |= _counted(requested) - read if uncounted else _counted(requested)
        calls = []
        for step, call in [*requested, *executed]:
            key = _key(call)
            if not left[key] or call["name"] in left_out:
                continue
            left[key] -= 1
            agent = step.agent
            row = {**call, "agent": agent.name} if agent and agent.name else call
            calls.append((step, row))
        begun = {id(step): number for number, step in enumerate(self._steps)}
        return sorted(calls, key=lambda pair: begun[id(pair[0])])

    def _results(self, calls: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Return the results of these calls, as far as they are known."""
        keys = {_key(call) for call in calls}
        rows = []
        for step in self._steps:
            call = _call_of(step)
            if step.operation == "tool" and step.result is not None and _key(call) in keys:
                row = {"name": step.name, "call_id": step.call_id, "result": step.result}
                rows.append({**row, "is_error": True} if step.failed else row)
        return rows


def _is_request(step: TraceStep) -> bool:
    """Whether a model answered; frameworks may make two spans of a request, one in the other."""
    return step.operation == "request" and not step.failed and step.around("request") is None


def _unread(made: list[TraceStep], counted: Mapping[str | None, int]) -> list[TraceStep]:
    """Return the requests without those of agents all of whose requests an adapter read."""
    names = [step.agent.name if step.agent is not None else None for step in made]
    total = Counter(names)
    return [
        step
        for step, name in zip(made, names, strict=True)
        if name is None or total[name] != counted.get(name)
    ]


def _outermost(step: TraceStep) -> TraceStep | None:
    """Return the outermost tool around a step; None if there is none."""
    tool, outer = None, step.around("tool")
    while outer is not None:
        tool, outer = outer, outer.around("tool")
    return tool


def _call_of(tool: TraceStep) -> dict[str, Any]:
    call: dict[str, Any] = {"name": tool.name, "call_id": tool.call_id}
    return call if tool.arguments is None else {**call, "arguments": tool.arguments}


def _key(call: Mapping[str, Any]) -> tuple[str, str | None]:
    return call["name"], call["call_id"]


def _counted(calls: list[tuple[TraceStep, dict[str, Any]]]) -> Counter[tuple[str, str | None]]:
    return Counter(_key(call) for _, call in calls)


def _problem(
    inner: list[TraceStep], uncounted: list[TraceStep], blind: list[TraceStep]
) -> str | None:
    """Return why calls may be missing: the requests whose answers were not read."""
    for step in [*inner, *uncounted, *blind]:
        if step.calls is None:
            tool, agent = step.around("tool"), step.agent
            who = step.name if step in blind else agent.name if agent is not None else ""
            inside = f", which ran inside of the tool {tool.name!r}" if tool is not None else ""
            named = f"those of the agent {who!r}" if who else "those of a further request"
            return f"{named}{inside} are not all seen; 'tap: true' shows them"
    return None


current_turn: ContextVar[TurnTrace | None] = ContextVar("holodeck_turn", default=None)
"""The turn that steps of this context belong to."""
_latest_step: ContextVar[TraceStep | None] = ContextVar("holodeck_step", default=None)
"""The step that began last in this context; it, or one that it is in, may be open."""
_is_outside: ContextVar[bool] = ContextVar("holodeck_outside_of_turns", default=False)
open_turns: list[TurnTrace] = []
"""The turns that are under way."""


@contextmanager
def in_turn(trace: TurnTrace) -> Iterator[None]:
    """Let the turn have the steps of the block."""
    turn, step = current_turn.set(trace), _latest_step.set(None)
    try:
        yield
    finally:
        _latest_step.reset(step)
        current_turn.reset(turn)


@contextmanager
def outside_of_turns() -> Iterator[None]:
    """Let no turn have the steps of the block, which are those of judges and graders."""
    token, outside = current_turn.set(None), _is_outside.set(True)
    try:
        yield
    finally:
        _is_outside.reset(outside)
        current_turn.reset(token)


class OpenSteps:
    """The steps that a listener saw begin, by the keys that their framework gives them."""

    def __init__(self) -> None:
        self._steps: dict[Hashable, TraceStep] = {}

    def begin(self, key: Hashable, parent: Hashable, step: TraceStep) -> None:
        """Note a step in the turn of this context.

        A step of an earlier turn, and one of a thread, without a context and a parent, may belong
        to any turn.
        """
        trace = current_turn.get()
        if trace is not None and trace in open_turns:
            trace.begin(key, parent, step, _latest_step.get())
            _latest_step.set(step)
            self._steps[key] = step
            return
        is_lost = trace is not None or (parent is None and not _is_outside.get())
        if is_lost and step.framework:
            for turn in [*open_turns]:
                turn.strays.append(f"work of {step.framework}")

    def end(self, key: Hashable) -> TraceStep:
        """Return the step, which has ended, to be completed; an empty one if it has no turn."""
        step = self._steps.pop(key, None) or TraceStep("", "other")
        step.is_open = False
        return step


def note_request(framework: str) -> None:
    """Note a request of a framework; without a step of its own, its tracing is off."""
    step = _open_step(_latest_step.get(), _PARENTS | {"request"})
    if step is None or step.framework != framework or step.operation == "tool":
        note_untraced_run(framework)


def _open_step(step: TraceStep | None, operations: Container[str]) -> TraceStep | None:
    """Return the innermost step with one of these operations that is open."""
    while step is not None and not (step.is_open and step.operation in operations):
        step = step.parent
    return step


def note_untraced_run(framework: str) -> None:
    """Note that a run of a framework begins whose tracing is off: in its turn, or in any."""
    trace = current_turn.get()
    if trace is not None and trace in open_turns:
        trace.note_untraced(framework)
    elif not _is_outside.get():
        for turn in [*open_turns]:
            turn.note_untraced(framework)
