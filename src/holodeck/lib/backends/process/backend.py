"""Agents in processes of their own: `backend: {type: process, …}`."""

import asyncio
import logging
import os
import sys
import time
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from holodeck.errors import BackendError, BackendSessionError, ConfigError
from holodeck.lib.backends.base import (
    NO_CASE_CONTEXT_PARAMETER,
    NO_CONTEXT_PARAMETER,
    NO_MODEL_STAND_INS,
    NO_SEAL_BEHIND_TAP,
    NO_STUBS,
    AgentBackend,
    AgentDescription,
    AgentSession,
    Capabilities,
    ExecutionResult,
    InContext,
    Message,
    without_history,
)
from holodeck.lib.backends.frameworks.base import pieces_of
from holodeck.lib.backends.parsing import complete_result, parse_result
from holodeck.lib.backends.process.messages import Abilities
from holodeck.lib.backends.process.pool import Pool, Worker
from holodeck.lib.llm.limits import call_limits, call_with_limit
from holodeck.lib.observability import propagation_headers
from holodeck.lib.processes.child_process import Launch, main_of, program_path
from holodeck.lib.support.approvals import ApprovalDecisions
from holodeck.lib.support.text import describe
from holodeck.lib.tools.base import to_json_value
from holodeck.lib.user_code.code_root import CodeFolders, code_roots, folders_of, module_location
from holodeck.lib.user_code.registry import module_file
from holodeck.models.backend import ProcessBackendConfig
from holodeck.models.config import ExecutionConfig

if TYPE_CHECKING:
    from holodeck.lib.backends.tapped_backend import ProcessTaps

logger = logging.getLogger(__name__)

LOCATION = "backend"
CLOSE_S = 5.0
"""How long an agent may take to close a conversation."""
_SOURCES = Path(__file__).parents[4]
_WORKER = (
    "import sys; sys.path.insert(0, sys.argv.pop(1)); import holodeck; del sys.path[0]; "
    + main_of("holodeck.lib.backends.python.worker")
)
"""Imports this holodeck in the user's interpreter, which need not have it installed."""
_NO_HISTORY = (
    "the agent cannot be given earlier messages: its process answers 'initialize' without"
    " 'history: true'"
)
_NO_CONTEXT = "the agent takes no context: its process answers 'initialize' without 'context: true'"


class ProcessBackend(InContext, AgentBackend):
    """Reaches an agent in processes of its own, which are started once and serve all cases.

    Calls are not retried: only the user knows whether that would do harm.

    Args:
        config: The command, or the interpreter and the target, and the number of processes.
        base_dir: Where relative paths start, and further folders with modules of the agent.
        execution: Time limits; their defaults if not given.
        taps: See what each process sends to models; None without taps.
    """

    def __init__(
        self,
        config: ProcessBackendConfig,
        base_dir: CodeFolders,
        execution: ExecutionConfig | None = None,
        taps: "ProcessTaps | None" = None,
    ) -> None:
        limits = call_limits(execution)
        self.timeout = limits.timeout
        self.is_python = config.target is not None
        launch = Launch(
            command=command_of(config, base_dir),
            cwd=_working_folder(config, folders_of(base_dir)[0]),
            env=_variables(config, folders_of(base_dir)),
        )
        self.pool = Pool(launch, config.workers, config.start_timeout, limits.answer_bytes, taps)
        self._taps = taps
        self._names = count(1)

    @property
    def abilities(self) -> Abilities:
        """What the agent can do; known once initialized."""
        return self.pool.abilities

    async def initialize(self) -> None:
        """Start the processes. Raises BackendInitError."""
        await self.pool.start()

    async def create_session(self, context: Sequence[Message] | None = None) -> "ProcessSession":
        """Return a conversation, which a process begins with the first message."""
        return ProcessSession(self, str(next(self._names)), context or ())

    @property
    def capabilities(self) -> Capabilities:
        """What the process says; known once initialized."""
        if not self.pool.is_started:
            return Capabilities(context_problem=None)
        no_history, no_context = _NO_HISTORY, _NO_CONTEXT
        if self.is_python:
            no_history, no_context = NO_CONTEXT_PARAMETER, NO_CASE_CONTEXT_PARAMETER
        return Capabilities(
            self.pool.concurrency,
            history_problems=without_history(None if self.abilities.history else no_history),
            context_problem=None if self.abilities.context else no_context,
            answers_approvals=self.abilities.approvals,
            stub_problem=NO_STUBS if self._taps is None else None,
            seal_problem=NO_STUBS if self._taps is None else NO_SEAL_BEHIND_TAP,
            model_problem=NO_MODEL_STAND_INS if self._taps is None else None,
        )

    def describe(self) -> AgentDescription:
        """Return what the agent is. Known once initialized."""
        can, tools = self.capabilities, self.abilities.tools
        problem = can.history_problems.get("create_session")
        return AgentDescription("agent in a process", tools, problem, can.answers_approvals)

    async def teardown(self) -> None:
        """End the processes; the next call starts new ones."""
        try:
            await self.pool.close()
        finally:
            if self._taps is not None:
                await self._taps.close()


class ProcessSession(AgentSession):
    """One conversation, which belongs to one process from its first message on."""

    def __init__(self, backend: ProcessBackend, name: str, context: Sequence[Message]) -> None:
        self._backend = backend
        self._name = name
        self._messages: list[Message] = list(context)
        """Messages that the process does not have yet."""
        self._worker: Worker | None = None
        self._opening: dict[str, Any] | None = None
        """What opens the conversation with its first message; None once it is open."""
        self._is_interrupted = False
        """Whether a turn was cancelled, which may still be under way in the process."""
        self._is_closed = False

    async def send(self, message: str) -> ExecutionResult:
        return await self._send(message, None)

    def send_streaming(self, message: str) -> AsyncIterator[str]:
        """Yield the agent's response in pieces; in one, unless its process streams."""

        async def send(on_piece: Callable[[str], None]) -> str:
            return (await self._send(message, on_piece)).response

        return pieces_of(send)

    def remember(self, messages: Sequence[Message]) -> None:
        """Add earlier messages. Raises ConfigError if the agent takes none."""
        problem = self._backend.capabilities.history_problems.get("create_session")
        if problem is not None:
            raise ConfigError(LOCATION, problem)
        self._messages += messages

    async def close(self) -> None:
        """End the conversation in its process; may be called twice. An error is only logged."""
        worker, self._worker, self._is_closed = self._worker, None, True
        if worker is None:
            return
        worker.conversations -= 1
        params = {"conversation": self._name}
        is_broken = worker.failure is not None or self._is_interrupted
        if is_broken or not worker.abilities.closes:
            worker.post("close", params)
            return
        try:
            async with asyncio.timeout(CLOSE_S):
                await worker.ask("close", params)
        except (BackendError, TimeoutError) as error:
            logger.warning("closing a conversation failed: %s", describe(error))

    async def _send(self, message: str, on_piece: Callable[[str], None] | None) -> ExecutionResult:
        if self._is_closed:
            raise BackendSessionError("the conversation is closed")
        started = time.perf_counter()
        async with self._backend.pool.slot(self._worker) as worker:
            waited_ms = round((time.perf_counter() - started) * 1000)
            turn = partial(self._take_turn, worker, message, on_piece)
            send = partial(call_with_limit, turn, self._backend.timeout)
            result = await (send() if worker.tap is None else worker.tap.observe(send))
        result.waited_ms = waited_ms
        return result

    async def _take_turn(
        self, worker: Worker, message: str, on_piece: Callable[[str], None] | None
    ) -> ExecutionResult:
        if self._worker is None:
            await self._open(worker)
        params: dict[str, Any] = {"conversation": self._name, "message": message}
        if isinstance(message, ApprovalDecisions):
            params["approvals"] = [*message.decisions]
        if self._opening is not None:
            params["open"] = self._opening
        if self._messages:
            params["messages"], self._messages = self._messages, []
        if on_piece is not None and worker.abilities.streaming:
            params["stream"] = True
        trace = propagation_headers() if worker.abilities.trace else None
        if trace:
            params["trace"] = trace
        try:
            result = await worker.ask("send", params, on_piece)
        except asyncio.CancelledError:
            self._is_interrupted = True
            raise
        except BackendError as error:
            if isinstance(error.seen, ExecutionResult):
                _complete(error.seen, worker)
            raise
        self._opening = None
        answer = parse_result(result)
        _complete(answer, worker)
        return answer

    async def _open(self, worker: Worker) -> None:
        params: dict[str, Any] = {"messages": self._messages}
        if self._backend.case_context is not None:
            params["context"] = to_json_value(self._backend.case_context)
        if worker.abilities.opens_with_send:
            self._opening = params
        else:
            await worker.ask("open", {"conversation": self._name, **params})
        self._worker, self._messages = worker, []
        worker.conversations += 1


def _complete(result: ExecutionResult, worker: Worker) -> None:
    complete_result(result, worker.abilities.tools, worker.abilities.tool_errors)


def _working_folder(config: ProcessBackendConfig, base_dir: Path) -> Path:
    return base_dir if config.cwd is None else base_dir / config.cwd


def command_of(config: ProcessBackendConfig, base_dir: CodeFolders) -> list[str]:
    """Return the command that starts a process."""
    folders = folders_of(base_dir)
    cwd = _working_folder(config, folders[0])
    if config.command is not None:
        program, *arguments = config.command
        return [program_path(program, cwd), *arguments]
    python = sys.executable if config.python is None else program_path(config.python, folders[0])
    scope = config.scope or "case"
    tools = "tools_run_no_agents" if config.tools_run_no_agents else "tools_may_run_agents"
    roots, target = _code_of(str(config.target), (*folders, cwd))
    return [python, "-c", _WORKER, str(_SOURCES), roots, target, scope, tools]


def _code_of(target: str, folders: tuple[Path, ...]) -> tuple[str, str]:
    """Return where a worker looks for modules, and the target as it is named there."""
    roots, file = code_roots(folders), module_file(target, folders)
    folder = next((root for root in roots if file is not None and file.is_relative_to(root)), None)
    if file is not None and folder is not None:
        root, name = module_location(file, folder)
        roots, target = (root, *roots), f"{name}:{target.partition(':')[2]}"
    return os.pathsep.join(str(root) for root in dict.fromkeys(roots)), target


def _variables(config: ProcessBackendConfig, folders: tuple[Path, ...]) -> dict[str, str]:
    """Return the variables of a process, which inherits all of holodeck's."""
    own = {name: value.get_secret_value() for name, value in config.env.items()}
    variables = {**os.environ, **own}  # noqa: TID251 - it inherits them
    if config.command is not None and len(folders) > 1:
        path = [*map(str, folders[1:]), variables.get("PYTHONPATH", "")]
        variables["PYTHONPATH"] = os.pathsep.join(filter(None, path))
    return variables
