"""An agent that is a context manager is entered and exited per case, and a generator is an agent,
in this process and in one of its own.
"""

import pytest

from holodeck import arun
from holodeck.errors import HoloDeckError
from holodeck.lib.backends.process.backend import ProcessBackend
from holodeck.lib.backends.python.backend import CallableBackend
from holodeck.models.backend import ProcessBackendConfig

SUPPORT = '''
import asyncio
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

LOG = Path(__file__).with_name("log.txt")


def note(text):
    with LOG.open("a") as file:
        file.write(f"{text} {id(current_task())}\\n")


def current_task():
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None


class Desk:
    async def run(self, message):
        note("run")
        return f"OK: {message}"

    async def aclose(self):
        note("aclose")


class AsyncManager(Desk):
    async def __aenter__(self):
        note("enter")
        return self

    async def __aexit__(self, *error):
        note("exit")


class ReturnsNothing(AsyncManager):
    async def __aenter__(self):
        note("enter")


class Manager(Desk):
    def __enter__(self):
        note("enter")
        return self

    def __exit__(self, *error):
        note("exit")


class Opens:
    """Is no agent itself, but opens one."""

    async def __aenter__(self):
        note("enter")
        return Desk()

    async def __aexit__(self, *error):
        note("exit")


@asynccontextmanager
async def open_async():
    note("enter")
    yield Desk()
    note("exit")


@contextmanager
def open_sync():
    note("enter")
    yield Desk()
    note("exit")


async def yields_async():
    note("enter")
    yield Desk()
    note("exit")


def yields_sync():
    note("enter")
    yield Desk()
    note("exit")


async def makes_manager():
    return AsyncManager()


shared = AsyncManager()
opened = open_async()


@asynccontextmanager
async def fails_to_exit():
    yield Desk()
    raise OSError("no network")


@asynccontextmanager
async def fails_to_enter():
    raise OSError("no database")
    yield


@asynccontextmanager
async def yields_nothing():
    yield


async def streams(message):
    yield "OK: "
    await asyncio.sleep(0)
    yield message


def streams_from_a_thread(message):
    yield from ("OK: ", message)


class Streams:
    async def run(self, message, context):
        for text in ("OK: ", f"{message} after {len(context)}"):
            yield text


async def streams_data(message):
    try:
        yield {"text": message}
    finally:
        note("closed")


def main():
    Desk()
'''
PER_CASE = (
    *("AsyncManager", "ReturnsNothing", "Manager", "Opens", "makes_manager"),
    *("open_async", "open_sync", "yields_async", "yields_sync"),
)


@pytest.fixture(params=["here", "process"])
def backend_of(request, tmp_path):
    """Return a function that returns the backend of a name in `support.py`."""
    (tmp_path / "support.py").write_text(SUPPORT)

    def make(name):
        if request.param == "here":
            return CallableBackend(f"support:{name}", tmp_path)
        config = ProcessBackendConfig(type="process", target=f"support:{name}")
        return ProcessBackend(config, tmp_path)

    return make


async def log_of(backend, folder, cases=2):
    """Run cases of one turn each, and return what the agent noted, and in which tasks."""
    for _ in range(cases):
        session = await backend.create_session()
        assert (await session.send("hi")).response == "OK: hi"
        await session.close()
    await backend.teardown()
    lines = (folder / "log.txt").read_text().splitlines()
    return [tuple(line.split()) for line in lines]


@pytest.mark.parametrize("name", PER_CASE)
async def test_each_case_enters_and_exits_an_agent_of_its_own(backend_of, tmp_path, name):
    log = await log_of(backend_of(name), tmp_path)

    assert [event for event, _ in log] == ["enter", "run", "exit"] * 2


@pytest.mark.parametrize("name", ["AsyncManager", "open_async"])
async def test_an_agent_exits_in_the_task_where_it_entered(backend_of, tmp_path, name):
    (_, entered), _, (_, left) = await log_of(backend_of(name), tmp_path, cases=1)

    assert entered == left


@pytest.mark.parametrize("name", ["shared", "opened"])
async def test_an_object_that_all_cases_share_is_entered_once(backend_of, tmp_path, name):
    log = await log_of(backend_of(name), tmp_path)

    assert [event for event, _ in log] == ["enter", "run", "run", "exit"]


async def test_an_agent_that_fails_to_exit_keeps_its_answer(backend_of):
    backend = backend_of("fails_to_exit")

    assert (await backend.invoke_once("hi")).response == "OK: hi"
    await backend.teardown()


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("fails_to_enter", "no database"),
        ("yields_nothing", "the context manager yields nothing; let it yield the agent"),
        ("main", "main() returned nothing; let main return the agent"),
    ],
)
async def test_an_agent_that_cannot_be_entered_says_why(backend_of, name, message):
    backend = backend_of(name)

    with pytest.raises(HoloDeckError) as raised:
        await backend.initialize()

    assert message in str(raised.value)
    await backend.teardown()


@pytest.mark.parametrize("name", ["streams", "streams_from_a_thread"])
async def test_the_pieces_that_an_agent_yields_are_one_answer(backend_of, name):
    backend = backend_of(name)

    assert (await backend.invoke_once("hi")).response == "OK: hi"
    await backend.teardown()


async def test_a_method_may_yield_the_pieces_of_its_answer(backend_of):
    backend = backend_of("Streams")
    session = await backend.create_session()

    answers = [(await session.send("hi")).response for _ in range(2)]

    assert answers == ["OK: hi after 0", "OK: hi after 2"]
    await session.close()
    await backend.teardown()


async def test_pieces_that_are_no_text_are_an_error_and_end_the_answer(backend_of, tmp_path):
    backend = backend_of("streams_data")

    with pytest.raises(HoloDeckError, match="the agent yielded a dict; yield the pieces"):
        await backend.invoke_once("hi")

    assert (tmp_path / "log.txt").read_text().startswith("closed")
    await backend.teardown()


async def test_an_object_that_the_caller_passes_is_the_callers_to_enter():
    class Agent:
        is_entered = False

        async def __aenter__(self):
            self.is_entered = True

        async def __aexit__(self, *error):
            pass

        async def run(self, message):
            return str(self.is_entered)

    report = await arun(Agent(), ["hi"])

    assert report.results[0].agent_response == "False"
