"""A worker process: runs the cases that its parent names and sends back their results.

Its standard output belongs to the messages, so what the agent's code prints goes to standard error.
It ends with its parent: a thread waits for the end of the connection.
"""

import asyncio
import contextvars
import io
import itertools
import json
import logging
import pickle
import selectors
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from uuid import uuid4

from pydantic import SecretStr

from holodeck.config.loader import ConfigLoader
from holodeck.config.secrets import collect
from holodeck.errors import ExecutionError, HoloDeckError
from holodeck.lib.judging.judges import Judges
from holodeck.lib.llm.limits import use_limiters
from holodeck.lib.llm.shared_limits import SharedLimiters
from holodeck.lib.observability import (
    continue_run,
    initialize_observability,
    shutdown_observability,
)
from holodeck.lib.processes.channel import FrameReader, Head, Parent
from holodeck.lib.processes.process_exit import (
    exit_now,
    finish_user_code,
    forbid_process_exit,
    note_command,
    process_exit_forbidden,
)
from holodeck.lib.processes.threads import RunLoop
from holodeck.lib.records.recorder import json_line
from holodeck.lib.secrets.redact import Redactor
from holodeck.lib.support.environment import process_variables, replace_variables
from holodeck.lib.support.safe_paths import allow_outside
from holodeck.lib.support.text import describe
from holodeck.lib.test_runner.executor import TestExecutor
from holodeck.lib.test_runner.options import RunOptions
from holodeck.lib.test_runner.scheduling.schedule import Lane
from holodeck.lib.test_runner.workers.connection import WorkerTask, pack_error
from holodeck.lib.ui.activity import Activities, Activity, displayed, enter_case

_EVENTS = 8
"""How many events a turn of the event loop handles."""
Channel = Parent[tuple[Head, bytes]]
_run_number: contextvars.ContextVar[int] = contextvars.ContextVar("holodeck_worker_run", default=-1)


def main() -> None:
    """Serve the parent at the other end of standard input and output."""
    with suppress(ValueError, OSError):  # a parent's ignored signals are inherited
        signal.signal(signal.SIGINT, signal.SIG_IGN)
    note_command()
    channel = Parent(FrameReader())
    first = channel.receive()
    if first is None:
        exit_now(0)
    task = _read_task(first[1])
    logging.getLogger().addHandler(_LogToParent(channel))
    for name, level in task.log_levels.items():
        logging.getLogger(name).setLevel(level)
    loop = partial(RunLoop, _FewAtOnce())
    try:
        with (
            allow_outside(task.may_leave_folder),
            process_exit_forbidden(),
            asyncio.Runner(loop_factory=loop) as runner,
        ):
            runner.run(_Worker(channel, task).serve())
    except ExecutionError as error:  # a thread of the user's tried to exit
        channel.send(["exit", str(error)])
    forbid_process_exit()
    finish_user_code()
    sys.stderr.flush()
    exit_now(0)


class _Unpickler(pickle.Unpickler):
    """Reads what the parent has written, who started this process."""

    def persistent_load(self, name: str) -> SecretStr:
        """Return a secret that travelled as a variable."""
        return SecretStr(process_variables()[name])


def _read_task(packed: bytes) -> WorkerTask:
    task: WorkerTask = _Unpickler(io.BytesIO(packed)).load()
    if task.module_path is not None:
        sys.path[:] = task.module_path
    if task.variables is not None:
        replace_variables(task.variables)
    if task.folder is None:
        return task
    return replace(task, agent=task.agent.moved(task.folder, Path.cwd()))


class _FewAtOnce(selectors.DefaultSelector):
    """Lets the event loop handle a few events at a time, and in between messages of the parent.

    Else a worker would handle the answers to all its cases that have arrived, and only then begin
    the next cases, which meanwhile could wait for their answers.
    """

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Return the first events."""
        return super().select(timeout)[:_EVENTS]


class _Worker:
    """The executor of a worker, and the runs under way."""

    def __init__(self, channel: Channel, task: WorkerTask) -> None:
        self._channel = channel
        self._task = task
        self._limiters = SharedLimiters(channel.send, _run_number.get)
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._closed = asyncio.Event()
        self._is_interrupted = False
        self._lane: Lane | None = None
        self._judges: Judges | None = None
        self._notes: list[str] = []
        """The notes of the executor."""
        self._sent_notes = 0

    async def serve(self) -> None:
        """Run cases until the parent says that there are no more."""
        with continue_run(self._task.trace):
            if self._task.is_displayed:  # before `_listen`, whose context the runs get
                displayed.set(_ActivitiesOfParent(self._channel))
            self._listen()
            use_limiters(self._limiters)
            try:
                with self._telemetry():
                    await self._serve()
            except HoloDeckError as error:
                self._channel.send(["failed", *pack_error(error)])
            except Exception as error:  # noqa: BLE001 - the border: the parent raises it
                self._channel.send(["failed", *pack_error(ExecutionError(describe(error)))])

    def _listen(self) -> None:
        """Handle further messages on the present event loop, in the present context."""
        loop, context = asyncio.get_running_loop(), contextvars.copy_context()

        def handle_all(messages: list[tuple[Head, bytes]]) -> None:
            for head, _ in messages:
                self.handle(head)

        def take(messages: list[tuple[Head, bytes]]) -> None:
            loop.call_soon_threadsafe(handle_all, messages, context=context)

        self._channel.listen(
            take, partial(exit_now, 0)
        )  # it ends with its parent, even if the loop is blocked

    async def _serve(self) -> None:
        task = self._task
        executor = TestExecutor(
            task.path,
            agent_config=task.agent,
            resolved_execution_config=task.settings,
            options=self._options(),
        )
        self._judges = executor.setup.evaluator_set.judges
        self._judges.share(lambda *of: self._channel.send(["judge", *of]))
        executor.begin()
        self._notes = executor.setup.evaluator_set.notes
        async with executor.open_lane() as lane:
            self._lane = lane
            costs = [cost.model_dump(mode="json") for cost in lane.preparation_costs]
            self._channel.send(["ready", lane.concurrency, costs, self._new_notes()])
            await self._closed.wait()
            for running in self._tasks.values():
                running.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def _options(self) -> RunOptions:
        """Return what sends the events of the cases, and of their conversations."""
        options, task = RunOptions(is_checked=True), self._task  # checked by the parent
        if not (task.has_events or task.has_conversations):
            return options
        # The engine of conversations, which most runs do without.
        from holodeck.lib.test_runner.events import EventSender  # noqa: PLC0415

        sender = EventSender(self._channel.send, _run_number.get)
        return replace(
            options,
            event_relay=sender.send_event if task.has_events else None,
            on_conversation=sender.follow if task.has_conversations else None,
        )

    def handle(self, message: Head) -> None:
        """Do what the parent asks for."""
        match message:
            case ["run", number, index, repetition]:
                self._tasks[number] = asyncio.create_task(self._run(number, index, repetition))
            case ["cancel", number] if number in self._tasks:
                self._tasks[number].cancel()
            case ["slot", number]:
                self._limiters.give_slot(number)
            case ["reached" | "down" as kind, endpoint]:
                self._limiters.handle(kind, endpoint)
            case ["judge", key, what, detail] if self._judges is not None:
                self._judges.note_elsewhere(key, what, detail)
            case ["close", is_interrupted]:
                self._is_interrupted = is_interrupted
                self._closed.set()

    async def _run(self, number: int, index: int, repetition: int) -> None:
        _run_number.set(number)
        enter_case(number)
        assert self._lane is not None  # noqa: S101 - the parent names no case before it is ready
        case = (self._task.agent.test_cases or [])[index]
        run = self._lane.new_run(index, case, repetition)
        try:
            finished = await run.run()
            body = json_line(finished.result)
        except asyncio.CancelledError:
            result = run.interrupted_result()
            self._channel.send(["cancelled", number], b"" if result is None else json_line(result))
        except HoloDeckError as error:
            self._channel.send(["error", number, *pack_error(error)])
        except BaseException as error:  # noqa: BLE001 - the parent raises it
            failure = ExecutionError(f"the agent's code raised {describe(error)}")
            self._channel.send(["error", number, *pack_error(failure)])
        else:
            head = ["done", number, finished.failure, finished.is_permanent, finished.refusal]
            self._channel.send([*head, self._new_notes()], body)
        finally:
            del self._tasks[number]

    def _new_notes(self) -> list[str]:
        new = self._notes[self._sent_notes :]
        self._sent_notes += len(new)
        return new

    @contextmanager
    def _telemetry(self) -> Iterator[None]:
        """In the block, send telemetry as the agent's `observability` says. Raises ConfigError."""
        if not self._task.has_telemetry:
            yield
            return
        agent = self._task.agent
        redactor = Redactor(collect(agent, ConfigLoader().environment(agent.base_dir)))
        telemetry = initialize_observability(
            agent.observability, agent.name, redactor.redact, agent.base_dir, str(uuid4())
        )
        try:
            yield
        finally:
            shutdown_observability(telemetry, interrupted=self._is_interrupted)


class _ActivitiesOfParent(Activities):
    """Tells the parent what the runs wait for."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel
        self._numbers = itertools.count()
        self._began: dict[int, int] = {}

    def add(self, activity: Activity) -> None:
        number = self._began[id(activity)] = next(self._numbers)
        seconds = None if activity.ends_at is None else activity.ends_at - activity.started
        run = activity.case if isinstance(activity.case, int) else -1
        head = ["began", number, run, activity.text, activity.timed, seconds, activity.reason]
        self._channel.send(head)

    def remove(self, activity: Activity) -> None:
        self._channel.send(["ended", self._began.pop(id(activity))])


class _LogToParent(logging.Handler):
    """Sends each record to the parent, which decides where it goes."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        try:
            text = record.getMessage()
            if record.exc_info:
                text += "\n" + logging.Formatter().formatException(record.exc_info)
            json.dumps(text)
        except Exception:  # noqa: BLE001 - as `logging` itself does
            self.handleError(record)
            return
        self._channel.send(["log", record.name, record.levelno, text])
