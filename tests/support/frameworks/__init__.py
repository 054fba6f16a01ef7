"""Agents of every framework for the contract suite: one module per framework, found by itself.

Each module has a list `ROWS` of functions that build an agent on a fake server. All of them take
part in the same play, which is written below for the model.
"""

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pkgutil import iter_modules
from typing import Any

from support.server import FakeOpenAI
from support.wire_types import Reply, Request

TOOL = "lookup_order"
"""The tool that every agent has: `lookup_order(order_id: str) -> str`."""
INSTRUCTIONS = "Be brief."
"""Of every agent."""
AGENT = "support"
"""The name of every agent."""


INVALID_CALLS: Mapping[str, tuple[str, Any]] = {
    "call an unknown tool": ("erase", {}),
    "leave the arguments out": (TOOL, {}),
    "write malformed arguments": (TOOL, '{"order_id": '),
}
"""Prompt → a call that no tool can take, which the model makes first."""


def lookup_order(order_id: str) -> str:
    """Return where an order is; what the tool of every agent does.

    The variable `DELAY_7` says how many seconds it takes for order 7.
    """
    import os
    import time

    time.sleep(float(os.environ.get(f"DELAY_{order_id}", "0")))
    if order_id == "lost":
        raise ValueError("no such order")
    return f"order {order_id} is shipped"


@dataclass
class Subject:
    """A user's agent, as a framework made it, and what a test may know about it."""

    agent: object
    """The user's object."""
    server: FakeOpenAI
    """The model behind it."""
    tool: str = TOOL
    """The tool's name as the framework reports it."""
    instructions: str | None = INSTRUCTIONS
    """What the agent tells its model first; None if it has none."""
    agents: list[str] | None = field(default_factory=lambda: [AGENT])
    """Who speaks in a turn; None if the framework does not say."""
    noticed: Callable[[], list[str]] | None = None
    """What the user's own callbacks of the agent noticed so far; None if it has no callbacks."""
    parts: Callable[[], Sequence[object]] | None = None
    """The objects of the user that must be the same before and after; by default the agent."""
    caches: frozenset[str] = frozenset()
    """Attributes that the framework itself sets when the agent is used for the first time."""
    close: Callable[[], Awaitable[Any]] | None = None
    """Closes the user's client of the model."""
    catches_tool_errors: bool = True
    """Whether the framework gives the model the error of a tool; otherwise the turn fails."""
    reads_malformed_arguments: bool = True
    """Whether the framework tells the model that its arguments are no JSON; or the turn fails."""
    runs_tools: bool = True
    """Whether the framework runs the tools, and not the user's own loop."""
    takes_context: bool = True
    """Whether a conversation can begin with earlier messages."""

    def snapshot(self) -> list[dict[str, object]]:
        """Return what the user's objects hold, to compare it later."""
        parts = [self.agent] if self.parts is None else self.parts()
        return [
            {name: _held(value) for name, value in vars(part).items() if name not in self.caches}
            for part in parts
        ]


def _held(value: object) -> object:
    """Return the items of a collection; of other values, which object they are."""
    if isinstance(value, list | tuple | set):
        return [id(item) for item in value]
    if isinstance(value, dict):
        return {key: id(item) for key, item in value.items()}
    return id(value)


def script(request: Request) -> Reply:
    """The model's part: what each agent's model answers to the last message of the user."""
    prompt = request.prompt
    results = results_of_turn(request)
    if prompt == "fail" or (results and "then fail" in prompt):
        return Reply(status=400, content="as told")
    if prompt == "hang" or (results and "then hang" in prompt):
        return Reply(fault="hang")
    if results:
        return Reply(f"OK: {', '.join(results)}")
    if prompt in INVALID_CALLS:
        tool, arguments = INVALID_CALLS[prompt]
        names = [name for name in request.tools if name.endswith(tool)]
        return Reply(tool_calls=[(*(names or [tool]), arguments)])
    orders = re.findall(r"order (\w+)", prompt)
    if orders:
        tool = next(name for name in request.tools if name.endswith(TOOL))
        return Reply(tool_calls=[(tool, {"order_id": order}) for order in orders])
    return Reply(f"OK: {prompt}")


def results_of_turn(request: Request) -> list[str]:
    """Return the results of tools since the last message of the user."""
    results: list[str] = []
    for message in request.messages:
        if message.get("role") == "user":
            results = []
        elif message.get("role") == "tool":
            results.append(str(message.get("content")))
    return results


def all_rows() -> list[Callable[[FakeOpenAI], Subject]]:
    """Return the rows of every framework that is installed."""
    return [row for module in _modules() if is_installed(module) for row in module.ROWS]


def approval_rows() -> list[Callable[[FakeOpenAI], Subject]]:
    """Return agents that ask for an approval of each call, of the frameworks that can."""
    modules = [module for module in _modules() if is_installed(module)]
    return [row for module in modules for row in getattr(module, "APPROVAL_ROWS", ())]


def missing_frameworks() -> set[str]:
    """Return the names of the frameworks that are not installed."""
    return {module.FRAMEWORK for module in _modules() if not is_installed(module)}


def is_installed(module: Any) -> bool:
    """Whether the framework is installed; one that clashes with ours has `REQUIRES`."""
    if not hasattr(module, "REQUIRES"):
        return True
    try:
        return find_spec(module.REQUIRES) is not None
    except ModuleNotFoundError:
        return False


def _modules() -> list[Any]:
    return [import_module(f"{__name__}.{module.name}") for module in iter_modules(__path__)]
