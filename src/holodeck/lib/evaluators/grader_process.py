"""Calls graders in a process beside the run, which they can neither end nor hang.

The process starts with the first grader, is reused, and is replaced once it has ended or hangs.
"""

import logging
import pickle
import sys
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from holodeck.errors import EvaluationError
from holodeck.lib.evaluators.base import BaseEvaluator, Observation, RetriedRun
from holodeck.lib.evaluators.grader_connection import Child, Ended, GraderCall, Late, NotSendable
from holodeck.lib.processes.threads import run_in_thread
from holodeck.lib.user_code.code_root import code_roots, files_of_agents, is_imported_by_others
from holodeck.lib.user_code.registry import module_file
from holodeck.lib.user_code.source_imports import imports_of

logger = logging.getLogger(__name__)


def may_run_elsewhere(target: str, base_dir: Path) -> bool:
    """Whether a grader of the agent's folder gives the same verdict in another process.

    One that shares a module with the agent or with other code of this process has to run here:
    elsewhere, it would not see what they changed. So has one whose imports cannot be known.
    """
    file = module_file(target, base_dir)
    if file is None or sys.gettrace() is not None:  # a debugger, or coverage
        return False
    imports = imports_of(file, code_roots(base_dir))
    files = files_of_agents().items()
    agents = [imports_of(path, roots) for path, roots in files if path.is_file()]
    is_known = imports.is_complete and all(agent.is_complete for agent in agents)
    is_shared = any(not imports.files.isdisjoint(agent.files) for agent in agents)
    return is_known and not is_shared and not is_imported_by_others(imports.files)


class Isolation:
    """How one grader is called in the process, if it may be."""

    def __init__(self, process: "GraderProcess", call: GraderCall) -> None:
        self._process = process
        self._call = call
        self._decided: tuple[int, bool] | None = None

    @property
    def is_possible(self) -> bool:
        """Whether the grader may run elsewhere, as far as is known by now."""
        loaded = len(files_of_agents())
        if self._decided is None or self._decided[0] != loaded:
            self._decided = loaded, may_run_elsewhere(self._call.target, self._call.base_dir)
        return self._decided[1]

    async def prepare(self) -> None:
        """Start the process and load the grader there. Raises EvaluationError."""
        await self._process.prepare(self._call)

    def new_run(self, evaluator: BaseEvaluator, here: RetriedRun) -> RetriedRun:
        """Return an evaluation in the process, or `here` if the inputs cannot be sent there."""
        return _IsolatedRun(self._process, self._call, evaluator, here)


class _IsolatedRun(RetriedRun):
    """One evaluation in the process, which repeats it there."""

    def __init__(
        self,
        process: "GraderProcess",
        call: GraderCall,
        evaluator: BaseEvaluator,
        here: RetriedRun,
    ) -> None:
        super().__init__(evaluator)
        self._process, self._call, self._here = process, call, here

    async def __call__(self, kwargs: Mapping[str, Any]) -> dict[str, Any]:
        limit_s = self._evaluator.timeout
        try:
            return await self._process.evaluate(self._call, kwargs["observation"], limit_s)
        except Late as error:
            raise self._late() from error
        except NotSendable as error:
            logger.info("%s runs in this process: %s", self._call.target, error)
            return await self._here(kwargs)


class GraderProcess:
    """The process of a run. It ends with `close()` and with the program."""

    def __init__(self) -> None:
        self._child: Child | None = None
        self._lock = threading.Lock()

    async def prepare(self, call: GraderCall) -> None:
        """Start it, unless it runs, and load a grader there. Raises EvaluationError."""
        child = self._child
        if child is None or not child.has_loaded(call):
            with suppress(Ended):  # the evaluation finds out who ended it
                await (await self._usable()).load(call)

    async def evaluate(
        self, call: GraderCall, observation: Observation, limit_s: float | None
    ) -> dict[str, Any]:
        """Return the result of a grader. Raises EvaluationError, Late and NotSendable.

        If the process ends or hangs, the graders that it called are called again, each in a process
        of its own and for `limit_s` seconds: that shows which of them ended it.
        """
        try:
            request = pickle.dumps((call, observation))
        except Exception as error:
            raise NotSendable(str(error)) from error
        child = await self._usable()
        try:
            return await child.evaluate(call, request, limit_s)
        except Ended as ended:
            if child.evaluations == 1:
                raise _crash(call, observation, ended) from None
        alone = Child()
        try:
            return await alone.evaluate(call, request, limit_s)
        except Ended as ended:
            raise _crash(call, observation, ended) from None
        finally:
            await run_in_thread(alone.close)

    async def _usable(self) -> "Child":
        """Return a process that responds; one that does not finishes the calls that it has."""
        with self._lock:
            child = self._child
        is_usable = child is not None and await child.responds()
        with self._lock:
            if self._child is None or (self._child is child and not is_usable):
                self._child = Child()
            return self._child

    async def close(self) -> None:
        """End the process; a later call starts another."""
        child, self._child = self._child, None
        if child is not None:
            await run_in_thread(child.close)


def _crash(call: GraderCall, observation: Observation, ended: Ended) -> EvaluationError:
    case = f" in case {observation.case_name!r}" if observation.case_name else ""
    return EvaluationError(f"the grader {call.target!r}{case} ended its process: {ended}")
