"""Recordings of cases, and their replay without a model."""

import json
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from holodeck.lib.recordings.entries import read_entries, write_entries
from holodeck.lib.secrets.redact import Redactor
from support import mcp_servers
from support.cli import run_cli
from support.folder import AgentFolder, case
from support.frameworks import TOOL, results_of_turn, script
from support.server import FakeOpenAI

ROOT = Path(__file__).resolve().parents[2]
CASES = [case("greets", "Say hello", contains="hello"), case("parts", "Say bye", contains="bye")]


@pytest.fixture
def recorded(agent_dir):
    """A folder whose cases were recorded."""
    agent_dir.write_agent(backend="chat", test_cases=CASES)
    ran = agent_dir.run("test", "--record", "-j", "1")
    assert ran.code == 0, ran.stderr
    return agent_dir


def test_what_was_recorded_is_replayed_and_the_model_is_not_asked(recorded):
    before = len(recorded.server.requests)

    replayed = recorded.run("test", "--replay")

    assert replayed.code == 0
    assert "2/2 passed" in replayed.stdout
    assert len(recorded.server.requests) == before


def test_a_request_that_is_not_recorded_is_an_error_that_shows_the_difference(recorded):
    changed = recorded.path / "agent.yaml"
    changed.write_text(changed.read_text().replace("Do what", "Always do what"))
    before = len(recorded.server.requests)

    missed = recorded.run("test", "--replay")

    assert missed.code == 4
    assert 'differs at $.messages[0].content: recorded "Do what' in missed.stdout
    assert len(recorded.server.requests) == before


def test_missing_records_only_what_is_new(recorded):
    recorded.write_agent(
        backend="chat", test_cases=[*CASES, case("asks", "Say why", contains="why")]
    )
    before = len(recorded.server.requests)
    files = {file: file.read_bytes() for file in (recorded.path / "recordings").rglob("*s.json")}

    ran = recorded.run("test", "--record")

    assert ran.code == 0
    assert len(recorded.server.requests) == before + 1
    assert len(files) == 2
    assert all(file.read_bytes() == content for file, content in files.items())


def test_two_recordings_are_equal_but_for_the_index(recorded):
    def files():
        folder = Path(recorded.path, "recordings", "agent")
        return {
            file.name: file.read_bytes() for file in folder.iterdir() if file.name != "index.json"
        }

    first = files()
    with FakeOpenAI() as server:  # whose ids begin anew
        again = AgentFolder(recorded.path, server)
        again.write_agent(backend="chat", test_cases=CASES)
        ran = again.run("test", "--record", "all", "-j", "1")

    assert ran.code == 0
    assert len(server.requests) == 2
    assert files() == first
    dates = json.loads(Path(recorded.path, "recordings", "agent", "index.json").read_text())
    assert dates.keys() == first.keys()


def index_of(folder):
    return folder.path / "recordings" / "agent" / "index.json"


def test_the_summary_says_what_was_replayed_and_how_old_it_is(recorded):
    index = index_of(recorded)
    index.write_text(json.dumps(dict.fromkeys(json.loads(index.read_text()), "2026-01-02")))

    ran = recorded.run("test", "--replay", "-o", "report.md")

    line = "2 replayed, 0 live; recorded 2026-01-02 with openai/fake"
    assert f"Recordings: {line}" in ran.stdout
    assert line in (recorded.path / "report.md").read_text()


def test_what_nothing_asked_for_is_counted(recorded):
    recorded.write_agent(backend="chat", test_cases=[CASES[0] | {"repeat": 1}, CASES[1]])
    path = recorded.path / "recordings" / "agent" / "greets.json"
    about, entries = read_entries(path)
    body = entries[0].request["body"] | {"seed": 7}
    other = replace(entries[0], key="0", request=entries[0].request | {"body": body})
    write_entries(path, about, [*entries, other], Redactor())

    assert "; 1 entry unused" in recorded.run("test", "--replay").stdout


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (("2026-", "2020-"), "they are older than 60 days"),
        (("greets", "others"), "their age is not known"),
    ],
)
def test_an_old_recording_is_noted_and_with_strict_recordings_an_error(recorded, change, problem):
    recorded.write_agent(backend="chat", test_cases=CASES, recordings={"max_age_days": 60})
    index = index_of(recorded)
    index.write_text(index.read_text().replace(*change))

    noted = recorded.run("test", "--replay")
    strict = recorded.run("test", "--replay", "--strict-recordings")

    assert (noted.code, strict.code) == (0, 4)
    assert f"recordings: {problem}" in noted.stderr
    assert problem in strict.stdout


def test_the_latency_and_the_cost_of_replayed_responses_are_unknown(agent_dir):
    checks = [{"type": "standard", "metric": "latency", "max_ms": 60_000}]
    agent_dir.write_agent(
        backend="chat",
        test_cases=[case("fast", "Say hello", evaluations=checks)],
        prices={"models": {"openai/fake": {"input": 1, "output": 1}}},
    )
    live = agent_dir.run("test", "--record")
    replayed = agent_dir.run("test", "--replay", "-o", "report.json")

    assert (live.code, replayed.code) == (0, 4)
    assert "the latency is unknown, because responses were replayed" in replayed.stdout
    result = json.loads((agent_dir.path / "report.json").read_text())["results"][0]
    assert result["cost"]["total"] is None
    assert result["cost"]["unknown"] == ["responses were replayed"]
    assert result["evidence"]["tool_calls"] == "replay"
    assert result["agent_time_ms"] is None


def test_recording_and_replaying_exclude_each_other(recorded):
    ran = recorded.run("test", "--replay", "--record", "all")

    assert ran.code == 2
    assert "--record and --replay exclude each other" in ran.stderr


def test_the_variable_replays(recorded):
    before = len(recorded.server.requests)

    ran = recorded.run("test", env={"HOLODECK_RECORDINGS": "replay"})

    assert ran.code == 0
    assert len(recorded.server.requests) == before


def test_a_changed_file_is_an_error_of_its_case(recorded):
    path = recorded.path / "recordings" / "agent" / "greets.json"
    path.write_text(path.read_text().replace("hello", "hello you"))

    ran = recorded.run("test", "--replay")

    assert ran.code == 4
    assert "was changed since it was recorded; record it again" in ran.stdout
    assert "1/2 passed" in ran.stdout


TOOLS = """
import os
from pathlib import Path

def lookup_order(order_id: str) -> dict:
    Path("ran").open("a").write(order_id)
    if order_id == "lost":
        raise KeyError("no such order")
    return {"order": order_id, "status": "shipped"}
"""


@pytest.fixture
def with_tool(agent_dir):
    """A folder whose agent has a function as a tool."""
    agent_dir.server.otherwise(script)
    agent_dir.write("tools.py", TOOLS)
    tool = {"type": "function", "name": TOOL, "file": "tools.py", "function": TOOL}
    agent_dir.write_agent(
        tools=[tool],
        test_cases=[
            case("orders", "Where are order 7 and order 8?", contains="shipped"),
            case("lost", "Where is order lost?", expected_tools=[TOOL]),
        ],
    )
    return agent_dir


def test_tools_do_not_run_in_a_replay(with_tool):
    recorded = with_tool.run("test", "--record", "-o", "recorded.json")
    ran = (with_tool.path / "ran").read_text()
    replayed = with_tool.run("test", "--replay", "-o", "replayed.json")

    assert (recorded.code, replayed.code) == (0, 0), recorded.stdout
    assert (with_tool.path / "ran").read_text() == ran
    assert sorted(ran) == sorted("78lost")

    def calls(name):
        results = json.loads((with_tool.path / name).read_text())["results"]
        return [
            [(call["name"], call["args"], call["result"], call["error"]) for call in calls]
            for calls in (result["tool_invocations"] for result in results)
        ]

    assert calls("replayed.json") == calls("recorded.json")
    assert "KeyError" in str(calls("replayed.json"))


def test_a_stub_takes_the_place_of_a_tool_in_a_replay(with_tool):
    stub = {"stubs": {TOOL: [{"returns": "shipped by a stub"}]}}
    cases = [case("orders", "Where is order 7?", contains="by a stub", **stub)]
    with_tool.write_agent(tools=read_yaml(with_tool)["tools"], test_cases=cases)
    recorded = with_tool.run("test", "--record")
    replayed = with_tool.run("test", "--replay")

    assert (recorded.code, replayed.code) == (0, 0), recorded.stdout
    assert not (with_tool.path / "ran").exists()


def test_a_fault_of_the_model_needs_no_model_in_a_replay(with_tool):
    with_tool.run("test", "--record")
    before = len(with_tool.server.requests)
    cases = read_yaml(with_tool)["test_cases"]
    cases[0]["model_faults"] = [{"call": 2, "cut_off": True}]
    cases[0]["evaluations"][0]["value"] = "OK: "
    with_tool.write_agent(tools=read_yaml(with_tool)["tools"], test_cases=cases)

    replayed = with_tool.run("test", "--replay", "-o", "report.json")

    assert replayed.code == 0, replayed.stdout
    first = json.loads((with_tool.path / "report.json").read_text())["results"][0]
    assert [request["faults"] for request in first["handled_requests"]] == [[], ["cut_off"]]
    assert len(with_tool.server.requests) == before


def read_yaml(folder):
    return yaml.safe_load((folder.path / "agent.yaml").read_text())


SERVER = """
import sys
from pathlib import Path

sys.path.insert(0, {support!r})
Path("started").open("a").write("x")
from mcp_servers import build

build().run()
"""


def test_servers_of_tools_are_not_started_in_a_replay(agent_dir):
    agent_dir.server.when(
        lambda request: not results_of_turn(request), tool_calls=[("lookup_order", {"order_id": 7})]
    )
    agent_dir.server.otherwise(lambda request: f"OK: {results_of_turn(request)[0]}")
    folder = str(Path(mcp_servers.__file__).parent)
    agent_dir.write("server.py", SERVER.format(support=folder))
    tool = {"type": "mcp", "name": "orders", "command": sys.executable, "args": ["server.py"]}
    cases = [case("order", "Where is order 7?", contains="late")]
    agent_dir.write_agent(tools=[tool], test_cases=cases)

    recorded = agent_dir.run("test", "--record")
    replayed = agent_dir.run("test", "--replay")

    assert (recorded.code, replayed.code) == (0, 0), recorded.stdout + recorded.stderr
    assert (agent_dir.path / "started").read_text() == "x"
    assert "3 replayed, 0 live" in replayed.stdout

    agent_dir.write_agent(tools=[tool | {"request_timeout": 99}], test_cases=cases)
    changed = agent_dir.run("test", "--replay")
    assert changed.code == 3
    assert "request 1 of the tools (orders) is not recorded" in changed.stderr


def test_documents_are_not_embedded_in_a_replay(agent_dir):
    agent_dir.server.when(
        lambda request: request.path.endswith("completions") and not results_of_turn(request),
        tool_calls=[("search", {"query": "cats"})],
    )
    agent_dir.server.when(
        lambda request: request.path.endswith("completions"),
        lambda request: f"OK: {results_of_turn(request)[0]}",
    )
    agent_dir.write("docs/pets.md", "Cats purr.")
    tool = {"type": "vectorstore", "name": "search", "source": "docs"}
    cases = [case("pets", "What do cats do?", contains="purr")]
    agent_dir.write_agent(tools=[tool], test_cases=cases)
    recorded = agent_dir.run("test", "--record")
    shutil.rmtree(agent_dir.path / ".holodeck")
    before = len(agent_dir.server.requests)

    replayed = agent_dir.run("test", "--replay")

    assert (recorded.code, replayed.code) == (0, 0), recorded.stdout + recorded.stderr
    assert len(agent_dir.server.requests) == before


@pytest.mark.parametrize(
    ("key", "fields"),
    [
        ("execution.cache_mode", {"execution": {"cache_mode": "replay"}}),
        ("execution.cache_key", {"execution": {"cache_key": "v1"}}),
        ("test_cases[0].cache_key", {"test_cases": [CASES[0] | {"cache_key": "v1"}]}),
    ],
)
def test_the_keys_of_the_former_cache_name_what_takes_its_place(agent_dir, key, fields):
    agent_dir.write_agent(**fields)

    ran = agent_dir.run("validate")

    assert ran.code == 2
    assert f"{key}: not supported (recordings take the place of the response cache" in ran.stderr


def example(name, folder):
    """A copy of an example, and the environment of a machine without models and keys."""
    shutil.copytree(ROOT / "examples" / name, folder / name)
    return folder / name, {"HOLODECK_CACHE_DIR": str(folder / "cache"), "HOLODECK_OFFLINE": "1"}


def test_the_support_example_is_replayed_without_its_model(tmp_path):
    folder, env = example("support", tmp_path)

    ran = run_cli("test", "agent.yaml", "--replay", cwd=folder, env=env)

    assert ran.code == 0, ran.stdout + ran.stderr
    assert "9 replayed, 0 live" in ran.stdout
    assert not (tmp_path / "cache").exists()


def test_the_agents_of_the_migration_example_are_compared_without_their_model(tmp_path):
    folder, env = example("migration", tmp_path)
    for name in ("old", "new"):
        (folder / f".venv-{name}").symlink_to(sys.prefix)

    ran = run_cli(
        *("test", "old.yaml", "--against", "new.yaml", "--fail-on", "regression", "--replay"),
        cwd=folder,
        env=env,
    )

    assert ran.code == 0, ran.stdout + ran.stderr
    assert "Passed on both: 3" in ran.stdout
    assert "A: 6 replayed, 0 live; recorded 2026-" in ran.stdout
    assert "B: 6 replayed, 0 live; recorded 2026-" in ran.stdout


def test_it_is_noted_if_the_requests_of_the_agent_are_not_seen(agent_dir):
    agent_dir.write("bot.py", "def answer(message):\n    return message\n")
    agent_dir.write_agent(backend="bot:answer", model=None, instructions=None)

    ran = agent_dir.run("test", "--record")

    assert ran.code == 0
    assert "the requests of the agent itself are not recorded: " in ran.stderr
    assert "write 'tap: true' under 'backend'" in ran.stderr


def test_nothing_is_recorded_on_other_machines(recorded):
    ran = recorded.run("test", "--record", "--on", "ray://127.0.0.1:1")

    assert ran.code == 2
    assert "record without --on" in ran.stderr


def test_a_budget_counts_nothing_in_a_replay(agent_dir):
    agent_dir.write_agent(
        backend="chat",
        test_cases=CASES,
        prices={"models": {"openai/fake": {"input": 1, "output": 1}}},
    )
    agent_dir.run("test", "--record")

    ran = agent_dir.run("test", "--replay", "--max-cost", "0.000001", "--max-tokens", "1")

    assert ran.code == 0, ran.stdout + ran.stderr


def test_what_is_ignored_may_differ(agent_dir):
    def ask(day):
        said = f"Say hello on {day}"
        agent_dir.write_agent(
            backend="chat",
            test_cases=[case("greets", said, contains="hello")],
            recordings={"ignore": [{"name": "today", "pattern": r"\d{4}-\d\d-\d\d"}]},
        )

    ask("2026-01-02")
    recorded = agent_dir.run("test", "--record")
    ask("2026-11-27")
    replayed = agent_dir.run("test", "--replay")

    assert (recorded.code, replayed.code) == (0, 0), replayed.stdout


def test_a_miss_over_a_date_shows_the_rule_that_helps(agent_dir):
    for day in ("2026-01-02", "2026-11-27"):
        cases = [case("greets", f"Say hello on {day}", contains="hello")]
        agent_dir.write_agent(backend="chat", test_cases=cases)
        if day == "2026-01-02":
            agent_dir.run("test", "--record")

    missed = agent_dir.run("test", "--replay")

    assert missed.code == 4
    assert r"recordings: {ignore: [{name: date, pattern: '\d{4}-\d\d-\d\d'}]}" in missed.stdout


def test_failed_records_only_what_missed_in_a_recording(recorded):
    cases = [CASES[0] | {"input": "Say hello again"}, CASES[1], case("new", "Say new")]
    recorded.write_agent(backend="chat", test_cases=cases)
    before = len(recorded.server.requests)

    ran = recorded.run("test", "--record", "failed")

    assert ran.code == 4
    assert len(recorded.server.requests) == before + 1
    assert "request 1 of the agent (POST /chat/completions) is not recorded; nothing" in ran.stdout
    again = recorded.run("test", "--replay", "-k", "greets or parts")
    assert again.code == 0


@pytest.mark.parametrize("mode", [["--replay"], ["--record"], ["--record", "failed"]], ids=" ".join)
@pytest.mark.parametrize("message", ["Say bye", "Say something new"])
def test_the_recording_of_another_case_is_an_error_and_nothing_of_it_is_used(
    recorded, mode, message
):
    folder = recorded.path / "recordings" / "agent"
    copied = (folder / "parts.json").read_bytes()
    (folder / "greets.json").write_bytes(copied)
    recorded.write_agent(backend="chat", test_cases=[CASES[0] | {"input": message}])
    before = len(recorded.server.requests)

    ran = recorded.run("test", *mode)

    assert ran.code == 4
    assert "greets.json: is of the case 'parts'" in ran.stdout
    assert "1 replayed" not in ran.stdout
    assert len(recorded.server.requests) == before
    assert (folder / "greets.json").read_bytes() == copied


@pytest.mark.parametrize("index", ["", "[]", '{"greets.json": 7, "parts.json": "2026-99-99"}'])
def test_an_index_that_cannot_be_read_only_hides_the_dates(recorded, index):
    index_of(recorded).write_text(index)

    ran = recorded.run("test", "--replay")

    assert ran.code == 0
    assert "2 replayed, 0 live" in ran.stdout


def test_shards_and_repetitions_are_recorded_apart_and_replayed_together(agent_dir):
    cases = [CASES[0] | {"repeat": 3}, CASES[1]]
    agent_dir.write_agent(backend="chat", test_cases=cases)
    shards = [agent_dir.run("test", "--record", "--shard", f"{part}/2") for part in (1, 2)]
    before = len(agent_dir.server.requests)

    replayed = agent_dir.run("test", "--replay", "-o", "report.json")

    folder = agent_dir.path / "recordings" / "agent"
    assert [shard.code for shard in shards] == [0, 0]
    assert sorted(file.name for file in folder.iterdir()) == [
        *("greets.2.json", "greets.3.json", "greets.json", "index.json", "parts.json")
    ]
    assert replayed.code == 0
    assert "4 replayed, 0 live" in replayed.stdout
    assert len(agent_dir.server.requests) == before


def test_an_agent_reaches_nothing_but_this_machine_in_a_replay(agent_dir):
    agent_dir.write(
        "bot.py",
        "import socket\n\ndef answer(message):\n"
        "    socket.create_connection(('192.0.2.1', 9), timeout=5).close()\n",
    )
    agent_dir.write_agent(backend="bot:answer", model=None, instructions=None)

    ran = agent_dir.run("test", "--replay")

    assert ran.code == 3
    assert "no connection to 192.0.2.1: recordings are replayed" in ran.stdout
