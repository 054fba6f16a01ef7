"""The process in which graders run that could crash the interpreter (see `grader_process`)."""

import asyncio
import faulthandler
import os
import pickle
import sys
import threading
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from holodeck.lib.evaluators.grader_process import GraderCall
from holodeck.lib.evaluators.observation_metrics import CustomEvaluator
from holodeck.lib.exceptions import describe, raised_error
from holodeck.lib.process_exit import forbid_process_exit
from holodeck.lib.registry import load_callable
from holodeck.lib.user_code import importing_grader


def main() -> None:
    """Call graders until standard input ends."""
    requests, answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)  # graders may print
    with Path(sys.argv[1]).open("w", encoding="utf-8") as dump:
        faulthandler.enable(dump)
        forbid_process_exit()
        asyncio.run(_serve(requests, answers))
        faulthandler.disable()


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
                loop.call_soon_threadsafe(begin, *pickle.load(requests))  # noqa: S301 - from holodeck
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(is_over.set)

    threading.Thread(target=read, name="holodeck-requests", daemon=True).start()
    await is_over.wait()


async def _answer(number: int, request: bytes | None, answers: BinaryIO) -> None:
    """Write the answer to a request; it is one piece, as only the event loop writes."""
    answer = (number, *await _evaluate(request))
    try:
        data = pickle.dumps(answer)
    except Exception as error:  # noqa: BLE001 - the result may hold an object of the user's
        data = pickle.dumps(
            (number, "error", f"its result cannot be read: {describe(error)}", None)
        )
    with suppress(OSError):
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
        inputs = {"response": observation.response, "observation": observation}
        return "result", await evaluator.evaluate(**inputs)
    except Exception as error:  # noqa: BLE001 - user code
        return "error", describe(error), raised_error(error)


@cache
def _evaluator(call: GraderCall) -> CustomEvaluator:
    """Return the evaluator of a grader, whose time limit is the caller's."""
    with importing_grader():
        target = load_callable(call.target, call.base_dir)
    return CustomEvaluator(target, call.threshold, timeout=None, retry_config=call.retry_config)
