import asyncio
import itertools
import json
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path

import pytest
from pydantic import BaseModel

from holodeck.lib.stubs.case_stubs import CaseStubs
from holodeck.lib.support.stubs import in_place_of_tools
from holodeck.lib.tools.base import MAX_CHARACTERS, Tool, ToolReply, run_tool
from holodeck.models.cases.stubs import StandIns


def tool_that(call, **fields):
    return Tool(name="t", description="", parameters={"type": "object"}, call=call, **fields)


def returning(value):
    async def call(arguments):
        return value

    return tool_that(call)


def raising(error):
    async def call(arguments):
        raise error

    return tool_that(call)


class Colour(Enum):
    RED = "r"


@dataclass
class Point:
    x: int


class Order(BaseModel):
    at: date


class Opaque:
    def __repr__(self):
        return "<opaque>"


class Broken:
    def __repr__(self):
        raise ValueError


def circular():
    ring = []
    ring.append(ring)
    return ring


@pytest.mark.parametrize(
    ("value", "result", "text"),
    [
        ("plain «text»", "plain «text»", "plain «text»"),
        ("", "", ""),
        (None, None, "null"),
        ({"ä": [1, True]}, {"ä": [1, True]}, '{"ä": [1, true]}'),
        (Point(1), {"x": 1}, '{"x": 1}'),
        (Order(at=date(2026, 1, 2)), {"at": "2026-01-02"}, '{"at": "2026-01-02"}'),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00Z", "2026-01-02T00:00:00Z"),
        (Colour.RED, "r", "r"),
        (Decimal("1.5"), "1.5", "1.5"),
        (Path("/a"), "/a", "/a"),
        (b"text", "text", "text"),
        (b"\xff\x00", "_wA=", "_wA="),
        ([float("nan"), 1.5], ["NaN", 1.5], '["NaN", 1.5]'),
        (map(str, [1]), ["1"], '["1"]'),
        ([Opaque()], ["<opaque>"], '["<opaque>"]'),
        (Broken(), "<Broken, whose repr raised ValueError>", None),
        (circular(), "[[...]]", "[[...]]"),
        ("\ud800", "?", "?"),
    ],
)
async def test_any_result_is_made_readable(value, result, text):
    run = await run_tool(returning(value), {})

    assert run.error is None
    assert run.result == result
    assert text is None or run.result_text == text
    json.dumps(run.result, allow_nan=False).encode()


@pytest.mark.parametrize("value", ["x" * 3_000_000, ["x" * 3_000_000]], ids=["text", "list"])
async def test_a_huge_result_is_cut_and_says_so(value):
    run = await run_tool(returning(value), {})

    assert len(run.result_text) < MAX_CHARACTERS + 100
    assert run.result_text.endswith("characters, 1,000,000 shown]")
    assert run.result == run.result_text


async def test_an_endless_iterator_is_cut():
    assert len((await run_tool(returning(itertools.count()), {})).result) == 10_000


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("no such city"), "ValueError: no such city"),
        (KeyError(), "KeyError"),
        (SystemExit(3), "SystemExit: 3"),
        (TimeoutError("theirs"), "TimeoutError: theirs"),
        (asyncio.CancelledError(), "CancelledError: the tool cancelled itself"),
    ],
)
async def test_whatever_a_tool_raises_is_recorded(error, said):
    run = await run_tool(raising(error), {})

    assert run.error == said
    assert run.result_text == f"Error: {said}"


async def test_cancelling_the_caller_cancels_the_tool():
    started, ended = asyncio.Event(), asyncio.Event()

    async def call(arguments):
        try:
            started.set()
            await asyncio.sleep(60)
        finally:
            ended.set()

    running = asyncio.create_task(run_tool(tool_that(call), {}))
    await started.wait()
    running.cancel()

    with pytest.raises(asyncio.CancelledError):
        await running
    assert ended.is_set()


async def test_a_reply_that_says_it_failed_is_an_error_with_its_text():
    async def call(arguments):
        return ToolReply("no such order", is_error=True)

    outcome = await run_tool(Tool("t", "", {}, call), {})
    assert (outcome.error, outcome.result_text) == ("no such order", "no such order")


async def test_a_reply_shows_the_model_its_text_and_the_report_its_value():
    async def call(arguments):
        return ToolReply("7 orders", {"orders": 7})

    outcome = await run_tool(Tool("t", "", {}, call), {})
    assert (outcome.result_text, outcome.result) == ("7 orders", {"orders": 7})


async def stubbed(tool, stub):
    """What a call of the tool returns with a stub, and why that changed nothing."""
    stubs = CaseStubs(StandIns(stubs={tool.name: [stub]}))
    with in_place_of_tools(stubs):
        outcome = await run_tool(tool, {})
    return outcome, stubs.calls[0].problem


FOUND = ToolReply("two passages", ["a", "b"], passages=("a", "b"))


@pytest.mark.parametrize(
    ("stub", "result", "passages"),
    [
        ({"returns": ["c"]}, ["c"], None),
        ({"empty": True}, [], None),
        ({"truncated": 3}, '["a', None),
        ({"delay": 0.001}, ["a", "b"], ("a", "b")),
    ],
)
async def test_stubs_take_the_place_of_what_a_search_found(stub, result, passages):
    async def call(arguments):
        return FOUND

    outcome, problem = await stubbed(tool_that(call, source="vectorstore"), stub)

    assert (outcome.result, outcome.passages, problem) == (result, passages, None)


@pytest.mark.parametrize("reply", [ToolReply("no such order", is_error=True), ValueError("gone")])
async def test_a_stub_does_not_change_the_error_of_a_tool(reply):
    async def call(arguments):
        if isinstance(reply, ValueError):
            raise reply
        return reply

    outcome, problem = await stubbed(tool_that(call), {"truncated": 2})

    assert outcome.error is not None
    assert "the tool failed" in problem


async def test_a_stub_that_waits_longer_than_its_tool_may_is_a_timeout():
    outcome, _ = await stubbed(tool_that(None, timeout=0.01), {"timeout": 60})

    assert outcome.error == "TimeoutError: no result within 0.01 s"
