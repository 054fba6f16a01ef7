"""Runs tests in forks of a process that has imported what is slow to import, but not holodeck.

Started with the sandbox's Python. Reads one job a line, `{"tests": […], "seconds": …}`, and answers
with one line: `{"code": …, "rows": [[test, outcome, seconds], …], "said": …}`. The job's key `all`
goes on behind a test that fails, `marks` is the file in which the name of the test under way is
kept, and `collect` only lists tests.
"""

import faulthandler
import importlib
import json
import os
import signal
import sys
import tempfile
import time
import traceback
from contextlib import suppress
from pathlib import Path
from typing import Any, TextIO

WARM = (
    "asyncio", "click", "httpx2", "hypothesis", "jsonschema", "opentelemetry.sdk.trace",
    "platformdirs", "pydantic", "pytest", "pytest_asyncio.plugin", "regex", "referencing",
    "rich.console", "xdist.plugin", "yaml",
)  # fmt: skip
_SLOWEST_TEST_S = 40.0


class Watch:
    """Notes how each test ended, ends a test that hangs, and ends the run when its time is over."""

    def __init__(self, out: TextIO, seconds: float, marks: str | None) -> None:
        self._out = out
        self._ends = time.monotonic() + seconds
        self._marks = None if marks is None else Path(marks)

    def pytest_collection_finish(self, session: Any) -> None:
        if session.config.option.collectonly:
            self._out.writelines(
                json.dumps([one.nodeid, "collected", 0]) + "\n" for one in session.items
            )

    def pytest_runtest_protocol(self, item: Any) -> None:
        faulthandler.dump_traceback_later(_SLOWEST_TEST_S, exit=True, file=self._out)
        if self._marks is not None:
            self._marks.write_text(item.nodeid, encoding="utf-8")
            import holodeck._marks as marks  # type: ignore[import-not-found]  # noqa: PLC0415

            marks.begin()

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome != "passed":
            row = [report.nodeid, report.outcome, report.duration]
            self._out.write(json.dumps(row) + "\n")
            self._out.flush()

    def pytest_runtest_logfinish(self) -> None:
        faulthandler.cancel_dump_traceback_later()

    def pytest_runtest_setup(self, item: Any) -> None:
        if time.monotonic() > self._ends:
            item.session.shouldstop = "no time is left"


def run(job: dict[str, Any], out: TextIO, said: TextIO) -> int:
    """The exit code of pytest; runs in the fork."""
    import pytest  # noqa: PLC0415

    os.setsid()
    os.dup2(said.fileno(), 1)
    os.dup2(said.fileno(), 2)
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    options = ["-q", "--no-header", "--tb=line", "-p", "no:cacheprovider"]
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]  # what is warm is ours to know
    options += [] if job.get("all") else ["-x"]
    options += ["--collect-only"] if job.get("collect") else []
    watch = Watch(out, job["seconds"], job.get("marks"))
    return int(pytest.main([*options, *job["tests"]], plugins=[watch]))


def answer(job: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as said:
        child = os.fork()
        if not child:
            code = 3
            try:
                code = run(job, out, said)
            except BaseException:  # noqa: BLE001 - the end of the process
                traceback.print_exc(file=said)
            finally:
                said.flush()
                os._exit(code)
        code = _wait(child, job["seconds"] + _SLOWEST_TEST_S + 30)
        out.seek(0)
        said.seek(0)
        lines = out.read().splitlines()
        rows = [json.loads(line) for line in lines if line.startswith("[")]
        is_hung = code is None or any(line.startswith("Timeout (") for line in lines)
        return {"code": "hung" if is_hung else code, "rows": rows, "said": said.read()[-2000:]}


def _wait(child: int, seconds: float) -> int | None:
    """How the child ended; None if it had to be ended. What it started ends with it."""
    ends = time.monotonic() + seconds
    while True:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended or time.monotonic() > ends:
            break
        time.sleep(0.02)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    if ended:
        return os.waitstatus_to_exitcode(status)
    os.waitpid(child, 0)
    return None


def main() -> None:
    for name in WARM:
        importlib.import_module(name)
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
