"""Answers and tool calls that are too much: the case says so, and the others run on."""

import asyncio
import json

import pytest

from fakes import FakeOpenAI, Reply
from holodeck.lib.reports.formats import generate_json_report
from holodeck.lib.test_runner.reporter import generate_markdown_report
from holodeck.models.config import ExecutionConfig
from holodeck.models.test_result import TestReport
from support.faults import agent_for, completion, run_cases, settings

TOOL = '''
def look(q: str = "", n: float = 0) -> str:
    """Looks."""
    return f"seen {len(str(q))}"

def tower(n: int) -> list:
    """Lists in lists."""
    built = []
    for _ in range(n):
        built = [built]
    return built
'''
DEEP = '{"q":' * 100_000 + "1" + "}" * 100_000
WAYS = {"Semantic Kernel": None, "chat": "chat"}
ARGUMENTS = {
    "nested 100,000 deep": DEEP,
    **{f"nested {n} deep": '{"q":' * n + "1" + "}" * n for n in (90, 101, 254, 255, 256, 900)},
    "lists 250 deep": '{"q": ' + "[" * 250 + "]" * 250 + "}",
    "lists 100,000 deep": '{"q": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "10 MB": json.dumps({"q": "x" * 10_000_000}),
    "7 MB": json.dumps({"q": "x" * 7_000_000}),
    "a number of 4,000 digits": '{"n": ' + "9" * 4_000 + "}",
    "a number of 100,000 digits": '{"n": ' + "9" * 100_000 + "}",
    "NaN": '{"n": NaN}',
    "infinity": '{"n": 1e999}',
    "__proto__": '{"__proto__": {"x": 1}, "__class__": "y", "__init__": 5}',
    "half of a surrogate pair": '{"q": "\\ud800"}',
    "NUL": '{"q": "\\u0000"}',
    "the same key twice": '{"q": "a", "q": "b"}',
    "no object": "[1, 2]",
    "text": '"q"',
    "broken": '{"q":',
    "nothing": "",
    "white space": "   ",
    "null": "null",
    "an argument too many": '{"q": "x", "self": 1, "kernel": 2, "context": 3, "settings": 4}',
    "a template": '{"q": "{{q}} {0.__class__} %s ${PATH}"}',
}
NAMES = [
    "",
    " ",
    "../look",
    "look\0",
    "look" * 10_000,
    "__init__",
    "\u202ekool",
    "{q}",
]


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def backend(request):
    return request.param


async def run_with(tmp_path, first, *, cases=3, max_retries=0, **fields):
    """A run whose first case's first answer is the given one; all else is fine."""
    (tmp_path / "tools.py").write_text(TOOL)
    tools = [
        {"type": "function", "name": name, "file": "tools.py", "function": name}
        for name in ("look", "tower")
    ]

    def answer(request):
        spoiled = "case-0000" in request.prompt and not request.tool_results
        return first if spoiled else Reply(f"OK: {request.prompt}")

    with FakeOpenAI(answer) as server:
        agent = agent_for(server, tmp_path, cases, tools=tools, **fields)
        config = settings(ExecutionConfig(max_retries=max_retries))
        report = await asyncio.wait_for(run_cases(agent, tmp_path, config), timeout=180)
        return report, server.requests


def assert_only_the_first_suffers(report):
    """The others pass, the reports can be written, and no Python word is in the row."""
    assert [result.passed for result in report.results[1:]] == [True] * (len(report.results) - 1)
    first = report.results[0]
    text = "; ".join(first.errors)
    assert "Traceback" not in text
    assert "RecursionError" not in text
    assert first.passed or text
    back = json.loads(generate_json_report(report), parse_constant=pytest.fail)
    assert TestReport.model_validate(back).results == report.results
    assert "# " in generate_markdown_report(report)


@pytest.mark.parametrize("arguments", ARGUMENTS.values(), ids=ARGUMENTS)
async def test_arguments_of_any_kind_end_in_a_result(tmp_path, arguments, backend):
    report, requests = await run_with(
        tmp_path, Reply(tool_calls=[("look", arguments)]), backend=backend
    )

    assert_only_the_first_suffers(report)
    assert len(requests) <= 4  # the model is told once


UNREADABLE = {
    "nested 101 deep": "nested more than 100 levels deep, which are kept as text",
    "nested 900 deep": "nested more than 100 levels deep, which are kept as text",
    "nested 100,000 deep": "nested more than 100 levels deep, which are kept as text",
    "lists 250 deep": "nested more than 100 levels deep, which are kept as text",
    "a number of 100,000 digits": "a number has 100,000 digits; at most 4,000 are read",
    "NaN": "NaN is not JSON",
    "infinity": "the number 1e999 is too large",
    "no object": "arguments that are not a JSON object",
}


@pytest.mark.parametrize("kind", UNREADABLE)
async def test_arguments_that_cannot_be_read_are_kept_and_the_model_is_told(
    tmp_path, kind, backend
):
    written = ARGUMENTS[kind]

    report, requests = await run_with(
        tmp_path, Reply(tool_calls=[("look", written)]), backend=backend
    )

    [invocation] = report.results[0].tool_invocations
    assert invocation.args == {"raw": written}
    assert UNREADABLE[kind] in report.results[0].errors[0]
    told = next(request for request in requests if request.tool_results)
    assert UNREADABLE[kind] in told.raw.decode()


@pytest.mark.parametrize("levels", [99, 101, 250, 254, 300, 900])
async def test_a_result_of_any_depth_can_be_reported(tmp_path, levels, backend):
    report, _ = await run_with(
        tmp_path, Reply(tool_calls=[("tower", {"n": levels})]), backend=backend
    )

    assert report.results[0].passed
    assert_only_the_first_suffers(report)


@pytest.mark.parametrize("name", NAMES, ids=lambda name: repr(name[:12]))
async def test_a_tool_of_any_name_ends_in_a_result(tmp_path, name, backend):
    report, _ = await run_with(tmp_path, Reply(tool_calls=[(name, {"q": "x"})]), backend=backend)

    assert_only_the_first_suffers(report)
    assert not report.results[0].passed


async def test_a_thousand_calls_at_once_are_all_carried_out(tmp_path, backend):
    calls = [("look", {"q": f"{n}"}, f"id-{n % 500}") for n in range(1000)]

    report, requests = await run_with(tmp_path, Reply(tool_calls=calls), backend=backend)

    assert report.results[0].passed
    assert len(report.results[0].tool_invocations) == 1000
    assert max(len(request.tool_results) for request in requests) == 1000


@pytest.mark.parametrize(
    "said",
    [
        "\u0634\u0643\u0631\u0627 OK \u0628\u0644\u0627\u0642",
        "e\u0301 OK \u00e9", "\U0001f469\u200d\U0001f467 OK",
        "OK" + "\u0300" * 10_000, "\u202eOK\u202c", "OK \udc80", "ＯＫ OK ﬁ ß İ",
    ],
    ids=ascii,
)  # fmt: skip
async def test_any_script_passes_through_unchanged(tmp_path, said, backend):
    report, _ = await run_with(tmp_path, Reply(json=completion(content=said)), backend=backend)

    assert report.results[0].passed
    back = json.loads(generate_json_report(report))["results"][0]["agent_response"]
    assert back == said
    assert_only_the_first_suffers(report)


async def test_an_answer_of_50_mb_fails_nobody_else(tmp_path, backend):
    answer = Reply("OK: " + "x" * 50_000_000)

    report, _ = await run_with(tmp_path, answer, backend=backend)

    assert len(generate_markdown_report(report)) < 1_000_000
    assert_only_the_first_suffers(report)
