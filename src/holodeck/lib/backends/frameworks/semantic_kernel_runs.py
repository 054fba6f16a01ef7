"""What a service tells of the runs of its threads, and how a thread ends."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from holodeck.lib.backends.frameworks.semantic_kernel_messages import TurnReader

if TYPE_CHECKING:
    from semantic_kernel.agents import AgentThread

logger = logging.getLogger(__name__)

CLEANUP_S = 15.0
"""Seconds for the service to delete a thread."""
ACTIVE = ("queued", "in_progress", "requires_action", "cancelling")
"""Statuses of a run that has not ended; enumerations of Azure equal these, with other hashes."""


class Runs(Protocol):
    """The runs of a service's threads."""

    def __init__(self, client: Any) -> None: ...

    async def latest(self, thread_id: str) -> Any:
        """Return the newest run of a thread; None if it has none."""

    async def steps(self, thread_id: str, run_id: str) -> list[Mapping[str, Any]]:
        """Return the steps of a run as they are on the wire, in order."""

    async def cancel(self, thread_id: str, run_id: str) -> None:
        """Begin to cancel a run."""


class OpenAIRuns(Runs):
    """Runs of the Assistants API."""

    def __init__(self, client: Any) -> None:
        self._runs = client.beta.threads.runs

    async def latest(self, thread_id: str) -> Any:
        page = await self._runs.list(thread_id, limit=1, order="desc")
        return page.data[0] if page.data else None

    async def steps(self, thread_id: str, run_id: str) -> list[Mapping[str, Any]]:
        listed = self._runs.steps.list(run_id, thread_id=thread_id, limit=100, order="asc")
        return [step.model_dump() async for step in listed]

    async def cancel(self, thread_id: str, run_id: str) -> None:
        await self._runs.cancel(run_id, thread_id=thread_id)


class AzureRuns(Runs):
    """Runs of the agents of Azure AI."""

    def __init__(self, client: Any) -> None:
        self._agents = client.agents

    async def latest(self, thread_id: str) -> Any:
        async for run in self._agents.runs.list(thread_id, limit=1, order="desc"):
            return run
        return None

    async def steps(self, thread_id: str, run_id: str) -> list[Mapping[str, Any]]:
        listed = self._agents.run_steps.list(thread_id, run_id, limit=100, order="asc")
        return [step.as_dict() async for step in listed]

    async def cancel(self, thread_id: str, run_id: str) -> None:
        await self._agents.runs.cancel(thread_id, run_id)


def runs_of(agent: Any) -> Runs:
    """Return the runs of the threads of an agent."""
    is_azure = "AzureAIAgent" in {base.__name__ for base in type(agent).__mro__}
    return AzureRuns(agent.client) if is_azure else OpenAIRuns(agent.client)


async def delete_thread(agent: Any, thread: "AgentThread") -> None:
    """Delete a thread of an agent, whose run is cancelled if it is active; a failure is logged."""
    identity = thread.id
    if identity is None:
        return
    try:
        await asyncio.wait_for(_end(agent, thread, identity), CLEANUP_S)
    except Exception as error:  # noqa: BLE001 - a failing clean-up must not lose a response
        logger.warning("the thread %s was not deleted: %r", identity, error.__cause__ or error)


async def _end(agent: Any, thread: "AgentThread", identity: str) -> None:
    runs = runs_of(agent)
    run = await runs.latest(identity)
    if run is not None and run.status in ACTIVE:
        await runs.cancel(identity, run.id)
    polls = 0
    while run is not None and run.status in ACTIVE:
        await asyncio.sleep(agent.polling_options.get_polling_interval(polls).total_seconds())
        run, polls = await runs.latest(identity), polls + 1
    await thread.delete()


async def completed(cleanup: "asyncio.Future[Any]") -> None:
    """Wait until a clean-up is done; a cancellation waits, too."""
    try:
        await asyncio.shield(cleanup)
    except asyncio.CancelledError:
        await cleanup
        raise


def read_steps(
    reader: TurnReader, steps: Sequence[Mapping[str, Any]], agent: str | None = None
) -> None:
    """Put the tool calls into the order of the steps, and add what only the service knows.

    Args:
        reader: The turn, with what Semantic Kernel reported.
        steps: All steps of the run.
        agent: The name of the agent, if it has one.
    """
    record = reader.record
    reported = {call["call_id"]: call for call in record.tool_calls or ()}
    record.tool_calls = []
    for call in (one for step in steps for one in _calls(step)):
        row = reported.pop(call["id"], None) or _row(call, agent)
        record.tool_calls.append(row)
        if call["type"] == "connected_agent":
            record.add_agent_tool(row["name"])
        result = _result(call)
        if result is not None:  # one that was reported stays as it is
            is_ours = call["type"] == "function"
            is_error = is_ours and reader.has_raised(call["id"])
            refused = is_ours and reader.is_refused(call["id"])
            record.add_result(call["id"], result, is_error=is_error, is_refused=refused)
    record.tool_calls += reported.values()


def _calls(step: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    return (step.get("step_details") or {}).get("tool_calls") or ()


def _row(call: Mapping[str, Any], agent: str | None) -> dict[str, Any]:
    """Return a call of a tool; its arguments are left out if the service does not tell them."""
    details = _details(call)
    name = details.get("name") or call["type"]
    row = {"name": name, "call_id": call["id"], **({"agent": agent} if agent else {})}
    if "arguments" in details:
        return {**row, "arguments": details["arguments"]}
    return {**row, "arguments": {"input": details["input"]}} if "input" in details else row


def _result(call: Mapping[str, Any]) -> Any:
    """Return what a tool returned; None if the service does not tell it."""
    details = _details(call)
    logs = [one["logs"] for one in details.get("outputs") or () if one["type"] == "logs"]
    return "\n".join(logs) or details.get("output")


def _details(call: Mapping[str, Any]) -> Mapping[str, Any]:
    details: Mapping[str, Any] = call.get(call["type"]) or call.get("function") or call
    return details
