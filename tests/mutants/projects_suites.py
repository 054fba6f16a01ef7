"""Projects with suites and data files: cases in CSV, JSON Lines, JSON and YAML."""

import re

from mutants.project import Check, Project, is_another_tool
from mutants.projects_checks import says

DESK = "def answer(message):\n    return 'You can return shoes within 30 days.'\n"
CALLING = """\
def answer(message):
    calls = [{"name": "get_order", "arguments": {"id": "ORD-9"}}]
    return {"response": "Your order is on its way.", "tool_calls": calls}
"""

INLINE = Project(
    "a suite in the agent.yaml",
    {
        "desk.py": DESK,
        "agent.yaml": """\
name: desk
backend: "desk:answer"
suites:
  - name: returns
    tags: [orders]
    config:
      timeout: 20
      default_scorers: [passfail]
    test_cases:
      - {name: shoes, input: return my shoes, ground_truth: shoes}
      - {name: hats, input: return my hat, ground_truth: hats}
  - name: times
    config: {default_scorers: [passfail]}
    test_cases:
      - {name: days, input: how long, ground_truth: 30 days}
""",
    },
    [
        Check("agent.yaml", ("suites", 0, "test_cases", 1)),
        Check("agent.yaml", ("suites", 0, "test_cases", 1, "ground_truth"), is_whole=False),
    ],
    meets=says,
)

FOLDER = Project(
    "a suite in a file that a pattern finds",
    {
        "desk.py": DESK,
        "agent.yaml": """\
name: desk
backend: "desk:answer"
suites:
  - file: "suites/*.yaml"
""",
        "suites/days.yaml": """\
suite: {name: days}
test_cases:
  - name: days
    input: how long?
    evaluations: [{metric: contains, value: 30 days}]
""",
        "suites/refunds.yaml": """\
suite:
  name: refunds
  tags: [slow]
  config: {timeout: 20}
test_cases:
  - name: refund
    input: may I have my money?
    evaluations:
      - {metric: contains, value: refund}
      - {metric: contains, value: shoes}
""",
    },
    [
        Check("suites/refunds.yaml", ("test_cases", 0, "evaluations", 0)),
        Check("agent.yaml", ("suites", 0)),
    ],
)

SUITES_ALONE = Project(
    "a folder of suites, run by itself",
    {
        **FOLDER.files,
        "agent.yaml": 'name: desk\nbackend: "desk:answer"\n',
    },
    [Check("suites/refunds.yaml", ("test_cases", 0, "evaluations", 0))],
    args=("suites",),
)

AGENTS = Project(
    "a folder of agents",
    {
        "one/desk.py": DESK,
        "one/agent.yaml": """\
name: one
backend: "desk:answer"
test_cases:
  - input: how long?
    evaluations: [{metric: contains, value: 30 days}]
""",
        "two/desk.py": DESK,
        "two/agent.yaml": """\
name: two
backend: "desk:answer"
test_cases:
  - input: how long?
    evaluations: [{metric: contains, value: shoes}]
  - input: how much?
    evaluations: [{metric: contains, value: refund}]
""",
    },
    [Check("two/agent.yaml", ("test_cases", 1, "evaluations", 0))],
    args=(".",),
)

CSV = Project(
    "a row of a CSV file",
    {
        "desk.py": DESK,
        "agent.yaml": """\
name: desk
backend: "desk:answer"
evaluations:
  metrics:
    - {metric: contains, ignore_case: true}
test_cases_file: cases.csv
""",
        "cases.csv": """\
name,input,ground_truth,tags
"shoes, again",what can I return?,shoes,"smoke,slow"
days,how long?,30 days,"smoke"
refund,may I have my money?,refund,
polite,hello,You can,"smoke"
""",
    },
    [Check("cases.csv", (2,)), Check("cases.csv", (2, "ground_truth"), is_whole=False)],
    meets=says,
)

COLUMNS = Project(
    "a row of a CSV file whose columns have other names",
    {
        "desk.py": DESK,
        "agent.yaml": """\
name: desk
backend: "desk:answer"
suites:
  - name: faq
    config: {default_scorers: [passfail]}
    test_cases_file:
      file: faq.csv
      columns:
        input: question
        ground_truth: answer
      ignore: [author]
""",
        "faq.csv": """\
name,question,answer,author
days,how long?,30 days,kim
shoes,what can I return?,shoes,kim
refund,may I have my money?,refund,sam
polite,"hello, there",You can,sam
""",
    },
    [Check("faq.csv", (2,)), Check("faq.csv", (2, "answer"), is_whole=False)],
    meets=says,
)

TOOLS_IN_CSV = Project(
    "tools in a CSV file",
    {
        "desk.py": CALLING,
        "agent.yaml": """\
name: desk
backend: "desk:answer"
evaluations:
  metrics: [{metric: contains, value: order}]
test_cases_file: cases.csv
""",
        "cases.csv": """\
name,input,expected_tools,forbidden_tools
order,where is it?,get_order,"pay,delete_order"
looks,look it up,get_order,
greets,hello,,"pay,get_order"
""",
    },
    [
        Check("cases.csv", (2,)),
        Check("cases.csv", (2, "forbidden_tools")),
    ],
)

JSON_LINES = Project(
    "a line of a JSON Lines file",
    {
        "desk.py": DESK,
        "agent.yaml": """\
name: desk
backend: "desk:answer"
suites:
  - name: faq
    test_cases_file: faq.jsonl
""",
        "faq.jsonl": """\
{"name": "days", "input": "how long?", "evaluations": [{"metric": "contains", "value": "30 days"}]}
{"name": "refund", "input": "my money?", "evaluations": [{"metric": "contains", "value": "refund"}]}
{"name": "polite", "input": "hello", "evaluations": [{"metric": "contains", "value": "You can"}]}
""",
    },
    [Check("faq.jsonl", (1,)), Check("faq.jsonl", (1, "evaluations", 0))],
)

JSON = Project(
    "a case of a JSON file",
    {
        "desk.py": CALLING,
        "agent.yaml": """\
name: desk
backend: "desk:answer"
test_cases_file: cases.json
""",
        "cases.json": """\
[
  {
    "name": "order",
    "input": "where is it?",
    "expected_tools": ["get_order"],
    "forbidden_tools": ["pay"]
  },
  {
    "name": "greets",
    "input": "hello",
    "forbidden_tools": ["get_order"],
    "evaluations": [
      {"metric": "contains", "value": "order"}
    ]
  }
]
""",
    },
    [Check("cases.json", (1,)), Check("cases.json", (1, "forbidden_tools"))],
    meets=is_another_tool,
)

YAML = Project(
    "a case of a YAML file",
    {
        "desk.py": DESK,
        "agent.yaml": """\
name: desk
backend: "desk:answer"
evaluations:
  metrics:
    - {metric: exact_match, ignore_case: true}
test_cases_file: cases.yml
test_cases:
  - input: hello
    evaluations: [{metric: contains, value: days}]
""",
        "cases.yml": """\
- name: days
  input: how long?
  ground_truth: you can return shoes within 30 days.
- name: weeks
  input: how many weeks?
  ground_truth: You can return shoes within 4 weeks.
""",
    },
    [Check("cases.yml", (1,)), Check("agent.yaml", ("test_cases_file",))],
)

PARAMETERS = Project(
    "one of several parameters",
    {
        "desk.py": "def answer(message):\n    return f'In {message.split()[-1]}, 20 C'\n",
        "agent.yaml": """\
name: weather
backend: "desk:answer"
test_cases:
  - name: temperature
    input: How warm is it in {{city}}
    parameters:
      city: [Rome, Oslo]
      unit: [C, F]
    evaluations:
      - metric: contains
        value: "{{city}}"
      - metric: regex
        pattern: '\\d+ {{unit}}'
""",
    },
    [
        Check("agent.yaml", ("test_cases", 0, "parameters", "unit", 1)),
        Check("agent.yaml", ("test_cases", 0, "evaluations", 1)),
        Check("agent.yaml", ("test_cases", 0, "parameters", "unit")),
    ],
    meets=lambda unit: isinstance(unit, str) and re.search(rf"\d+ {unit}", "20 C") is not None,
)

SCENARIOS = Project(
    "scenarios as AgenticAssure writes them",
    {
        "desk.py": CALLING,
        "agent.yaml": """\
name: desk
backend: "desk:answer"
suites:
  - file: support.yaml
""",
        "support.yaml": """\
suite:
  name: support
  config:
    retries: 1
    default_scorers: [passfail]
scenarios:
  - name: way
    input: Where is my order?
    expected_output: on its way
    expected_tools: [get_order]
    expected_tool_args:
      get_order: {id: ORD-9}
  - name: other
    input: Where is ORD-10?
    tags: [smoke]
    expected_tools: [get_order]
    expected_tool_args:
      get_order: {id: ORD-10}
  - name: greets
    input: Hello
    expected_output: order
""",
    },
    [
        Check("support.yaml", ("scenarios", 1)),
        Check("support.yaml", ("scenarios", 1, "expected_tool_args")),
        Check("support.yaml", ("scenarios", 1, "expected_tool_args", "get_order")),
    ],
)

SCORED_SCENARIOS = Project(
    "a scenario with scorers and metadata",
    {
        "desk.py": DESK,
        "agent.yaml": """\
name: desk
backend: "desk:answer"
suites:
  - file: support.yaml
""",
        "support.yaml": """\
suite: {name: support}
scenarios:
  - name: number
    input: Where is my order?
    expected_output: 30 days
    scorers: [passfail, regex]
    metadata:
      regex_pattern: 'ORD-\\d+'
      owner: kim
    timeout_seconds: 10
  - name: whole
    input: Hello
    expected_output: YOU can return shoes within 30 days.
    scorers: [exact]
    metadata: {exact_normalize: true}
""",
    },
    [
        Check("support.yaml", ("scenarios", 0, "scorers", 1)),
        Check("support.yaml", ("scenarios", 0, "metadata", "regex_pattern")),
    ],
)

PLAIN_SCENARIOS = Project(
    "a scenario whose answer is wrong",
    {
        "desk.py": DESK,
        "agent.yaml": """\
name: desk
backend: "desk:answer"
suites:
  - file: support.yaml
""",
        "support.yaml": """\
suite:
  name: support
  description: what people ask
scenarios:
  - name: days
    input: How long?
    expected_output: 30 days
  - name: refund
    input: My money?
    expected_output: refund
    metadata:
      author: kim
""",
    },
    [
        Check("support.yaml", ("scenarios", 1)),
        Check("support.yaml", ("scenarios", 1, "expected_output"), is_whole=False),
    ],
    meets=says,
)

CONFIG = Project(
    "settings in a config.yaml",
    {
        "dice.py": 'rolls = iter(["six", "six", "one"] * 9)\n\n\n'
        "def answer(message):\n    return next(rolls)\n",
        "agent.yaml": """\
name: dice
backend: "dice:answer"
test_cases:
  - name: rolls a six
    input: Roll the die
    evaluations: [{metric: contains, value: six}]
""",
        "config.yaml": """\
execution:
  parallel_test_cases: 1
  repeat: 3
  min_pass: 3
  stop_early: false
""",
    },
    [
        Check("config.yaml", ("execution",)),
        Check("config.yaml", ("execution", "repeat")),
        Check("config.yaml", ("execution", "min_pass")),
        Check("agent.yaml", ("test_cases", 0, "evaluations", 0)),
    ],
    meets=lambda given: given in (1, 2, 30),
    renames=False,
)

SUITES = [
    INLINE, FOLDER, SUITES_ALONE, AGENTS, CSV, COLUMNS, TOOLS_IN_CSV, JSON_LINES, JSON, YAML,
    PARAMETERS, SCENARIOS, SCORED_SCENARIOS, PLAIN_SCENARIOS, CONFIG,
]  # fmt: skip
