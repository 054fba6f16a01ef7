"""Worker processes whose agents and judges ask a model: refusals, slots, caches, MCP servers."""

import json
import sys
from collections import Counter

from fakes import FakeOpenAI, Reply
from support.folder import case

TWO = ("test", "--workers", "2", "-o", "report.json")
NOTES = """
import os
from mcp.server.fastmcp import FastMCP

server = FastMCP("notes")
with open("servers", "a") as file:
    file.write(f"{os.getpid()}\\n")


@server.tool()
def look_up(word: str) -> str:
    return f"{word} means something"


server.run()
"""
JUDGED = json.dumps({"c1": {"reasoning": "seen", "status": "passed"}, "decision": "verdict"})


def results_of(agent_dir):
    return json.loads((agent_dir.path / "report.json").read_text())["results"]


def cases(count, **fields):
    return [case(f"c{n}", f"case {n} please", **fields) for n in range(count)]


def test_a_provider_that_refuses_the_cases_of_all_workers_ends_the_run(agent_dir):
    agent_dir.server.otherwise(status=401, json={"error": {"message": "wrong key"}})
    agent_dir.write_agent(backend="chat", test_cases=cases(12, contains="OK"))

    several = agent_dir.run(*TWO, "-j", "1")
    asked = len(agent_dir.server.requests)

    outcomes = Counter(one["outcome"] for one in results_of(agent_dir))
    assert several.code == 3, several.stderr
    assert 3 <= asked <= 4, "each of the two workers has one under way"
    assert outcomes["skipped"] >= 8
    assert "model.api_key" in several.stdout + several.stderr


def test_judges_of_all_workers_share_slots_and_the_recordings(agent_dir):
    agent_dir.write("bot.py", "def answer(said):\n    return said\n")
    with FakeOpenAI(Reply(JUDGED)) as server:
        agent_dir.write_agent(
            backend="bot:answer",
            model=None,
            instructions=None,
            evaluations={"model": agent_dir.model(endpoint=server.url)},
            test_cases=cases(12, criteria=["is polite"]),
        )
        first = agent_dir.run(*TWO, "-j", "2", "--record")
        peak, asked = server.peak_in_flight, len(server.requests)
        second = agent_dir.run(*TWO, "-j", "2", "--replay")
        asked_again = len(server.requests) - asked

    assert (first.code, second.code) == (0, 0), first.stderr + first.stdout
    assert (asked, asked_again) == (12, 0)
    assert peak <= 2


def test_turns_of_a_script_and_mcp_servers_stay_in_the_worker_of_their_case(agent_dir):
    """Each worker starts its own server, which ends with it."""
    agent_dir.write("notes.py", NOTES)
    tool = {"type": "mcp", "name": "notes", "command": sys.executable, "args": ["notes.py"]}
    script = [{"user": "first words"}, "agent", {"user": "second words"}, "agent", "succeed"]
    agent_dir.write_agent(
        backend="chat",
        tools=[tool],
        test_cases=[{"name": f"c{n}", "script": script} for n in range(4)],
    )

    ran = agent_dir.run(*TWO)

    results = results_of(agent_dir)
    assert ran.code == 0, ran.stderr + ran.stdout
    assert [len(one["turns"]) for one in results] == [2] * 4
    assert len((agent_dir.path / "servers").read_text().split()) == 2
