"""Everything that goes wrong at a provider, each met by ten cases in the real executor."""

import asyncio
import re
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

from holodeck.config.loader import ConfigLoader
from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.lib.test_runner.options import RunOptions
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.test_result import TestReport
from support.server import FakeOpenAI
from support.wire_types import Reply, Request

CASES = 10

NO_LIMITS = ExecutionConfig()

Answer = Reply | Callable[[Request], Reply]


@dataclass(frozen=True)
class Kind:
    """One way to go wrong, and what is to come of it."""

    name: str
    answer: Answer
    times: int = 1
    """How many attempts of each case it spoils."""
    ends: str = "passes"
    """`passes`: the next attempt saves the case; `error`, `fails`: nothing does."""
    reason: str = ""
    """What the row says where it does not pass."""
    limits: ExecutionConfig = NO_LIMITS

    @property
    def is_transient(self) -> bool:
        return self.ends == "passes"


def completion(**message: Any) -> dict[str, Any]:
    """A chat completion as it stands on the wire, its message changed."""
    said = {"role": "assistant", "content": "OK: fine"} | message
    return {
        "id": "x", "object": "chat.completion", "created": 1, "model": "fake",
        "choices": [{"index": 0, "finish_reason": "stop", "message": said}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }  # fmt: skip


def in_a_second(_: Request) -> Reply:
    """A date counts whole seconds; the one after the next is at least one away."""
    date = datetime.now(UTC) + timedelta(seconds=2)
    return Reply(status=429, headers={"retry-after": format_datetime(date, usegmt=True)})


def _error(status: int, code: str | None = None, **headers: str) -> Reply:
    error = {"message": f"status {status} for a reason", "type": "x", "code": code}
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(status=status, json={"error": error}, headers=named)


NAMELESS = {"id": "1", "type": "function", "function": {"name": None, "arguments": "{}"}}
ATTEMPT = ExecutionConfig(attempt_timeout=2)
"""Many times what an attempt takes that is answered."""
CALL = ExecutionConfig(llm_timeout=2)
"""The default is a minute."""
SILENT = {
    "half a body, then silence": Reply("x" * 200, fault="half_open"),
    "silence": Reply("x", fault="hang"),
    "a byte now and then": Reply("x", fault="drip", drip_s=0.1),
}
HTML = {"content-type": "text/html"}

TRANSIENT = [
    *(Kind(f"HTTP {status}", _error(status)) for status in (408, 409, 429, 500, 502, 503, 529)),
    Kind("429, Retry-After in seconds", _error(429, retry_after="1")),
    Kind("429, Retry-After as a date", in_a_second),
    Kind("429, retry-after-ms", _error(429, retry_after_ms="200")),
    Kind("429, Retry-After that makes no sense", _error(429, retry_after="-5")),
    Kind("429 five times in a row", _error(429), times=5),
    Kind("500 five times in a row", _error(500), times=5),
    Kind("connection reset", Reply("x", fault="reset")),
    Kind("closed before the answer", Reply("x", fault="close")),
    Kind("half a body, then closed", Reply("x" * 200, fault="truncate")),
    Kind("a chunk that is cut", Reply("x", fault="cut_chunk")),
    *(Kind(f"{name}, `attempt_timeout`", reply, limits=ATTEMPT) for name, reply in SILENT.items()),
    Kind("200 with broken JSON", Reply(body=b'{"choices": [')),
    Kind("200 with HTML", Reply(body=b"<html>busy</html>", headers=HTML)),
    Kind("200 with nothing in it", Reply(body=b"")),
    Kind("200 that is not UTF-8", Reply(body=b'{"id": "\xff\xfe\xc3"}')),
    Kind("200 with a plain number", Reply(body=b"5")),
    Kind("200 with null", Reply(body=b"null")),
    Kind("200 with a list", Reply(body=b"[]")),
    Kind("200 nested 100,000 deep", Reply(body=b"[" * 100_000)),
    Kind("no choices", Reply(json=completion() | {"choices": []})),
    Kind("choices: null", Reply(json=completion() | {"choices": None})),
    Kind("choices: {}", Reply(json=completion() | {"choices": {}})),
    Kind("choices: [null]", Reply(json=completion() | {"choices": [None]})),
    Kind("choices: [5]", Reply(json=completion() | {"choices": [5]})),
    Kind("message: null", Reply(json=completion() | {"choices": [{"message": None}]})),
    Kind("content: 5", Reply(json=completion(content=5))),
    Kind("content: a list", Reply(json=completion(content=["OK", 5]))),
    Kind("tool_calls: a text", Reply(json=completion(content=None, tool_calls="x"))),
    Kind("usage: a text", Reply(json=completion() | {"usage": "x"})),
    Kind("usage with texts in it", Reply(json=completion() | {"usage": {"prompt_tokens": "x"}})),
    Kind("tool_calls: [5]", Reply(json=completion(content=None, tool_calls=[5]))),
]

HARMLESS = [
    Kind("usage: null", Reply(json=completion() | {"usage": None})),
    Kind("an answer of 7 MB", Reply("OK: " + "x" * 7_000_000)),
    Kind("NUL and control characters", Reply("OK: \0\x01\x1b[2J\x07\x7f\x9b31m")),
    Kind("half of a surrogate pair", Reply(json=completion(content="OK: \ud800"))),
]  # fmt: skip

PERMANENT = [
    *(
        Kind(f"HTTP {status}", _error(status), ends="error", reason=f"{status} for a reason")
        for status in (400, 401, 403, 404, 422)
    ),
    *(
        Kind(name, reply, ends="error", reason="timeout after 2s", limits=CALL)
        for name, reply in SILENT.items()
    ),
    Kind(
        "429 for a used-up quota",
        _error(429, "insufficient_quota"),
        ends="error",
        reason="429 for a reason",
    ),
    Kind(
        "429, Retry-After a day",
        _error(429, retry_after="86400"),
        ends="error",
        reason="asks to wait 86400 s",
    ),
    Kind(
        "an answer of 10 MB",
        Reply("OK: " + "x" * 10_000_000),
        ends="error",
        reason="the answer is too large: more than 8 MB",
    ),
    Kind(
        "tool_calls: [{}]",
        Reply(json=completion(content=None, tool_calls=[{}])),
        ends="fails",
        reason="invalid tool call",
    ),
    Kind(
        "a tool call without a name",
        Reply(json=completion(tool_calls=[NAMELESS])),
        ends="fails",
        reason="invalid tool call",
    ),
    Kind(
        "content: null", Reply(json=completion(content=None)), ends="fails", reason="empty response"
    ),
    Kind('content: ""', Reply(""), ends="fails", reason="the agent returned an empty response"),
    Kind(
        "content: white space",
        Reply(" \n\t "),
        ends="fails",
        reason="the agent returned an empty response",
    ),
]


WAYS: dict[str, dict[str, str]] = {"Semantic Kernel": {}, "chat": {"backend": "chat"}}
"""Way to a model → what an agent.yaml says to go it."""

CHAT_OWN = {
    kind.name: kind
    for kind in (
        Kind(name, reply, ends="error", reason="no answer within 2 s", limits=CALL)
        for name, reply in SILENT.items()
    )
}
"""Faults whose reason the direct way tells in other words."""


@dataclass
class Spoiled:
    """A server's script: spoils the first attempts of each prompt, then echoes it."""

    kind: Kind
    only: str = ""
    """Spoils only prompts that hold this."""
    for_ever: bool = False

    def __post_init__(self) -> None:
        self.seen: dict[str, int] = {}

    def __call__(self, request: Request) -> Reply:
        prompt = request.prompt
        tries = self.seen[prompt] = self.seen.get(prompt, 0) + 1
        if self.only in prompt and (self.for_ever or tries <= self.kind.times):
            answer = self.kind.answer
            return answer(request) if callable(answer) else answer
        return Reply(f"OK: {prompt}")


def agent_for(server: FakeOpenAI, folder: Path, cases: int, **fields: Any) -> Agent:
    """An agent on that server with so many cases, each with a prompt of its own."""
    raw = {
        "name": "greeter",
        "model": {
            "provider": "openai",
            "name": "fake",
            "endpoint": server.url,
            "api_key": "not-a-real-key",
        },
        "instructions": {"inline": "Be brief."},
        "test_cases": [
            {
                "name": f"case {n}",
                "input": f"case-{n:04} please",
                "evaluations": [{"metric": "contains", "value": "OK"}],
            }
            for n in range(cases)
        ],
    }
    return Agent.model_validate(raw | fields).with_base_dir(folder)


def settings(limits: ExecutionConfig, **more: Any) -> ExecutionConfig:
    """The default settings, but for short waits and what is given."""
    given = {"retry_delay": 0.01, "parallel_test_cases": 10, "llm_timeout": 120}
    own = limits.model_dump(exclude_none=True)
    return ConfigLoader().resolve_execution_config(ExecutionConfig(**(given | own | more)))


async def run_cases(agent: Agent, folder: Path, config: ExecutionConfig) -> TestReport:
    """The report of all cases, run by the executor on the way that the agent names."""
    executor = TestExecutor(
        str(folder / "agent.yaml"),
        agent_config=agent,
        resolved_execution_config=config,
        options=RunOptions(is_checked=True),  # metrics that no response can fail are wanted here
    )
    try:
        return await executor.execute_tests()
    finally:
        await executor.shutdown()


@dataclass(frozen=True)
class Outcome:
    """What came of a kind of fault."""

    kind: Kind
    report: TestReport
    asked: Counter[str]
    """How often each prompt was sent."""

    @property
    def passed(self) -> int:
        return self.report.summary.passed

    @property
    def attempts(self) -> int:
        """Requests a case."""
        return max(self.asked.values())

    @property
    def reason(self) -> str:
        """What the first case that ran says, without the port of the server."""
        ran = (one for one in self.report.results if one.skipped_by != "refused")
        errors = next(ran).errors
        return re.sub(r"127\.0\.0\.1:\d+", "127.0.0.1", "; ".join(errors))


async def outcome_of(kind: Kind, **fields: Any) -> Outcome:
    """What comes of ten cases, each of which meets the fault at first; `fields` are the agent's."""
    with tempfile.TemporaryDirectory() as name, FakeOpenAI(Spoiled(kind)) as server:
        folder = Path(name)
        agent = agent_for(server, folder, CASES, **fields)
        report = await run_cases(agent, folder, settings(kind.limits))
        return Outcome(kind, report, Counter(one.prompt for one in server.requests))


def outcomes(fields: Mapping[str, Any]) -> Iterator[Outcome]:
    """Every kind, one after the other; `fields` are the agent's."""
    for kind in (*TRANSIENT, *HARMLESS, *PERMANENT):
        own = CHAT_OWN.get(kind.name, kind) if fields == WAYS["chat"] else kind
        yield asyncio.run(outcome_of(own, **fields))


async def report_of_spoiled(
    folder: Path, kinds: Sequence[Kind], cases: int = 100, **fields: Any
) -> TestReport:
    """The report of that many cases, of which the first ones meet these faults for ever."""
    by_prompt = {f"case-{n:04} please": Spoiled(k, for_ever=True) for n, k in enumerate(kinds)}

    def answer(request: Request) -> Reply:
        spoiled = by_prompt.get(request.prompt)
        return spoiled(request) if spoiled else Reply(f"OK: {request.prompt}")

    limits = ExecutionConfig(attempt_timeout=20, max_retries=0)  # generous, for busy machines
    with FakeOpenAI(answer) as server:
        agent = agent_for(server, folder, cases, **fields)
        return await run_cases(agent, folder, settings(limits))
