"""The process in which graders run (see `grader_process`)."""

import asyncio
import faulthandler
import os
import pickle
import sys
from contextlib import suppress
from functools import cache
from marshal import dumps as dump_plain
from pathlib import Path
from typing import Any

from holodeck.lib.evaluators.grader_process import OWN_REASON, GraderCall
from holodeck.lib.evaluators.observation_metrics import CustomEvaluator
from holodeck.lib.processes.background_loop import RunLoop
from holodeck.lib.processes.channel import FrameReader, Head, Parent
from holodeck.lib.processes.process_exit import exit_now, forbid_process_exit
from holodeck.lib.support.text import describe
from holodeck.lib.user_code.code_root import importing_grader
from holodeck.lib.user_code.raised import raised_error
from holodeck.lib.user_code.registry import load_callable


def main() -> None:
    """Call graders until standard input ends."""
    parent = Parent(FrameReader())
    _be_killed_first()
    with os.fdopen(int(sys.argv[1]), "w", encoding="utf-8") as dump:
        faulthandler.enable(dump)
        forbid_process_exit()
        try:
            with asyncio.Runner(loop_factory=RunLoop) as runner:
                runner.run(_serve(parent))
        except BaseException as error:  # noqa: BLE001 - a grader broke the event loop or a library
            faulthandler.disable()
            dump.write(f"{OWN_REASON}it broke its event loop ({type(error).__name__})")
            dump.close()
            exit_now(1)
        faulthandler.disable()


def _be_killed_first() -> None:
    """Let Linux kill this process, not the run, when memory is exhausted."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


async def _serve(parent: Parent[tuple[Head, bytes]]) -> None:
    loop, is_over = asyncio.get_running_loop(), asyncio.Event()
    running = set[asyncio.Task[None]]()

    def begin(requests: list[tuple[Head, bytes]]) -> None:
        for (number,), request in requests:
            task = loop.create_task(_answer(number, request, parent))
            running.add(task)
            task.add_done_callback(running.discard)

    def end() -> None:
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(is_over.set)

    parent.listen(lambda requests: loop.call_soon_threadsafe(begin, requests), end)
    await is_over.wait()


async def _answer(number: int, request: bytes, parent: Parent[tuple[Head, bytes]]) -> None:
    answer = await _evaluate(request)
    try:
        data = dump_plain(answer)
    except ValueError:  # an object of the user's
        why = f"the grader's result holds more than text and numbers: {answer!r:.200}"
        data = dump_plain(("error", why, None))
    with suppress(OSError):  # a grader has closed the descriptor
        parent.send([number], data)


async def _evaluate(request: bytes) -> tuple[Any, ...]:
    if not request:
        return "result", None
    try:
        call, observation = pickle.loads(request)  # noqa: S301 - from holodeck
    except Exception as error:  # noqa: BLE001 - a class of the user's may raise anything
        return "unreadable", describe(error)
    try:
        evaluator = _evaluator(call)
        if observation is None:
            return "result", None
        inputs = {"response": observation.response, "observation": observation}
        return "result", await evaluator.evaluate(**inputs)
    except BaseException as error:  # noqa: BLE001 - user code; no signal ends this process
        message, raised = describe(error), raised_error(error)
        if not isinstance(error, Exception):
            message = f"{call.target} raised {message}"
        return "error", message, None if raised is None else raised.model_dump()


@cache
def _evaluator(call: GraderCall) -> CustomEvaluator:
    """Return the evaluator of a grader, whose time limit is the caller's."""
    with importing_grader():
        target = load_callable(call.target, call.base_dir)
    return CustomEvaluator(target, call.threshold, timeout=None, retry_config=call.retry_config)
