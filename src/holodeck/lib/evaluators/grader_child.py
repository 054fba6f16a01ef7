"""The process in which graders run (see `grader_connection`)."""

import asyncio
import faulthandler
import os
import pickle
import sys
import threading
from contextlib import suppress
from functools import cache, partial
from marshal import dumps as dump_plain
from marshal import load as load_plain
from pathlib import Path
from typing import Any, BinaryIO

from holodeck.lib.evaluators.grader_connection import OWN_REASON, GraderCall
from holodeck.lib.evaluators.observation_metrics import CustomEvaluator
from holodeck.lib.processes.process_exit import exit_now, forbid_process_exit
from holodeck.lib.processes.run_loop import RunLoop
from holodeck.lib.support.text import describe
from holodeck.lib.user_code.code_root import importing_grader
from holodeck.lib.user_code.raised import raised_error
from holodeck.lib.user_code.registry import load_callable


def main() -> None:
    """Call graders until standard input ends."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # graders may print
    _be_killed_first()
    if hasattr(os, "register_at_fork"):  # a fork would keep the run waiting for answers
        os.register_at_fork(after_in_child=partial(os.close, answers.fileno()))
    with Path(sys.argv[1]).open("w", encoding="utf-8") as dump:
        faulthandler.enable(dump)
        forbid_process_exit()
        try:
            with asyncio.Runner(loop_factory=RunLoop) as runner:
                runner.run(_serve(requests, answers))
        except BaseException as error:  # noqa: BLE001 - a grader broke the event loop or a library
            faulthandler.disable()
            dump.write(f"{OWN_REASON}it broke its event loop ({type(error).__name__})")
            dump.close()
            exit_now(1)
        faulthandler.disable()
    requests.close()
    answers.close()


def _be_killed_first() -> None:
    """Let Linux kill this process, not the run, when memory is exhausted."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")


async def _serve(requests: BinaryIO, answers: BinaryIO) -> None:
    loop, is_over = asyncio.get_running_loop(), asyncio.Event()
    running = set[asyncio.Task[None]]()

    def begin(number: int, request: bytes | None) -> None:
        task = loop.create_task(_answer(number, request, answers))
        running.add(task)
        task.add_done_callback(running.discard)

    def read() -> None:
        with suppress(EOFError, OSError):
            while True:
                loop.call_soon_threadsafe(begin, *load_plain(requests))  # noqa: S302 - ours
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(is_over.set)

    threading.Thread(target=read, name="holodeck-requests", daemon=True).start()
    await is_over.wait()


async def _answer(number: int, request: bytes | None, answers: BinaryIO) -> None:
    """Write the answer to a request; it is one piece, as only the event loop writes."""
    answer = await _evaluate(request)
    try:
        data = dump_plain((number, answer))
    except ValueError:  # an object of the user's
        why = f"the grader's result holds more than text and numbers: {answer!r:.200}"
        data = dump_plain((number, ("error", why, None)))
    with suppress(OSError, ValueError):  # nobody waits for it any more
        answers.write(data)
        answers.flush()


async def _evaluate(request: bytes | None) -> tuple[Any, ...]:
    if request is None:
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
