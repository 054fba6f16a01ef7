"""What holodeck and the processes of agents write to each other is what the JSON Schema says."""

import json
import re
import shutil
import sys
from pathlib import Path

import jsonschema
import pytest

from holodeck.errors import BackendSessionError
from holodeck.lib.backends.process.backend import ProcessBackend, command_of
from holodeck.lib.user_code.raised import raised_error
from holodeck.models.backend import ProcessBackendConfig
from support.cli import run_cli

ROOT = Path(__file__).parents[2]
REFERENCE = ROOT / "docs" / "reference"
SCHEMA = json.loads((REFERENCE / "process-protocol.schema.json").read_text())
NODE = ROOT / "examples" / "node"
TEE = """
import subprocess, sys, threading

process = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)

def copy(source, target, name):
    with open(name, "wb") as file:
        for line in source:
            file.write(line)
            file.flush()
            target.write(line)
            target.flush()
    target.close()

thread = threading.Thread(target=copy, args=(sys.stdin.buffer, process.stdin, "to_agent"))
thread.start()
copy(process.stdout, sys.stdout.buffer, "from_agent")
"""
"""A program that runs another one and notes what goes in and comes out."""
AGENT = """
async def agent(message, context, case_context=None):
    if message == "fail":
        raise ValueError("as told")
    calls = [{"name": "find", "arguments": {"id": 7}, "result": "shipped"}]
    usage = {"prompt_tokens": 3, "completion_tokens": 4}
    return {"response": "OK", "tool_calls": calls, "usage": usage, "agents": ["orders"]}
"""
needs_node = pytest.mark.skipif(
    shutil.which("node") is None, reason="Node.js is not installed: apt-get install nodejs"
)


@pytest.fixture
async def reach(tmp_path):
    """Starts a program whose lines are noted."""
    (tmp_path / "tee.py").write_text(TEE)
    opened = []

    async def start(*command):
        command = [sys.executable, "tee.py", *command]
        backend = ProcessBackend(ProcessBackendConfig(type="process", command=command), tmp_path)
        opened.append(backend)
        await backend.initialize()
        return backend

    yield start
    for backend in opened:
        await backend.teardown()


async def play(backend, *messages):
    """Send messages in one conversation with a history; the errors."""
    session = await backend.create_session([{"role": "user", "content": "earlier"}])
    errors = []
    for message in messages:
        session.remember([{"role": "assistant", "content": "by the way"}])
        try:
            await session.send(message)
        except BackendSessionError as error:
            errors.append(error)
    await session.close()
    return errors


def check_lines(folder, *, least):
    for direction in ("to_agent", "from_agent"):
        lines = (folder / direction).read_text().splitlines()
        validator = jsonschema.Draft202012Validator({**SCHEMA["$defs"][direction], **DEFINITIONS})
        assert len(lines) >= least
        for line in lines:
            validator.validate(json.loads(line))


DEFINITIONS = {"$schema": SCHEMA["$schema"], "$defs": SCHEMA["$defs"]}


def test_the_schema_is_one():
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


async def test_a_python_agent_and_holodeck_write_what_the_schema_says(reach, tmp_path):
    (tmp_path / "bot.py").write_text(AGENT)
    config = ProcessBackendConfig(type="process", target="bot:agent")
    backend = await reach(*command_of(config, tmp_path))

    errors = await play(backend, "hi", "fail")
    await backend.in_context({"user": "kim"}).invoke_once("hi")

    assert [str(one) for one in errors] == ["ValueError: as told"]
    check_lines(tmp_path, least=5)


@needs_node
async def test_the_agent_in_node_writes_what_the_schema_says(reach, tmp_path):
    backend = await reach("node", str(NODE / "agent.js"))

    [error] = await play(backend, "Where is order 7?", "And order 9?")

    assert str(error) == "RangeError: there is no order 9"
    place = raised_error(error)
    assert place.file.endswith("agent.js")
    assert "throw new RangeError" in (NODE / "agent.js").read_text().splitlines()[place.line - 1]
    check_lines(tmp_path, least=5)


@needs_node
def test_the_example_in_node_passes_with_the_golden_reports(tmp_path, golden):
    folder = shutil.copytree(NODE, tmp_path / "node")

    ran = run_cli("test", "-o", "report.json", "-o", "report.md", cwd=folder)

    assert (ran.code, "2/2 passed" in ran.stdout) == (0, True), ran.stdout + ran.stderr
    golden("node", folder, "report.json", "report.md")


def test_the_messages_in_the_documentation_fit_the_schema():
    page = (REFERENCE / "process-protocol.md").read_text()

    lines = re.findall(r"^[→←] (\{.*\})$", page, re.MULTILINE)

    assert len(lines) > 8
    for line in lines:
        jsonschema.Draft202012Validator(SCHEMA).validate(json.loads(line))
