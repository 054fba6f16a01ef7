"""What each worker of a run is told."""

import asyncio
from contextlib import asynccontextmanager

from fakes import ScriptedBackend
from holodeck.lib.processes.channel import frame
from holodeck.lib.test_runner.workers.connection import WorkerTask
from holodeck.lib.test_runner.workers.pool import WorkerPool
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from support.agents import an_agent, executor_of

AGENT = {"name": "a", "model": {"provider": "openai", "name": "gpt-4o", "api_key": "k"}}
TOOL = {"name": "search", "description": "Searches.", "type": "vectorstore", "source": "docs"}


class ReadyWorker:
    """A connection to a worker that is ready at once, and ends when it is told to."""

    def __init__(self, on_data):
        self._on_data = on_data
        self._ended = asyncio.Event()

    def write(self, data):
        if b'"start"' in data:
            self._on_data(frame(["ready", 1, [], []]))
        if b'"close"' in data:
            self._ended.set()

    def kill(self, reason):
        self._ended.set()

    async def wait(self):
        await asyncio.wait_for(self._ended.wait(), 60)
        return "it was closed"


class Workers:
    """A place that notes which tasks its workers get."""

    cores = 3

    def __init__(self):
        self.tasks = []
        self._packed = None

    def pack(self, task):
        self._packed = task
        return b""

    @asynccontextmanager
    async def open_worker(self, on_data):
        self.tasks.append(self._packed)
        yield ReadyWorker(on_data)


async def test_only_the_first_worker_embeds_all_documents_again(tmp_path):
    setup = executor_of(tmp_path, an_agent({"input": "hello"}), ScriptedBackend(str)).setup
    task = WorkerTask(
        path="agent.yaml",
        agent=Agent(**AGENT, instructions={"inline": "Help."}, tools=[TOOL]),
        settings=ExecutionConfig(force_ingest=True),
        may_leave_folder=False,
        log_levels={},
        is_displayed=False,
        has_events=False,
        has_conversations=False,
        has_telemetry=False,
        trace={},
    )
    workers = Workers()

    async with WorkerPool(workers, task, 3, setup).open():
        pass

    assert [task.settings.force_ingest for task in workers.tasks] == [True, False, False]
