"""Many cases at once: none sees another, none is asked twice, no provider is overrun."""

import asyncio
import logging
import random
import re
from collections import Counter

import pytest

from fakes import FakeOpenAI, Reply
from holodeck.lib.llm.limiter import INITIAL_SLOTS
from holodeck.models.config import ExecutionConfig
from support.faults import WAYS, agent_for, run_cases, settings
from support.fleet import without_times

SIZE = 200
TOOL = """
import asyncio, random

async def look_up(case: str) -> str:
    await asyncio.sleep(random.uniform(0, 0.01))
    return f"found {case}"
"""
TOOLS = {
    "tools": [{"type": "function", "name": "look_up", "file": "tools.py", "function": "look_up"}]
}
CASE = re.compile(r"case-\d{4}")
on_both_ways = pytest.mark.parametrize("way", WAYS)


class Model:
    """Calls a tool for every other case, and tells in the answer everything it was shown."""

    def __init__(self, slowest_s):
        self._rng = random.Random(7)
        self._slowest_s = slowest_s

    def __call__(self, request):
        case = CASE.search(request.prompt).group()
        latency = self._rng.uniform(0, self._slowest_s)
        if int(case[-1]) % 2 and not request.tool_results:
            return Reply(None, tool_calls=[("look_up", {"case": case})], latency_s=latency)
        shown = sorted(set(CASE.findall(request.raw.decode())))
        return Reply(f"OK {shown} {request.tool_results}", latency_s=latency)


async def results_of(folder, way, parallel, slowest_s):
    """The report, and every request; nothing is answered before so many cases have asked."""
    with FakeOpenAI(Model(slowest_s)) as server:
        agent = agent_for(server, folder, SIZE, **WAYS[way], **TOOLS)
        config = settings(ExecutionConfig(), parallel_test_cases=parallel)
        run = asyncio.create_task(run_cases(agent, folder, config))
        with server.held():
            await server.saw(parallel)
        return await run, server.requests


def plain(report):
    dumped = without_times(report.model_dump(mode="json")["results"])
    for result in dumped:
        for call in result["tool_invocations"]:
            del call["duration_ms"]
        for row in result["metric_results"]:
            row.pop("evaluation_time_ms", None)
    return dumped


@on_both_ways
async def test_two_hundred_cases_at_once_are_the_same_as_one_by_one(way, tmp_path, record_property):
    (tmp_path / "tools.py").write_text(TOOL)

    together, requests = await results_of(tmp_path, way, 100, 0.05)
    one_by_one, _ = await results_of(tmp_path, way, 1, 0)

    bleed = [one for one in requests if len(set(CASE.findall(one.raw.decode()))) != 1]
    record_property("counted", f"bleed: {len(bleed)} of {len(requests)} requests ({way})")
    assert bleed == []
    assert together.summary.passed == SIZE
    assert plain(together) == plain(one_by_one)
    asked = Counter(one.prompt for one in requests)
    assert asked == {f"case-{n:04} please": 1 + n % 2 for n in range(SIZE)}
    assert together.summary.token_usage.total_tokens == 15 * len(requests)


@on_both_ways
async def test_tokens_of_every_request_are_counted_and_failed_tries_cost_none(way, tmp_path):
    (tmp_path / "tools.py").write_text(TOOL)
    model, seen = Model(0), Counter()

    def answer(request):
        seen[request.raw] += 1
        return Reply(status=500) if seen[request.raw] == 1 else model(request)

    with FakeOpenAI(answer) as server:
        agent = agent_for(server, tmp_path, 20, **WAYS[way], **TOOLS)
        report = await run_cases(agent, tmp_path, settings(ExecutionConfig()))
        requests = server.requests

    assert report.summary.passed == 20
    assert len(requests) == 2 * 30
    assert report.summary.token_usage.total_tokens == 15 * 30


@on_both_ways
async def test_a_provider_that_takes_ten_at_once_is_not_overrun(
    way, tmp_path, record_property, caplog
):
    caplog.set_level(logging.INFO, logger="holodeck.lib.llm.limiter")

    def answer(request):
        if request.in_flight > 10:
            return Reply(status=429, headers={"retry-after": "1"})
        return Reply("OK", latency_s=0.1)

    with FakeOpenAI(answer) as server:
        agent = agent_for(server, tmp_path, 100, **WAYS[way])
        config = settings(ExecutionConfig(), parallel_test_cases=100)
        report = await run_cases(agent, tmp_path, config)
        asked = len(server.requests) / 100

    line = f"ten at once: {report.summary.passed}/100 with {asked:.2f} requests a case ({way})"
    record_property("counted", line)
    assert report.summary.passed == 100
    # A busy machine may read the first refusal only after the slots have grown from 50 to all 100;
    # each case that is refused then costs one request more.
    changes = [one.getMessage() for one in caplog.records if "slots" in one.getMessage()]
    assert any("after an overload" in change for change in changes)
    first_wave = INITIAL_SLOTS if "after an overload" in changes[0] else 100
    assert asked <= 1.28 + first_wave / 100
