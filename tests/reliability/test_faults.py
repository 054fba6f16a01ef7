"""Whatever a provider does wrong: what may pass is tried again, the rest is one row in words."""

import asyncio
import re
from dataclasses import replace

import pytest

from fakes import FakeOpenAI, Reply
from holodeck.models.config import ExecutionConfig
from holodeck.models.test_result import Outcome
from support.faults import (
    CASES,
    HARMLESS,
    PERMANENT,
    TRANSIENT,
    Kind,
    Spoiled,
    agent_for,
    outcome_of,
    run_cases,
    settings,
)

PYTHON_WORDS = re.compile(
    r"Traceback|has no attribute|NoneType|validation error|recursion|not iter"
)


@pytest.mark.parametrize("kind", TRANSIENT, ids=lambda kind: kind.name)
async def test_what_may_pass_is_tried_again_and_every_case_passes(kind):
    outcome = await outcome_of(kind)

    assert outcome.passed == CASES
    assert outcome.requests == CASES * (kind.times + 1)


@pytest.mark.parametrize("kind", HARMLESS, ids=lambda kind: kind.name)
async def test_a_strange_answer_is_still_an_answer(kind):
    outcome = await outcome_of(kind)

    assert outcome.passed == CASES
    assert outcome.requests == CASES


@pytest.mark.parametrize("kind", PERMANENT, ids=lambda kind: kind.name)
async def test_what_does_not_pass_is_a_row_that_says_why(kind):
    outcome = await outcome_of(kind)

    wanted = Outcome.AGENT_ERROR if kind.ends == "error" else Outcome.FAILED
    results = outcome.report.results
    assert {result.outcome for result in results} == {wanted}
    assert [kind.reason for _ in results] == [
        kind.reason for result in results if kind.reason in "; ".join(result.errors)
    ]
    if kind.ends == "error":
        assert outcome.requests == CASES


async def test_one_case_cannot_end_the_run(tmp_path):
    """One hundred cases, as many of them as there are faults spoiled for ever, each another way."""
    kinds = [*TRANSIENT, *PERMANENT]
    by_prompt = {f"case-{n:04} please": Spoiled(k, for_ever=True) for n, k in enumerate(kinds)}
    limits = ExecutionConfig(attempt_timeout=0.4, max_retries=1)

    with FakeOpenAI(
        lambda request: (
            by_prompt[request.prompt](request)
            if request.prompt in by_prompt
            else Reply(f"OK: {request.prompt}")
        )
    ) as server:
        agent = agent_for(server, tmp_path, 100)
        report = await run_cases(agent, tmp_path, settings(limits))

    spoiled, fine = report.results[: len(kinds)], report.results[len(kinds) :]
    assert all(result.passed for result in fine)
    assert not any(result.passed for result in spoiled)
    reasons = ["; ".join(result.errors) for result in spoiled]
    assert all(reasons)
    assert not [reason for reason in reasons if PYTHON_WORDS.search(reason)]


@pytest.mark.parametrize(
    ("fault", "reason"),
    [("hang", "timeout after 0.5s"), ("half_open", "timeout after 0.5s"), ("drip", "timeout")],
)
async def test_the_time_limit_of_a_call_holds_whatever_the_server_does(fault, reason):
    kind = Kind(fault, Reply("x" * 500, fault=fault, drip_s=0.2), times=99)
    limited = replace(kind, limits=ExecutionConfig(llm_timeout=0.5))

    outcome = await asyncio.wait_for(outcome_of(limited), timeout=5)

    assert outcome.passed == 0
    assert reason in outcome.reason


async def test_a_wait_of_a_day_for_one_case_does_not_keep_the_others_waiting(tmp_path):
    kind = Kind("a day", Reply(status=429, headers={"retry-after": "86400"}))

    with FakeOpenAI(Spoiled(kind, only="case-0000")) as server:
        agent = agent_for(server, tmp_path, 60)
        report = await asyncio.wait_for(
            run_cases(agent, tmp_path, settings(ExecutionConfig())), timeout=20
        )

    assert [result.passed for result in report.results] == [False] + [True] * 59


async def test_a_server_that_comes_up_late_is_found(tmp_path):
    """The first attempts are refused; then somebody listens."""
    with FakeOpenAI() as server:
        port = await _free_port()
        agent = agent_for(server, tmp_path, CASES)
        model = agent.model.model_copy(update={"endpoint": f"http://127.0.0.1:{port}/v1"})
        agent = agent.model_copy(update={"model": model})
        config = settings(ExecutionConfig(retry_delay=0.3, max_retries=10))
        run = asyncio.create_task(run_cases(agent, tmp_path, config))
        await asyncio.sleep(0.2)
        relay = await asyncio.start_server(_to(int(server.root.rpartition(":")[2])), port=port)
        report = await run
        relay.close()
        await asyncio.sleep(0)

    assert report.summary.passed == CASES
    assert report.results[0].attempts


async def _free_port():
    probe = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = probe.sockets[0].getsockname()[1]
    probe.close()
    await probe.wait_closed()
    return port


def _to(port):
    async def copy(reader, writer):
        try:
            while data := await reader.read(65536):
                writer.write(data)
                await writer.drain()
        finally:
            writer.close()

    async def relay(reader, writer):
        there = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, there[1]), copy(there[0], writer))

    return relay
