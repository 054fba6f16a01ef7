"""Conversations are shown as they happen."""

import asyncio
import io
import json
from contextlib import redirect_stderr

import pytest

from holodeck import scenario
from support.participants import a_judge, a_user, an_agent

CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [
        {"id": "1", "type": "function", "function": {"name": "look", "arguments": '{"q": "shoes"}'}}
    ],
}
FOUND = {"role": "tool", "tool_call_id": "1", "name": "look", "content": json.dumps([[1]] * 40)}
VERDICT = scenario.ScenarioResult(
    success=False,
    messages=[],
    reasoning="repeats the row",
    criteria=[
        scenario.CriterionResult(criterion="is kind", status="passed"),
        scenario.CriterionResult(criterion="is quick", status="failed", reasoning="too slow"),
    ],
)


async def shown_of(*agents, name="a chat", **settings):
    stream = io.StringIO()
    with redirect_stderr(stream):
        await scenario.run(name, "…", agents, **settings)
    return stream.getvalue()


async def test_messages_tool_calls_and_verdicts_are_shown():
    output = await shown_of(
        a_user("hi"), an_agent([CALL, FOUND, {"role": "assistant", "content": "found"}]),
        a_judge(VERDICT), verbose=True,
    )  # fmt: skip

    lines = output.splitlines()
    assert lines[:4] == ["", "Scenario: a chat", "User: hi", 'Agent calls look: {"q": "shoes"}']
    assert lines[4] == "Result of look:"
    assert lines[-5].startswith("  … ")
    assert lines[-4:-1] == [
        "Agent: found",
        "Judge, passed: is kind",
        "Judge, failed: is quick: too slow",
    ]
    assert lines[-1].startswith("FAILED: a chat (")
    assert "repeats" not in lines[-1]


async def test_the_end_says_why_where_no_criterion_does():
    script = [scenario.user("hi"), scenario.fail("too dull")]
    output = await shown_of(a_user(), an_agent(), script=script, verbose=True)

    assert output.splitlines()[-1].endswith("s): too dull")


async def test_a_broken_run_ends_with_its_error():
    stream = io.StringIO()
    with redirect_stderr(stream), pytest.raises(OSError, match="gone"):
        await scenario.run("a chat", "…", [a_user(), an_agent(OSError("gone"))], verbose=True)
    output = stream.getvalue()

    assert output.splitlines()[-1].startswith("ERROR: a chat (")
    assert "OSError: gone" in output


async def test_nothing_is_shown_without_a_terminal_and_without_verbose():
    assert await shown_of(a_user(), an_agent(), script=[scenario.succeed()]) == ""
    assert await shown_of(a_user(), an_agent(), script=[scenario.succeed()], verbose=False) == ""


@pytest.mark.parametrize("level", [2, 3])
async def test_a_higher_level_names_the_scenario_in_every_line(level):
    output = await shown_of(a_user("hi"), an_agent("a\nb"), max_turns=1, verbose=level)

    assert "[a chat] User: hi\n[a chat] Agent: a\n[a chat]   b\n" in output
    assert all(line.startswith("[a chat] ") for line in output.splitlines())


async def test_concurrent_runs_are_shown_with_their_names():
    both = asyncio.Barrier(2)

    async def meet(state):
        await state._executor._dispatcher.catch_up()
        await both.wait()

    script = [meet, scenario.user("hi"), scenario.agent(), scenario.succeed("done")]
    stream = io.StringIO()
    with redirect_stderr(stream):
        runs = (
            scenario.arun(name, "…", [a_user(), an_agent()], script=script, verbose=True)
            for name in ("one", "two")
        )
        await asyncio.gather(*runs)

    for name in ("one", "two"):
        assert f"[{name}] User: hi\n" in stream.getvalue()
        assert f"[{name}] PASSED: {name} (" in stream.getvalue()


async def test_secrets_and_control_characters_stay_hidden():
    output = await shown_of(
        a_user("\x1b[2J\u202e sk-abcdefghijklmnop1234"), an_agent(), max_turns=1, verbose=True
    )

    assert "User: \\x1b[2J\\u202e ***1234" in output


async def test_a_stream_that_breaks_harms_no_run():
    stream = io.StringIO()
    stream.close()
    with redirect_stderr(stream):
        result = await scenario.run(
            "a chat", "…", [a_user(), an_agent()], script=[scenario.succeed()], verbose=True
        )

    assert result.success
