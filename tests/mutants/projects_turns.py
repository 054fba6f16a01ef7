"""Projects of several turns: written, scripted, simulated; and agents and judges behind URLs.

`${SERVER}` is the fake of `server()`: it answers by path and model, whatever was asked before.
"""

import json

from mutants.project import Check, Project, is_another_tool
from support.played import says as user_says
from support.server import FakeOpenAI
from support.token_probabilities import yes
from support.wire_types import Reply, Request

TALKS = """\
class Desk:
    def __init__(self):
        self.heard = 0

    def run(self, message, context=()):
        self.heard += 1
        if self.heard == 1:
            calls = [{"name": "get_order", "arguments": {}}]
            return {"response": "What is your order number?", "tool_calls": calls}
        calls = [{"name": "pay", "arguments": {"sum": 9}}]
        return {"response": "Your money is on its way.", "tool_calls": calls}
"""
FIRST, LAST = ("test_cases", 0, "turns", 0), ("test_cases", 0, "turns", 1)


def _is_asked_well(text: object) -> bool:
    """Whether a criterion is one that the judge finds met."""
    return isinstance(text, str) and bool(text.strip()) and "wrong" not in text


SECOND_TURN = Project(
    "the second turn is wrong",
    {
        "desk.py": TALKS,
        "agent.yaml": """\
name: desk
backend: "desk:Desk"
test_cases:
  - name: refund
    turns:
      - input: I want to return my shoes
        expected_tools: [get_order]
        evaluations:
          - {metric: contains, value: order number}
      - input: It is ORD-9
        evaluations:
          - {metric: contains, value: ORD-9}
          - {metric: contains, value: money}
    evaluations:
      - {metric: not_contains, value: tomorrow}
""",
    },
    [Check("agent.yaml", (*LAST, "evaluations", 0))],
    provokes=[Check("agent.yaml", (*FIRST, "input"))],
)

FORBIDDEN_TURN = Project(
    "a forbidden tool in the second turn",
    {
        "desk.py": TALKS,
        "agent.yaml": """\
name: desk
backend: "desk:Desk"
test_cases:
  - name: refund
    turns:
      - input: I want to return my shoes
        expected_tools:
          - get_order
      - input: It is ORD-9
        forbidden_tools:
          - pay
        evaluations:
          - {metric: contains, value: money}
""",
    },
    [
        Check("agent.yaml", (*LAST, "forbidden_tools")),
        Check("agent.yaml", (*LAST, "forbidden_tools", 0)),
    ],
    meets=is_another_tool,
    provokes=[Check("agent.yaml", (*turn, "input")) for turn in (FIRST, LAST)],
)

WHOLE = Project(
    "what no turn may do",
    {
        "desk.py": TALKS,
        "agent.yaml": """\
name: desk
backend: "desk:Desk"
test_cases:
  - name: refund
    forbidden_tools: [pay]
    turns:
      - input: I want to return my shoes
        expected_tools: [get_order]
      - input: It is ORD-9
""",
    },
    [Check("agent.yaml", ("test_cases", 0, "forbidden_tools"))],
    meets=is_another_tool,
    provokes=[Check("agent.yaml", (*turn, "input")) for turn in (FIRST, LAST)],
)

SCRIPT = Project(
    "a check in a script",
    {
        "desk.py": TALKS,
        "steps.py": "def was_asked(state):\n    assert state.has_tool_call('get_order')\n",
        "agent.yaml": """\
name: desk
backend: "desk:Desk"
test_cases:
  - name: refund by a script
    script:
      - user: I want to return my shoes
      - agent
      - check:
          expected_tools: [get_order]
          evaluations:
            - {metric: contains, value: order number}
      - call: "steps:was_asked"
      - user: It is ORD-9
      - agent
      - check:
          forbidden_tools: [pay]
          evaluations: [{metric: contains, value: money}]
      - succeed: the order was found
""",
    },
    [
        Check("agent.yaml", ("test_cases", 0, "script", 6)),
        Check("agent.yaml", ("test_cases", 0, "script", 6, "check", "forbidden_tools")),
    ],
    meets=is_another_tool,
    provokes=[Check("agent.yaml", ("test_cases", 0, "script", number)) for number in (0, 1, 4, 5)],
)

CALL = Project(
    "an assertion in a script",
    {
        "desk.py": TALKS,
        "steps.py": "def nothing_was_paid(state):\n    assert not state.has_tool_call('pay')\n\n\n"
        "def was_asked(state):\n    assert state.has_tool_call('get_order')\n",
        "agent.yaml": """\
name: desk
backend: "desk:Desk"
test_cases:
  - name: refund by a script
    script:
      - user: I want to return my shoes
      - agent
      - call: "steps:was_asked"
      - user: It is ORD-9
      - agent
      - call: "steps:nothing_was_paid"
    evaluations:
      - {metric: contains, value: money}
""",
    },
    [Check("agent.yaml", ("test_cases", 0, "script", 5))],
    meets=lambda step: step == {"call": "steps:was_asked"},
    provokes=[Check("agent.yaml", ("test_cases", 0, "script", number)) for number in (0, 1, 3, 4)],
)

MODEL = "{provider: openai, name: judge, endpoint: '${SERVER}/v1', api_key: k}"

CRITERIA = Project(
    "a criterion that does not hold",
    {
        "desk.py": TALKS,
        "agent.yaml": f"""\
name: desk
backend: "desk:Desk"
evaluations:
  model: {MODEL}
test_cases:
  - name: asks first
    turns:
      - input: I want to return my shoes
      - input: It is ORD-9
    criteria:
      - The assistant asks for the order number
      - The assistant names a date (wrong)
      - {{text: The assistant is polite, required: false}}
""",
    },
    [
        Check("agent.yaml", ("test_cases", 0, "criteria", 1)),
        Check("agent.yaml", ("test_cases", 0, "criteria")),
    ],
    meets=_is_asked_well,
)

SIMULATED = Project(
    "a simulated user's criterion that does not hold",
    {
        "desk.py": TALKS,
        "agent.yaml": """\
name: desk
backend: "desk:Desk"
evaluations:
  model:
    provider: openai
    name: judge
    endpoint: ${SERVER}/v1
    api_key: k
test_cases:
  - name: impatient customer
    simulate:
      situation: Your shoes do not fit.
      persona: impatient
      facts: [the order number is ORD-9]
      opening: hi, these shoes are no good
    criteria:
      - The assistant asks for the order number
      - The assistant names a date (wrong)
    min_turns: 2
    max_turns: 3
    expected_tools: [get_order]
""",
    },
    [
        Check("agent.yaml", ("test_cases", 0, "criteria", 1)),
        Check("agent.yaml", ("test_cases", 0, "criteria")),
    ],
    meets=_is_asked_well,
)

SIMULATED_TOOL = Project(
    "a tool that is forbidden with a simulated user",
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
    max_turns: 3
    expected_tools: [get_order]
    forbidden_tools: [pay]
""",
    },
    [Check("agent.yaml", ("test_cases", 0, "forbidden_tools"))],
    meets=is_another_tool,
    provokes=[Check("agent.yaml", ("test_cases", 0, "max_turns"))],
)

CHECKPOINT = Project(
    "a checkpoint of a script that does not hold",
    {
        "desk.py": TALKS,
        "agent.yaml": f"""\
name: desk
backend: "desk:Desk"
evaluations:
  model: {MODEL}
test_cases:
  - name: asks first
    script:
      - user: I want to return my shoes
      - agent
      - judge: [The assistant asks for the order number]
      - user: It is ORD-9
      - agent
      - judge:
          - The assistant promises money
          - The assistant names a date (wrong)
      - succeed
""",
    },
    [
        Check("agent.yaml", ("test_cases", 0, "script", 5)),
        Check("agent.yaml", ("test_cases", 0, "script", 5, "judge", 1)),
    ],
    meets=_is_asked_well,
)

JUDGED = Project(
    "a question that a judge answers with no",
    {
        "desk.py": TALKS,
        "agent.yaml": f"""\
name: desk
backend: "desk:Desk"
evaluations:
  model: {MODEL}
  metrics:
    - type: judge
      name: helpful
      criteria:
        - Does the answer address what was asked?
    - type: judge
      name: style
      criteria:
        - question: Is it written in our style? (wrong)
          threshold: 0.6
      threshold: 0.5
      inputs: [input, response]
test_cases:
  - name: returns
    input: How do I return a pair of shoes?
""",
    },
    [
        Check("agent.yaml", ("evaluations", "metrics", 1)),
        Check("agent.yaml", ("evaluations", "metrics", 1, "criteria", 0)),
        Check("agent.yaml", ("evaluations", "metrics", 1, "criteria", 0, "question")),
    ],
    meets=lambda given: (
        _is_asked_well(given) or (isinstance(given, dict) and _is_asked_well(given.get("question")))
    ),
)

HTTP = Project(
    "an agent behind a URL that calls a forbidden tool",
    {
        "agent.yaml": """\
name: service
backend:
  type: http
  url: "${SERVER}/agent"
  headers: {x-key: secret}
  request:
    message: "{input}"
    kind: test
  answer:
    text: reply.text
    tool_calls: reply.calls
test_cases:
  - name: looks only
    input: Where is my order?
    expected_tools: [get_order]
    forbidden_tools: [delete_order]
    evaluations:
      - {metric: contains, value: deleted}
""",
    },
    [Check("agent.yaml", ("test_cases", 0, "forbidden_tools"))],
    meets=is_another_tool,
)

HTTP_NONE = Project(
    "an agent behind a URL that calls tools where none is to be called",
    {
        "agent.yaml": """\
name: service
backend:
  type: http
  url: "${SERVER}/agent"
  request:
    message: "{input}"
  answer:
    tool_calls: calls
test_cases:
  - name: greets
    input: Hello
    expected_tools: []
    evaluations: [{metric: contains, value: deleted}]
""",
    },
    [Check("agent.yaml", ("test_cases", 0, "expected_tools"))],
)

CHAT = Project(
    "a model that calls a forbidden tool",
    {
        "tools.py": 'def get_order(id: str) -> str:\n    """An order."""\n    return id\n\n\n'
        'def delete_order(id: str) -> str:\n    """Deletes an order."""\n    return id\n',
        "agent.yaml": """\
name: desk
backend: chat
model: {provider: openai, name: agent, endpoint: "${SERVER}/v1", api_key: k}
instructions:
  inline: Look orders up.
tools:
  - {type: function, name: get_order, file: tools.py, function: get_order}
  - {type: function, name: delete_order, file: tools.py, function: delete_order}
test_cases:
  - name: looks only
    input: Where is my order?
    forbidden_tools: [delete_order]
    evaluations:
      - {metric: contains, value: gone}
""",
    },
    [
        Check("agent.yaml", ("test_cases", 0, "forbidden_tools")),
        Check("agent.yaml", ("test_cases", 0, "forbidden_tools", 0)),
    ],
)

HISTORY = Project(
    "forgets what was said before",
    {
        "desk.py": "def answer(message, context):\n"
        "    return {'response': f'{len(context)} messages', 'tool_calls': []}\n",
        "agent.yaml": """\
name: desk
backend: "desk:answer"
test_cases:
  - name: remembers
    history:
      - {role: user, content: I want to return my shoes}
      - {role: assistant, content: "What is your order number?"}
    input: When do I get my money?
    expected_tools: []
    evaluations:
      - {metric: contains, value: ORD-9}
      - {metric: contains, value: messages}
""",
    },
    [Check("agent.yaml", ("test_cases", 0, "evaluations", 0))],
)

CONVERSATIONS = [
    SECOND_TURN, FORBIDDEN_TURN, WHOLE, SCRIPT, CALL, CRITERIA, SIMULATED, SIMULATED_TOOL,
    CHECKPOINT, JUDGED, HTTP, HTTP_NONE, CHAT, HISTORY,
]  # fmt: skip


def server() -> FakeOpenAI:
    """Plays the agents behind URLs, the judges and the simulated users."""
    return FakeOpenAI(otherwise=_answer)


def _answer(request: Request) -> Reply | str:
    if request.dialect == "plain":
        calls = [{"name": name, "arguments": {}} for name in ("get_order", "delete_order")]
        reply = {"text": "Your order is deleted.", "calls": calls}
        return Reply(json={"reply": reply, "response": reply["text"], "calls": calls})
    if request.model == "agent":
        called = bool(request.tool_results)
        return "It is gone." if called else Reply(tool_calls=[("delete_order", {"id": "9"})])
    if "what the user writes next" in request.prompt:
        return user_says("It is ORD-9", done="Your money is on its way" in request.prompt)
    if "# Criteria" in request.prompt:
        return _verdict(request.prompt)
    return yes(0.02 if "wrong" in request.prompt else 0.98)


def _verdict(prompt: str) -> str:
    """Every criterion holds but those that say they are wrong."""
    lines = prompt.partition("# Criteria\n")[2].partition("\n# ")[0].splitlines()
    rows = {
        key: {"reasoning": "seen", "status": "failed" if "wrong" in text else "passed"}
        for key, _, text in (line.partition(": ") for line in lines)
        if key[:1] == "c" and key[1:].isdigit()
    }
    return json.dumps(rows | {"decision": "verdict"})
