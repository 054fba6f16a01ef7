"""Listeners, as functions and as files, get all events and cannot disturb a run."""

import json
import logging
import time

import pytest

from holodeck import scenario
from holodeck.errors import ConfigError
from holodeck.scenario import events
from support.participants import a_judge, a_user, an_agent

VERDICT = scenario.ScenarioResult(success=True, messages=[], passed_criteria=["is kind"])
EXPECTED = ["run_started", "message", "message", "criterion", "run_finished"]


async def play(**more):
    return await scenario.run(
        "a chat", "somebody chats", [a_user("hi \ud800"), an_agent("hello"), a_judge(VERDICT)],
        verbose=False, **more,
    )  # fmt: skip


def lines_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def types_in(path):
    return [line["type"] for line in lines_of(path)]


async def test_a_file_gets_a_line_for_each_event(tmp_path):
    result = await play(events=tmp_path / "events.jsonl", set_id="chats", batch_run_id="b1")

    lines = lines_of(tmp_path / "events.jsonl")
    assert [line["type"] for line in lines] == EXPECTED
    assert {line["scenario_run_id"] for line in lines} == {result.scenario_run_id}
    assert {(line["scenario_set_id"], line["batch_run_id"]) for line in lines} == {("chats", "b1")}
    assert lines[2]["message"] == {"role": "assistant", "content": "hello"}
    assert lines[3]["verdict"]["status"] == "passed"
    assert lines[4]["status"] == "SUCCESS"
    assert lines[4]["result"]["passed_criteria"] == ["is kind"]


async def test_several_may_listen(tmp_path):
    heard = []
    await play(events=[heard.append, str(tmp_path / "a.jsonl"), tmp_path / "b.jsonl"])

    assert [type(one) for one in heard][:2] == [events.RunStarted, events.MessageAdded]
    assert types_in(tmp_path / "a.jsonl") == types_in(tmp_path / "b.jsonl") == EXPECTED


async def test_a_file_is_appended_to(tmp_path):
    for _ in range(2):
        await play(events=tmp_path / "events.jsonl")

    assert types_in(tmp_path / "events.jsonl") == EXPECTED * 2


async def test_the_variable_and_the_configuration_name_files_too(tmp_path, monkeypatch):
    monkeypatch.setenv("HOLODECK_EVENTS", str(tmp_path / "variable.jsonl"))
    before = scenario.ScenarioConfig.default_config
    scenario.configure(events=tmp_path / "configured.jsonl")
    try:
        await play()
    finally:
        scenario.ScenarioConfig.default_config = before

    assert types_in(tmp_path / "variable.jsonl") == EXPECTED
    assert types_in(tmp_path / "configured.jsonl") == EXPECTED


async def test_each_event_is_in_the_file_before_the_run_goes_on_for_long(tmp_path):
    path, seen = tmp_path / "events.jsonl", []

    def look(state):
        deadline = time.monotonic() + 60
        while len(seen) < 2 and time.monotonic() < deadline:
            seen[:] = types_in(path)

    script = [scenario.user("hi"), look, scenario.succeed()]
    await scenario.run("a chat", "…", [a_user(), an_agent()], script=script, events=path)

    assert seen == ["run_started", "message"]


async def test_a_run_that_breaks_is_finished_with_an_error(tmp_path):
    path = tmp_path / "events.jsonl"
    with pytest.raises(OSError, match="gone"):
        await scenario.run("a chat", "…", [a_user(), an_agent(OSError("gone"))], events=path)

    assert lines_of(path)[-1]["status"] == "ERROR"
    assert "gone" in lines_of(path)[-1]["result"]["error"]


async def test_a_listener_that_fails_harms_neither_the_run_nor_the_others(tmp_path, caplog):
    def fail(event):
        raise OSError("no more")

    result = await play(events=[fail, tmp_path / "events.jsonl"])

    assert result.success
    assert types_in(tmp_path / "events.jsonl") == EXPECTED
    assert "a listener failed at RunStarted" in caplog.text


async def test_a_listener_that_hangs_holds_up_neither_the_run_nor_the_others(tmp_path, hang):
    result = await play(events=[hang, tmp_path / "events.jsonl"])

    assert result.success
    assert types_in(tmp_path / "events.jsonl") == EXPECTED


async def test_a_file_that_disappears_is_logged_once(tmp_path, caplog):
    folder = tmp_path / "gone"
    folder.mkdir()
    executor = scenario.ScenarioExecutor(
        "a chat", "…", [a_user(), an_agent(), a_judge(VERDICT)], events=folder / "e.jsonl"
    )
    (folder / "e.jsonl").unlink()
    folder.rmdir()
    with caplog.at_level(logging.ERROR):
        result = await executor.run()

    assert result.success
    assert caplog.text.count("events are missing from") == 1


@pytest.mark.parametrize(
    ("wrong", "message"),
    [("missing/events.jsonl", "cannot write to"), (3, "3 is not a listener; write a function")],
    ids=["no folder", "no listener"],
)
async def test_an_invalid_listener_is_rejected_before_the_run(
    tmp_path, monkeypatch, wrong, message
):
    monkeypatch.chdir(tmp_path)

    with pytest.raises(ConfigError, match=message):
        await play(events=wrong)
