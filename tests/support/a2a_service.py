"""An agent that speaks A2A: a real server of a2a-sdk on loopback."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import uvicorn
from a2a.helpers import new_data_part, new_task_from_user_message, new_text_message, new_text_part
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore, TaskUpdater
from a2a.types import AgentCapabilities, AgentCard, AgentInterface
from starlette.applications import Starlette

DATA = {
    "late": True,
    "n": 3,
    "weight": 1.5,
    "id": 12345678901234567890,
    "items": [{"b": 1, "a": [2]}],
    "city": "Bonn",
}


class Support(AgentExecutor):
    """Answers in the way that the message names, and remembers what was said in a context."""

    def __init__(self):
        self.said = {}
        self.is_working = threading.Event()
        """Set when it begins what it never ends."""
        self.is_canceled = threading.Event()

    async def execute(self, context, event_queue):
        text = context.get_user_input()
        if text == "traceparent":
            said = context.call_context.state["headers"].get("traceparent", "none")
            await event_queue.enqueue_event(new_text_message(said, context_id=context.context_id))
            return
        said = self.said.setdefault(context.context_id, [])
        said.append(text)
        if text == "message":
            answer = new_text_message(f"OK: {said}", context_id=context.context_id)
            await event_queue.enqueue_event(answer)
            return
        if context.current_task is None:
            await event_queue.enqueue_event(new_task_from_user_message(context.message))
        updater = TaskUpdater(event_queue, context.task_id, context.context_id)
        await updater.start_work()
        await self.work(text, said, updater)

    async def work(self, text, said, updater):
        if text == "hang":
            self.is_working.set()
            await asyncio.sleep(600)
        if text == "begin, then hang":
            await updater.add_artifact([new_text_part("It")])
            await asyncio.sleep(600)
        if text == "progress":
            await updater.start_work(updater.new_agent_message([new_text_part("Thinking…")]))
            await updater.complete()
            return
        if text == "status":
            await updater.start_work(updater.new_agent_message([new_text_part("Thinking…")]))
            await updater.complete(updater.new_agent_message([new_text_part("It is late.")]))
            return
        if text == "fail":
            await updater.failed(updater.new_agent_message([new_text_part("no stock")]))
            return
        if text == "ask":
            await updater.requires_input(updater.new_agent_message([new_text_part("Which one?")]))
            return
        if text == "data":
            await updater.add_artifact([new_data_part(DATA)])
        elif text == "search":
            found = {"retrieval_context": [{"text": "It is late.", "source": "7.md"}]}
            await updater.add_artifact([new_text_part("Late."), new_data_part(found)])
        else:
            for i, piece in enumerate(("It", " is", f" late: {said}")):
                await updater.add_artifact(
                    [new_text_part(piece)], artifact_id="a", append=i > 0, last_chunk=i == 2
                )
        await updater.complete()

    async def cancel(self, context, event_queue):
        self.is_canceled.set()
        await TaskUpdater(event_queue, context.task_id, context.context_id).cancel()


@contextmanager
def serving_a2a(
    *, streaming: bool, agent: AgentExecutor | None = None, host: str = "127.0.0.1"
) -> Iterator[str]:
    """Serve the agent; yield its URL. Its card names it by `host`."""
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    url = f"http://127.0.0.1:{port}"
    card = AgentCard(
        name="support",
        description="Looks orders up.",
        version="1",
        capabilities=AgentCapabilities(streaming=streaming),
        supported_interfaces=[
            AgentInterface(
                url=f"http://{host}:{port}/rpc", protocol_binding="JSONRPC", protocol_version="1.0"
            )
        ],
        default_input_modes=["text/plain"],
        default_output_modes=["text/plain"],
    )
    handler = DefaultRequestHandler(agent or Support(), InMemoryTaskStore(), card)
    routes = [*create_agent_card_routes(card), *create_jsonrpc_routes(handler, "/rpc")]
    config = uvicorn.Config(
        Starlette(routes=routes), log_level="error", timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        yield url
    finally:
        server.should_exit = True
        thread.join()
        listener.close()
