"""Cases whose user and judge a fake server plays."""

import json
from pathlib import Path

from holodeck.lib.records.run_store import Run
from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.models.agent import Agent
from holodeck.models.config import ExecutionConfig
from holodeck.models.records.record import CaseFinished

JUDGE, USER = "# Criteria", "what the user writes next"
"""What the prompts of the judge and of the simulated user hold."""


LIMITS = {"parallel_test_cases": 1, "file_timeout": 120}


def says(message, done=False):
    return json.dumps({"message": message, "done": done})


def words(*statuses, decision="verdict", why="seen"):
    """A judge's answer."""
    told = {f"c{n}": {"reasoning": why, "status": one} for n, one in enumerate(statuses, 1)}
    return json.dumps(told | {"decision": decision})


def an_agent(server, *cases, **fields):
    model = {"provider": "openai", "name": "m", "endpoint": server.url, "api_key": "k"}
    raw = {"name": "scripted", "backend": "bot:Bot", "test_cases": list(cases)}
    raw |= {"evaluations": {"model": model}}
    return Agent.model_validate(raw | fields)


async def report_of(tmp_path, agent, backend, **limits):
    executor = TestExecutor(
        str(tmp_path / "agent.yaml"),
        agent_config=agent,
        resolved_execution_config=ExecutionConfig(**LIMITS | limits),
        backend=backend,
    )
    return await executor.execute_tests()


def recorded(*results):
    finished = {
        index: CaseFinished(index=index, hash="x", result=result)
        for index, result in enumerate(results)
    }
    return Run(path=Path("run.jsonl"), started=None, finished=finished, ended=None)
