"""Who does the tasks: holodeck by each of its backends, a bare loop, and other harnesses."""

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from peers import Peer, Prepared
from peers.workload import write_cases
from tasks import BARE_LOOP, BURNING, CHAT, FUNCTION, KERNEL_OBJECT, PROCESS, SEMANTIC_KERNEL, Task

REPORT = "report.json"
BARE_LOOP_CODE = Path(__file__).with_name("bare_loop.py")
MODEL = """\
model: {{provider: openai, name: fake, endpoint: "{url}", api_key: x}}
instructions: {{inline: "Do what the user says."}}
"""
AGENTS = {
    CHAT: f"backend: chat\n{MODEL}",
    SEMANTIC_KERNEL: MODEL,
    KERNEL_OBJECT: 'backend: {{type: python, target: "agent:make_agent", scope: run}}\n',
    FUNCTION: 'backend: "agent:answer"\n',
    PROCESS: 'backend: {{type: process, target: "agent:answer"}}\n',
    BURNING: 'backend: "agent:answer"\n',
}
KERNEL_CODE = """\
from openai import AsyncOpenAI, DefaultAioHttpClient
from semantic_kernel.agents import ChatCompletionAgent
from semantic_kernel.connectors.ai.open_ai import OpenAIChatCompletion


def make_agent():
    client = AsyncOpenAI(base_url="{url}", api_key="x", http_client=DefaultAioHttpClient())
    service = OpenAIChatCompletion(ai_model_id="fake", async_client=client)
    return ChatCompletionAgent(
        service=service, name="benchmark", instructions="Do what the user says."
    )
"""
FUNCTION_CODE = """\
import asyncio


async def answer(message):
    await asyncio.sleep({seconds})
    return "OK: " + message
"""
BURNING_CODE = """\
import time


def answer(message):
    started = time.thread_time()
    while time.thread_time() - started < 0.01:
        pass
    return "OK: " + message
"""
CODE = {
    BURNING: BURNING_CODE,
    KERNEL_OBJECT: KERNEL_CODE,
    FUNCTION: FUNCTION_CODE,
    PROCESS: FUNCTION_CODE,
}
"""The agent in Python, of those that have one."""
CASE = """\
  - name: case-{i:05}
    input: Say case-{i:05} please
    evaluations:
      - type: standard
        metric: contains
        value: "OK: Say case-{i:05} please"
"""


@dataclass(frozen=True)
class Job:
    """A task, where it is done, and the server that answers."""

    task: Task
    folder: Path
    url: str


class Contestant(Protocol):
    """Does tasks as a child process."""

    @property
    def name(self) -> str: ...

    @property
    def is_peer(self) -> bool: ...

    def takes(self, task: Task) -> bool:
        """Whether the task is one for it."""
        ...

    def prepare(self, job: Job) -> Prepared:
        """Write what the run reads; the command that does it."""
        ...

    def passed(self, job: Job, output: str) -> int:
        """How many cases the run called passed in its report."""
        ...


@dataclass(frozen=True)
class Holodeck:
    """`holodeck test` with one of the ways to reach an agent."""

    backend: str
    command: Sequence[str]
    env: Mapping[str, str]
    name: str = field(init=False)
    is_peer: bool = field(default=False, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "name", self.backend)

    def takes(self, task: Task) -> bool:
        return self.backend in task.backends

    def prepare(self, job: Job) -> Prepared:
        task, folder = job.task, job.folder
        (folder / "agent.yaml").write_text(self._agent(job), "utf-8")
        if self.backend in CODE:
            code = CODE[self.backend].format(url=job.url, seconds=task.latency_ms / 1000)
            (folder / "agent.py").write_text(code, "utf-8")
        command = [*self.command, "test", "agent.yaml", "--quiet", "-o", REPORT]
        if task.parallel is not None:
            command += ["--parallel", str(task.parallel)]
        if task.workers > 1:
            command += ["--workers", str(task.workers)]
        return Prepared(command, dict(self.env))

    def _agent(self, job: Job) -> str:
        head = f"name: benchmark\n{AGENTS[self.backend].format(url=job.url)}test_cases:\n"
        return head + "".join(CASE.format(i=i) for i in range(job.task.cases))

    def passed(self, job: Job, output: str) -> int:
        del output  # the report is what counts
        return int(report_of(job.folder).get("summary", {}).get("passed", 0))


@dataclass(frozen=True)
class BareLoop:
    """What a user would write without a harness: a loop over an agent of Semantic Kernel."""

    env: Mapping[str, str]
    name: str = field(default=BARE_LOOP, init=False)
    is_peer: bool = field(default=False, init=False)

    def takes(self, task: Task) -> bool:
        return BARE_LOOP in task.backends

    def prepare(self, job: Job) -> Prepared:
        write_cases(job.folder, job.task.cases)
        (job.folder / "agent.py").write_text(KERNEL_CODE.format(url=job.url), "utf-8")
        return Prepared([sys.executable, str(BARE_LOOP_CODE)], {**self.env, "PYTHONPATH": "."})

    def passed(self, job: Job, output: str) -> int:
        del output  # the report is what counts
        return int(report_of(job.folder).get("passed", 0))


@dataclass(frozen=True)
class Rival:
    """An installed peer."""

    peer: Peer
    home: Path
    is_peer: bool = field(default=True, init=False)

    @property
    def name(self) -> str:
        return self.peer.name

    def takes(self, task: Task) -> bool:
        return task.for_peers

    def prepare(self, job: Job) -> Prepared:
        task = job.task
        return self.peer.prepare(self.home, job.folder, job.url, task.cases, task.parallel)

    def passed(self, job: Job, output: str) -> int:
        return self.peer.passed(job.folder, output, job.task.cases)


def report_of(folder: Path) -> dict[str, Any]:
    """The report of a run; empty if there is none."""
    path = folder / REPORT
    return dict(json.loads(path.read_bytes())) if path.is_file() else {}


def environment(home: Path) -> dict[str, str]:
    """A user's plain environment: byte code is kept, no keys, loopback without a proxy."""
    kept = {k: v for k, v in os.environ.items() if k in {"PATH", "TMPDIR", "PYTHONPATH"}}
    return kept | {"HOME": str(home), "LANG": "C.UTF-8", "NO_PROXY": "127.0.0.1"}


def holodeck_command() -> list[str]:
    return [sys.executable, "-P", "-m", "holodeck"]
