"""Projects whose fault is in the trajectory: the order, number, results or agents of tool calls."""

from typing import Any

from mutants.project import Check, Project, is_another_tool
from mutants.projects_tools import CALLS
from mutants.projects_turns import MODEL, TALKS

CASE = ("test_cases", 0)

HANDED_ON = """\
def answer(message):
    calls = [
        {"name": "get_order", "arguments": {"id": "9"}, "result": "shipped", "agent": "triage"},
        {"name": "get_order", "arguments": {"id": "9"}, "result": "shipped", "agent": "triage"},
        {"name": "pay", "arguments": {}, "result": "no money", "is_error": True, "agent": "sales"},
    ]
    agents = ["triage", "sales"]
    return {"response": "Your money is on its way.", "tool_calls": calls, "agents": agents}
"""


def _project(name: str, agent: str, keys: str, *checks: Check, **more: Any) -> Project:
    """A project with one case whose keys are these."""
    text = 'name: desk\nbackend: "desk:answer"\ntest_cases:\n  - name: one\n    input: Pay me\n'
    return Project(name, {"desk.py": agent, "agent.yaml": text + keys}, checks, **more)


def _check(*path: str | int, is_whole: bool = True) -> Check:
    return Check("agent.yaml", (*CASE, *path), is_whole)


def _is_number(given: object, least: int) -> bool:
    return isinstance(given, int) and not isinstance(given, bool) and given >= least


def _allows_others(given: object) -> bool:
    """Whether an order allows other calls than the expected ones, or is no order."""
    words = {"no", "off", "n", "f", "yes", "on", "y", "t", "true", "false"}
    return given in (0, 1, "in_order", "any_order", "superset") or str(given).lower() in words


EXACT = _project(
    "calls tools besides the exact ones",
    CALLS,
    """\
    tool_order: exact
    expected_tools:
      - get_order
    forbidden_tools: [pay]
""",
    _check("tool_order"),
    _check("expected_tools"),
    meets=lambda given: (
        given in (False, True, "in_order", "any_order", "superset", 0, 1)
        or str(given).lower() in {"no", "off", "n", "f", "yes", "on", "y", "t", "true", "false"}
    ),
)

SUBSET = _project(
    "calls a tool that is not among the allowed ones",
    CALLS,
    """\
    tool_order: subset
    expected_tools:
      - name: get_order
        args: {id: ORD-9}
    max_tool_calls: 5
""",
    _check("tool_order"),
    _check("expected_tools"),
    meets=_allows_others,
)

MOST = _project(
    "calls too many tools",
    CALLS,
    """\
    max_tool_calls: 1
    expected_tools: [get_order]
""",
    _check("max_tool_calls"),
    meets=lambda given: _is_number(given, 2),
)

REPEATED = _project(
    "calls a tool twice with equal arguments",
    HANDED_ON,
    """\
    no_repeated_calls: true
    expected_tools: [get_order]
""",
    _check("no_repeated_calls"),
    meets=lambda given: given in (0, "no", "off", "n", "f", "false"),
)

HANDOFFS = _project(
    "hands off to the wrong agent",
    HANDED_ON,
    """\
    handoffs:
      - triage
      - billing
    expected_tools: [get_order]
""",
    _check("handoffs"),
    meets=lambda given: given == ["triage", "sales"],
)

RESULT = _project(
    "a wrong result of a tool",
    HANDED_ON,
    """\
    expected_tools:
      - name: get_order
        result: {contains: lost}
      - pay
""",
    _check("expected_tools", 0, "result"),
    _check("expected_tools", 0),
)

FAILED = _project(
    "a tool that fails",
    HANDED_ON,
    """\
    expected_tools:
      - name: pay
        error: false
""",
    _check("expected_tools", 0, "error"),
    _check("expected_tools", 0),
    _check("expected_tools"),
    meets=lambda given: given is True or given == 1,
)

REQUESTED = _project(
    "the wrong agent calls a tool",
    HANDED_ON,
    """\
    expected_tools:
      - name: pay
        agent: billing
""",
    _check("expected_tools", 0, "agent"),
    _check("expected_tools", 0),
    _check("expected_tools"),
    meets=lambda given: given == "sales",
)

PREFIXED = _project(
    "calls a forbidden tool of a plugin",
    CALLS.replace('"delete_order"', '"OrderPlugin-delete_order"'),
    """\
    expected_tools: [get_order]
    forbidden_tools: [delete_order]
""",
    _check("forbidden_tools"),
    meets=is_another_tool,
)

SLOW = Project(
    "a simulated conversation that takes too many turns",
    {
        "desk.py": TALKS,
        "agent.yaml": f"""\
name: desk
backend: "desk:Desk"
test_cases:
  - name: impatient customer
    simulate:
      situation: Your shoes do not fit.
      model: {MODEL}
    max_turns: 4
    max_turns_to_done: 1
    expected_tools: [get_order]
""",
    },
    [_check("max_turns_to_done")],
    meets=lambda given: _is_number(given, 2),
)

TRAJECTORIES = [
    EXACT, SUBSET, MOST, REPEATED, HANDOFFS, RESULT, FAILED, REQUESTED, PREFIXED, SLOW,
]  # fmt: skip
