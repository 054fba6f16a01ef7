"""An agent of a framework in an environment without holodeck reports what it reports in ours."""

import site
import venv
from dataclasses import replace
from pathlib import Path

import pytest

from fakes import FakeOpenAI
from holodeck.errors import BackendError
from holodeck.lib.backends.process.backend import ProcessBackend
from holodeck.lib.backends.python.backend import CallableBackend
from holodeck.lib.support.approvals import ApprovalDecisions
from holodeck.models.backend import ProcessBackendConfig
from support.frameworks import all_rows, approval_rows, script

ROWS = {row.__module__.rpartition(".")[2]: row for row in reversed(all_rows())}
"""The first row of each framework."""
CODE = """
import sys
from importlib.machinery import PathFinder
from types import SimpleNamespace

assert PathFinder.find_spec("holodeck", sys.path) is None, "holodeck is installed"
sys.path.append({tests!r})
from {module} import {row}

agent = {row}(SimpleNamespace(url={url!r}, root={root!r})).agent
"""


@pytest.fixture
def python(tmp_path):
    """A Python with everything that is installed here, except holodeck."""
    venv.create(tmp_path / "env", symlinks=True)
    [packages] = (tmp_path / "env" / "lib").glob("python*/site-packages")
    # A path from a .pth file is no place for further ones, such as that of a checkout.
    (packages / "shared.pth").write_text("\n".join(site.getsitepackages()))
    return "env/bin/python"


async def reports(backend):
    """What the backend reports of a turn with a tool call and one with an error of the tool."""
    await backend.initialize()
    session = await backend.create_session()
    results = []
    for order in ("7", "lost"):
        try:
            results.append(replace(await session.send(f"Where is order {order}?"), waited_ms=0))
        except BackendError as error:
            results += [str(error), error.seen]
    await session.close()
    await backend.teardown()
    return results


@pytest.mark.parametrize("row", ROWS.values(), ids=ROWS)
async def test_an_agent_reports_the_same_from_an_environment_without_holodeck(
    row, python, tmp_path
):
    with FakeOpenAI(script) as server:
        subject = row(server)
        here = await reports(CallableBackend(subject.agent))
        if subject.close is not None:
            await subject.close()
    with FakeOpenAI(script) as server:
        tests = str(Path(__file__).parents[1])
        names = {"module": row.__module__, "row": row.__name__}
        (tmp_path / "bot.py").write_text(
            CODE.format(tests=tests, url=server.url, root=server.root, **names)
        )
        config = ProcessBackendConfig(type="process", target="bot:agent", python=python)
        elsewhere = await reports(ProcessBackend(config, tmp_path))

    assert here[0].tool_results[0]["result"] == "order 7 is shipped"
    assert elsewhere == here


@pytest.mark.parametrize("row", approval_rows(), ids=lambda row: row.__name__)
async def test_approvals_are_answered_in_an_environment_without_holodeck(row, python, tmp_path):
    tests = str(Path(__file__).parents[1])
    with FakeOpenAI(script) as server:
        names = {"module": row.__module__, "row": row.__name__}
        (tmp_path / "bot.py").write_text(
            CODE.format(tests=tests, url=server.url, root=server.root, **names)
        )
        config = ProcessBackendConfig(type="process", target="bot:agent", python=python)
        backend = ProcessBackend(config, tmp_path)
        await backend.initialize()
        assert backend.capabilities.answers_approvals
        session = await backend.create_session()

        first = await session.send("Where is order 7?")
        turn = first.followed_by(await session.send(ApprovalDecisions([True])))
        await session.close()
        await backend.teardown()

    assert [call["arguments"] for call in first.pending_approvals] == [{"order_id": "7"}]
    assert turn.response == "OK: order 7 is shipped"
    assert [result["result"] for result in turn.tool_results] == ["order 7 is shipped"]
