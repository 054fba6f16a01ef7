"""A real Semantic Kernel agent against a model server that does everything a server can do wrong.

One run of the command meets all of it, because what goes wrong in one case must not touch another.
"""

import json

import pytest

from fakes import AgentFolder, FakeOpenAI, Reply, case
from support.checks import assert_one_error, assert_plain, results_in

TOOLS = '''
def get_weather(city: str, days: int = 1) -> str:
    """The weather in a city."""
    if city == "Atlantis":
        raise LookupError("there is no such city")
    return f"{days} degrees in {city}"
'''
WEATHER = {
    "type": "function", "name": "get_weather", "file": "tools.py", "function": "get_weather",
}  # fmt: skip
EXPECTED = {
    "name": "get_weather",
    "count": 1,
    "args": {"city": {"regex": "Par.s"}, "days": {"number": 3}},
}
CASES = [
    case("answers", "plain question", contains="plain"),
    case("answers wrongly", "wrong question", contains="right"),
    case("calls a tool", "weather in Paris", contains="3 degrees", expected_tools=[EXPECTED]),
    case("calls with other arguments", "weather in Rome", expected_tools=[EXPECTED]),
    case("may not call", "weather in Berlin", expected_tools=[]),
    case("is overloaded once", "try 503", contains="fine"),
    case("is limited once", "try 429", contains="fine"),
    case("is reset once", "try reset", contains="fine"),
    case("is cut off once", "try truncate", contains="fine"),
    case("stays overloaded", "always 503", contains="fine"),
    case("is refused", "try 400", contains="fine"),
    case("sends no JSON", "try html", contains="fine"),
    case("hangs", "hang", contains="fine"),
    case("says nothing", "be silent", contains="fine"),
    case("says 7 MB", "be long", contains="end of the story"),
    case("calls a tool that is not there", "unknown tool", contains="sorry"),
    case("calls with broken JSON", "broken arguments", contains="sorry"),
    case("calls a tool that raises", "weather in Atlantis", contains="sorry"),
    case("answers at last", "last question", contains="last"),
]
OK = {name for name in (one["name"] for one in CASES) if name.endswith("once")} | {
    "answers", "calls a tool", "says 7 MB", "calls a tool that raises", "answers at last",
}  # fmt: skip


def calls(name, arguments):
    """A reply that calls a tool, then one that has seen the result."""

    def answering(request):
        if request.tool_results:
            return Reply(f"sorry, but it said: {request.tool_results[-1]}")
        return Reply(tool_calls=[(name, arguments)])

    return answering


def scripted(server):
    for city, days in (("Paris", 3), ("Rome", 3), ("Berlin", 1), ("Atlantis", 1)):
        server.when(f"weather in {city}", calls("get_weather", {"city": city, "days": days}))
    server.when("try 503", "never seen", status=503, times=1).when("try 503", "fine")
    limited = {"status": 429, "headers": {"retry-after-ms": "30"}}
    server.when("try 429", "slow down", times=1, **limited).when("try 429", "fine")
    server.when("try reset", fault="reset", times=1).when("try reset", "fine")
    server.when("try truncate", "fine", fault="truncate", times=1).when("try truncate", "fine")
    server.when("always 503", "the server is on fire", status=503)
    server.when("try 400", "that is no model of ours", status=400)
    server.when("try html", body=b"<html>Welcome to the proxy</html>")
    server.when("hang", fault="hang")
    server.when("be silent", "")
    server.when("be long", "x" * 7_000_000 + " end of the story")
    server.when("unknown tool", calls("launch_rockets", {}))
    server.when("broken arguments", calls("get_weather", '{"city": "Par'))
    return server.otherwise(lambda request: f"OK: {request.prompt}")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """The run, its folder, and what the server saw."""
    with scripted(FakeOpenAI()) as server:
        folder = AgentFolder(tmp_path_factory.mktemp("agent"), server)
        folder.write("tools.py", TOOLS)
        folder.write_agent(
            tools=[WEATHER],
            test_cases=CASES,
            execution={"retry_delay": 0.01, "max_retries": 2, "parallel_test_cases": 4},
        )
        ran = folder.run(
            "test", "--timeout", "8", "--output", "report.md", "--output", "report.json"
        )
        yield ran, folder, server.requests


@pytest.fixture
def results(run):
    return results_in(run[1].path / "report.json")


def test_every_case_gets_a_row_and_the_run_its_code(run, results):
    ran, _, _ = run

    assert_plain(ran)
    assert (ran.code, ran.stderr) == (3, "")
    assert list(results) == [one["name"] for one in CASES]
    assert {name for name, one in results.items() if one["passed"]} == OK
    assert f"Test Results: {len(OK)}/{len(CASES)} passed" in ran.stdout
    for name in results:
        assert f" {name}" in ran.stdout


def test_a_right_answer_passes_and_a_wrong_one_fails_with_both_texts(results):
    wrong = results["answers wrongly"]["metric_results"][0]

    assert results["answers"]["agent_response"] == "OK: plain question"
    assert wrong["score"] == 0
    assert "'right'" in wrong["reasoning"]
    assert "wrong question" in wrong["reasoning"]


def test_tools_are_called_and_what_they_gave_stands_in_the_report(results):
    called = results["calls a tool"]["tool_invocations"]

    assert [(one["name"], one["args"], one["result"]) for one in called] == [
        ("get_weather", {"city": "Paris", "days": 3}, "3 degrees in Paris")
    ]
    assert results["calls a tool"]["tools_matched"] is True


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("calls with other arguments", "Rome"),
        ("may not call", "no tool may be called, but get_weather was"),
    ],
)
def test_an_expectation_about_tools_that_is_not_met_fails_with_its_reason(results, name, reason):
    check = results[name]["tool_checks"][0]

    assert (results[name]["outcome"], check["passed"]) == ("failed", False)
    assert reason in check["reason"]


@pytest.mark.parametrize(
    ("name", "error"),
    [
        ("is overloaded once", "503"),
        ("is limited once", "429"),
        ("is reset once", "connect"),
        ("is cut off once", ""),
    ],
)
def test_what_passes_by_itself_is_tried_again_and_the_try_stays_visible(results, name, error):
    attempts = results[name]["attempts"]

    assert [one["number"] for one in attempts] == [1]
    assert error in attempts[0]["error"].lower()
    assert results[name]["agent_response"] == "fine"


def test_the_wait_that_a_server_asks_for_is_kept(results):
    assert results["is limited once"]["attempts"][0]["retry_after_ms"] >= 30


@pytest.mark.parametrize(
    ("name", "said", "tries"),
    [
        ("stays overloaded", ["503", "the server is on fire", "after 3 attempts"], 3),
        ("is refused", ["400", "that is no model of ours"], 1),
        ("sends no JSON", ["not a chat completion", "after 3 attempts"], 3),
        ("hangs", ["timeout after 8s; raise --llm-timeout"], 1),
    ],
)
def test_an_agent_that_cannot_be_run_is_an_error_with_its_reason(run, results, name, said, tries):
    result = results[name]
    prompt = next(one["input"] for one in CASES if one["name"] == name)

    assert result["outcome"] == "agent_error"
    assert len(result["errors"]) == 1
    assert all(text in result["errors"][0] for text in said), result["errors"]
    assert len([one for one in run[2] if one.prompt == prompt]) == tries
    assert f"ERROR {name}" in run[0].stdout


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("says nothing", "the agent returned an empty response"),
        ("calls a tool that is not there", "launch_rockets"),
        ("calls with broken JSON", "get_weather"),
    ],
)
def test_an_agent_that_misbehaves_fails_with_its_reason(run, results, name, reason):
    assert results[name]["outcome"] == "failed"
    assert reason in " ".join(results[name]["errors"])
    assert f"FAIL {name}" in run[0].stdout


def test_an_empty_answer_is_graded_all_the_same(results):
    assert [row["score"] for row in results["says nothing"]["metric_results"]] == [0]


def test_the_model_is_told_that_a_tool_raised_and_may_go_on(results):
    result = results["calls a tool that raises"]

    assert result["passed"]
    assert "there is no such city" in result["tool_invocations"][0]["error"]
    assert "there is no such city" in result["agent_response"]


def test_an_answer_of_10_mb_is_graded_and_kept_whole(run, results):
    assert len(results["says 7 MB"]["agent_response"]) == 7_000_017
    assert len(run[0].stdout) < 20_000


def test_each_case_has_a_conversation_of_its_own(run):
    first = [one for one in run[2] if not one.tool_results]

    assert {len([m for m in one.messages if m["role"] == "user"]) for one in first} == {1}
    assert {one.system for one in first} == {"Do what the user says."}


def test_tokens_of_all_requests_are_summed(results):
    assert results["answers"]["token_usage"]["total_tokens"] == 15
    assert results["calls a tool"]["token_usage"]["total_tokens"] == 30


def test_both_reports_tell_the_same(run, results):
    document = json.loads((run[1].path / "report.json").read_text(encoding="utf-8"))
    markdown = (run[1].path / "report.md").read_text(encoding="utf-8")

    assert document["summary"]["passed"] == len(OK)
    assert f"**{len(OK)} of {len(results)} tests passed**" in markdown
    assert all(
        f"</a>✅ {name}</summary>" in markdown if name in OK else f"### Test: {name} " in markdown
        for name in results
    )


def test_a_key_that_is_refused_is_an_error_that_does_not_show_the_key(agent_dir):
    key = "sk-live-0123456789abcdefghij"
    agent_dir.server.otherwise(
        status=401, content=f"Incorrect API key provided: {key}. Find yours in your account."
    )
    agent_dir.write_agent(model=agent_dir.model(api_key=key))

    ran = agent_dir.run("test", "-o", "report.md", "-o", "report.json")

    assert_plain(ran)
    assert ran.code == 3
    assert "401" in ran.stdout
    assert "Incorrect API key provided" in ran.stdout
    assert len(agent_dir.server.requests) == 1
    written = [path.read_text(encoding="utf-8") for path in agent_dir.path.glob("report.*")]
    assert len(written) == 2
    assert not [text for text in (ran.stdout, ran.stderr, *written) if key[:16] in text]


def test_a_server_that_is_not_there_is_an_error_row_that_says_so(agent_dir):
    agent_dir.write_agent(
        model=agent_dir.model(endpoint="http://127.0.0.1:9/v1"),
        execution={"retry_delay": 0, "max_retries": 1},
    )

    ran = agent_dir.run("test")

    assert_plain(ran)
    assert (ran.code, ran.stderr) == (3, "")
    assert "after 2 attempts" in ran.stdout
    assert "127.0.0.1:9" in ran.stdout


def test_a_key_that_is_missing_stops_before_the_first_test(agent_dir):
    agent_dir.write_agent(model={"provider": "anthropic", "name": "fake"})

    ran = agent_dir.run("test")

    assert_one_error(ran, 2, "agent.yaml:3:3: model: missing API key", "ANTHROPIC_API_KEY")
    assert ran.stdout == ""
