"""Agents that are Python code or stand behind a URL, through the command."""

import json

import pytest

from fakes import Reply, case, run_cli
from support.checks import assert_plain, results_in


@pytest.mark.parametrize(
    ("backend", "answer"),
    [("bot:answer", "hello"), ("bot:answer_later", "hello"), ("bot:Agent", "hello 0")],
    ids=["function", "async function", "class"],
)
def test_python_code_can_be_the_agent(bot_dir, write_bot, backend, answer):
    write_bot(
        backend=backend,
        test_cases=[
            case(name, "hello", evaluations=[{"metric": "exact_match", "value": answer}])
            for name in ("one", "two")
        ],
    )

    ran = bot_dir.run("test")

    assert_plain(ran)
    assert (ran.code, ran.stderr) == (0, "")
    assert "Test Results: 2/2 passed (100.0%)" in ran.stdout


def test_an_agent_that_hangs_raises_or_says_nothing_takes_no_other_along(bot_dir, write_bot):
    write_bot(
        test_cases=[
            case("raises", "raise over the limit", contains="hello"),
            case("hangs", "sleep 600", contains="hello"),
            case("says nothing", "nothing", contains="hello"),
            case("is fine", "hello", contains="hello"),
        ]
    )

    ran = bot_dir.run("test", "--timeout", "1", "-o", "r.json")
    results = results_in(bot_dir.path / "r.json")

    assert_plain(ran)
    assert (ran.code, ran.stderr) == (3, "")
    assert {name: one["outcome"] for name, one in results.items()} == {
        "raises": "agent_error", "hangs": "agent_error", "says nothing": "failed",
        "is fine": "passed",
    }  # fmt: skip
    assert results["raises"]["errors"] == ["RuntimeError: over the limit"]
    assert "within 1 s" in results["hangs"]["errors"][0]


def test_an_agent_behind_a_url_is_asked_and_read_as_the_mapping_says(agent_dir):
    def served(request):
        question = request.body["question"]["text"]
        answer = {"parts": [{"text": f"you asked {question}"}], "spent": {"in": 7, "out": 3}}
        return json.dumps({"data": answer})

    agent_dir.server.otherwise(served)
    agent_dir.write_agent(
        model=None,
        instructions=None,
        backend={
            "type": "http",
            "url": f"{agent_dir.server.root}/ask",
            "headers": {"X-Team": "search"},
            "request": {"question": {"text": "{input}"}, "stream": False},
            "answer": {
                "text": "data.parts[0].text",
                "prompt_tokens": "data.spent.in",
                "completion_tokens": "data.spent.out",
            },
        },
        test_cases=[case("asks", 'a "quoted" question', contains='you asked a "quoted" question')],
    )

    ran = agent_dir.run("test")

    assert_plain(ran)
    assert (ran.code, ran.stderr) == (0, "")
    assert "Tokens: 10 (7 prompt, 3 completion)" in ran.stdout
    request = agent_dir.server.requests[0]
    assert (request.path, request.headers["x-team"]) == ("/ask", "search")
    assert request.body == {"question": {"text": 'a "quoted" question'}, "stream": False}


def test_an_agent_behind_a_url_that_fails_is_tried_again_then_an_error(agent_dir):
    agent_dir.server.when(lambda r: r.body["input"] == "once", status=503, times=1)
    agent_dir.server.when(lambda r: r.body["input"] == "once", '{"response": "hello"}')
    agent_dir.server.when(lambda r: r.body["input"] == "shape", '{"reply": "hello"}')
    agent_dir.server.otherwise(status=500, content="out of order")
    agent_dir.write_agent(
        model=None,
        instructions=None,
        backend={"type": "http", "url": agent_dir.server.root},
        execution={"retry_delay": 0.01, "max_retries": 1},
        test_cases=[case(name, name, contains="hello") for name in ("once", "shape", "always")],
    )

    ran = agent_dir.run("test", "-o", "r.json")
    results = results_in(agent_dir.path / "r.json")

    assert_plain(ran)
    assert ran.code == 3
    assert results["once"]["passed"]
    assert len(results["once"]["attempts"]) == 1
    assert "has no 'response'" in results["shape"]["errors"][0]
    assert "500" in results["always"]["errors"][0]
    assert len(results["always"]["attempts"]) == 2


def test_everything_an_agent_yaml_names_lies_beside_it_wherever_the_command_runs(
    bot_dir, write_bot, tmp_path
):
    near = {"metric": "checks.near:near"}
    file = {"path": "a.txt", "type": "text"}
    write_bot(test_cases=[case("reads", "hello", evaluations=[near], files=[file])])
    bot_dir.write("checks/near.py", "def near(seen):\n    return 'from a file' in seen.response\n")
    bot_dir.write("a.txt", "text from a file")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    ran = run_cli("test", bot_dir.path / "agent.yaml", "-o", "r.md", cwd=elsewhere)

    assert_plain(ran)
    assert (ran.code, ran.stderr) == (0, "")
    assert (elsewhere / "r.md").is_file()
    assert not (bot_dir.path / "r.md").exists()


@pytest.mark.parametrize("backend", [None, "chat"], ids=["semantic kernel", "chat"])
def test_a_model_is_told_the_whole_conversation_in_every_turn(agent_dir, backend):
    agent_dir.write_agent(
        backend=backend,
        test_cases=[
            {
                "name": "talks",
                "turns": [
                    {"input": "Say hello please", "expected_tools": []},
                    {"input": "And once more", "expected_tools": []},
                ],
            }
        ],
    )

    ran = agent_dir.run("test", "-o", "r.json")

    assert_plain(ran)
    assert (ran.code, ran.stderr) == (0, "")
    first, second = [request.body["messages"] for request in agent_dir.server.requests]
    said = [one["content"] for one in second if one["role"] == "user"]
    turns = results_in(agent_dir.path / "r.json")["talks"]["turns"]
    assert said == ["Say hello please", "And once more"]
    assert [one["role"] for one in second[-3:]] == ["user", "assistant", "user"]
    assert second[-2]["content"] == turns[0]["agent_response"]
    assert len(second) == len(first) + 2


def test_code_holds_a_conversation_and_a_resumed_run_keeps_them(bot_dir, write_bot):
    write_bot(
        backend="bot:Agent",
        test_cases=[
            {
                "name": "talks",
                "turns": [
                    {"input": "a", "evaluations": [{"metric": "exact_match", "value": "a 0"}]},
                    {"input": "b", "evaluations": [{"metric": "exact_match", "value": "b 2"}]},
                ],
            }
        ],
    )

    ran = bot_dir.run("test")
    again = bot_dir.run("test", "--resume", "-o", "r.json")

    assert (ran.code, again.code) == (0, 0)
    assert "1 of 1 results are kept" in again.stderr
    turns = results_in(bot_dir.path / "r.json")["talks"]["turns"]
    assert [turn["outcome"] for turn in turns] == ["passed", "passed"]


def test_an_answer_that_does_not_follow_a2a_shows_no_code_of_a_library(agent_dir):
    server = agent_dir.server
    interface = {
        "protocolBinding": "JSONRPC",
        "protocolVersion": "1.0",
        "url": f"{server.root}/rpc",
    }
    server.when(
        lambda request: request.method == "GET",
        Reply(json={"name": "support", "supportedInterfaces": [interface]}),
    )
    server.otherwise(Reply(json={"jsonrpc": "2.0", "id": "1", "result": {"task": 3}}))
    agent_dir.write(
        "agent.yaml",
        json.dumps(
            {
                "name": "support",
                "backend": {"type": "a2a", "url": server.root},
                "test_cases": [case("order", "Where is 7?", contains="late")],
            }
        ),
    )

    ran = agent_dir.run("test", "-v")

    assert ran.code == 3
    assert "the agent's response does not follow A2A (ParseError: " in ran.stdout
    assert ".py" not in ran.stdout
