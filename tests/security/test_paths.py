"""Nothing outside of the agent's folder is read, and nothing that is no file."""

import os
from pathlib import Path

import pytest

from holodeck.config.checks.agent import check
from holodeck.config.loader import ConfigLoader
from holodeck.lib.support.safe_paths import allow_outside
from support.checks import assert_plain

SECRET = "top secret of the neighbour"

KEYS = {
    "instructions.file": lambda path: {"instructions": {"file": path}},
    "response_format": lambda path: {"response_format": path},
    "a tool's file": lambda path: {
        "tools": [{"type": "function", "name": "t", "file": path, "function": "f"}]
    },
    "a case's file": lambda path: {
        "test_cases": [
            {"name": "c", "input": "hi", "files": [{"path": path, "type": "text"}],
             "evaluations": [{"metric": "contains", "value": "OK"}]}
        ]
    },
}  # fmt: skip

PATHS = {
    "the folder above": "../outside.txt",
    "down and up again": "sub/../../outside.txt",
    "an absolute path": "{outside}",
    "a link out": "link.txt",
    "a linked folder": "linked/outside.txt",
    "a link to a link": "chain.txt",
    "a link to itself": "loop.txt",
    "the home": "~/outside.txt",
    "/etc/passwd": "/etc/passwd",
    "zeros without end": "/dev/zero",
    "a device through a link": "zero.txt",
    "standard input": "/dev/stdin",
    "the environment": "/proc/self/environ",
    "a pipe": "fifo",
    "a folder": "sub",
    "an endless name": "x" * 5000,
    "a socket": "socket",
}


@pytest.fixture
def trap(agent_dir):
    """The agent's folder with every kind of way out in it."""
    import socket

    folder, outside = agent_dir.path, agent_dir.path.parent / "outside.txt"
    outside.write_text(SECRET)
    (folder / "sub").mkdir()
    (folder / "link.txt").symlink_to(outside)
    (folder / "linked").symlink_to(folder.parent)
    (folder / "chain.txt").symlink_to("link.txt")
    (folder / "loop.txt").symlink_to("loop.txt")
    (folder / "zero.txt").symlink_to("/dev/zero")
    os.mkfifo(folder / "fifo")
    before = Path.cwd()
    os.chdir(folder)  # the path of a socket may not be longer than 108 characters
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("socket")
        os.chdir(before)
        yield agent_dir


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("kind", PATHS)
def test_no_path_leads_out_of_the_folder(trap, key, kind):
    path = PATHS[kind].format(outside=trap.path.parent / "outside.txt")
    agent = ConfigLoader().load_agent_yaml(trap.write_agent(**KEYS[key](path)))

    found = [one for one in check(agent) if one.severity == "error"]

    assert found
    assert SECRET not in str(found)


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("path", ["link.txt", "../outside.txt", "fifo", "zero.txt"])
def test_no_file_from_outside_reaches_the_model(trap, key, path):
    trap.write_agent(**KEYS[key](path))

    ran = trap.run("test")

    assert_plain(ran)
    assert ran.code in {2, 3}
    assert SECRET not in ran.stdout + ran.stderr
    assert trap.server.requests == []


OPEN = ["link.txt", "../outside.txt", "{outside}", "linked/outside.txt"]
CLOSED = ["fifo", "zero.txt", "/dev/zero", "/dev/stdin", "socket", "sub", "loop.txt"]


@pytest.mark.parametrize("path", OPEN)
def test_allow_outside_opens_every_way_out(trap, path):
    outside = path.format(outside=trap.path.parent / "outside.txt")
    case = {"name": "c", "input": "read it", "files": [{"path": outside, "type": "text"}],
            "evaluations": [{"metric": "contains", "value": "OK"}]}  # fmt: skip
    trap.write_agent(instructions={"file": outside}, test_cases=[case])

    assert trap.run("validate").code == 2
    assert trap.run("validate", "--allow-outside").code == 0
    ran = trap.run("test", "--allow-outside")

    assert ran.code == 0, ran.stdout + ran.stderr
    sent = trap.server.requests[-1].raw.decode()
    assert sent.count(SECRET) == 2


def test_allow_outside_applies_to_worker_processes(trap):
    case = {"input": "read it", "files": [{"path": "../outside.txt", "type": "text"}],
            "evaluations": [{"metric": "contains", "value": "OK"}]}  # fmt: skip
    trap.write_agent(test_cases=[case | {"name": name} for name in ("a", "b")])

    ran = trap.run("test", "--allow-outside", "--workers", "2")

    assert ran.code == 0, ran.stdout + ran.stderr
    assert all(SECRET in request.raw.decode() for request in trap.server.requests)


def test_allow_outside_runs_a_tool_of_the_folder_above(trap):
    (trap.path.parent / "shared.py").write_text("def f() -> str:\n    return 'from above'\n")
    trap.write_agent(**KEYS["a tool's file"]("../shared.py"))
    trap.server.when(lambda request: not request.tool_results, tool_calls=[("t", {})])
    trap.server.otherwise("hello")

    ran = trap.run("test", "--allow-outside")

    assert ran.code == 0, ran.stdout + ran.stderr
    assert trap.server.requests[-1].tool_results == ["from above"]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("path", CLOSED)
def test_allow_outside_opens_no_device_or_pipe(trap, key, path):
    agent = ConfigLoader().load_agent_yaml(trap.write_agent(**KEYS[key](path)))

    with allow_outside():
        found = [one for one in check(agent) if one.severity == "error"]

    assert found


def test_no_file_of_the_folder_opens_its_own_door(trap):
    (trap.path / ".env").write_text("HOLODECK_ALLOW_OUTSIDE=true\n")
    path = trap.write_agent(instructions={"file": "../outside.txt"})

    assert trap.run("validate").code == 2
    assert "outside of the agent's folder" in trap.run("validate").stdout
    path.write_text(path.read_text() + "execution: {allow_outside: true}\n")
    assert "allow_outside" in trap.run("test").stderr


def test_python_of_a_metric_or_backend_comes_from_inside_too(trap):
    (trap.path.parent / "evil.py").write_text("def answer(message):\n    return message\n")
    for target in ("../evil:answer", "..evil:answer", "/evil:answer", "linked.evil:answer"):
        trap.write_agent(model=None, instructions=None, backend=target)

        ran = trap.run("test")

        assert_plain(ran)
        assert ran.code in {2, 3}, target


def test_a_report_is_never_written_through_a_pipe_or_into_a_folder(trap):
    trap.write_agent()
    for name in ("sub", "fifo"):
        ran = trap.run("test", "-o", name, "--format", "json")

        assert_plain(ran)
        assert ran.code in {2, 3}, name
