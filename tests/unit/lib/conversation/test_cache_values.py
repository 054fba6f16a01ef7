"""What a cached function may return, and calls that several make at once."""

import asyncio
import json
import os
import subprocess
import sys
from collections import OrderedDict, namedtuple
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

import pytest
from pydantic import BaseModel

from holodeck import scenario
from holodeck.errors import ConfigError
from support.participants import Scripted, a_user

Point = namedtuple("Point", "x y")


class Answer(BaseModel):
    text: str


@dataclass
class Row:
    day: date
    price: Decimal


CALLS = []


@pytest.fixture(autouse=True)
def own_cache(tmp_path, monkeypatch):
    CALLS.clear()
    monkeypatch.setenv("HOLODECK_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


async def answer_of(function, **settings):
    """Return what a function returns to an agent that calls it, in a scenario with a cache."""
    seen = []

    async def call(_input):
        returned = function()
        seen.append(await returned if asyncio.iscoroutine(returned) else returned)
        return "done"

    agent = Scripted(scenario.AgentRole.AGENT, call)
    agent.call = call
    steps = [scenario.user("hi"), scenario.agent(), scenario.succeed()]
    run = scenario.arun
    await run("kept", "…", [agent, a_user()], script=steps, cache_key="v1", **settings)
    return seen[0]


def returning(value):
    @scenario.cache()
    async def answer():
        CALLS.append("answer")
        return value

    return answer


VALUES = [
    ["one", 2, None, {"three": [4.0]}],
    [Answer(text="a"), [Answer(text="b")]],
    {"answer": Answer(text="c"), "number": 1},
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
async def test_values_come_back_as_what_they_were(value):
    function = returning(value)

    seen = [await answer_of(function) for _ in range(2)]

    assert seen == [value, value]
    assert [type(one) for one in seen] == [type(value)] * 2
    assert CALLS == ["answer"]


@pytest.mark.parametrize(
    "value",
    [
        Row(date(2026, 1, 2), Decimal(1)),
        Point(1, 2),
        Decimal("0.1"),
        iter("abc"),
        (1, 2),
        {3},
        b"\xff",
        {1: "number"},
    ],
    ids=lambda value: type(value).__name__,
)
async def test_what_json_cannot_hold_is_an_error_that_says_what_to_return(value):
    with pytest.raises(ConfigError, match=r"cannot record; return a text, .* a pydantic model"):
        await answer_of(returning(value))


async def test_a_pickle_of_an_earlier_version_is_not_loaded(own_cache, caplog):
    function = returning("said")
    await answer_of(function)
    [path] = own_cache.rglob("*.json")
    recorded = json.loads(path.read_text())
    recorded["value"] = {"pickle": "gASVAAAA", "signature": "00"}
    path.write_text(json.dumps(recorded))

    assert await answer_of(function) == "said"
    assert CALLS == ["answer", "answer"], "it is a miss"
    assert "it is a pickle of an earlier version" in caplog.text


async def test_other_mappings_are_plain_ones_when_they_come_back():
    seen = [await answer_of(returning(OrderedDict(a=1))) for _ in range(2)]

    assert seen == [{"a": 1}, {"a": 1}]


async def test_the_same_calls_of_several_threads_share_one(tmp_path):
    @scenario.cache()
    def answer():
        CALLS.append("answer")
        return "said"

    async def call(_input):
        return answer()

    def agent():
        made = Scripted(scenario.AgentRole.AGENT)
        made.call = call
        return made

    steps = [scenario.user("hi"), scenario.agent(), scenario.succeed()]
    runs = [
        scenario.run("kept", "…", [agent(), a_user()], script=steps, cache_key="v1")
        for _ in range(8)
    ]

    results = await asyncio.gather(*runs)

    assert CALLS == ["answer"]
    assert {one.messages[-1]["content"] for one in results} == {"said"}


async def test_a_call_that_raises_leaves_the_others_to_call_themselves():
    @scenario.cache()
    async def answer():
        CALLS.append("answer")
        if len(CALLS) == 1:
            raise OSError("gone")
        return "said"

    seen = await asyncio.gather(*(answer_of(answer) for _ in range(3)), return_exceptions=True)

    assert sorted(map(repr, seen)) == ["'said'", "'said'", "OSError('gone')"]
    assert len(CALLS) == 2


async def test_a_cached_function_may_call_itself():
    @scenario.cache()
    async def answer():
        CALLS.append("answer")
        return "said" if len(CALLS) > 1 else await answer()

    assert await answer_of(answer) == "said"


PROGRAM = """
import asyncio, sys, time
from pathlib import Path
from holodeck import scenario

folder, name, count = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])

@scenario.cache()
async def answer():
    with open(folder / "calls", "a") as file:
        file.write("called\\n")
    while len(list(folder.glob("arrived-*"))) < count:  # every process is about to call
        await asyncio.sleep(0.01)
    return "said"

class Agent(scenario.AgentAdapter):
    async def call(self, input):
        (folder / f"arrived-{name}").touch()
        return await answer()

class User(scenario.AgentAdapter):
    role = scenario.AgentRole.USER
    async def call(self, input):
        return "hi"

steps = [scenario.user(), scenario.agent(), scenario.succeed()]
result = asyncio.run(
    scenario.run("kept", "…", [Agent(), User()], script=steps, cache_key="v1", verbose=False)
)
print(result.messages[-1]["content"])
"""


def test_the_same_calls_of_several_processes_share_one(tmp_path):
    command = [sys.executable, "-c", PROGRAM, str(tmp_path)]
    running = [
        subprocess.Popen(
            [*command, str(number), "3"], stdout=subprocess.PIPE, text=True, env=dict(os.environ)
        )
        for number in range(3)
    ]

    said = [one.communicate(timeout=60)[0] for one in running]

    assert said == ["said\n"] * 3
    assert (tmp_path / "calls").read_text() == "called\n"
