"""Projects whose fault is a tool call: one too many, one missing, or one with wrong arguments."""

from mutants.project import Check, Project, is_another_tool

CALLS = """\
def answer(message):
    calls = [
        {"name": "get_order", "arguments": {"id": "ORD-9", "limit": 3}},
        {"name": "delete_order", "arguments": {"id": "ORD-9"}},
    ]
    return {"response": "Your order is deleted.", "tool_calls": calls}
"""


FORBIDDEN = Project(
    "calls a forbidden tool",
    {
        "desk.py": CALLS,
        "agent.yaml": """\
name: desk
backend: "desk:answer"
test_cases:
  - name: looks only
    input: Where is my order?
    expected_tools: [get_order]
    forbidden_tools:
      - delete_order
      - pay
    evaluations:
      - {metric: contains, value: order}
""",
    },
    [
        Check("agent.yaml", ("test_cases", 0, "forbidden_tools")),
        Check("agent.yaml", ("test_cases", 0, "forbidden_tools", 0)),
    ],
    meets=is_another_tool,
)

FORBIDDEN_ALONE = Project(
    "calls the only forbidden tool, beside a context",
    {
        "desk.py": CALLS.replace("(message)", "(message, context: dict)"),
        "agent.yaml": """\
name: desk
backend: "desk:answer"
test_cases:
  - name: looks only
    input: Where is my order?
    context:
      user: kim
    forbidden_tools: [delete_order]
    evaluations:
      - metric: contains
        value: order
""",
    },
    [Check("agent.yaml", ("test_cases", 0, "forbidden_tools"))],
    meets=is_another_tool,
)

MISSING = Project(
    "leaves a tool out",
    {
        "desk.py": CALLS,
        "agent.yaml": """\
name: desk
backend: "desk:answer"
test_cases:
  - name: sends a mail
    input: Delete my order and tell me
    expected_tools:
      - delete_order
      - send_mail
    forbidden_tools: [pay]
""",
    },
    [
        Check("agent.yaml", ("test_cases", 0, "expected_tools")),
        Check("agent.yaml", ("test_cases", 0, "expected_tools", 1)),
    ],
)

NONE_AT_ALL = Project(
    "calls tools where none is to be called",
    {
        "desk.py": CALLS,
        "agent.yaml": """\
name: desk
backend: "desk:answer"
evaluations:
  metrics:
    - {metric: contains, value: order}
test_cases:
  - name: greets
    input: Hello
    expected_tools: []
""",
    },
    [Check("agent.yaml", ("test_cases", 0, "expected_tools"))],
)

ARGUMENT = Project(
    "a wrong argument",
    {
        "desk.py": CALLS,
        "agent.yaml": """\
name: desk
backend: "desk:answer"
test_cases:
  - name: finds it
    input: Where is my order?
    expected_tools:
      - name: get_order
        args:
          id: ORD-9
          limit: 5
      - delete_order
    ground_truth: deleted
    evaluations:
      - metric: contains
""",
    },
    [
        Check("agent.yaml", ("test_cases", 0, "expected_tools", 0, "args", "limit")),
        Check("agent.yaml", ("test_cases", 0, "expected_tools", 0)),
    ],
    meets=lambda given: given == 3,
)

MATCHER = Project(
    "an argument that does not match",
    {
        "desk.py": CALLS,
        "agent.yaml": """\
name: desk
backend: "desk:answer"
test_cases:
  - name: finds it
    input: Where is my order?
    expected_tools:
      - {name: get_order, count: 1, args: {id: {regex: "^ORD-[0-9]{4}$"}, limit: {fuzzy: "3"}}}
    evaluations:
      - metric: contains
        value: deleted
""",
    },
    [
        Check("agent.yaml", ("test_cases", 0, "expected_tools", 0, "args", "id")),
        Check("agent.yaml", ("test_cases", 0, "expected_tools", 0, "args")),
        Check("agent.yaml", ("test_cases", 0, "expected_tools", 0)),
    ],
)

COUNT = Project(
    "calls a tool once instead of twice",
    {
        "desk.py": CALLS,
        "agent.yaml": """\
name: desk
backend: "desk:answer"
test_cases:
  - name: looks twice
    input: Where is my order?
    expected_tools:
      - name: get_order
        count: 2
    evaluations:
      - {metric: contains, value: deleted}
""",
    },
    [
        Check("agent.yaml", ("test_cases", 0, "expected_tools", 0, "count")),
        Check("agent.yaml", ("test_cases", 0, "expected_tools", 0)),
    ],
    meets=lambda given: given == 1 and given is not True,
)

ORDER = Project(
    "calls tools in the wrong order",
    {
        "desk.py": CALLS,
        "agent.yaml": """\
name: desk
backend: "desk:answer"
test_cases:
  - name: in order
    input: Delete my order, then look
    tool_order: true
    expected_tools:
      - delete_order
      - get_order
    evaluations:
      - {metric: contains, value: deleted}
""",
    },
    [
        Check("agent.yaml", ("test_cases", 0, "tool_order")),
        Check("agent.yaml", ("test_cases", 0, "expected_tools")),
        Check("agent.yaml", ("test_cases", 0, "expected_tools", 0)),
        Check("agent.yaml", ("test_cases", 0, "expected_tools", 1)),
    ],
    meets=lambda given: given in (False, "no", "off", ["get_order", "delete_order"]),
)

ONLY = Project(
    "calls one tool too many",
    {
        "desk.py": CALLS,
        "agent.yaml": """\
name: desk
backend: "desk:answer"
test_cases:
  - name: nothing else
    input: Where is my order?
    only_expected_tools: true
    expected_tools:
      - get_order
    forbidden_tools: [pay]
""",
    },
    [
        Check("agent.yaml", ("test_cases", 0, "only_expected_tools")),
        Check("agent.yaml", ("test_cases", 0, "expected_tools")),
    ],
    meets=lambda given: given is False or given == 0,
)

TOOL_CALLS = [
    FORBIDDEN, FORBIDDEN_ALONE, MISSING, NONE_AT_ALL, ARGUMENT, MATCHER, COUNT, ORDER, ONLY,
]  # fmt: skip
