"""The direct backend meets every fault that the built-in agent meets."""

import asyncio
import re
from dataclasses import replace

import pytest

from fakes import FakeOpenAI, Reply
from holodeck.lib.test_runner.executor import TestExecutor
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
    completion,
    settings,
)

PYTHON_WORDS = re.compile(r"Traceback|has no attribute|NoneType|validation error|recursion")
REFUSED = "a tool call could not be carried out"

# What Semantic Kernel takes or loses, and the direct backend refuses with the reason.
TOO_LARGE = Kind(
    "an answer of 10 MB",
    Reply("x" * 10_000_000),
    ends="error",
    reason="the answer is too large: more than 8 MB",
)
EMPTY_CALL = Kind(
    "tool_calls: [{}]",
    Reply(json=completion(content=None, tool_calls=[{}])),
    ends="fails",
    reason=REFUSED,
)
OWN = {kind.name: kind for kind in (TOO_LARGE, EMPTY_CALL)}
TAKEN = [kind for kind in HARMLESS if kind.name not in OWN]
LASTING = [*(kind for kind in PERMANENT if kind.name not in OWN), *OWN.values()]


async def run(kind, folder, cases=CASES, script=None):
    """The report, and how many requests there were."""
    with FakeOpenAI(script or Spoiled(kind)) as server:
        agent = agent_for(server, folder, cases, backend="chat")
        executor = TestExecutor(
            str(folder / "agent.yaml"),
            agent_config=agent,
            resolved_execution_config=settings(kind.limits),
        )
        try:
            return await executor.execute_tests(), len(server.requests)
        finally:
            await executor.shutdown()


@pytest.mark.parametrize("kind", TRANSIENT, ids=lambda kind: kind.name)
async def test_what_may_pass_is_tried_again_and_every_case_passes(kind, tmp_path):
    report, requests = await run(kind, tmp_path)

    assert report.summary.passed == CASES
    assert requests == CASES * (kind.times + 1)


@pytest.mark.parametrize("kind", TAKEN, ids=lambda kind: kind.name)
async def test_a_strange_answer_is_still_an_answer(kind, tmp_path):
    report, requests = await run(kind, tmp_path)

    assert (report.summary.passed, requests) == (CASES, CASES)


@pytest.mark.parametrize("kind", LASTING, ids=lambda kind: kind.name)
async def test_what_does_not_pass_is_a_row_that_says_why(kind, tmp_path):
    report, requests = await run(kind, tmp_path)

    wanted = Outcome.AGENT_ERROR if kind.ends == "error" else Outcome.FAILED
    assert {result.outcome for result in report.results} == {wanted}
    assert all(kind.reason in "; ".join(result.errors) for result in report.results)
    assert requests <= CASES if kind.ends == "error" else requests >= CASES


async def test_one_case_cannot_end_the_run(tmp_path):
    kinds = [*TRANSIENT, *LASTING]
    by_prompt = {f"case-{n:04} please": Spoiled(k, for_ever=True) for n, k in enumerate(kinds)}
    limits = Kind("", Reply(), limits=ExecutionConfig(attempt_timeout=0.4, max_retries=1))

    def answer(request):
        spoiled = by_prompt.get(request.prompt)
        return spoiled(request) if spoiled else Reply(f"OK: {request.prompt}")

    report, _ = await run(limits, tmp_path, 100, answer)

    spoiled, fine = report.results[: len(kinds)], report.results[len(kinds) :]
    assert all(result.passed for result in fine)
    assert not any(result.passed for result in spoiled)
    reasons = ["; ".join(result.errors) for result in spoiled]
    assert all(reasons)
    assert not [reason for reason in reasons if PYTHON_WORDS.search(reason)]


@pytest.mark.parametrize("fault", ["hang", "half_open", "drip"])
async def test_the_time_limit_of_a_call_holds_whatever_the_server_does(fault, tmp_path):
    kind = Kind(fault, Reply("x" * 500, fault=fault, drip_s=0.2), times=99)
    limited = replace(kind, limits=ExecutionConfig(llm_timeout=0.5))

    report, _ = await asyncio.wait_for(run(limited, tmp_path), timeout=5)

    assert report.summary.passed == 0
    assert all("no answer within 0.5 s" in result.errors[0] for result in report.results)


async def test_a_server_that_nobody_runs_is_named(tmp_path):
    limits = Kind("", Reply(), limits=ExecutionConfig(max_retries=1))
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    with FakeOpenAI() as fake:
        agent = agent_for(fake, tmp_path, 1, backend="chat")
    model = agent.model.model_copy(update={"endpoint": f"http://127.0.0.1:{port}/v1"})
    executor = TestExecutor(
        str(tmp_path / "agent.yaml"),
        agent_config=agent.model_copy(update={"model": model}),
        resolved_execution_config=settings(limits.limits),
    )

    report = await executor.execute_tests()

    assert f"no connection to 127.0.0.1:{port}" in report.results[0].errors[0]
    assert "after 2 tries" in report.results[0].errors[0]
