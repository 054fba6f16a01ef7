"""Recordings of cases, and their replay without a model."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from holodeck.lib.recordings.entries import read_entries, write_entries
from holodeck.lib.secrets.redact import Redactor
from support.folder import AgentFolder, case
from support.server import FakeOpenAI

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
