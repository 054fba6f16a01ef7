"""The Assistants API of OpenAI, which the agents of Azure AI speak, too, as a part of `FakeOpenAI`.

Threads, messages, runs, run steps, tool outputs and events are kept as the services keep them. Its
runs ask the model of the server. `code_interpreter` and `file_search` are run by the service.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from support.connection import Answer, Connection, Message, head
from support.dialects import CREATED, Document, call_id, openai_error, openai_usage, pieces
from support.wire_types import Reply, Request

PATH = re.compile(r"/(?=(?:assistants|threads)(?:/|$))")
"""Where the paths of the API begin, below the prefix of OpenAI, Azure OpenAI or Azure AI."""
ACTIVE = ("queued", "in_progress", "requires_action", "cancelling")
LOGS = "42"
"""What every program of the code interpreter prints."""
OWN_TOOLS = ("code_interpreter", "file_search")


class Refused(Exception):
    """A request that the service answers with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


@dataclass
class Run:
    """A run, its steps, and the events that a stream tells of it."""

    document: Document
    steps: list[Document] = field(default_factory=list)
    events: list[tuple[str, Document]] = field(default_factory=list)
    asked: list[Document] = field(default_factory=list)
    """What the model said and the tools returned in this run, as messages of chat completions."""
    usages: list[Document | None] = field(default_factory=list)
    """Of each request to the model; None where it is unknown."""
    outputs: dict[str, str] = field(default_factory=dict)
    """Of the functions, by the id of the call."""
    task: asyncio.Task[None] | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_active(self) -> bool:
        return self.document["status"] in ACTIVE

    def tell(self, name: str, document: Document) -> None:
        self.events.append((name, json.loads(json.dumps(document))))
        self.changed.set()
        self.changed = asyncio.Event()

    def become(self, status: str, **fields: Any) -> None:
        self.document.update(status=status, **fields)
        self.tell(f"thread.run.{status}", self.document)


@dataclass
class Thread:
    """A thread, and what was said and done in it."""

    document: Document
    messages: list[Document] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)

    def run(self, run_id: str) -> Run:
        return found(run_id, {one.document["id"]: one for one in self.runs})

    def refuse_if_active(self, action: str) -> None:
        for run in self.runs:
            if run.is_active:
                raise Refused(400, f"Can't {action} while a run {run.document['id']} is active.")


class Assistants:
    """The service, on the paths `…/assistants` and `…/threads` of a server.

    Args:
        ask: Asks the model for a chat completion.
        errors: Where a fault of the service itself is noted.
    """

    def __init__(
        self,
        ask: Callable[[Document], Awaitable[tuple[Request, Reply]]],
        errors: list[BaseException],
    ) -> None:
        self._ask = ask
        self._errors = errors
        self._assistants: dict[str, Document] = {}
        self._clock = count(CREATED)
        self._numbers = count(1)
        self._refusals: list[tuple[str, int]] = []
        self.threads: dict[str, Thread] = {}
        """Those that are not deleted."""
        self.created: list[str] = []
        """Ids of all threads."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self.log: list[str] = []
        """Method and path of every request."""
        self._held: tuple[str, asyncio.Event] | None = None

    def refuse(self, line: str, status: int = 400) -> None:
        """Answer the next request whose method and path hold `line` with an error."""
        self._refusals.append((line, status))

    @contextmanager
    def held(self, line: str) -> Iterator[None]:
        """Do what is asked for in lines like this, but answer only when the block is left."""
        self._held = line, asyncio.Event()
        try:
            yield
        finally:
            assert self._loop is not None
            self._loop.call_soon_threadsafe(self._held[1].set)

    async def saw(self, line: str) -> None:
        """Return once a request arrived whose method and path hold `line`."""
        while not any(line in one for one in self.log):  # noqa: ASYNC110 - of another thread
            await asyncio.sleep(0.005)

    def takes(self, message: Message) -> bool:
        return PATH.search(message.path) is not None

    def stop(self) -> None:
        """Cancel what its runs wait for."""
        for thread in self.threads.values():
            for run in thread.runs:
                if run.task is not None:
                    run.task.cancel()

    async def serve(self, connection: Connection, message: Message) -> None:
        self._loop = asyncio.get_running_loop()
        try:
            answer = self._checked_answer(message)
            if self._held is not None and self._held[0] in self.log[-1]:
                await self._held[1].wait()
        except Refused as refused:
            error = openai_error(refused.status, str(refused))
            reply = Reply(status=refused.status)
            body = [json.dumps(error).encode()]
            await connection.send(Answer(reply, "application/json", body))
            return
        if not isinstance(answer, Run):
            body = [json.dumps(answer).encode()]
            await connection.send(Answer(Reply(), "application/json", body))
            return
        first = len(answer.events) if answer.outputs else 0
        connection.transport.write(head(Answer(Reply(), "text/event-stream", [], streams=True)))
        async for part in events_from(answer, first):
            connection.transport.write(f"{len(part):x}\r\n".encode() + part + b"\r\n")
        connection.transport.write(b"0\r\n\r\n")

    def _checked_answer(self, message: Message) -> Document | Run:
        try:
            return self._answer(message)
        except Refused:
            raise
        except Exception as error:
            self._errors.append(error)
            raise Refused(400, f"the fake service raised {error!r}") from error

    def _answer(self, message: Message) -> Document | Run:
        place = PATH.search(message.path)
        assert place is not None
        path = message.path[place.end() :]
        line = f"{message.method} {path}"
        self.log.append(line)
        for refusal in self._refusals:
            if refusal[0] in line:
                self._refusals.remove(refusal)
                raise Refused(refusal[1], "as told")
        body = json.loads(message.body) if message.body else {}
        kind, *rest = path.split("/")
        if kind == "assistants":
            return self._of_assistants(message.method, rest, body)
        if not rest:
            return self._new_thread(body)
        thread = found(rest[0], self.threads)
        match message.method, *rest[1:]:
            case "GET", *nothing if not nothing:
                return thread.document
            case "DELETE", *nothing if not nothing:
                thread.refuse_if_active("delete the thread")
                del self.threads[rest[0]]
                return {"id": rest[0], "object": "thread.deleted", "deleted": True}
            case method, "messages", *tail:
                return self._of_messages(thread, method, tail, message.query, body)
            case method, "runs", *tail:
                return self._of_runs(thread, method, tail, message.query, body)
        raise Refused(404, f"nothing is served at {path}")

    def _of_assistants(self, method: str, rest: Sequence[str], body: Document) -> Document:
        if method == "GET":
            return found(rest[0], self._assistants)
        if method != "POST" or rest:
            raise Refused(404, "assistants are created and read only")
        defaults = {"name": None, "description": None, "instructions": None, "tools": []}
        assistant = self._document("asst", "assistant", metadata={}, **(defaults | body))
        self._assistants[assistant["id"]] = assistant
        return assistant

    def _new_thread(self, body: Document) -> Document:
        resources = body.get("tool_resources")
        thread = Thread(self._document("thread", "thread", metadata={}, tool_resources=resources))
        self.threads[thread.document["id"]] = thread
        self.created.append(thread.document["id"])
        for one in body.get("messages") or ():
            self._new_message(thread, one["role"], one["content"])
        return thread.document

    def _of_messages(
        self,
        thread: Thread,
        method: str,
        rest: Sequence[str],
        query: Mapping[str, str],
        body: Document,
    ) -> Document:
        if method == "POST":
            thread.refuse_if_active("add messages")
            return self._new_message(thread, body["role"], body["content"])
        if rest:
            return found(rest[0], {one["id"]: one for one in thread.messages})
        return listed(thread.messages, query)

    def _of_runs(
        self,
        thread: Thread,
        method: str,
        rest: Sequence[str],
        query: Mapping[str, str],
        body: Document,
    ) -> Document | Run:
        if not rest:
            if method == "GET":
                return listed([one.document for one in thread.runs], query)
            thread.refuse_if_active("begin a run")
            run = self._new_run(thread, body)
            return run if body.get("stream") else run.document
        run = thread.run(rest[0])
        match rest[1:]:
            case []:
                return run.document
            case ["steps"]:
                return listed(run.steps, query)
            case ["cancel"]:
                return self._cancel(run)
            case ["submit_tool_outputs"]:
                run.outputs |= {one["tool_call_id"]: one["output"] for one in body["tool_outputs"]}
                run.document["required_action"] = None
                self._go_on(thread, run)
                return run if body.get("stream") else run.document
        raise Refused(404, f"a run has no {rest[1]!r}")

    def _cancel(self, run: Run) -> Document:
        if not run.is_active:
            raise Refused(400, f"Cannot cancel run with status '{run.document['status']}'.")
        if run.task is not None and not run.task.done():
            run.become("cancelling")
            run.task.cancel()
        else:
            run.become("cancelled")
        return run.document

    def _document(self, prefix: str, kind: str, **fields: Any) -> Document:
        number = next(self._numbers)
        return {
            "id": f"{prefix}_{number}",
            "object": kind,
            "created_at": next(self._clock),
            **fields,
        }

    def _new_message(self, thread: Thread, role: str, content: Any, **fields: Any) -> Document:
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        content = [block_of(one) for one in blocks]
        of = {"assistant_id": None, "run_id": None, "status": "completed", **fields}
        place = {"thread_id": thread.document["id"], "role": role, "content": content}
        rest: Document = {"attachments": [], "metadata": {}}
        message = self._document("msg", "thread.message", **place, **rest, **of)
        thread.messages.append(message)
        return message

    def _new_run(self, thread: Thread, body: Document) -> Run:
        assistant = found(body["assistant_id"], self._assistants)
        given = {name: body.get(name) or assistant.get(name) for name in ("model", "instructions")}
        tools = assistant["tools"] if body.get("tools") is None else body["tools"]
        unset = ("required_action", "last_error", "incomplete_details", "usage", "started_at")
        place = {"thread_id": thread.document["id"], "assistant_id": assistant["id"]}
        run = Run(
            self._document(
                "run",
                "thread.run",
                **place,
                **given,
                tools=tools,
                status="queued",
                metadata={},
                **dict.fromkeys(unset),
            )
        )
        thread.runs.append(run)
        run.tell("thread.run.created", run.document)
        self._go_on(thread, run)
        return run

    def _go_on(self, thread: Thread, run: Run) -> None:
        """Work on the run until it needs outputs or ends."""
        run.become("in_progress")
        run.task = asyncio.get_running_loop().create_task(self._work(thread, run))

        def end(task: asyncio.Task[None]) -> None:
            if task.cancelled():
                run.become("cancelled")
            elif isinstance(error := task.exception(), Exception):
                self._errors.append(error)
                run.become("failed", last_error={"code": "server_error", "message": repr(error)})

        run.task.add_done_callback(end)

    async def _work(self, thread: Thread, run: Run) -> None:
        self._take_outputs(run)
        while run.document["status"] == "in_progress":
            request, reply = await self._ask_model(thread, run)
            self._count(run, reply)
            if reply.status >= 400:
                error = {"code": "server_error", "message": reply.content}
                run.become("failed", last_error=error)
            elif reply.calls:
                self._call_tools(run, request, reply)
            else:
                self._say(thread, run, reply)

    async def _ask_model(self, thread: Thread, run: Run) -> tuple[Request, Reply]:
        said = [
            {"role": one["role"], "content": text_of_blocks(one["content"])}
            for one in thread.messages
        ]
        told = [{"role": "system", "content": run.document["instructions"] or ""}]
        tools = [
            {"type": "function", "function": tool.get("function") or {"name": tool["type"]}}
            for tool in run.document["tools"]
        ]
        messages = [*told, *said, *run.asked]
        body = {"model": run.document["model"], "messages": messages, "tools": tools}
        return await self._ask(body)

    def _count(self, run: Run, reply: Reply) -> None:
        """Add the tokens of a request to those of the run; unknown ones make them unknown."""
        usage = openai_usage(reply)
        run.usages.append(usage)
        if None in run.usages or usage is None:
            run.document["usage"] = None
            return
        known = [one for one in run.usages if one is not None]
        run.document["usage"] = {name: sum(one[name] for one in known) for name in usage}

    def _new_step(self, run: Run, kind: str, details: Any) -> Document:
        of = {name: run.document[name] for name in ("thread_id", "assistant_id")}
        step = self._document(
            "step",
            "thread.run.step",
            **of,
            run_id=run.document["id"],
            type=kind,
            status="in_progress",
            step_details={"type": kind, kind: details},
            completed_at=None,
            last_error=None,
            usage=None,
        )
        run.steps.append(step)
        return step

    def _complete(self, run: Run, step: Document) -> None:
        step.update(status="completed", completed_at=next(self._clock), usage=run.usages[-1])
        run.tell("thread.run.step.completed", step)

    def _call_tools(self, run: Run, request: Request, reply: Reply) -> None:
        calls = [
            tool_call(call_id(request, i, call), call.name, call.raw_arguments)
            for i, call in enumerate(reply.calls)
        ]
        step = self._new_step(run, "tool_calls", [])
        run.tell("thread.run.step.created", step)
        numbered = [{**one, "index": i} for i, one in enumerate(calls)]
        details = {"type": "tool_calls", "tool_calls": numbered}
        delta = {"id": step["id"], "object": "thread.run.step.delta"}
        run.tell("thread.run.step.delta", {**delta, "delta": {"step_details": details}})
        step["step_details"]["tool_calls"] = calls
        wire = [
            {"id": one["id"], "type": "function", "function": as_function(one)} for one in calls
        ]
        run.asked.append({"role": "assistant", "content": None, "tool_calls": wire})
        functions = [one for one in calls if one["type"] == "function"]
        if not functions:
            self._take_outputs(run)
            return
        needed = [{**one, "function": as_function(one)} for one in functions]
        action = {"type": "submit_tool_outputs", "submit_tool_outputs": {"tool_calls": needed}}
        run.become("requires_action", required_action=action)

    def _take_outputs(self, run: Run) -> None:
        """Complete the step whose calls have their outputs now."""
        for step in run.steps:
            if step["type"] != "tool_calls" or step["status"] == "completed":
                continue
            for call in step["step_details"]["tool_calls"]:
                output = LOGS if call["type"] != "function" else run.outputs[call["id"]]
                if call["type"] == "function":
                    call["function"]["output"] = output
                run.asked.append({"role": "tool", "tool_call_id": call["id"], "content": output})
            self._complete(run, step)

    def _say(self, thread: Thread, run: Run, reply: Reply) -> None:
        of = {"assistant_id": run.document["assistant_id"], "run_id": run.document["id"]}
        message = self._new_message(thread, "assistant", reply.content or "", **of)
        step = self._new_step(run, "message_creation", {"message_id": message["id"]})
        run.tell("thread.run.step.created", step)
        run.tell("thread.message.created", {**message, "content": [], "status": "in_progress"})
        for piece in pieces(reply.content):
            text = {"index": 0, "type": "text", "text": {"value": piece, "annotations": []}}
            delta = {"id": message["id"], "object": "thread.message.delta"}
            run.tell("thread.message.delta", {**delta, "delta": {"content": [text]}})
        run.tell("thread.message.completed", message)
        self._complete(run, step)
        status = reply.finish_reason or "completed"
        why = {"incomplete_details": {"reason": "max_completion_tokens"}}
        run.become(status, **(why if status == "incomplete" else {}))


def block_of(given: Document) -> Document:
    """A block of a message as threads keep it."""
    if given["type"] != "text":
        return given
    return {"type": "text", "text": {"value": given["text"], "annotations": []}}


def text_of_blocks(blocks: Sequence[Document]) -> str:
    return "".join(one["text"]["value"] for one in blocks if one["type"] == "text")


def tool_call(identity: str, name: str, arguments: str) -> Document:
    """A call as run steps hold it."""
    if name == "code_interpreter":
        code = json.loads(arguments)["code"]
        outputs = [{"index": 0, "type": "logs", "logs": LOGS}]
        return {"id": identity, "type": name, name: {"input": code, "outputs": outputs}}
    if name == "file_search":
        found_files = {"ranking_options": {"ranker": "auto", "score_threshold": 0.0}}
        return {"id": identity, "type": name, name: {**found_files, "results": []}}
    function = {"name": name, "arguments": arguments, "output": None}
    return {"id": identity, "type": "function", "function": function}


def as_function(call: Document) -> Document:
    """A call as the model requested it."""
    if call["type"] == "function":
        return {name: call["function"][name] for name in ("name", "arguments")}
    return {"name": call["type"], "arguments": "{}"}


def found(identity: str, among: Mapping[str, Any]) -> Any:
    if identity not in among:
        raise Refused(404, f"No thing found with id '{identity}'.")
    return among[identity]


def listed(documents: Sequence[Document], query: Mapping[str, str]) -> Document:
    """A page of documents, the newest first unless the query says otherwise."""
    ordered = list(documents) if query.get("order") == "asc" else list(reversed(documents))
    ids = [one["id"] for one in ordered]
    start = ids.index(query["after"]) + 1 if query.get("after") in ids else 0
    stop = start + int(query.get("limit", 20))
    page = ordered[start:stop]
    first, last = (page[0]["id"], page[-1]["id"]) if page else (None, None)
    more = {"has_more": stop < len(ordered), "first_id": first, "last_id": last}
    return {"object": "list", "data": page, **more}


async def events_from(run: Run, at: int) -> AsyncIterator[bytes]:
    """The events of a run until it needs outputs or has ended."""
    while True:
        changed = run.changed
        while at < len(run.events):
            name, document = run.events[at]
            at += 1
            yield f"event: {name}\ndata: {json.dumps(document)}\n\n".encode()
            if name == "thread.run.requires_action" or (
                name.startswith("thread.run.")
                and document.get("status") not in ACTIVE
                and document["object"] == "thread.run"
            ):
                yield b"event: done\ndata: [DONE]\n\n"
                return
        await changed.wait()
