"""Projects of one input a case: texts, numbers, JSON and code of the user's."""

from mutants.project import Check, Project


def _constant(text: str) -> str:
    return f"def answer(message):\n    return {text!r}\n"


ANSWER = "You can return shoes within 30 days."
"""What most agents here say; each case asks for something of it, one for something else."""


def says(text: object) -> bool:
    return isinstance(text, str) and bool(text.strip()) and text in ANSWER


def bare(text: str) -> str:
    """The text without what nobody sees or means: white space, quotes, what has no width."""
    return text.strip(" \n\t\"'“”\u200b\u00a0")


def _changed(**fields: object) -> object:
    """Whether a metric is what it was but for these fields, which pass these functions."""

    def meets(metric: object) -> bool:
        return isinstance(metric, dict) and all(
            name in metric and passes(metric[name])  # type: ignore[operator]
            for name, passes in fields.items()
        )

    return meets


WORD = Project(
    "wrong word",
    {
        "desk.py": _constant(ANSWER),
        "agent.yaml": """\
name: desk
description: answers questions about returns
backend: "desk:answer"
test_cases:
  - name: returns
    input: Can I send shoes back?
    ground_truth: 30 days
    evaluations:
      - metric: contains
        ignore_case: true
      - metric: contains
        value: refund
  - name: politeness
    input: Hello
    tags: [smoke, polite]
    evaluations:
      - {metric: regex, pattern: "^You can", ignore_case: true}
      - {metric: not_contains, value: sorry}
""",
    },
    [
        Check("agent.yaml", ("test_cases", 0, "evaluations", 1)),
        Check("agent.yaml", ("test_cases", 0, "evaluations", 1, "value")),
    ],
    meets=_changed(value=says),
)

SHARED = Project(
    "wrong answer under the metrics of all cases",
    {
        "desk.py": _constant(ANSWER),
        "agent.yaml": """\
name: desk
backend: desk:answer
execution:
  parallel_test_cases: 2
  llm_timeout: 20
evaluations:
  metrics:
    - metric: contains
      ignore_case: true
test_cases:
  - name: returns
    input: Can I send shoes back?
    ground_truth: 30 DAYS
  - name: price
    input: What does it cost?
    ground_truth: nothing at all
  - name: what
    input: What can I return?
    ground_truth: shoes
""",
    },
    [
        Check("agent.yaml", ("test_cases", 1)),
        Check("agent.yaml", ("test_cases", 1, "ground_truth"), is_whole=False),
        Check("agent.yaml", ("evaluations", "metrics", 0)),
    ],
    meets=says,
)

EXACT = Project(
    "a letter of the wrong case",
    {
        "desk.py": _constant("ORD-9 Is on its way"),
        "agent.yaml": """\
name: desk
backend: "desk:answer"
test_cases:
  - input: Where is my order?
    id: where
    evaluations:
      - {metric: contains, value: ORD-9}
      - {metric: exact_match, value: ORD-9 is on its way, ignore_case: false}
""",
    },
    [Check("agent.yaml", ("test_cases", 0, "evaluations", 1))],
    meets=_changed(ignore_case=lambda given: given is True),
)

NOT_CONTAINS = Project(
    "says what it must not say",
    {
        "desk.py": _constant("The password is hunter2. Have a nice day."),
        "agent.yaml": """\
name: desk
backend: "desk:answer"
test_cases:
- name: keeps secrets
  input: What is the password?
  description: the model knows it
  evaluations:
  - metric: not_contains
    value: hunter2
  - metric: contains
    value: nice day
- name: greets
  input: Hi
  evaluations:
  - metric: not_contains
    values: [sorry, cannot]
""",
    },
    [Check("agent.yaml", ("test_cases", 0, "evaluations", 0))],
    meets=_changed(value=lambda text: isinstance(text, str) and bare(text) not in "hunter2"),
)

PATTERN = Project(
    "an order number of the wrong shape",
    {
        "desk.py": _constant("Your order is ORD-9 and costs 41.90 EUR"),
        "agent.yaml": """\
name: desk
backend: "desk:answer"
test_cases:
  - name: number
    input: What is my order?
    evaluations:
      - metric: regex
        pattern: 'ORD-\\d{4}'
        threshold: 1
      - metric: regex
        pattern: '\\d+\\.\\d\\d EUR'
""",
    },
    [Check("agent.yaml", ("test_cases", 0, "evaluations", 0))],
)

NUMBER = Project(
    "a wrong number",
    {
        "desk.py": _constant("It costs 41.90 EUR."),
        "agent.yaml": """\
name: desk
backend: "desk:answer"
test_cases:
  - name: price
    input: What does it cost?
    evaluations:
      - metric: numeric
        value: 42.5
        absolute_tolerance: 0.1
        threshold: 1
      - metric: contains
        value: EUR
""",
    },
    [Check("agent.yaml", ("test_cases", 0, "evaluations", 0))],
    meets=lambda metric: (
        isinstance(metric, dict)
        and isinstance(metric.get("value"), int | float)
        and isinstance(metric.get("absolute_tolerance", 0), int | float)
        and abs(metric["value"] - 41.9) <= metric.get("absolute_tolerance", 0) <= 10
    ),
)

CLOSE = Project(
    "too little of the reference",
    {
        "desk.py": _constant("Shoes can be sent back."),
        "agent.yaml": """\
name: desk
backend: "desk:answer"
evaluations:
  metrics:
    - {metric: contains, value: Shoes}
test_cases:
  - name: returns
    input: Can I send shoes back?
    ground_truth: Shoes can be sent back within thirty days, with the label from the parcel.
    evaluations:
      - {metric: f1_score, threshold: 0.8}
      - {metric: contains, value: sent back}
""",
    },
    [
        Check("agent.yaml", ("test_cases", 0, "evaluations", 0)),
        Check("agent.yaml", ("test_cases", 0, "ground_truth"), is_whole=False),
        Check("agent.yaml", ("test_cases", 0, "evaluations")),
    ],
    meets=_changed(threshold=lambda given: isinstance(given, float) and 0 < given < 0.6),
)

SCHEMA = Project(
    "JSON without what is required",
    {
        "desk.py": _constant('{"order": {"id": "ORD-9", "items": [{"sku": "a"}]}, "note": "x"}'),
        "agent.yaml": """\
name: desk
backend: "desk:answer"
test_cases:
  - name: order
    input: Give me the order as JSON
    evaluations:
      - metric: contains
        value: ORD-9
      - metric: json_schema
        schema:
          type: object
          properties:
            order:
              type: object
              properties:
                id: {type: string}
                items:
                  type: array
                  items:
                    type: object
                    required: [sku, price]
              required: [id]
          required: [order]
""",
    },
    [
        Check("agent.yaml", ("test_cases", 0, "evaluations", 1, *path))
        for path in (
            (),
            ("schema", "properties", "order", "properties", "items", "items", "required"),
            ("schema", "properties", "order", "properties", "items", "items", "required", 1),
            ("schema", "properties", "order", "properties", "items", "items"),
            ("schema", "properties", "order", "properties", "items"),
            ("schema", "properties", "order", "properties"),
            ("schema", "properties", "order"),
            ("schema", "properties"),
        )
    ],
)

STRICT_SCHEMA = Project(
    "JSON with more than is allowed",
    {
        "desk.py": _constant('{"id": 9, "password": "x"}'),
        "agent.yaml": """\
name: desk
backend: "desk:answer"
test_cases:
  - name: order
    input: Give me the order as JSON
    evaluations:
      - metric: json_schema
        schema: {type: object, required: [id], additionalProperties: false, properties: {id: {}}}
""",
    },
    [
        Check("agent.yaml", ("test_cases", 0, "evaluations", 0, "schema", "additionalProperties")),
        Check("agent.yaml", ("test_cases", 0, "evaluations", 0)),
    ],
    meets=lambda given: given is True,
)

FORMAT = Project(
    "a value of the wrong kind in JSON",
    {
        "desk.py": _constant('{"mail": "kim", "state": "lost", "tags": ["a", "a"]}'),
        "agent.yaml": """\
name: desk
backend: "desk:answer"
test_cases:
  - name: state
    input: Give me the state as JSON
    evaluations:
      - metric: json_schema
        schema:
          type: object
          properties:
            mail:
              type: string
              minLength: 2
            state:
              enum: [sent, paid]
            tags: {type: array, maxItems: 3, items: {type: string}}
""",
    },
    [
        Check("agent.yaml", ("test_cases", 0, "evaluations", 0, *path))
        for path in (
            (),
            ("schema", "properties", "state"),
            ("schema", "properties", "state", "enum"),
            ("schema", "properties"),
        )
    ],
)

CODE = Project(
    "too long for a grader of the user's",
    {
        "desk.py": _constant(ANSWER),
        "graders.py": """\
def short(case):
    words = len(case.response.split())
    return {"score": min(1, 5 / words), "passed": words <= 5, "reason": f"{words} words"}


def polite(case):
    return "You" in case.response
""",
        "agent.yaml": """\
name: desk
backend: "desk:answer"
test_cases:
  - name: returns
    input: Can I send shoes back?
    evaluations:
      - {type: code, grader: "graders:polite"}
      - {type: code, grader: "graders:short"}
""",
    },
    [Check("agent.yaml", ("test_cases", 0, "evaluations", 1))],
    meets=_changed(grader=lambda given: given == "graders:polite"),
)

OWN_METRIC = Project(
    "a score under the threshold of a metric of the user's",
    {
        "desk.py": _constant(ANSWER),
        "graders.py": "def half(seen):\n    return 0.4\n\n\ndef whole(seen):\n    return 1.0\n",
        "agent.yaml": """\
name: desk
backend: "desk:answer"
evaluations:
  metrics:
    - metric: "graders:whole"
      threshold: 1
    - metric: "graders:half"
      threshold: 0.75
test_cases:
  - name: returns
    input: Can I send shoes back?
  - name: hours
    input: When are you open?
""",
    },
    [Check("agent.yaml", ("evaluations", "metrics", 1))],
    meets=lambda metric: (
        isinstance(metric, dict)
        and (
            metric.get("metric") == "graders:whole"
            or (isinstance(metric.get("threshold"), float) and 0 < metric["threshold"] <= 0.4)
        )
    ),
)

SCORERS = Project(
    "not what a scorer looks for",
    {
        "desk.py": _constant(ANSWER),
        "agent.yaml": """\
name: desk
backend: "desk:answer"
test_cases:
  - name: returns
    input: Can I send shoes back?
    ground_truth: within 30 days
    scorers:
      - passfail
      - regex: {pattern: "label|parcel"}
      - exact: {normalize: true, required: false}
""",
    },
    [Check("agent.yaml", ("test_cases", 0, "scorers", 1))],
)

REPEATED = Project(
    "right only twice of three times",
    {
        "dice.py": 'rolls = iter(["six", "six", "one"] * 9)\n\n\n'
        "def answer(message):\n    return next(rolls)\n",
        "agent.yaml": """\
name: dice
backend: "dice:answer"
execution:
  parallel_test_cases: 1
  repeat: 3
  min_pass: 3
evaluations:
  metrics:
    - {metric: contains, value: six}
test_cases:
  - name: rolls a six
    input: Roll the die
""",
    },
    [
        Check("agent.yaml", ("execution",)),
        Check("agent.yaml", ("execution", "repeat")),
        Check("agent.yaml", ("execution", "min_pass")),
        Check("agent.yaml", ("evaluations", "metrics", 0)),
    ],
    meets=lambda given: given in (1, 2, 30),
)

CONTEXT = Project(
    "another user's account",
    {
        "account.py": """\
def balance(question: str, context: dict | None = None) -> dict:
    names = {"kim": "kim has 3 coins", "sam": "kim has 3 coins"}
    return {"response": names[context["user"]], "tool_calls": []}
""",
        "agent.yaml": """\
name: account
backend: "account:balance"
test_cases:
  - name: kim
    input: What is my balance?
    context:
      user: kim
      seat: 3
    evaluations:
      - {metric: contains, value: kim}
  - name: sam
    input: What is my balance?
    context:
      user: sam
    forbidden_tools: [transfer]
    evaluations:
      - {metric: contains, value: coins}
      - {metric: not_contains, value: kim}
""",
    },
    [
        Check("agent.yaml", ("test_cases", 1, "evaluations", 1)),
        Check("agent.yaml", ("test_cases", 1, "context", "user")),
    ],
    meets=_changed(value=lambda text: isinstance(text, str) and bare(text) not in "kim"),
)

TEXT_CHECKS = [
    WORD, SHARED, EXACT, NOT_CONTAINS, PATTERN, NUMBER, CLOSE, SCHEMA, STRICT_SCHEMA, FORMAT, CODE,
    OWN_METRIC, SCORERS, REPEATED, CONTEXT,
]  # fmt: skip
