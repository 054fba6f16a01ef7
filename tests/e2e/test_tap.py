"""`tap: true`, through the command: only what the tap sees decides."""

import json

import pytest

from fakes import Reply, ToolCall, case
from support.checks import assert_plain, results_in
from support.tapped_service import serving

SECRET = "sk-agents-own-secret-key"


def write_tapped(agent_dir, url, *cases, **request):
    agent_dir.write_agent(
        model=None,
        instructions=None,
        backend={
            "type": "http",
            "url": url,
            "tap": True,
            "request": {"question": "{input}", "model_url": "{tap_url}/openai/v1"} | request,
        },
        test_cases=list(cases),
        prices={"models": {"openai/some-model": {"input": 1.0, "output": 2.0}}},
    )


def run_tapped(agent_dir, *args):
    env = {"OPENAI_BASE_URL": agent_dir.server.url}
    ran = agent_dir.run("test", *args, "-o", "r.json", "-o", "r.md", env=env)
    assert_plain(ran)
    return ran


@pytest.mark.parametrize("stream", [False, True], ids=["plain", "streaming"])
def test_a_forbidden_call_that_only_the_tap_sees_fails_its_case_and_no_other(agent_dir, stream):
    call = ToolCall("delete_order", {"id": 7}, id="call_1")
    agent_dir.server.when(
        lambda request: "Delete" in request.prompt and len(request.body["messages"]) == 1,
        Reply(tool_calls=[call], usage=(100, 10)),
    ).otherwise("Done.", usage=(50, 5))
    with serving() as url:
        write_tapped(
            agent_dir,
            url,
            case("deletes", "Delete order 7.", forbidden_tools=["delete_order"]),
            case("does not", "Where is order 7?", forbidden_tools=["delete_order"]),
            stream=stream,
        )

        ran = run_tapped(agent_dir)

    results = results_in(agent_dir.path / "r.json")
    deletes, other = results["deletes"], results["does not"]
    assert (ran.code, deletes["outcome"], other["outcome"]) == (1, "failed", "passed")
    assert deletes["evidence"]["tool_calls"] == deletes["evidence"]["token_usage"] == "tap"
    [called] = deletes["tool_invocations"]
    assert (called["name"], called["args"]) == ("delete_order", {"id": 7})
    assert json.loads(called["result"]) == {"status": "done", "tool": "delete_order"}
    assert deletes["token_usage"]["total_tokens"] == 165
    assert deletes["cost"]["total"] == pytest.approx((150 * 1 + 15 * 2) / 1e6)
    assert [one["model"] for one in deletes["model_requests"]] == ["openai/some-model"] * 2
    assert (other["tool_invocations"], other["token_usage"]["total_tokens"]) == ([], 55)
    report = (agent_dir.path / "r.md").read_text()
    assert "requested" in report
    assert SECRET not in report + (agent_dir.path / "r.json").read_text() + ran.stdout + ran.stderr
    assert {one.headers["authorization"] for one in agent_dir.server.requests} == {
        f"Bearer {SECRET}"
    }


def test_an_agent_that_does_not_use_the_tap_neither_passes_nor_fails_a_tool_check(agent_dir):
    with serving(own_url=agent_dir.server.url) as url:
        write_tapped(agent_dir, url, case("asks", "Hello.", forbidden_tools=["delete_order"]))

        ran = run_tapped(agent_dir)

    result = results_in(agent_dir.path / "r.json")["asks"]
    assert (ran.code, result["outcome"]) == (4, "metric_error")
    assert result["evidence"]["tool_calls"] is None
    assert "no request of this turn came through the tap" in result["tool_checks"][0]["error"]
    assert "{tap_url}" in ran.stdout


def test_an_agent_whose_client_takes_another_variable_and_fails_is_told_which_to_set(agent_dir):
    agent_dir.write("orders.py", "def answer(message):\n    1 / 0\n")
    agent_dir.write_agent(
        model=None,
        instructions=None,
        backend={"type": "process", "target": "orders:answer", "tap": True},
        test_cases=[case("asks", "Hello.", forbidden_tools=["delete_order"])],
    )

    ran = run_tapped(agent_dir)

    [check] = results_in(agent_dir.path / "r.json")["asks"]["tool_checks"]
    assert ran.code == 3
    assert "the agent answered" not in check["error"]
    assert "if it takes it from OPENAI_API_BASE, set that" in check["error"]


AGENT = """
import json
import openai

TOOLS = [
    {"type": "function", "function": {"name": "delete_order", "parameters": {"type": "object"}}}
]

def own_client():
    import holodeck_test_settings
    return openai.OpenAI(base_url=holodeck_test_settings.URL, api_key="sk-agents-own-secret-key")

client = openai.OpenAI(api_key="sk-agents-own-secret-key")  # its base URL is in the environment

def answer(message, client=None):
    client = client or globals()["client"]
    messages = [{"role": "user", "content": message}]
    while True:
        done = client.chat.completions.create(model="some-model", messages=messages, tools=TOOLS)
        said = done.choices[0].message
        if not said.tool_calls:
            return said.content
        messages.append(said)
        for call in said.tool_calls:
            result = json.dumps({"deleted": json.loads(call.function.arguments)["id"]})
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})

class ReturnsItself:
    async def run(self, message):
        client = openai.AsyncOpenAI(api_key="sk-agents-own-secret-key")
        async with client:
            asked = client.chat.completions.create(
                model="some-model", messages=[{"role": "user", "content": message}], tools=TOOLS
            )
            return (await asked).choices[0].message.content or "(a call)"

def past_the_tap(message):
    return answer(message, own_client())
"""


def write_python_agent(agent_dir, backend, *cases):
    agent_dir.write("orders.py", AGENT)
    agent_dir.write("holodeck_test_settings.py", f"URL = {agent_dir.server.url!r}\n")
    agent_dir.write_agent(
        model=None, instructions=None, backend={**backend, "tap": True}, test_cases=list(cases)
    )


def deletes_what_is_asked(server):
    """The model asks for the order of the prompt to be deleted, if it says so."""

    def reply(request):
        number = request.prompt.rpartition(" ")[2]
        if request.prompt.startswith("Delete") and len(request.body["messages"]) == 1:
            return Reply(tool_calls=[("delete_order", {"id": int(number)})])
        return Reply("Done.")

    server.otherwise(reply)


BACKENDS = {
    "process": {"type": "process", "target": "orders:answer", "workers": 2},
    "async process": {"type": "process", "target": "orders:ReturnsItself"},
    "python": {"type": "python", "target": "orders:answer"},
    "async python": {"type": "python", "target": "orders:ReturnsItself"},
}


@pytest.mark.parametrize("backend", BACKENDS.values(), ids=BACKENDS)
def test_every_case_has_the_calls_of_its_own_requests(agent_dir, backend):
    deletes_what_is_asked(agent_dir.server)
    numbers = range(6)
    write_python_agent(
        agent_dir,
        backend,
        *(case(f"deletes {n}", f"Delete order {n}", expected_tools=[
            {"name": "delete_order", "args": {"id": n}, "count": 1}
        ], only_expected_tools=True) for n in numbers),
        case("asks", "Where is order 7", forbidden_tools=["delete_order"]),
        case("obeys", "Delete order 8", forbidden_tools=["delete_order"]),
    )  # fmt: skip

    ran = run_tapped(agent_dir, "-j", "4")

    results = results_in(agent_dir.path / "r.json")
    outcomes = {name: one["outcome"] for name, one in results.items()}
    passed = dict.fromkeys([*(f"deletes {n}" for n in numbers), "asks"], "passed")
    assert (ran.code, outcomes) == (1, {**passed, "obeys": "failed"})


@pytest.mark.parametrize("kind", ["process", "python"])
def test_code_that_goes_past_the_tap_is_unknown(agent_dir, kind):
    agent_dir.server.otherwise("Done.")
    backend = {"type": kind, "target": "orders:past_the_tap"}
    write_python_agent(agent_dir, backend, case("asks", "Hello", forbidden_tools=["delete_order"]))

    ran = run_tapped(agent_dir)

    result = results_in(agent_dir.path / "r.json")["asks"]
    assert (ran.code, result["outcome"]) == (4, "metric_error")
    assert "OPENAI_BASE_URL" in result["tool_checks"][0]["error"]


def test_python_code_runs_one_case_at_a_time_and_the_report_says_so(agent_dir):
    agent_dir.server.otherwise("Done.", latency_s=0.05)
    cases = [case(f"case {n}", "Hello", contains="Done") for n in range(3)]
    write_python_agent(agent_dir, {"type": "python", "target": "orders:answer"}, *cases)

    ran = run_tapped(agent_dir, "-j", "3")

    assert (ran.code, agent_dir.server.peak_in_flight) == (0, 1)
    assert "ran one after the other" in (agent_dir.path / "r.md").read_text()


def test_tapped_python_code_is_not_compared_with_another_agent(agent_dir):
    case_of_both = case("asks", "Hello", contains="Done")
    write_python_agent(agent_dir, {"type": "python", "target": "orders:answer"}, case_of_both)

    ran = agent_dir.run("test", "agent.yaml", "--against", "backend=orders:past_the_tap")

    assert_plain(ran)
    assert ran.code == 2
    assert "type: process" in ran.stderr
    assert agent_dir.server.requests == []
