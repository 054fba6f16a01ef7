"""Projects whose fault is in the spans of the agent."""

from typing import Any

from mutants.project import Check, Project, is_another_tool
from mutants.projects_trajectory import CASE

SHOP = """\
from opentelemetry import trace

tracer = trace.get_tracer("desk")

def answer(message):
    with tracer.start_as_current_span("POST /answer", attributes={"http.status_code": 200}):
        for name in ("get_order", "delete_order"):
            found = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": name}
            tracer.start_span("execute_tool " + name, attributes=found).end()
        model = {"gen_ai.operation.name": "chat", "gen_ai.usage.output_tokens": 700}
        tracer.start_span("chat gpt", attributes=model).end()
    return "Your money is on its way."
"""
_CHECKS = ("trace", "checks", 0)


def _project(name: str, keys: str, *checks: Check, **more: Any) -> Project:
    """A project with one case whose key `trace` is this; another check of it passes."""
    text = (
        'name: desk\nbackend: "desk:answer"\ntest_cases:\n  - name: one\n    input: Pay me\n'
        f"    trace:\n      settle: 0\n      require: {{POST /answer: 1}}\n{keys}"
    )
    return Project(name, {"desk.py": SHOP, "agent.yaml": text}, checks, **more)


def _check(*path: str | int) -> Check:
    return Check("agent.yaml", (*CASE, *path))


FORBIDDEN = _project(
    "makes the span of a forbidden tool",
    """\
      checks:
        - span: execute_tool
          where: {gen_ai.tool.name: delete_order}
          count: 0
""",
    _check("trace", "checks"),
    _check(*_CHECKS, "span"),
    _check(*_CHECKS, "where", "gen_ai.tool.name"),
    _check(*_CHECKS, "count"),
    _check(*_CHECKS),
    meets=lambda given: given == 1 or is_another_tool(given),
)

TOO_LARGE = _project(
    "uses more tokens than its spans may",
    """\
      checks:
        - span: chat
          sum: {of: gen_ai.usage.output_tokens, max: 500}
""",
    _check("trace", "checks"),
    _check(*_CHECKS, "sum", "max"),
    _check(*_CHECKS, "sum"),
    _check(*_CHECKS),
    meets=lambda given: isinstance(given, int | float) and given >= 700,
)

TOO_FEW = _project(
    "makes fewer spans of tools than required",
    """\
      checks:
        - {span: execute_tool, count: {min: 3}}
""",
    _check("trace", "checks"),
    _check(*_CHECKS, "count", "min"),
    _check(*_CHECKS, "count"),
    _check(*_CHECKS),
    meets=lambda given: given in (1, 2),
)

TRACES = [FORBIDDEN, TOO_LARGE, TOO_FEW]
