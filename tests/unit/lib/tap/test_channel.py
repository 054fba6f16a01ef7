"""Requests belong to the turn under way; where that is not certain, it is said."""

import asyncio

import httpx2
import pytest

from fakes import ToolCall
from holodeck.lib.tap.channel import AMBIGUOUS, EARLIER_WORK, OUT_OF_TURN, UNFINISHED
from unit.lib.tap.conftest import UNUSED

PATH = "/openai/v1/chat/completions"
ASKED = {"model": "gpt-x", "messages": [{"role": "user", "content": "Hello"}]}


@pytest.fixture
async def ask(tapped):
    """Sends one request through the tap."""
    async with httpx2.AsyncClient(timeout=None) as client:
        yield lambda path=PATH: client.post(tapped.channel.url + path, json=ASKED)


async def test_each_turn_has_its_own_requests(tapped, ask):
    tapped.server.reply(tool_calls=[ToolCall("one")]).reply(tool_calls=[ToolCall("two")])

    with tapped.channel.turn() as first:
        await ask()
    with tapped.channel.turn() as second:
        await ask()

    names = [[call.name for call, _ in turn.calls] for turn in (first, second)]
    assert names == [["one"], ["two"]]


async def test_a_turn_without_requests_is_unknown_and_not_empty(tapped, ask):
    with tapped.channel.turn():
        await ask()
    with tapped.channel.turn() as second:
        pass

    assert second.problem == UNUSED


async def test_a_request_that_has_not_ended_makes_its_turn_unknown_and_the_next_one(tapped, ask):
    with tapped.server.held():
        with tapped.channel.turn() as first:
            asking = asyncio.create_task(ask())
            await tapped.server.saw(1)
        with tapped.channel.turn() as second:
            pass
    await asking
    with tapped.channel.turn() as third:
        await ask()

    problems = [turn.problem for turn in (first, second, third)]
    assert problems == [UNFINISHED, EARLIER_WORK, None]
    assert not second.requests


async def test_requests_out_of_turn_make_all_later_turns_unknown(tapped, ask):
    await ask()
    with tapped.channel.turn() as first:
        await ask()
    await ask()
    with tapped.channel.turn() as second:
        await ask()

    assert [first.problem, second.problem] == [None, OUT_OF_TURN]


async def test_requests_during_two_turns_belong_to_neither(tapped, ask):
    with tapped.channel.turn() as first, tapped.channel.turn() as second:
        await ask()

    assert [first.problem, second.problem] == [AMBIGUOUS] * 2
    assert not (*first.requests, *second.requests)


async def test_requests_for_the_list_of_models_are_no_answers(tapped):
    async with httpx2.AsyncClient() as client:
        with tapped.channel.turn() as turn:
            await client.get(tapped.channel.url + "/openai/v1/models")

    assert "none asked a model for an answer" in turn.problem
    assert not turn.requests
