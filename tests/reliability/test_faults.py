"""Whatever a provider does wrong: what may pass is tried again, the rest is one row in words.

Every way to a model meets every fault, and the page about faults says what comes of it.
"""

import asyncio
import re
from contextlib import asynccontextmanager, suppress

import pytest

from fakes import FakeOpenAI, Reply
from holodeck.models.config import ExecutionConfig
from holodeck.models.test_result import Outcome
from support.fault_table import cell, cells_on_page
from support.faults import (
    CASES,
    CHAT_OWN,
    HARMLESS,
    NO_LIMITS,
    PERMANENT,
    TRANSIENT,
    WAYS,
    Kind,
    Spoiled,
    agent_for,
    outcome_of,
    report_of_spoiled,
    run_cases,
    settings,
)
from support.workers import only_in_one_process

PYTHON_WORDS = re.compile(
    r"Traceback|has no attribute|NoneType|validation error|recursion|not iter"
)
ON_PAGE = cells_on_page()
OWN = {"Semantic Kernel": {}, "chat": CHAT_OWN}
TAKEN = {way: [k for k in HARMLESS if k.name not in own] for way, own in OWN.items()}
LASTING = {
    way: [*(k for k in PERMANENT if k.name not in own), *own.values()] for way, own in OWN.items()
}
on_both_ways = pytest.mark.parametrize("way", WAYS)


def each(kinds):
    """Every way with each of its kinds, by its name."""
    pairs = [(way, kind) for way in WAYS for kind in kinds[way]]
    return pytest.mark.parametrize(
        ("way", "kind"), pairs, ids=[f"{way}: {kind.name}" for way, kind in pairs]
    )


@each(dict.fromkeys(WAYS, TRANSIENT))
async def test_what_may_pass_is_tried_again_and_every_case_passes(way, kind):
    outcome = await outcome_of(kind, **WAYS[way])

    assert outcome.passed == CASES
    assert list(outcome.asked.values()) == [kind.times + 1] * CASES
    assert cell(outcome) == ON_PAGE[kind.name, way]


@each(TAKEN)
async def test_a_strange_answer_is_still_an_answer(way, kind):
    outcome = await outcome_of(kind, **WAYS[way])

    assert outcome.passed == CASES
    assert list(outcome.asked.values()) == [1] * CASES
    assert cell(outcome) == ON_PAGE[kind.name, way]


@each(LASTING)
async def test_what_does_not_pass_is_a_row_that_says_why(way, kind):
    outcome = await outcome_of(kind, **WAYS[way])

    results = outcome.report.results
    wanted = Outcome.AGENT_ERROR if kind.ends == "error" else Outcome.FAILED
    ran = [result for result in results if result.skipped_by != "refused"]
    assert {result.outcome for result in ran} == {wanted}
    assert all(kind.reason in "; ".join(result.errors) for result in ran)
    # only a run that was given up leaves cases out, and it has asked three times before
    assert len(ran) == len(results) or (len(ran) >= 3 and outcome.report.stopped_by == "refused")
    assert kind.ends != "error" or set(outcome.asked.values()) == {1}
    assert cell(outcome) == ON_PAGE[kind.name, way]


async def test_one_case_cannot_end_the_run(tmp_path):
    """One hundred cases, as many of them as there are faults spoiled for ever, each another way."""
    # Those that hang go first: the others leave few slots, where they would hang one after another.
    both = {way: sorted([*TRANSIENT, *LASTING[way]], key=_hangs, reverse=True) for way in WAYS}
    for fields in WAYS.values():  # what it imports would hold up the requests of the other way
        await report_of_spoiled(tmp_path, (), cases=1, **fields)

    reports = await asyncio.gather(
        *(report_of_spoiled(tmp_path, kinds, **WAYS[way]) for way, kinds in both.items())
    )

    for report, kinds in zip(reports, both.values(), strict=True):
        spoiled, fine = report.results[: len(kinds)], report.results[len(kinds) :]
        assert len(report.results) == 100
        assert all(result.passed for result in fine)
        assert not any(result.passed for result in spoiled)
        reasons = ["; ".join(result.errors) for result in spoiled]
        assert all(reasons)
        assert not [reason for reason in reasons if PYTHON_WORDS.search(reason)]


def _hangs(kind):
    return kind.limits is not NO_LIMITS


@on_both_ways
async def test_a_wait_of_a_day_for_one_case_does_not_keep_the_others_waiting(way, tmp_path):
    kind = Kind("a day", Reply(status=429, headers={"retry-after": "86400"}))

    with FakeOpenAI(Spoiled(kind, only="case-0000")) as server:
        agent = agent_for(server, tmp_path, 60, **WAYS[way])
        report = await run_cases(agent, tmp_path, settings(ExecutionConfig()))

    assert [result.passed for result in report.results] == [False] + [True] * 59


@only_in_one_process("the fixture counts the refused connections of this process")
@on_both_ways
async def test_a_server_that_comes_up_late_is_found(way, tmp_path, refused):
    """The first attempts are refused; then somebody listens."""
    with FakeOpenAI() as server:
        port = await _free_port()
        agent = elsewhere(agent_for(server, tmp_path, CASES, **WAYS[way]), port)
        config = settings(ExecutionConfig(retry_delay=0.3, max_retries=10))
        run = asyncio.create_task(run_cases(agent, tmp_path, config))
        await refused.wait()
        async with _relay(port, int(server.root.rpartition(":")[2])):
            report = await run

    assert report.summary.passed == CASES
    assert any(result.attempts for result in report.results)


@pytest.fixture
async def refused(monkeypatch):
    """Set once somebody in this loop has called where nobody listens."""
    loop, was_refused = asyncio.get_running_loop(), asyncio.Event()
    connect = loop.sock_connect

    async def watched(*address):
        try:
            await connect(*address)
        except ConnectionRefusedError:
            was_refused.set()
            raise

    monkeypatch.setattr(loop, "sock_connect", watched)
    return was_refused


@on_both_ways
async def test_a_server_that_nobody_runs_is_an_error_after_the_last_try(way, tmp_path):
    port = await _free_port()
    with FakeOpenAI() as server:
        agent = elsewhere(agent_for(server, tmp_path, 1, **WAYS[way]), port)

    report = await run_cases(agent, tmp_path, settings(ExecutionConfig(max_retries=1)))

    assert f"127.0.0.1:{port}" in report.results[0].errors[0]
    assert "after 2 attempts" in report.results[0].errors[0]


def elsewhere(agent, port):
    """The same agent, its model behind another port."""
    model = agent.model.model_copy(update={"endpoint": f"http://127.0.0.1:{port}/v1"})
    return agent.model_copy(update={"model": model})


async def _free_port():
    probe = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = probe.sockets[0].getsockname()[1]
    probe.close()
    await probe.wait_closed()
    return port


@asynccontextmanager
async def _relay(port, to):
    """Hands on what comes to a port, and is over when all who came have left."""
    relayed = set()

    async def copy(reader, writer):
        with suppress(ConnectionError):
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    async def relay(reader, writer):
        relayed.add(asyncio.current_task())
        there = await asyncio.open_connection("127.0.0.1", to)
        await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))

    server = await asyncio.start_server(relay, port=port)
    yield
    server.close()
    await asyncio.gather(*relayed)
