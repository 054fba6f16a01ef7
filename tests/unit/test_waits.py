"""No wait in the code goes on for ever, and no duration comes from a clock that may go back."""

import ast
from collections.abc import Iterator
from pathlib import Path

SRC = Path(__file__).resolve().parents[2] / "src" / "holodeck"
NEED_TIMEOUT = {
    "run", "check_output", "urlopen", "create_connection", "connect", "communicate",
    "Client", "AsyncClient",
}  # fmt: skip
"""Functions of libraries that wait for as long as it takes without `timeout`."""
MODULES = {"subprocess", "sqlite3", "httpx", "httpx2", "request", "socket"}
"""Whose functions these are; `communicate` is a method of any process."""
WAIT = {"wait", "join", "acquire"}
"""Methods that wait for as long as it takes without arguments."""
LIMITS = {"timeout", "time_limit", "limit", "wait_for"}
"""What limits the block or the call around a wait."""
WALL_CLOCKS = {"time.time", "time.time_ns", "datetime.now", "datetime.utcnow", "time"}

KILLED = "the process has ended, or was killed"
CANCELLED = "the tasks were cancelled, and each has its limit"
STOPPED = "waits to be stopped, by a message, a signal or the end of its parent"
UNLIMITED = {
    "cli/watch.py child.wait": "a run, while a person watches",
    "lib/backends/a2a_backend.py httpx.AsyncClient": "llm_timeout limits each call",
    "lib/backends/http_service.py httpx2.AsyncClient": "llm_timeout limits each call",
    "lib/backends/python/host.py self._ended.wait": STOPPED,
    "lib/backends/python/worker.py ended.wait": STOPPED,
    "lib/processes/threads.py background.thread.join": "the run of a notebook",
    "lib/evaluators/deepeval/adapter.py asyncio.wait": CANCELLED,
    "lib/evaluators/grader_process.py is_over.wait": "its parent, whose end closes the pipe",
    "lib/files/worker.py subprocess.run": "file_timeout ends the process that calls it",
    "lib/local_models/store.py pip.wait": KILLED,
    "lib/mcp_client/connection.py self._closing.wait": STOPPED,
    "lib/mcp_client/transports.py asyncio.wait": CANCELLED,
    "lib/processes/process_guard.py process.wait": KILLED,
    "lib/records/recorder.py self._dirty.wait": STOPPED,
    "lib/ui/conversation.py ready.wait": "a person who types a line",
    "lib/records/recorder.py self._syncer.join": "the last write to the disk",
    "lib/tap/server.py self._stop.wait": STOPPED,
    "lib/tap/server.py self._can_write.wait": "the call of the agent, whose end closes the tap",
    "lib/test_runner/interruption.py asyncio.wait": "the run itself, which has its own limits",
    "lib/test_runner/interruption.py no_signal.acquire": STOPPED,
    "lib/test_runner/workers/ray_workers.py self._process.wait": STOPPED,
    "lib/test_runner/worker.py self._closed.wait": STOPPED,
    "lib/test_runner/workers/pool.py asyncio.wait": KILLED,
    "lib/test_runner/workers/pool.py connection.wait": "its worker, which the run ends",
    "lib/ui/live.py self._thread.join": "it was told to stop, and draws at most once more",
}
"""File and call → why that wait needs no limit of its own."""
TIMESTAMPS = {
    "lib/recordings/store.py": "the day of a recording, and its age in days",
    "config/prices.py": "the day whose list prices count",
    "cli/run_agents.py": "when a report was made",
    "cli/commands/runs.py": "the age of recorded runs",
    "cli/commands/view.py": "the age of folders of earlier pages",
    "lib/conversation/events.py": "when an event happened",
    "lib/files/documents.py": "the type of cells with a time of day",
    "lib/llm/endpoint.py": "when a token expires, which its server says as a date",
    "lib/llm/limiter.py": "dates in headers of rate limits",
    "lib/llm/retry.py": "dates in Retry-After",
    "lib/records/recorder.py": "when a run began",
    "lib/test_runner/executor.py": "when a report was made",
    "lib/test_runner/case_state.py": "when a case was graded",
    "lib/judge_check/judge_check.py": "when a judge was checked",
    "lib/test_runner/rescore.py": "when a report was made",
    "suite/results.py": "when a report was made",
}
"""File → what it needs the time of day for, which is no duration."""


def sources() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SRC.rglob("*.py")):
        yield path.relative_to(SRC).as_posix(), ast.parse(path.read_text(encoding="utf-8"))


def is_limited(call: ast.Call, around: list[ast.AST]) -> bool:
    """Whether the call, or a block or call around it, has a limit."""
    given = [one for one in call.keywords if one.arg in {"timeout", "blocking"}]
    if given:
        return not (isinstance(given[0].value, ast.Constant) and given[0].value.value is None)
    for outer in around:
        if isinstance(outer, ast.AsyncWith | ast.With):
            calls = [one.context_expr for one in outer.items]
        else:
            calls = [outer]
        names = {name_of(one.func) for one in calls if isinstance(one, ast.Call)}
        if any(name.rpartition(".")[2] in LIMITS for name in names):
            return True
    return False


def name_of(function: ast.AST) -> str:
    if isinstance(function, ast.Attribute):
        return f"{name_of(function.value)}.{function.attr}"
    return function.id if isinstance(function, ast.Name) else ""


def waits_for_ever(call: ast.Call) -> bool:
    """Whether the call waits for as long as it takes, judged by its name and arguments."""
    owner, _, method = name_of(call.func).rpartition(".")
    if method == "communicate":
        return True
    if method in NEED_TIMEOUT:
        return owner.rpartition(".")[2] in MODULES
    if (owner, method) == ("asyncio", "wait"):
        return True
    return method in WAIT and bool(owner) and not call.args


def calls_in(node: ast.AST, around: list[ast.AST]) -> Iterator[tuple[ast.Call, list[ast.AST]]]:
    """Every call with what is around it in its function."""
    for child in ast.iter_child_nodes(node):
        is_function = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
        inner = [] if is_function else [*around, child]
        if isinstance(child, ast.Call):
            yield child, around
        yield from calls_in(child, inner)


def test_every_wait_in_the_code_has_a_limit():
    found = {
        f"{file} {name_of(call.func)}"
        for file, module in sources()
        for call, around in calls_in(module, [])
        if waits_for_ever(call) and not is_limited(call, around)
    }

    assert found - UNLIMITED.keys() == set()
    assert UNLIMITED.keys() - found == set()


def test_durations_come_from_a_clock_that_never_goes_back():
    reading = {
        file
        for file, module in sources()
        for call, _ in calls_in(module, [])
        if name_of(call.func) in WALL_CLOCKS
    }

    assert reading - TIMESTAMPS.keys() == set()
    assert TIMESTAMPS.keys() - reading == set()
